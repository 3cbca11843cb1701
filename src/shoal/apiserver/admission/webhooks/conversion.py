"""Conversion webhooks: convert custom objects between their stored version and other versions.

The verbs work on entries, synchronously. A version whose objects a webhook converts therefore asks for all the entries
of an answer ahead, in one call, and gets them back as entries that already are in that version; nothing behind it has
to know. Converted entries are cached by revision, and concurrent requests for the same conversion share one
call. Entries that are stored in the version asked for pass untouched.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.apiserver import objects
from shoal.apiserver.admission.webhooks.client import CallFailed, HookClient
from shoal.apiserver.admission.webhooks.target import target_of
from shoal.apiserver.registry import Served
from shoal.base.ids import Ids
from shoal.base.tasks import OwnedTasks
from shoal.errors import ApiError, FieldError, InternalError, ShoalError
from shoal.kube.kinds.checks import check_annotations, check_labels
from shoal.kube.objects import Obj
from shoal.store import Entry, Event, Key

_GROUP = "apiextensions.k8s.io"
_VERSIONS = ("v1", "v1beta1")
_KEPT_BYTES = 16 * 1024 * 1024  # of converted objects, for one definition

_Place = tuple[str, Key, int, int]  # apiVersion, key, revision, and the content: backups bring revisions back
_Outcome = dict[_Place, Entry] | ApiError


class BadConversion(ShoalError):
    """The webhook's response cannot be used; the text says why."""


class Converter:
    """Calls the conversion webhook of one definition."""

    def __init__(self, definition: Mapping[str, Any], client: HookClient, ids: Ids) -> None:
        spec = definition["spec"]
        webhook = spec["conversion"]["webhook"]
        self._target = target_of(webhook.get("clientConfig") or {})
        versions = webhook.get("conversionReviewVersions") or ()
        self._version = next((version for version in versions if version in _VERSIONS), "")
        self._valid = frozenset(f"{spec['group']}/{version['name']}" for version in spec["versions"])
        self._client = client
        self._ids = ids
        self._kept: OrderedDict[_Place, Entry] = OrderedDict()
        self._kept_bytes = 0
        self._tasks = OwnedTasks()
        self._under_way: dict[_Place, asyncio.Task[_Outcome]] = {}

    # -- entries ---------------------------------------------------------------------------------------------------

    async def entry(self, served: Served, entry: Entry) -> Entry:
        """The entry converted to this version."""
        if entry.value.startswith(served.prefix):
            return entry
        return (await self.entries(served, [entry]))[0]

    async def entries(self, served: Served, entries: Sequence[Entry]) -> Sequence[Entry]:
        """The entries converted to this version, in one call for all that need it."""
        prefix, api_version = served.prefix, served.resource.api_version
        foreign = [entry for entry in entries if not entry.value.startswith(prefix)]
        if not foreign:
            return entries
        found: dict[_Place, Entry] = {}
        missing: dict[_Place, Entry] = {}
        waiting: list[asyncio.Task[_Outcome]] = []
        for entry in foreign:
            place = _place(api_version, entry)
            kept = self._kept.get(place)
            if kept is not None:
                found[place] = kept
            elif place in self._under_way:
                waiting.append(self._under_way[place])
            else:
                missing[place] = entry
        if missing:
            waiting.append(self._begin(served, missing))
        for task in dict.fromkeys(waiting):
            # the first caller may be cancelled; the others still need the result
            outcome = await asyncio.shield(task)
            if isinstance(outcome, ApiError):
                raise outcome
            found.update(outcome)
        return [
            entry if entry.value.startswith(prefix) else found[_place(api_version, entry)]
            for entry in entries
        ]  # fmt: skip

    async def events(self, served: Served, events: Sequence[Event], *, previous: bool) -> Sequence[Event]:
        """Events about objects of this version; with their previous state only if ``previous`` is set."""
        entries = [event.entry for event in events]
        if not previous:
            shown = await self.entries(served, entries)
            return [Event(event.type, entry, None) for event, entry in zip(events, shown, strict=True)]
        entries += (event.previous for event in events if event.previous is not None)
        both = iter(await self.entries(served, entries))
        now = [next(both) for _ in events]
        return [
            Event(event.type, entry, next(both) if event.previous is not None else None)
            for event, entry in zip(events, now, strict=True)
        ]

    def _begin(self, served: Served, entries: Mapping[_Place, Entry]) -> asyncio.Task[_Outcome]:
        task = self._tasks.start(self._convert(served, entries), name="webhook/convert")
        for place in entries:
            self._under_way[place] = task
        return task

    async def _convert(self, served: Served, entries: Mapping[_Place, Entry]) -> _Outcome:
        try:
            stored = [objects.decode(entry) for entry in entries.values()]
            converted = await self.objects(stored, served.resource.api_version)
            found = {}
            for (place, entry), obj in zip(entries.items(), converted, strict=True):
                served.crd.refresh(obj)
                found[place] = _entry_of(served, obj, entry)
                self._keep(place, found[place])
            return found
        except ApiError as error:
            return error
        finally:
            for place in entries:
                del self._under_way[place]

    def _keep(self, place: _Place, entry: Entry) -> None:
        self._kept[place] = entry
        self._kept_bytes += len(entry.value)
        while self._kept_bytes > _KEPT_BYTES:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= len(dropped.value)

    # -- objects ---------------------------------------------------------------------------------------------------

    async def objects(self, objs: Sequence[Obj], api_version: str) -> list[Obj]:
        """The objects converted to this version; those already in it are returned unchanged."""
        foreign = [obj for obj in objs if obj.get("apiVersion") != api_version]
        if not foreign:
            return list(objs)
        first = foreign[0]
        about = f"conversion webhook for {first.get('apiVersion')}, Kind={first.get('kind')}"
        for obj in foreign:
            if obj.get("apiVersion") not in self._valid:
                raise _failed(f"request to convert CR from an invalid group/version: {obj.get('apiVersion')}")
        try:
            converted = iter(self._checked(foreign, await self._ask(foreign, api_version), api_version))
        except (CallFailed, BadConversion) as error:
            raise _failed(f"{about} {error if isinstance(error, BadConversion) else f'failed: {error}'}") from error
        return [next(converted) if obj.get("apiVersion") != api_version else obj for obj in objs]

    async def to_store(self, storage: Served, obj: Obj) -> Obj:
        """The object converted to the storage version."""
        if obj.get("apiVersion") == storage.resource.api_version:
            return obj
        [stored] = await self.objects([obj], storage.resource.api_version)
        storage.crd.refresh(stored)
        return stored

    async def _ask(self, objs: Sequence[Obj], api_version: str) -> list[Any]:
        if not self._version:
            raise BadConversion("failed: no supported conversion review versions")
        uid = self._ids.new_uid()
        request = {"uid": uid, "desiredAPIVersion": api_version, "objects": objs}
        body = {"kind": "ConversionReview", "apiVersion": f"{_GROUP}/{self._version}", "request": request}
        client = self._client
        answer = await client.post(self._target, body, client.limits.conversion_s, tell=False)
        converted = _converted(answer, self._version, uid)
        if len(converted) != len(objs):
            raise BadConversion(f"returned {len(converted)} objects, expected {len(objs)}")
        return converted

    def _checked(self, originals: Sequence[Obj], converted: Sequence[Any], api_version: str) -> list[Obj]:
        for index, (original, obj) in enumerate(zip(originals, converted, strict=True)):
            try:
                _check(original, obj, api_version)
                obj["metadata"] = _metadata(original["metadata"], obj.get("metadata"))
            except BadConversion as bad:
                raise BadConversion(f"returned invalid converted object at index {index}: {bad}") from None
        return list(converted)


