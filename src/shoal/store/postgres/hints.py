"""Announces new events to other servers through a Redis stream, before they poll the database.

Hints are optional: nothing is lost when Redis is down, slow, empty or contains other data. Outgoing batches wait in a
short queue that drops the oldest; incoming ones are checked against the chain of batches, and missing rows are read
from the log.

An entry of the stream is a batch. ``revision``, ``type``, ``key`` and ``object`` are JSON arrays of equal length, one
element per event; objects are complete. ``incarnation``, ``prior`` and ``mark`` give the batch's place in the log.
All but the numbers is encrypted, and all of it authenticated by ``seal`` (``shoal.store.postgres.sealing``): who can
write to Redis cannot make up, change or reorder events, and who can read it learns only how many writes there are.
A batch with a Secret, or one that is too large, is announced by its revisions alone and read from the log.
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
from shoal.store.postgres.sealing import EventKeys

STREAM = "k8s_events"
_KEPT = 256  # entries, about
_QUEUED = 64
_GATHER_S = 0.005
_MOST_BYTES = 1 << 20  # limit of an entry's objects; larger batches are announced without them
_WITHHELD = frozenset({"secrets"})  # resources whose objects never go through Redis, not even encrypted
_SEALED = (b"type", b"key", b"created", b"hole", b"object")
_BLOCK_MS = 2000
_CONNECT_S = 2.0
_BACKOFF = Backoff(base_s=0.1, cap_s=2.0)

# Raised by network errors, and by the client library for garbage.
_AWAY = (RedisError, OSError, TimeoutError, ValueError)

Fields = Mapping[bytes, bytes]
Batch = tuple[str, int, int, Sequence[Event]]  # incarnation, prior, mark, events

_log = get_logger("store")
_numbers = msgspec.json.Decoder(list[int])
_keys = msgspec.json.Decoder(list[tuple[str, str, str]])
_types = msgspec.json.Decoder(list[EventType])
_objects = msgspec.json.Decoder(list[msgspec.Raw])


def encode(keys: EventKeys, incarnation: str, prior: int, mark: int, events: Sequence[Event]) -> dict[bytes, bytes]:
    dump = msgspec.json.encode
    entries = [event.entry for event in events]
    fields = {
        b"incarnation": incarnation.encode(),
        b"prior": b"%d" % prior,
        b"mark": b"%d" % mark,
        b"revision": dump([entry.revision for entry in entries]),
    }
    parts: list[bytes] = []
    if _WITHHELD.isdisjoint([entry.key.resource for entry in entries]):
        objects = [entry.value for entry in entries]
        if sum(map(len, objects)) <= _MOST_BYTES:
            parts = [
                dump([event.type for event in events]),
                dump([entry.key for entry in entries]),
                dump([entry.created for entry in entries]),
                dump([entry.hole for entry in entries]),
                b"[%b]" % b",".join(objects),
            ]
    fields[b"seal"], sealed = keys.seal(_context(fields), parts)
    if sealed:
        fields.update(zip(_SEALED, sealed, strict=True))
    return fields


def decode(keys: EventKeys, fields: Fields) -> list[LogRow]:
    """The rows of the batch; empty if it is announced without them. Raises ValueError or KeyError for what no server of
    this store has sent."""
    sealed = [fields[name] for name in _SEALED] if b"object" in fields else []
    parts = keys.open(fields[b"seal"], _context(fields), sealed)
    if not parts:
        return []
    mark, prior = int(fields[b"mark"]), int(fields[b"prior"])
    kinds, names, created, holes, objects = parts
    columns = (
        _numbers.decode(fields[b"revision"]),
        _types.decode(kinds),
        _numbers.decode(created),
        _numbers.decode(holes),
        _keys.decode(names),
        _objects.decode(objects),
    )
    rows: list[LogRow] = []
    for revision, kind, made, hole, key, value in zip(*columns, strict=True):
        stored = None if kind is EventType.DELETED else bare(bytes(value), hole, revision)
        resource, namespace, name = key
        rows.append(LogRow(revision, mark, prior, made, hole, resource, namespace, name, stored))
        prior = mark
    return rows


def _context(fields: Fields) -> bytes:
    """What is authenticated of the batch's place in the log; numbers and brackets hold no line break."""
    return b"\n".join(fields[name] for name in (b"prior", b"mark", b"revision", b"incarnation"))


class Hints:
    def __init__(
        self,
        url: str,
        *,
        keys: EventKeys,
        incarnation: Callable[[], str],
        known: Callable[[], int],
        wanted: Callable[[], bool],
        on_batch: Callable[[int, Sequence[LogRow] | None], None],
    ) -> None:
        """``wanted`` returns whether there are other servers; ``on_batch`` is called with the last revision of a batch
        of this incarnation and its rows: empty if it is announced without them, None if it is not one of a server."""
        self._keys = keys
        self._pool = ConnectionPool.from_url(url, socket_connect_timeout=_CONNECT_S, protocol=2)
        self._incarnation = incarnation
        self._known = known
        self._wanted = wanted
        self._on_batch = on_batch
        self._queue: deque[Batch] = deque(maxlen=_QUEUED)  # drops the oldest when full
        self._queued = asyncio.Event()
        self._closing = False
        self.listening = False

    def offer(self, prior: int, mark: int, events: Sequence[Event]) -> None:
        self._queue.append((self._incarnation(), prior, mark, events))
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
                fields = encode(self._keys, *self._queue.popleft())
                flat = [part for pair in fields.items() for part in pair]
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
                self._on_batch(newest, decode(self._keys, fields))
        except (ValueError, KeyError):  # garbage, or of a server of another version; the log is authoritative
            self._on_batch(self._known() + 1, None)
