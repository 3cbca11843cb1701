"""Watch streams: whatever the pieces, the same events; ERROR raises; a cut is told from an end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.client.errors import Disconnected
from shoal.client.watch import SharedDecoder, Watch, WatchEvent, decode_event
from shoal.errors import Expired, InternalError


class Stream:
    status = 200
    headers: dict[str, str] = {}

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces
        self.closed = False

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece

    async def close(self) -> None:
        self.closed = True


def event(kind: str, name: str, version: int) -> bytes:
    return orjson.dumps({"type": kind, "object": {"metadata": {"name": name, "resourceVersion": str(version)}}}) + b"\n"


async def events_of(pieces: list[bytes]) -> list[WatchEvent]:
    async with Watch(Stream(pieces)) as watch:
        return [found async for found in watch]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=8), max_size=12), st.lists(st.integers(0, 600), max_size=20))
async def test_events_do_not_depend_on_where_the_bytes_are_cut(names: list[str], cuts: list[int]) -> None:
    stream = b"".join(event("ADDED", name, number) for number, name in enumerate(names))
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    pieces = [stream[start:end] for start, end in zip(edges, edges[1:], strict=False)]
    found = await events_of(pieces)
    assert [each.object["metadata"]["name"] for each in found] == names
    assert [each.resource_version for each in found] == [str(number) for number in range(len(names))]


async def test_an_error_event_is_raised_after_the_events_before_it() -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (5)"}
    line = orjson.dumps({"type": "ERROR", "object": status}) + b"\n"
    seen = []

    with pytest.raises(Expired, match="too old"):
        async with Watch(Stream([event("ADDED", "a", 1) + line])) as watch:
            async for found in watch:
                seen.append(found.object["metadata"]["name"])
    assert seen == ["a"]


async def test_other_errors_in_the_stream_keep_their_class() -> None:
    status = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd is away"}
    with pytest.raises(InternalError, match="etcd is away"):
        await events_of([orjson.dumps({"type": "ERROR", "object": status}) + b"\n"])


@pytest.mark.parametrize(
    "pieces", [[event("ADDED", "a", 1)[:-10]], [b"not json\n"], [b'{"type":"ADDED"}\n'], [b"[]\n"]]
)
async def test_an_invalid_event_is_a_broken_stream(pieces: list[bytes]) -> None:
    with pytest.raises(Disconnected):
        await events_of(pieces)


async def test_only_an_annotated_bookmark_ends_the_initial_events() -> None:
    plain = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}
    final = {"metadata": {"resourceVersion": "8", "annotations": {"k8s.io/initial-events-end": "true"}}}
    lines = [orjson.dumps(plain) + b"\n", orjson.dumps({"type": "BOOKMARK", "object": final}) + b"\n"]
    assert [found.ends_initial for found in await events_of(lines)] == [False, True]


async def test_leaving_the_watch_closes_the_stream() -> None:
    stream = Stream([event("ADDED", "a", 1)])

    async with Watch(stream) as watch:
        async for _ in watch:
            break
    assert stream.closed


def test_watches_of_one_process_share_what_they_decode() -> None:
    shared = SharedDecoder()
    first, again = shared(event("ADDED", "a", 1)), shared(event("ADDED", "a", 1))
    assert first is again
    assert shared(event("MODIFIED", "a", 2)) is not first


def test_what_is_shared_is_bounded_and_right_when_it_was_forgotten() -> None:
    shared = SharedDecoder()
    lines = [orjson.dumps({"type": "ADDED", "object": {"n": n, "fill": "x" * 50_000}}) for n in range(40)]
    for line in lines:
        assert shared(line) == decode_event(line)
    events = [shared(line) for line in lines]
    kept = 0
    for line, event in zip(reversed(lines), reversed(events), strict=True):
        if shared(line) is not event:
            break
        kept += len(line)
    assert 256 * 1024 < kept <= 1024 * 1024


def test_an_error_is_raised_for_every_watch() -> None:
    shared = SharedDecoder()
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    for _ in range(2):
        with pytest.raises(Expired):
            shared(orjson.dumps({"type": "ERROR", "object": status}))
