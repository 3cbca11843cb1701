"""Desired state into the cluster: one task per key, the newest version, again until it works; deletions braked.

Takes from the inbox what nobody works on. What fails goes back with a growing pause and is visible in the books; a
deletion that nobody asked for passes the brake, or waits in the cache until a person agrees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shoal.base.deadline import within
from shoal.base.logs import correlated
from shoal.base.tracing import span
from shoal.client import TransportError
from shoal.errors import ApiError, BadRequest
from shoal.krane.books import Failure
from shoal.krane.model import Newer
from shoal.krane.protocol import version_of
from shoal.krane.station import Station
from shoal.krane.unsealing import Unsealable
from shoal.sync.brake import WINDOW_S
from shoal.sync.buffer import BufferEntry
from shoal.sync.versions import BadCursor, read_cursor
from shoal.wire.fleet.v1 import cluster_pb as pb

_MESSAGE_LENGTH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSeams:
    """How things are done in the cluster, and who wants to know of it."""

    apply: Callable[[pb.Item], Awaitable[None]]
    delete: Callable[[str, str, str], Awaitable[None]]
    finished: Callable[[str], None]  # something was done for the key
    failed: Callable[[str], None]
    doubt: Callable[[str], None]  # have the key asked for, or put into the inbox, soon
    cached: Callable[[], None]  # the cache has changed


class Worker:
    def __init__(self, station: Station, seams: WorkSeams) -> None:
        self._station = station
        self._seams = seams

    async def run(self) -> None:
        slots = asyncio.Semaphore(self._station.limits.apply_parallel)
        async with asyncio.TaskGroup() as group:
            while True:
                await slots.acquire()
                entry = await self._station.inbox.take()
                task = group.create_task(self._work_on(entry), name=f"apply/{entry.key}")
                task.add_done_callback(lambda _: slots.release())

    async def _work_on(self, entry: BufferEntry[pb.Item]) -> None:
        station, item = self._station, entry.value
        known = station.machine.known(item.key)
        if known is not None and known.is_after(entry.version):
            station.inbox.done(item.key)  # a newer state is on its way into the inbox
            return
        operation = operation_of(item)
        try:
            with (
                correlated(trace=item.trace) if item.trace else correlated(),
                span(f"krane.{operation}", parent=item.trace, key=item.key),
            ):
                async with within(station.clock, station.limits.apply_timeout_s):
                    station.session.check()
                    done = await self._act(item)
        except Newer as error:
            self._failed(entry, operation, "newer", error)
            self._seams.doubt(item.key)
        except Exception as error:  # whatever is wrong with one object must not keep the others from being applied
            self._failed(entry, operation, "error", error)
        else:
            self._count(operation, "ok" if done else "held")
            station.inbox.done(item.key)
            if done:
                self._succeeded(item)
            self._seams.finished(item.key)

    async def _act(self, item: pb.Item) -> bool:
        """False when the item is a deletion that has to wait for a person. A state with secrets that are wrapped for
        another key is asked for once more: the control plane may have wrapped them for ours meanwhile, which makes no
        new version."""
        where = item.action.value if item.action is not None else None
        if isinstance(where, pb.Release):
            await self._station.applier.release(item.key, where.namespace, where.name)
        elif isinstance(where, pb.Delete):
            if not self._may_delete(item):
                return False
            await self._seams.delete(item.key, where.namespace, where.name)
        else:
            try:
                await self._seams.apply(item)
            except Unsealable:
                fresh = await self._wrapped_again(item)
                if fresh is None:
                    raise
                await self._seams.apply(fresh)
        return True

    async def _wrapped_again(self, item: pb.Item) -> pb.Item | None:
        station = self._station
        try:
            fresh = await station.ask(item.key)
        except ApiError as error:
            station.log.debug("asking for an object failed", key=item.key, reason=str(error))
            return None
        if version_of(fresh) != version_of(item) or fresh.to_binary() == item.to_binary():
            return None
        station.cache.put(fresh)
        self._seams.cached()
        return fresh

    def _succeeded(self, item: pb.Item) -> None:
        station = self._station
        if station.books.succeeded(item, station.now_ms()):
            station.hop("applied", item.committed_ms)
        self._unhold(item.key)  # wanted again, released, or agreed to

    def _failed(self, entry: BufferEntry[pb.Item], operation: str, result: str, error: Exception) -> None:
        station = self._station
        self._count(operation, result)
        reason = "Newer" if isinstance(error, Newer) else getattr(error, "reason", "") or type(error).__name__
        message = (str(error) or reason)[:_MESSAGE_LENGTH]
        attempts = entry.attempts + 1
        station.books.failed(entry.key, Failure(entry.version, reason, message, attempts, station.now_ms()))
        if not isinstance(error, ApiError | TransportError | TimeoutError):
            station.log.error("working on a key failed", error=error, key=entry.key)
        elif attempts == 1:
            station.log.warning("working on a key failed", key=entry.key, reason=f"{reason}: {message}")
        bound_s = min(station.limits.retry_cap_s, station.limits.retry_base_s * 2.0 ** min(entry.attempts, 30))
        station.inbox.failed(entry.key, bound_s * (0.5 + 0.5 * station.random()))
        self._seams.failed(entry.key)

    def _count(self, operation: str, result: str) -> None:
        self._station.metrics.operations.labels(self._station.stream, operation, result).inc()

    # the brake

    def restore_brake(self) -> None:
        """Remember what the brake had let pass and held before this process."""
        station = self._station
        for at_s, key in station.cache.deletions:
            station.brake.remember(key, at_s)
        for key in station.cache.held:
            station.brake.hold(key, station.clock.wall_s())

    def confirm_deletes(self, cursor: str) -> list[str]:
        """A person agrees to the deletions that were held at this cursor: they are done. Returns their keys."""
        station = self._station
        if not cursor or not station.brake.held:
            return []
        try:
            confirmed = read_cursor(cursor)
        except BadCursor as error:
            station.log.warning("a confirmation of deletions cannot be read", reason=str(error))
            return []
        items = {key: station.cache.get(key) for key in station.brake.held}
        covered = [key for key, item in items.items() if item is not None and confirmed.covers(version_of(item))]
        if not covered:
            return []
        now_s = station.clock.wall_s()
        for key in station.brake.confirm(now_s):
            if key not in covered:
                station.brake.hold(key, now_s)
        for key in covered:
            station.cache.unhold(key)
            station.books.failures.pop(key, None)
            self._seams.doubt(key)
        self._seams.cached()
        station.log.warning("held deletions were confirmed", count=len(covered))
        return covered

    def _may_delete(self, item: pb.Item) -> bool:
        station, key, now_s = self._station, item.key, self._station.clock.wall_s()
        if item.by_user or not station.may_be_there(key):
            self._unhold(key)
            return True
        if key in station.cache.held or not station.brake.allow(key, now_s, len(station.cache)):
            station.brake.hold(key, now_s)
            station.cache.hold(key)
            self._seams.cached()
            held = Failure(version_of(item), "DeletionHeld", station.brake.reason(), 0, station.now_ms())
            station.books.failed(key, held)
            station.log.warning("a deletion waits for a person", key=key)
            return False
        station.cache.deleted(key, now_s, keep_s=WINDOW_S)
        self._seams.cached()
        return True

    def _unhold(self, key: str) -> None:
        self._station.brake.forget(key)
        if key in self._station.cache.held:
            self._station.cache.unhold(key)
            self._seams.cached()


def operation_of(item: pb.Item) -> str:
    if item.action is None:
        raise BadRequest(f"{item.key} says neither what is desired nor that it is to be removed")
    return item.action.field if item.action.field in ("delete", "release") else "apply"
