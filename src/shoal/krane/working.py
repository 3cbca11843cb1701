"""Applies desired state to the cluster: one task per key, the newest version, with retries; a brake limits deletions.

It takes keys from the inbox that are not in work. A failed key returns to the inbox with a growing delay, and its state
shows the error. A deletion that no user asked for must pass the brake, or waits in the cache until a user confirms it.
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
from shoal.krane.context import ControllerContext
from shoal.krane.key_state import Failure
from shoal.krane.owner import Newer
from shoal.krane.protocol import causes_of, version_of
from shoal.krane.rights import with_grant
from shoal.krane.unsealing import Unsealable
from shoal.sync.brake import WINDOW_S
from shoal.sync.buffer import BufferEntry
from shoal.sync.versions import BadCursor, read_cursor
from shoal.wire.fleet.v1 import cluster_pb as pb

_MESSAGE_LENGTH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDeps:
    """How things are done in the cluster, and who wants to know of it."""

    apply: Callable[[pb.Item], Awaitable[None]]
    delete: Callable[[str, str, str], Awaitable[None]]
    finished: Callable[[str], None]  # something was done for the key
    failed: Callable[[str], None]
    recheck: Callable[[str], None]  # have the key asked for, or put into the inbox, soon
    cached: Callable[[], None]  # the cache has changed


class Worker:
    def __init__(self, context: ControllerContext, deps: WorkerDeps) -> None:
        self._context = context
        self._deps = deps

    async def run(self) -> None:
        slots = asyncio.Semaphore(self._context.limits.apply_parallel)
        async with asyncio.TaskGroup() as group:
            while True:
                await slots.acquire()
                entry = await self._context.inbox.take()
                task = group.create_task(self._work_on(entry), name=f"apply/{entry.key}")
                task.add_done_callback(lambda _: slots.release())

    async def _work_on(self, entry: BufferEntry[pb.Item]) -> None:
        context, item = self._context, entry.value
        known = context.machine.known(item.key)
        if known is not None and known.is_after(entry.version):
            context.inbox.done(item.key)  # a newer state is on its way into the inbox
            return
        with correlated(**causes_of(item)):
            await self._try(entry)

    async def _try(self, entry: BufferEntry[pb.Item]) -> None:
        context, item = self._context, entry.value
        operation = operation_of(item)
        try:
            with span(f"krane.{operation}", parent=item.trace, key=item.key):
                async with within(context.clock, context.limits.apply_timeout_s):
                    context.session.check()
                    done = await self._act(item)
        except Newer as error:
            self._failed(entry, operation, "newer", error)
            self._deps.recheck(item.key)
        except Exception as error:  # whatever is wrong with one object must not keep the others from being applied
            self._failed(entry, operation, "error", error)
        else:
            self._count(operation, "ok" if done else "held")
            context.inbox.done(item.key)
            if done:
                self._succeeded(item)
            self._deps.finished(item.key)

    async def _act(self, item: pb.Item) -> bool:
        """False when the item is a deletion that has to wait for a person. A state with secrets that are wrapped for
        another key is asked for once more: the control plane may have wrapped them for ours meanwhile, which makes no
        new version."""
        where = item.action.value if item.action is not None else None
        if isinstance(where, pb.Release):
            await self._context.applier.release(item.key, where.namespace, where.name)
        elif isinstance(where, pb.Delete):
            if not self._may_delete(item):
                return False
            await self._deps.delete(item.key, where.namespace, where.name)
        else:
            try:
                await self._deps.apply(item)
            except Unsealable:
                fresh = await self._wrapped_again(item)
                if fresh is None:
                    raise
                await self._deps.apply(fresh)
        return True

    async def _wrapped_again(self, item: pb.Item) -> pb.Item | None:
        context = self._context
        try:
            fresh = await context.ask(item.key)
        except ApiError as error:
            context.log.debug("reading an object from the control plane failed", key=item.key, reason=str(error))
            return None
        if version_of(fresh) != version_of(item) or fresh.to_binary() == item.to_binary():
            return None
        context.cache.put(fresh)
        self._deps.cached()
        return fresh

    def _succeeded(self, item: pb.Item) -> None:
        context = self._context
        if context.key_state.succeeded(item, context.now_ms()):
            context.hop("applied", item.committed_ms)
            if item.correlation:  # other changes are too many to log each of them
                context.log.info("change applied", key=item.key, version=str(version_of(item)))
        self._unhold(item.key)  # wanted again, released, or agreed to

    def _failed(self, entry: BufferEntry[pb.Item], operation: str, result: str, error: Exception) -> None:
        context = self._context
        self._count(operation, result)
        reason = "Newer" if isinstance(error, Newer) else getattr(error, "reason", "") or type(error).__name__
        message = with_grant(str(error) or reason)[:_MESSAGE_LENGTH]
        attempts = entry.attempts + 1
        context.key_state.failed(entry.key, Failure(entry.version, reason, message, attempts, context.now_ms()))
        if not isinstance(error, ApiError | TransportError | TimeoutError):
            context.log.error("working on a key failed", error=error, key=entry.key)
        elif attempts == 1 and not (isinstance(error, TransportError) and error.told):
            context.log.warning("working on a key failed", key=entry.key, reason=f"{reason}: {message}")
        bound_s = min(context.limits.retry_cap_s, context.limits.retry_base_s * 2.0 ** min(entry.attempts, 30))
        context.inbox.failed(entry.key, bound_s * (0.5 + 0.5 * context.random()))
        self._deps.failed(entry.key)

    def _count(self, operation: str, result: str) -> None:
        self._context.metrics.operations.labels(self._context.stream, operation, result).inc()

    # the brake

    def restore_brake(self) -> None:
        """Remember what the brake had let pass and held before this process."""
        context = self._context
        for at_s, key in context.cache.deletions:
            context.brake.remember(key, at_s)
        for key in context.cache.held:
            context.brake.hold(key, context.clock.wall_s())

    def confirm_deletes(self, cursor: str) -> list[str]:
        """A person agrees to the deletions that were held at this cursor: they are done. Returns their keys."""
        context = self._context
        if not cursor or not context.brake.held:
            return []
        try:
            confirmed = read_cursor(cursor)
        except BadCursor as error:
            context.log.warning("a confirmation of deletions cannot be read", reason=str(error))
            return []
        items = {key: context.cache.get(key) for key in context.brake.held}
        covered = [key for key, item in items.items() if item is not None and confirmed.covers(version_of(item))]
        if not covered:
            return []
        now_s = context.clock.wall_s()
        for key in context.brake.confirm(now_s):
            if key not in covered:
                context.brake.hold(key, now_s)
        for key in covered:
            context.cache.unhold(key)
            context.key_state.failures.pop(key, None)
            self._deps.recheck(key)
        self._deps.cached()
        context.log.warning("held deletions were confirmed", count=len(covered))
        return covered

    def _may_delete(self, item: pb.Item) -> bool:
        context, key, now_s = self._context, item.key, self._context.clock.wall_s()
        if item.by_user or not context.may_be_there(key):
            self._unhold(key)
            return True
        if key in context.cache.held or not context.brake.allow(key, now_s, len(context.cache)):
            context.brake.hold(key, now_s)
            context.cache.hold(key)
            self._deps.cached()
            held = Failure(version_of(item), "DeletionHeld", context.brake.reason(), 0, context.now_ms())
            context.key_state.failed(key, held)
            context.log.warning("a deletion waits for confirmation", key=key)
            return False
        context.cache.deleted(key, now_s, keep_s=WINDOW_S)
        self._deps.cached()
        return True

    def _unhold(self, key: str) -> None:
        self._context.brake.forget(key)
        if key in self._context.cache.held:
            self._context.cache.unhold(key)
            self._deps.cached()


def operation_of(item: pb.Item) -> str:
    if item.action is None:
        raise BadRequest(f"{item.key} has neither a desired state nor a removal")
    return item.action.field if item.action.field in ("delete", "release") else "apply"
