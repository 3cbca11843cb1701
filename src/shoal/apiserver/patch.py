"""PATCH: JSON, merge and strategic patches, and server-side apply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any
from weakref import WeakValueDictionary

import orjson

from shoal.apiserver.body import (
    WriteOptions,
    check_place,
    check_type,
    is_object,
    manager_of,
    report_faults,
    require_manager,
    tidy,
    write_options,
)
from shoal.apiserver.context import Call
from shoal.apiserver.http import Response
from shoal.apiserver.negotiate import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, flag, patch_type
from shoal.apiserver.objects import meta
from shoal.apiserver.write import Writer
from shoal.apiserver.writing.model import Retry, Write, author_of
from shoal.base.fair_lock import FairLock
from shoal.errors import AlreadyExists, BadRequest, Invalid, forbidden, invalid
from shoal.kube import jsonutil
from shoal.kube.decode import MAX_UNKNOWN, normalize
from shoal.kube.objects import Obj
from shoal.kube.ownership import apply as ownership
from shoal.kube.patch import json_patch, merge_patch, strategic
from shoal.store import Entry, Key

PATCH_ATTEMPTS = 50  # clients do not expect a conflict for a patch without a resourceVersion

Change = Callable[[Obj], Obj]
_MEMBERS = frozenset({"op", "path", "from", "value"})  # of a JSON patch's operation
_SHOWN_BYTES = 1000  # of the patched object in an error: an answer must not be many times as large as its request


class Patcher:
    """Applies patches to stored objects through the writer."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.core = writer.core
        self._locks: WeakValueDictionary[Key, FairLock] = WeakValueDictionary()

    async def patch(self, call: Call) -> Response:
        media = patch_type(call.request.headers.get(b"content-type"), strategic=not call.served.resource.custom)
        options = write_options(call, "PatchOptions")
        if media == APPLY_PATCH:
            return await self._apply(call, options)
        if "force" in call.query:
            errors = [forbidden("force", "may not be specified for non-apply patch")]
            raise Invalid.of("PatchOptions", "meta.k8s.io", "", errors)
        change, faults = self._change(call, media, options)
        result = await self.change(call, change, options, faults)
        return self.writer.answer(call, result, 200)

    async def change(
        self, call: Call, change: Change, options: WriteOptions, faults: Sequence[str] = ()
    ) -> Entry | Obj:
        """Read, change and replace; retry after a conflict unless the patch sets a resourceVersion. ``faults``: what
        strict decoding found in the patch itself."""
        for attempt in range(PATCH_ATTEMPTS):
            warnings = len(call.warnings)
            try:
                if not attempt:
                    return await self._try_change(call, change, options, faults)
                async with self._lock(call):
                    return await self._try_change(call, change, options, faults)
            except Retry:
                del call.warnings[warnings:]
        raise self.writer.conflict(call)

    async def _try_change(
        self, call: Call, change: Change, options: WriteOptions, faults: Sequence[str]
    ) -> Entry | Obj:
        served = call.served
        entry = await self.writer.stored(call)
        if entry is None:
            raise self.writer.missing(call)
        new = change(served.decode(entry))
        check_type(new, served)
        metadata = check_place(new, call)
        given = metadata.get("resourceVersion") or ""
        try:
            found = [*faults, *tidy(new, served)]
        except BadRequest as error:
            raise _invalid_patch(change(served.decode(entry)), error.message) from None
        if found and options.validation == "Strict":
            raise _invalid_patch(change(served.decode(entry)), f"strict decoding error: {', '.join(found)}")
        report_faults(call, options, found)
        author = author_of(manager_of(call, options), call.target.subresource)
        pinned = given if given != str(entry.revision) else ""
        return await self.writer.store(Write(served, new, entry, call, options, author, given_revision=pinned))

    def _lock(self, call: Call) -> AbstractAsyncContextManager[None]:
        """Held by attempts after the first. Retries run one after the other: many concurrent patches of one object
        must not conflict until their attempts are used up."""
        return self._locks.setdefault(call.served.key_of(call.namespace, call.name), FairLock())

    def _change(self, call: Call, media: str, options: WriteOptions) -> tuple[Change, list[str]]:
        """The function that applies the patch, and what strict decoding finds in the patch itself."""
        body, faults = call.request.body, list[str]()
        patch: Any = jsonutil.loads(body)
        if options.validation != "Ignore":
            faults = [f'duplicate field "{path}"' for path in jsonutil.find_duplicate_fields(body, patch)]
            if media == JSON_PATCH:
                faults = [f"json patch {fault}" for fault in (*_unknown_members(patch), *faults)]
        # decoded anew for every attempt: the result shares values with the patch and is changed on its way to the store
        if media == JSON_PATCH:
            return lambda doc: is_object(json_patch.apply(doc, orjson.loads(body)), "the patched object"), faults
        is_object(patch, "the patch")
        if media == MERGE_PATCH:
            return lambda doc: merge_patch.apply(doc, orjson.loads(body)), faults
        type_ = call.served.type
        return lambda doc: strategic.apply(doc, orjson.loads(body), type_), faults

    # -- server-side apply -----------------------------------------------------------------------------------------

    async def _apply(self, call: Call, options: WriteOptions) -> Response:
        require_manager(options)
        applied = self._applied(call, options)
        text = orjson.dumps(applied)
        for attempt in range(PATCH_ATTEMPTS):
            if attempt:
                applied = orjson.loads(text)
            try:
                if not attempt:
                    return await self._try_apply(call, applied, options)
                async with self._lock(call):
                    return await self._try_apply(call, applied, options)
            except Retry:
                continue
        raise self.writer.conflict(call)

    async def _try_apply(self, call: Call, applied: Obj, options: WriteOptions) -> Response:
        served, core = call.served, self.core
        author = author_of(options.field_manager, call.target.subresource)
        entry = await self.writer.stored(call)
        live = served.decode(entry) if entry is not None else None
        if live is None and call.target.subresource:
            raise self.writer.missing(call)
        if live is None:
            self.writer.check_create(call.user, call.target)
        given = meta(applied).pop("resourceVersion", None) or ""
        if live is None and given:
            raise self.writer.conflict(call, "the object does not exist")
        uid = meta(applied).get("uid")
        if live is None and uid:
            raise self.writer.conflict(
                call,
                f"uid mismatch: the provided object specified uid {uid}, and no existing object was found",
            )
        merged = ownership.apply(
            live, applied, served.type, manager=author.manager, force=flag(call.query, "force"), now=core.now(),
            api_version=served.resource.api_version, subresource=call.target.subresource,
        )  # fmt: skip
        if served.crd is None:  # zeros that were applied are owned, but not stored
            owners = meta(merged).pop("managedFields", None)
            normalize(merged, served.type)
            if owners is not None:
                merged["metadata"]["managedFields"] = owners
        if entry is None:
            try:
                made = await self.writer.store(Write(served, merged, None, call, options, author, owned=True))
            except AlreadyExists:
                raise Retry from None
            return self.writer.answer(call, made, 201)
        result = await self.writer.store(
            Write(served, merged, entry, call, options, author, given_revision=given, owned=True)
        )
        return self.writer.answer(call, result, 200)

    def _applied(self, call: Call, options: WriteOptions) -> Obj:
        """The applied configuration from the body (YAML, of which JSON is a part)."""
        body, faults = call.request.body, list[str]()
        if body[:1] == b"{":
            obj = jsonutil.loads_object(body)
            if options.validation != "Ignore":
                faults = [f'duplicate field "{path}"' for path in jsonutil.find_duplicate_fields(body, obj)]
        else:
            from shoal.kube import yamlcodec

            obj = yamlcodec.loads_object(body, faults)
        for name in ("apiVersion", "kind"):
            if not obj.get(name):
                raise BadRequest(f"an applied configuration must name its {name}")
        check_type(obj, call.served)
        report_faults(call, options, faults)
        ownership.prepare(obj, call.served.type)
        check_place(obj, call)
        return obj


def _unknown_members(patch: Any) -> list[str]:
    """The members of a JSON patch's operations that mean nothing there, as strict decoding words them."""
    operations = patch if isinstance(patch, list) else []
    return [
        f'unknown field "[{index}].{name}"'
        for index, operation in enumerate(operations)
        if isinstance(operation, dict) and not operation.keys() <= _MEMBERS
        for name in operation
        if name not in _MEMBERS
    ][:MAX_UNKNOWN]


def _invalid_patch(patched: Obj, problem: str) -> Invalid:
    """The error for a patch whose result is not an object of the kind: 422, where the same object in a POST is 400."""
    shown = orjson.dumps(patched)[:_SHOWN_BYTES].decode(errors="ignore")
    return Invalid.of("", "", "", [invalid("patch", shown, problem)])