def _place(api_version: str, entry: Entry) -> _Place:
    return api_version, entry.key, entry.revision, hash(entry.value)


def _entry_of(served: Served, obj: Obj, entry: Entry) -> Entry:
    value, hole = objects.encode(obj, served.resource.kind, served.resource.api_version)
    value = b"%b%d%b" % (value[:hole], entry.revision, value[hole:])
    return Entry(entry.key, entry.revision, entry.created, value, hole, served.attrs(obj, entry.key))


def _failed(text: str) -> InternalError:
    return InternalError(text, causes=[{"message": text}])


def _converted(answer: Any, version: str, uid: str) -> list[Any]:
    if not isinstance(answer, dict):
        raise BadConversion("failed: no response provided")
    response = answer.get("response")
    if version == "v1":
        api_version, kind = answer.get("apiVersion") or "", answer.get("kind") or ""
        if (api_version, kind) != (f"{_GROUP}/v1", "ConversionReview"):
            expected = f"{_GROUP}/v1, Kind=ConversionReview"
            raise BadConversion(f"failed: expected webhook response of {expected}, got {api_version}, Kind={kind}")
    if not isinstance(response, dict):
        raise BadConversion("failed: no response provided")
    if version == "v1" and response.get("uid") != uid:
        raise BadConversion(f'failed: expected response.uid="{uid}", got "{response.get("uid") or ""}"')
    result = response.get("result") or {}
    if result.get("status") != "Success":
        silent = f"response.result.status was '{result.get('status') or ''}', not 'Success'"
        raise BadConversion(f"failed: {result.get('message') or silent}")
    return list(response.get("convertedObjects") or ())


def _check(original: Obj, obj: Any, api_version: str) -> None:
    """Check that the conversion kept the fields it may not change."""
    if not isinstance(obj, dict):
        raise BadConversion("it is not an object")
    if obj.get("apiVersion") != api_version:
        got = obj.get("apiVersion") or ""
        raise BadConversion(f"invalid groupVersion (expected {api_version}, received {got})")
    if obj.get("kind") != original.get("kind"):
        raise BadConversion(f"invalid kind (expected {original.get('kind')}, received {obj.get('kind') or ''})")
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        raise BadConversion("missing metadata in converted object")
    for field, shown_as in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        before, after = original["metadata"].get(field) or "", metadata.get(field) or ""
        if before != after:
            raise BadConversion(f"must have the same {shown_as}: {before} != {after}")


def _metadata(original: Obj, converted: Any) -> Obj:
    """The original's metadata, with the labels and annotations that the conversion has given."""
    result = dict(original)
    for field, check in (("labels", check_labels), ("annotations", check_annotations)):
        given = converted.get(field)
        if given is None:
            result.pop(field, None)
            continue
        if not isinstance(given, dict):
            raise BadConversion(f"invalid metadata.{field} of type {type(given).__name__} in converted object")
        for name, value in given.items():
            if not isinstance(value, str):
                kind = type(value).__name__
                raise BadConversion(f"metadata.{field}[{name}] must be a string, but is {kind} in converted object")
        if given != original.get(field):
            errors: list[FieldError] = []
            check(given, f"metadata.{field}", errors)
            if errors:
                raise BadConversion(", ".join(str(error) for error in errors))
        result[field] = given
    return result
