"""Watch streams: bytes in arbitrary pieces become events, and a server's ERROR becomes an exception.

Framing is one JSON object per line. A piece may end anywhere, also inside a character; lines that arrived together
are returned together, which makes an informer fast. A stream that ends at a line's end ended cleanly; one
that ends inside a line was cut.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import TracebackType

import orjson

from shoal.client.errors import Disconnected
from shoal.client.transport import StreamReply
from shoal.errors import from_status
from shoal.kube.objects import Obj

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event. ``object`` of a BOOKMARK has only metadata."""

    type: str
    object: Obj

    @property
    def resource_version(self) -> str:
        found: str = (self.object.get("metadata") or {}).get("resourceVersion", "")
        return found

    @property
    def ends_initial(self) -> bool:
        """Whether this bookmark says that all objects that existed have been sent."""
        if self.type != BOOKMARK:
            return False
        annotations = (self.object.get("metadata") or {}).get("annotations") or {}
        return annotations.get(INITIAL_EVENTS_END) == "true"


class LineDecoder:
    """Splits a stream of bytes into lines; pieces may have any size."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # pieces of a line whose end has not come: joined once, not piece by piece

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are complete by now, without empty ones."""
        head, newline, tail = chunk.partition(b"\n")
        if not newline:
            if chunk:
                self._rest.append(chunk)
            return []
        self._rest.append(head)
        first = b"".join(self._rest)
        *lines, rest = tail.split(b"\n")
        self._rest = [rest] if rest else []
        return [line for line in (first, *lines) if line.strip()]

    @property
    def partial(self) -> bool:
        """Whether a line has begun and not ended."""
        return bool(self._rest)


def decode_event(line: bytes) -> WatchEvent:
    """The event of a line; ERROR is raised as the error that its Status describes."""
    try:
        event = orjson.loads(line)
        kind, obj = event["type"], event["object"]
    except (ValueError, TypeError, KeyError) as error:
        raise Disconnected(f"invalid watch event: {line[:80]!r}") from error
    if kind == ERROR:
        raise from_status(obj)
    return WatchEvent(kind, obj)


Decode = Callable[[bytes], WatchEvent]

_SHARED_BYTES = 512 * 1024  # of lines, twice


class SharedDecoder:
    """``decode_event`` for the watches of one process that see the same events at about the same time: each line is
    decoded once, and its object is the same for all. Callers must not change it."""

    def __init__(self) -> None:
        self._new: dict[bytes, WatchEvent] = {}
        self._old: dict[bytes, WatchEvent] = {}
        self._size = 0

    def __call__(self, line: bytes) -> WatchEvent:
        found = self._new.get(line) or self._old.get(line)
        if found is not None:
            return found
        event = decode_event(line)
        if self._size + len(line) > _SHARED_BYTES:
            self._old, self._new, self._size = self._new, {}, 0
        self._new[line] = event
        self._size += len(line)
        return event


class Watch:
    """An open watch. Use it as a context manager, and iterate over events or over ``batches``."""

    def __init__(self, reply: StreamReply, decode: Decode = decode_event) -> None:
        self._reply = reply
        self._decode = decode

    async def __aenter__(self) -> Watch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def batches(self) -> AsyncIterator[list[WatchEvent]]:
        """Events in the order of the server, as many at a time as arrived together. Events before an ERROR are handed
        over before it is raised. Ends when the server ends the stream."""
        decoder = LineDecoder()
        async for chunk in self._reply.chunks():
            events: list[WatchEvent] = []
            failure: Exception | None = None
            for line in decoder.feed(chunk):
                try:
                    events.append(self._decode(line))
                except Exception as error:
                    failure = error
                    break
            del chunk  # a watch may be idle for hours after a large answer
            if events:
                yield events
                del events
            if failure is not None:
                raise failure
        if decoder.partial:
            raise Disconnected("the watch ended in the middle of an event")

    async def __aiter__(self) -> AsyncIterator[WatchEvent]:
        async for batch in self.batches():
            for event in batch:
                yield event

    async def close(self) -> None:
        await self._reply.close()
