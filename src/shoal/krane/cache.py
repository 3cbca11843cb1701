"""The last known good state of one controller, on disk: an append-only log that is rewritten when it has grown.

A file is a sequence of records, each with its length and checksum. The first one identifies the owner of the cache; the
others put or drop an item, move the cursor, or record what the deletion brake did. Items are stored as they were
received: secrets in them are sealed. Only the owner of the file can read it.

After a crash of the machine the end of the file may be torn. The state before it is whole, and its cursor is older, so
the missing part is sent again. A file that is damaged elsewhere, or belongs to another agent, is renamed, and the cache
begins empty, which costs a full sync and nothing else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from struct import Struct
from zlib import crc32

import orjson

from shoal.base.files import make_private_dirs, write_private
from shoal.base.logs import get_logger
from shoal.base.tasks import OwnedTasks
from shoal.wire.fleet.v1 import cluster_pb as pb

log = get_logger("krane.cache")

FORMAT = 1
_FRAME = Struct("<II")  # length, checksum
_MAX_RECORD_BYTES = 64 << 20
_GROWTH = 4  # rewritten when the log is this many times what is alive in it …
_SLACK_BYTES = 256 << 10  # … and this much more

_OWNER, _ITEM, _DROP, _CURSOR, _DELETED, _HOLD, _UNHOLD = b"o", b"i", b"d", b"c", b"x", b"h", b"u"

Offload = Callable[[Callable[[], None]], Awaitable[None]]


class _Damaged(Exception):
    """A record in the middle of the file is not what was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOwner:
    """The owner of the cached state. State of another fleet, shard or key is not used."""

    fleet: str
    cluster: str
    shard: str
    stream: str
    public_key: str  # hex: secrets are sealed for it

    def record(self) -> bytes:
        return _OWNER + orjson.dumps({"format": FORMAT, **asdict(self)})


