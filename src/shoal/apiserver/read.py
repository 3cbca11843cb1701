"""Get and list: answered from memory, as bytes that were encoded when the object was written."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import orjson

from shoal.apiserver.context import Call, Core
from shoal.apiserver.forms import document, metadata_list, table_list, whole_list
from shoal.apiserver.http import Response
from shoal.apiserver.messages import DocumentResponse
from shoal.apiserver.negotiate import PLAIN, YAML, Representation, integer, representation
from shoal.apiserver.registry import Served
from shoal.apiserver.selection import Selection, select
from shoal.base.deadline import run_within
from shoal.errors import BadRequest, Cause, Expired, FieldError, Invalid, NotFound, Timeout, forbidden, invalid
from shoal.kube.objects import Obj
from shoal.store import Compacted, Entry, FutureRevision, StorePage, Whole

if TYPE_CHECKING:
    from shoal.kube.tables import Include

FUTURE_WAIT_S = 3.0
MAX_REVISION_DIGITS = 20  # of a number of 64 bits
_KEPT_BYTES = 32 << 20  # larger joined lists are not cached


async def get(core: Core, call: Call) -> Response:
    entry = await _read(core, call)
    choice = representation(call.request.headers.get(b"accept"), collection=False)
    if choice is PLAIN or choice == PLAIN:
        return DocumentResponse(200, call.served.render(entry))
    return represent(core, call, entry, choice)


async def _read(core: Core, call: Call) -> Entry:
    store = core.store
    version = call.query.get("resourceVersion", "")
    if version and version != "0":
        await reach(core, parse_revision(version))
    elif not version:
        await store.fresh()
    entry = store.get(call.served.key_of(call.namespace, call.name))
    if entry is None:
        resource = call.served.resource
        raise NotFound.of(resource.plural, resource.group, call.name)
    converter = call.served.converter
    return entry if converter is None else await converter.entry(call.served, entry)


def represent(core: Core, call: Call, entry: Entry, choice: Representation, status: int = 200) -> Response:
    """One object in another form than its JSON bytes."""
    return represent_object(core, call, call.served.decode(entry), choice, status)


def represent_object(core: Core, call: Call, obj: Obj, choice: Representation, status: int = 200) -> Response:
    from shoal.kube import tables

    if choice.as_kind == "Table":
        now = core.clock.wall_s()
        obj = tables.object_table(call.served.resource, obj, include_object(call), now, use=printer_of(call))
    elif choice.as_kind == "PartialObjectMetadata":
        obj = tables.partial_object(obj)
    return document(obj, choice, status)


def include_object(call: Call) -> Include:
    include = call.query.get("includeObject", "Metadata")
    if include not in ("None", "Metadata", "Object"):
        raise BadRequest(f'unrecognized includeObject value: "{include}"; use None, Metadata or Object')
    return cast("Include", include)


def printer_of(call: Call) -> Any:
    """The printer of a custom resource; None for built-ins, which bring their own."""
    return None if call.served.crd is None else call.served.crd.printer


# -- list ----------------------------------------------------------------------------------------------------------


async def list_(core: Core, call: Call) -> Response:
    check_list_options(call)
    choice = representation(call.request.headers.get(b"accept"), collection=True)
    selection = select(call)
    page = await _page(core, call, selection.before_conversion(call))
    token = ""
    if page.more:
        last = page.entries[-1].key
        token = _token(page.revision, last.namespace, last.name)
    if call.served.converter is not None:
        shown = selection.of(await call.served.converter.entries(call.served, page.entries))
        page = StorePage(shown, page.revision, page.more, page.remaining)
    remaining = page.remaining if page.more and selection.where is None else None
    if choice.as_kind or choice.media == YAML:
        return await _list_as(core, call, page, token, remaining, choice)
    return Response(200, list_body(call, page, token, remaining))


def list_body(call: Call, page: StorePage, token: str, remaining: int | None) -> bytes:
    """The list as JSON: stored bytes with commas between them."""
    served = call.served
    meta = b'%d"' % page.revision
    if token:
        meta += b',"continue":"%b"' % token.encode()
    if remaining is not None:
        meta += b',"remainingItemCount":%d' % remaining
    return b"".join((served.list_head, meta, b'},"items":[', _items(served, page.entries), b"]}\n"))


def _items(served: Served, entries: Sequence[Entry]) -> bytes:
    """The items with commas between them. The joined list is cached until an object changes."""
    whole = entries if isinstance(entries, Whole) else None
    if whole is not None and served in whole.notes:
        kept = whole.notes[served]
        if kept:
            return kept
    cut, prefix, since = served.item_prefix, served.prefix, served.since
    if served.from_storage is None and served.crd is None:
        # every entry of a built-in kind is in the storage version: cut without looking
        items = [entry.value[cut:] for entry in entries]
    else:
        items = [
            entry.value[cut:]
            if entry.revision >= since and entry.value.startswith(prefix) and served.from_storage is None
            else served.render(entry)[cut:]
            for entry in entries
        ]
    if cut and items:
        items[0] = b"{" + items[0]
    joined = b",{".join(items) if cut else b",".join(items)
    if whole is not None:
        again = served in whole.notes
        whole.notes[served] = joined if again and len(joined) <= _KEPT_BYTES else b""
    return joined


async def _list_as(
    core: Core, call: Call, page: StorePage, token: str, remaining: int | None, choice: Representation
) -> Response:
    meta: Obj = {"resourceVersion": str(page.revision)}
    if token:
        meta["continue"] = token
    if remaining is not None:
        meta["remainingItemCount"] = remaining
    served, entries = call.served, page.entries
    if choice.as_kind == "Table":
        now, include = core.clock.wall_s(), include_object(call)
        return await table_list(served, entries, meta, choice, include, now, printer_of(call))
    if choice.as_kind == "PartialObjectMetadataList":
        return await metadata_list(served, entries, meta, choice)
    return await whole_list(served, entries, meta, choice)


async def _page(core: Core, call: Call, selection: Selection) -> StorePage:
    """The page asked for. A token without a revision continues at the current revision, and stays there."""
    store, query, key = core.store, call.query, call.served.key
    limit = integer(query, "limit") or 0
    if limit < 0:
        limit = 0
    token = query.get("continue", "")
    after: tuple[str, str] | None = None
    revision = 0
    if token:
        start, namespace, name = _parse_token(token)
        after, revision = (namespace, name), max(start, 0)
        if start > 0:
            await reach(core, start)
    else:
        version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
        wanted = parse_revision(version) if version else 0
        if not version:
            await store.fresh()
        elif wanted:
            await reach(core, wanted)
            if match == "Exact" or (not match and limit):
                revision = wanted
    named = selection.entries(store, call.served) if not token and not revision else None
    if named is not None:
        return StorePage(named, store.revision, False, 0)
    try:
        return store.range(
            key, selection.namespace, after=after, limit=limit, revision=revision,
            where=selection.where, index=selection.index,
        )  # fmt: skip
    except Compacted as compacted:
        raise _expired(compacted, after) from None


def _expired(compacted: Compacted, after: tuple[str, str] | None) -> Expired:
    if after is None:
        return Expired(f"The resourceVersion for the provided list is too old: {compacted.revision}")
    return Expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        continue_token=_token(-1, *after),
    )


def _token(revision: int, namespace: str, name: str) -> str:
    start = f"{namespace}/{name}\x00"
    raw = orjson.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": start})
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _parse_token(token: str) -> tuple[int, str, str]:
    try:
        raw = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, _, name = raw["start"].rstrip("\x00").partition("/")
        revision = raw["rv"]
        if raw["v"] != "meta.k8s.io/v1" or not isinstance(revision, int) or revision < -1 or revision == 0:
            raise ValueError(token)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BadRequest("continue key is not valid: it was not made by this server") from None
    return revision, namespace, name


def parse_revision(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_REVISION_DIGITS):
        errors = [invalid("resourceVersion", text[:100], "must be a decimal number returned by the server")]
        raise Invalid.of("ListOptions", "meta.k8s.io", "", errors)
    return int(text)


async def reach(core: Core, revision: int) -> None:
    """Wait until the store has reached ``revision``; raise Timeout when it does not in time."""
    if core.store.revision >= revision:
        return
    try:
        await run_within(core.clock, FUTURE_WAIT_S, core.store.reached(revision, FUTURE_WAIT_S), name="read/reach")
    except FutureRevision as future:
        raise too_large(future) from None
    except TimeoutError:
        raise too_large(FutureRevision(revision, core.store.revision)) from None


def too_large(future: FutureRevision) -> Timeout:
    return Timeout(
        f"Timeout: Too large resource version: {future.revision}, current: {future.current}",
        causes=[{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        retry_after_s=1,
    )


def check_list_options(call: Call, *, watch: bool = False) -> None:
    """The combinations of resourceVersion options that Kubernetes refuses."""
    query = call.query
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    initial = query.get("sendInitialEvents")
    errors: list[FieldError] = []
    if watch:
        if initial is not None and not match:
            errors.append(
                forbidden(
                    "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
                )
            )
        elif match and initial is None:
            errors.append(
                forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                )
            )
        elif match and match != "NotOlderThan":
            errors.append(
                FieldError(Cause.NOT_SUPPORTED, "resourceVersionMatch", 'supported values: "NotOlderThan"', match)
            )
    else:
        if initial is not None:
            errors.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
        if match:
            if not version:
                errors.append(
                    forbidden(
                        "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
                    )
                )
            if query.get("continue"):
                errors.append(
                    forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
                )
            if match not in ("Exact", "NotOlderThan"):
                errors.append(
                    FieldError(
                        Cause.NOT_SUPPORTED, "resourceVersionMatch", 'supported values: "Exact", "NotOlderThan"', match
                    )
                )
            elif match == "Exact" and version == "0":
                errors.append(
                    forbidden(
                        "resourceVersionMatch", 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'
                    )
                )
        if query.get("continue") and version and version != "0":
            raise BadRequest("specifying resource version is not allowed when using continue")
    if errors:
        raise Invalid.of("ListOptions", "meta.k8s.io", "", errors)
