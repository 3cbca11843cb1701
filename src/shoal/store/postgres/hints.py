"""Announces new events to other servers through a Redis stream, before they poll the database.

Hints are optional: nothing is lost when Redis is down, slow, empty or contains other data. Outgoing batches wait in a
short queue that drops the oldest; incoming ones are checked against the chain of batches, and missing rows are read
from the log.

An entry of the stream is a batch. ``revision``, ``type``, ``key`` and ``object`` are JSON arrays of equal length, one
element per event; objects are complete. ``incarnation``, ``prior`` and ``mark`` give the batch's place in the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.exceptions import RedisError

from shoal.base.backoff import Backoff
from shoal.base.logs import get_logger
from shoal.store.model import Event, EventType
from shoal.store.postgres.rows import LogRow, bare

STREAM = "k8s_events"
_KEPT = 256  # entries, about
_QUEUED = 64
_GATHER_S = 0.005
_MOST_BYTES = 1 << 20  # limit of an entry's objects; larger batches are announced without them
_BLOCK_MS = 2000
_CONNECT_S = 2.0
_BACKOFF = Backoff(base_s=0.1, cap_s=2.0)

# Raised by network errors, and by the client library for garbage.
_AWAY = (RedisError, OSError, TimeoutError, ValueError)

Fields = Mapping[bytes, bytes]

_log = get_logger("store")
_numbers = msgspec.json.Decoder(list[int])
_keys = msgspec.json.Decoder(list[tuple[str, str, str]])
_types = msgspec.json.Decoder(list[EventType])
_objects = msgspec.json.Decoder(list[msgspec.Raw])


def encode(incarnation: str, prior: int, mark: int, events: Sequence[Event]) -> dict[bytes, bytes]:
    dump = msgspec.json.encode
    objects = [event.entry.value for event in events]
    fields = {
        b"incarnation": incarnation.encode(),
        b"prior": b"%d" % prior,
        b"mark": b"%d" % mark,
        b"revision": dump([event.entry.revision for event in events]),
    }
    if sum(map(len, objects)) <= _MOST_BYTES:
        fields[b"type"] = dump([event.type for event in events])
        fields[b"key"] = dump([event.entry.key for event in events])
        fields[b"created"] = dump([event.entry.created for event in events])
        fields[b"hole"] = dump([event.entry.hole for event in events])
        fields[b"object"] = b"[%b]" % b",".join(objects)
    return fields


def decode(fields: Fields) -> list[LogRow]:
    """The rows of the batch; empty if it is announced without them. Raises ValueError or KeyError for garbage."""
    if b"object" not in fields:
        return []
    mark, prior = int(fields[b"mark"]), int(fields[b"prior"])
    columns = (
        _numbers.decode(fields[b"revision"]),
        _types.decode(fields[b"type"]),
        _numbers.decode(fields[b"created"]),
        _numbers.decode(fields[b"hole"]),
        _keys.decode(fields[b"key"]),
        _objects.decode(fields[b"object"]),
    )
    rows: list[LogRow] = []
    for revision, kind, created, hole, key, value in zip(*columns, strict=True):
        stored = None if kind is EventType.DELETED else bare(bytes(value), hole, revision)
        resource, namespace, name = key
        rows.append(LogRow(revision, mark, prior, created, hole, resource, namespace, name, stored))
        prior = mark
    return rows


class Hints:
    def __init__(
        self,
        url: str,
        *,
        incarnation: Callable[[], str],
        known: Callable[[], int],
        wanted: Callable[[], bool],
        on_batch: Callable[[int, Sequence[LogRow]], None],
    ) -> None:
        """``wanted`` returns whether there are other servers; ``on_batch`` is called with the last revision of a batch
        of this incarnation and its rows, which are empty if they were too large or could not be read."""
        self._pool = ConnectionPool.from_url(url, socket_connect_timeout=_CONNECT_S, protocol=2)
        self._incarnation = incarnation
        self._known = known
        self._wanted = wanted
        self._on_batch = on_batch
        self._queue: deque[dict[bytes, bytes]] = deque(maxlen=_QUEUED)  # drops the oldest when full
        self._queued = asyncio.Event()
        self._closing = False
        self.listening = False

    def offer(self, prior: int, mark: int, events: Sequence[Event]) -> None:
        self._queue.append(encode(self._incarnation(), prior, mark, events))
        self._queued.set()

    def end(self) -> None:
        """Call this before ``run`` is cancelled: the client library sometimes swallows a cancellation."""
        self._closing = True

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._again(self._send), name="store-hints/send")
            group.create_task(self._again(self._receive), name="store-hints/receive")

    async def _again(self, work: Callable[[AbstractConnection], Awaitable[None]]) -> None:
        failures = 0
        while not self._closing:
            # A plain connection: the client's pool is not needed, and leaks connections when cancelled.
            connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
            try:
                await connection.connect()  # type: ignore[no-untyped-call]
                if failures:
                    _log.info("Redis is available again")
                failures = 0
                await work(connection)
            except _AWAY as error:
                failures += 1
                if failures == 1:
                    _log.warning("Redis is unavailable", reason=str(error) or type(error).__name__)
            finally:
                self.listening = False
                await connection.disconnect(nowait=True)
            if not self._closing:
                await asyncio.sleep(_BACKOFF.bound_s(failures))

    async def _send(self, connection: AbstractConnection) -> None:
        while not self._closing:
            await self._queued.wait()
            if not self._wanted():  # not urgent: send several together
                await asyncio.sleep(_GATHER_S)
            self._queued.clear()
            packed: list[bytes] = []
            count = len(self._queue)
            for _ in range(count):
                flat = [part for pair in self._queue.popleft().items() for part in pair]
                packed += connection.pack_command("XADD", STREAM, "MAXLEN", "~", _KEPT, "*", *flat)
            await connection.send_packed_command(packed)
            for _ in range(count):
                await connection.read_response(timeout=_CONNECT_S)

    async def _receive(self, connection: AbstractConnection) -> None:
        after: Any = "$"
        while not self._closing:
            while not self._wanted():
                self.listening = False
                after = "$"
                await asyncio.sleep(0.1)
            self.listening = True
            await connection.send_command("XREAD", "COUNT", 100, "BLOCK", _BLOCK_MS, "STREAMS", STREAM, after)
            found: Any = await connection.read_response(timeout=_CONNECT_S + _BLOCK_MS / 1000)
            for number, fields in found[0][1] if found else ():
                after = number
                if fields is not None:  # deleted from the stream meanwhile
                    self._take(dict(zip(fields[::2], fields[1::2], strict=True)))

    def _take(self, fields: Fields) -> None:
        if fields.get(b"incarnation") != self._incarnation().encode():
            return
        try:
            newest = max(_numbers.decode(fields[b"revision"]))
            if newest > self._known():
                self._on_batch(newest, decode(fields))
        except (ValueError, KeyError):  # garbage; the log is authoritative
            self._on_batch(self._known() + 1, ())