class Cache:
    """Changes are in memory at once and on disk when ``save`` returns."""

    def __init__(self, path: Path, owner: CacheOwner, *, offload: Offload = asyncio.to_thread) -> None:
        self.path = path
        self.cursor = ""
        self.held: set[str] = set()  # keys whose deletion waits for a person
        self.deletions: list[tuple[float, str]] = []  # what passed the brake, with the wall time
        self._owner = owner
        self._offload = offload
        self._items: dict[str, bytes] = {}
        self._live_bytes = 0
        self._pending: list[bytes] = []  # framed, not written yet
        self._file: int | None = None
        self._size = 0
        self._rewrite = True  # no file of ours yet, or one whose end is in doubt
        self._lock = asyncio.Lock()

    @classmethod
    def open(cls, path: Path, owner: CacheOwner, *, offload: Offload = asyncio.to_thread) -> Cache:
        """Reads what is there. What cannot be used is put aside with a warning, never an error."""
        cache = cls(path, owner, offload=offload)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return cache
        except OSError as error:
            log.warning("the cache cannot be read; starting empty", path=str(path), reason=str(error))
            return cache
        try:
            cache._load(content)
        except (_Damaged, ValueError) as error:
            log.warning("the cache cannot be used; starting empty", path=str(path), reason=str(error))
            with suppress(OSError):
                os.replace(path, path.with_suffix(".unusable"))
            return cls(path, owner, offload=offload)
        return cache

    # reading

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: str) -> bool:
        return key in self._items

    def get(self, key: str) -> pb.Item | None:
        content = self._items.get(key)
        return None if content is None else pb.Item.from_binary(content)

    def items(self) -> Iterator[pb.Item]:
        for content in list(self._items.values()):
            yield pb.Item.from_binary(content)

    # changing

    def put(self, item: pb.Item) -> None:
        content = item.to_binary()
        self._live_bytes += len(content) - len(self._items.get(item.key, b""))
        self._items[item.key] = content
        self._write(_ITEM + content)

    def drop(self, key: str) -> None:
        content = self._items.pop(key, None)
        if content is not None:
            self._live_bytes -= len(content)
            self._write(_DROP + key.encode())

    def deleted(self, key: str, wall_s: float, *, keep_s: float) -> None:
        """A deletion passed the brake; older ones than ``keep_s`` are forgotten."""
        self.deletions = [(at, name) for at, name in self.deletions if at > wall_s - keep_s and name != key]
        self.deletions.append((wall_s, key))
        self._write(_DELETED + orjson.dumps([wall_s, key]))

    def hold(self, key: str) -> None:
        if key not in self.held:
            self.held.add(key)
            self._write(_HOLD + key.encode())

    def unhold(self, key: str) -> None:
        if key in self.held:
            self.held.discard(key)
            self._write(_UNHOLD + key.encode())

    @property
    def dirty(self) -> bool:
        return bool(self._pending)

    async def save(self, cursor: str | None = None) -> None:
        """Everything changed so far, and the cursor, is on disk when this returns. ``OSError`` when it cannot be: then
        nothing is lost in memory, and the next call writes the whole anew."""
        if cursor is not None and cursor != self.cursor:
            self.cursor = cursor
            self._write(_CURSOR + cursor.encode())
        async with self._lock:
            if not self._pending and not self._rewrite:
                return
            if self._rewrite or self._size > _GROWTH * self._live_bytes + _SLACK_BYTES:
                content, job = self._snapshot(), self._replace
            else:
                content, job = b"".join(self._pending), self._append
            self._pending.clear()
            self._rewrite = True  # until we know that it went well
            await _to_the_end(self._offload(lambda: job(content)))
            self._rewrite = False

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    # the file

    def _write(self, record: bytes) -> None:
        self._pending.append(_framed(record))

    def _snapshot(self) -> bytes:
        records = [self._owner.record()]
        records += [_ITEM + content for content in self._items.values()]
        records += [_DELETED + orjson.dumps([at, key]) for at, key in self.deletions]
        records += [_HOLD + key.encode() for key in sorted(self.held)]
        records.append(_CURSOR + self.cursor.encode())
        return b"".join(_framed(record) for record in records)

    def _replace(self, content: bytes) -> None:
        self.close()
        make_private_dirs(self.path.parent)
        write_private(self.path, content)
        self._file, self._size = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), len(content)

    def _append(self, content: bytes) -> None:
        assert self._file is not None
        _write_all(self._file, content)
        os.fsync(self._file)
        self._size += len(content)

    def _load(self, content: bytes) -> None:
        records = _records(content)
        first = next(records, None)
        if first is None:
            raise _Damaged("the header is missing")
        if first != self._owner.record():
            raise ValueError("it was written for another fleet, cluster, shard or key, or by another release")
        for record in records:
            self._replay(record[:1], record[1:])

    def _replay(self, kind: bytes, body: bytes) -> None:
        if kind == _ITEM:
            item = pb.Item.from_binary(body)
            self._live_bytes += len(body) - len(self._items.get(item.key, b""))
            self._items[item.key] = body
        elif kind == _DROP:
            self._live_bytes -= len(self._items.pop(body.decode(), b""))
        elif kind == _CURSOR:
            self.cursor = body.decode()
        elif kind == _DELETED:
            at, key = orjson.loads(body)
            self.deletions.append((at, key))
        elif kind == _HOLD:
            self.held.add(body.decode())
        elif kind == _UNHOLD:
            self.held.discard(body.decode())
        else:
            raise _Damaged(f"a record has the unknown kind {kind!r}")


async def _to_the_end(work: Awaitable[None]) -> None:
    """Wait for ``work`` also when cancelled: the thread goes on anyway, and its file must not be touched until then."""
    running = OwnedTasks().start(_awaited(work), name="krane-cache/write", awaited=True)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # marks it as seen
        raise


async def _awaited(work: Awaitable[None]) -> None:
    await work


def _framed(record: bytes) -> bytes:
    return _FRAME.pack(len(record), crc32(record)) + record


def _records(content: bytes) -> Iterator[bytes]:
    """Every whole record. What is torn at the end is left out; damage before the end raises."""
    at = 0
    while len(content) - at >= _FRAME.size:
        length, checksum = _FRAME.unpack_from(content, at)
        start, end = at + _FRAME.size, at + _FRAME.size + length
        if end > len(content) or length == 0 or length > _MAX_RECORD_BYTES:
            return
        record = content[start:end]
        if crc32(record) != checksum:
            if end == len(content):
                return
            raise _Damaged(f"the record at byte {at} has a wrong checksum")
        yield record
        at = end


def _write_all(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]
