"""Objects and lists in another form than their stored JSON bytes: tables, metadata alone, YAML.

A list may be of tens of thousands of objects, so it is made in slices, and other requests go on between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import orjson

from shoal.apiserver.messages import DocumentResponse, Response
from shoal.apiserver.negotiate import PLAIN, YAML, Representation

if TYPE_CHECKING:
    from shoal.apiserver.registry import Served
    from shoal.kube.objects import Obj
    from shoal.kube.tables import Include, Printer
    from shoal.store import Entry

SLICE = 250  # objects; about 10 ms of work
_PARTIAL = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%b}'


class _Stored(msgspec.Struct):
    """The metadata of a stored object as it stands there; the rest of the object is not decoded."""

    metadata: msgspec.Raw


_metadata_of = msgspec.json.Decoder(_Stored).decode


def document(obj: Obj, choice: Representation = PLAIN, status: int = 200) -> Response:
    if choice.media == YAML:
        from shoal.kube import yamlcodec

        return Response(status, yamlcodec.dumps(obj), b"application/yaml")
    return DocumentResponse(status, orjson.dumps(obj))


def _slices(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    for start in range(0, len(entries), SLICE):
        yield entries[start : start + SLICE]


async def whole_list(served: Served, entries: Sequence[Entry], meta: Obj, choice: Representation) -> Response:
    """The objects themselves."""
    items: list[Obj] = []
    for part in _slices(entries):
        items += map(served.decode, part)
        await asyncio.sleep(0)
    resource = served.resource
    return document(
        {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": meta, "items": items}, choice
    )


async def metadata_list(served: Served, entries: Sequence[Entry], meta: Obj, choice: Representation) -> Response:
    """The metadata of each object."""
    from shoal.kube import tables

    if choice.media == YAML:
        items: list[Obj] = []
        for part in _slices(entries):
            items += map(served.decode, part)
            await asyncio.sleep(0)
        return document(tables.partial_list(items, meta), choice)

    def encode(part: Sequence[Entry]) -> list[bytes]:
        return [_PARTIAL % bytes(_metadata_of(served.render(entry)).metadata) for entry in part]

    return await _spliced(tables.partial_list((), meta), entries, encode)


async def table_list(
    served: Served, entries: Sequence[Entry], meta: Obj, choice: Representation, include: Include, now: float,
    use: Printer | None,
) -> Response:  # fmt: skip
    """The columns that kubectl prints."""
    from shoal.kube import tables

    resource = served.resource

    def rows(part: Sequence[Entry]) -> list[Obj]:
        made = tables.list_table(resource, map(served.decode, part), meta, include, now, use=use)
        found: list[Obj] = made["rows"]
        return found

    empty = tables.list_table(resource, (), meta, include, now, use=use)
    if choice.media == YAML:
        for part in _slices(entries):
            empty["rows"] += rows(part)
            await asyncio.sleep(0)
        return document(empty, choice)
    return await _spliced(empty, entries, lambda part: [orjson.dumps(row) for row in rows(part)])


async def _spliced(empty: Obj, entries: Sequence[Entry], encode: Callable[[Sequence[Entry]], list[bytes]]) -> Response:
    """``empty``, whose last field is an empty list, with the list filled."""
    head = orjson.dumps(empty)
    assert head.endswith(b"[]}")
    parts = [head[:-2]]
    comma = b""
    for part in _slices(entries):
        parts.append(comma + b",".join(encode(part)))
        comma = b","
        await asyncio.sleep(0)
    parts.append(b"]}\n")
    return Response(200, b"".join(parts))
