"""Makes rows for the index from the data of objects, in slices, so that the event loop is not blocked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from sys import intern

import orjson

from shoal.navigator.model import Row
from shoal.navigator.summaries import summarize

_SLICE = 100  # rows: about three milliseconds


class InvalidRow(Exception):
    """Data that is not an object."""


def make_row(cluster: str, kind: str, key: str, fingerprint: int, since_ms: int, data: bytes) -> Row:
    try:
        obj = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidRow(f"{kind} {key!r}: its data is not JSON: {error}") from None
    if not isinstance(obj, dict):
        raise InvalidRow(f"{kind} {key!r}: its data is not an object")
    namespace, slash, name = key.partition("/")
    if not slash:
        namespace, name = "", key
    return Row(cluster, kind, intern(namespace), name, fingerprint, since_ms / 1000, summarize(kind, obj))


async def make_rows(cluster: str, rows: Iterable[tuple[str, str, int, bytes]], since_ms: int) -> list[tuple[str, Row]]:
    """Key and row of each (kind, key, fingerprint, data)."""
    cluster = intern(cluster)
    made: list[tuple[str, Row]] = []
    for kind, key, fingerprint, data in rows:
        made.append((key, make_row(cluster, intern(kind), key, fingerprint, since_ms, data)))
        if len(made) % _SLICE == 0:
            await asyncio.sleep(0)
    return made
