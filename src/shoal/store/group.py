"""The store common to all backends: view and rings in memory, and the group committer in front of a journal.

Commits wait in one queue. A single task takes all queued commits, passes them to the journal as one batch, and resolves
them once the journal has made them durable and published them; meanwhile the next batch queues up. There is no task and
no lock per commit. Nothing is visible before it is durable, because only ``publish`` changes the view.

A journal that fails leaves the outcome of its batch unknown. Nothing of that batch or later ones is ever published or
acknowledged, and ``on_fatal`` decides how the process ends.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Sequence

from shoal.base.logs import get_logger
from shoal.base.tasks import OwnedTasks
from shoal.store.figures import StoreFigures
from shoal.store.journal import Journal, Loaded, Result, Transaction
from shoal.store.model import (
    Attrs,
    Compacted,
    Entry,
    Event,
    FutureRevision,
    Key,
    Op,
    Put,
    Require,
    StoreClosed,
    StorePage,
)
from shoal.store.ring import Cursor, Ring, RingLimits, Rings, superseded
from shoal.store.view import View

log = get_logger("store")

# Limits of a batch: large enough to share an fsync, small enough to keep the first commit's wait short.
MAX_BATCH = 256
MAX_BATCH_BYTES = 16 << 20

# Exit code when the store can no longer write: EX_SOFTWARE.
EXIT_CODE = 70


def exit_process(error: BaseException) -> None:
    """The default ``on_fatal``. A failed fsync may have lost pages that later ones will not write again, so there is
    nothing to retry: exit at once, without clean-up that could write more."""
    log.error("the store can no longer make writes durable; ending the process", error=error)
    os._exit(EXIT_CODE)


class LogStore:
    """A ``Store`` (``shoal.store.model``) over any journal."""

    def __init__(
        self,
        journal: Journal,
        *,
        limits: RingLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_fatal: Callable[[BaseException], None] = exit_process,
    ) -> None:
        self._journal = journal
        self.shared = journal.shared
        self._on_fatal = on_fatal
        self._clock = clock
        self.figures = StoreFigures()
        self._view = View()
        self._rings = Rings(limits or RingLimits(), clock)
        self._revision = 0
        self._incarnation = ""
        self._queue: deque[tuple[Transaction, asyncio.Future[Sequence[Entry]]]] = deque()
        self._idle: asyncio.Future[None] | None = None
        self._tasks = OwnedTasks()
        self._writer: asyncio.Task[None] | None = None
        self._open = False
        self._failed = False
        self._reaching: dict[asyncio.Future[None], int] = {}
        self.get: Callable[[Key], Entry | None] = self._view.get

    @property
    def revision(self) -> int:
        return self._revision

    @property
    def incarnation(self) -> str:
        return self._incarnation

    @property
    def history_bytes(self) -> int:
        """Bytes of history that the rings hold beyond the current objects."""
        return self._rings.held_bytes

    @property
    def size_bytes(self) -> int:
        return self._journal.size_bytes

    @property
    def problem(self) -> str:
        if self._failed:
            return "it can no longer make writes durable"
        return "" if self._open else "it is closed"

    async def start(self) -> None:
        loaded = await self._journal.open(self)
        self._view.load(loaded.entries)
        self._revision = loaded.revision
        self._incarnation = loaded.incarnation
        self._rings.set_floors(loaded.floors)
        self._keep(loaded.events)
        self._open = True
        self._writer = self._tasks.start(self._write(), name="store-writer")  # an error in it ends the store, see fail

    async def stop(self) -> None:
        if self._writer is None:
            return
        self._open = False
        self._wake_writer()
        await asyncio.wait((self._writer,))  # not awaited directly: a cancellation would cancel it too
        self._writer = None
        self._refuse_waiting()
        try:
            await self._journal.close()
        except Exception:
            if not self._failed:  # after a failure, closing only repeats it
                raise

    async def commit(self, ops: Sequence[Op], requires: Sequence[Require] = ()) -> Sequence[Entry]:
        if not self._open:
            raise StoreClosed
        answer: asyncio.Future[Sequence[Entry]] = asyncio.get_running_loop().create_future()
        began_s = self._clock()
        self._queue.append((Transaction(ops, requires), answer))
        self._wake_writer()
        entries = await answer
        self.figures.committed(ops, requires, self._clock() - began_s)
        return entries

    async def fresh(self) -> int:
        revision = await self._journal.newest()
        while self._revision < revision:
            await self._until(revision)
        return self._revision

    async def reached(self, revision: int, timeout_s: float) -> None:
        if self._revision >= revision:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._until(revision)
        except TimeoutError:
            raise FutureRevision(revision, self._revision) from None

    def range(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        after: tuple[str, str] | None = None,
        limit: int = 0,
        revision: int = 0,
        where: Callable[[Attrs], bool] | None = None,
        index: str = "",
    ) -> StorePage:
        now = self._revision
        undo = None
        if revision:
            if revision > now:
                raise FutureRevision(revision, now)
            if revision < self._rings.aged:
                raise Compacted(revision, self._rings.aged)
            undo = self._rings.ring(resource).undo(revision)
        entries, remaining = self._view.page(resource, namespace, after, limit, where, index, undo)
        return StorePage(entries, revision or now, remaining > 0, remaining)

    def count(self, resource: str, namespace: str | None = None) -> int:
        return self._view.count(resource, namespace)

    def watch(self, resource: str, after: int) -> Cursor:
        return Cursor(self._rings.ring(resource), after, self._newest)

    def subscribe(
        self,
        resource: str,
        on_events: Callable[[Sequence[Event]], None],
        on_reset: Callable[[], None] | None = None,
    ) -> Callable[[], None]:
        ring = self._rings.ring(resource)
        subscriber = on_events, on_reset
        # A new tuple each time: a callback may subscribe or unsubscribe while the old one is being walked.
        ring.subscribers = (*ring.subscribers, subscriber)

        def unsubscribe() -> None:
            kept = list(ring.subscribers)
            if subscriber in kept:
                kept.remove(subscriber)
                ring.subscribers = tuple(kept)

        return unsubscribe

    async def compact(self, revision: int) -> None:
        if revision > self._revision:
            raise FutureRevision(revision, self._revision)
        self._forget(self._rings.drop_through(revision))
        await self._journal.settle()

    def forget_old(self) -> None:
        self._forget(self._rings.trim((), self._revision))

    def publish(self, events: Sequence[Event]) -> None:
        """Called by the journal: make durable events visible."""
        self._view.apply(events)
        self._revision = events[-1].entry.revision
        touched = self._keep(events)
        for ring, group in touched.items():
            for on_events, on_reset in ring.subscribers:
                if not self._notify(on_events, group) and on_reset is not None:
                    self._notify(on_reset)  # it may have taken in a part of the events: let it read everything again
            if ring.waiters:
                ring.wake()
        self._wake_reached()

    def reset(self, loaded: Loaded) -> None:
        """Called by the journal: the database lost history; replace the whole view."""
        changes = self._view.replace(loaded.entries, loaded.revision)
        self._revision = loaded.revision
        self._incarnation = loaded.incarnation
        self._rings.reset(loaded.revision)
        for event in loaded.events:
            self._rings.ring(event.entry.key.resource)  # whose floors must be stored when their rows are deleted
        self._forget(loaded.events)
        grouped: dict[str, list[Event]] = {}
        for event in changes:
            grouped.setdefault(event.entry.key.resource, []).append(event)
        for ring in self._rings.all():
            events = grouped.get(ring.resource, ())
            for on_events, on_reset in ring.subscribers:
                if on_reset is not None:
                    self._notify(on_reset)
                elif events:
                    self._notify(on_events, events)
        self._wake_reached()

    def fail(self, error: BaseException) -> None:
        """Called by the journal: it can make nothing durable any more."""
        if not self._failed:
            self._failed = True
            self._open = False
            self._on_fatal(error)
            self._refuse_waiting()
            self._wake_writer()

    def _newest(self) -> int:
        return self._revision

    def _keep(self, events: Sequence[Event]) -> dict[Ring, Sequence[Event]]:
        """Append events to their rings and drop the oldest beyond the limits; return the events by ring."""
        rings = self._rings
        groups: dict[str, list[Event]] = {}
        for event in events:
            resource = event.entry.key[0]
            group = groups.get(resource)
            if group is None:
                groups[resource] = [event]
            else:
                group.append(event)
        touched: dict[Ring, Sequence[Event]] = {rings.ring(resource): group for resource, group in groups.items()}
        for ring, kept in touched.items():
            rings.append(ring, kept)
        self._forget(rings.trim(touched, self._revision))
        return touched

    def _forget(self, dropped: Sequence[Event]) -> None:
        if dropped:
            self._journal.forget(superseded(dropped), self._rings.floors())

    def _wake_reached(self) -> None:
        for waiter, revision in self._reaching.items():
            if revision <= self._revision and not waiter.done():
                waiter.set_result(None)

    def _notify(self, call: Callable[..., None], *arguments: Sequence[Event]) -> bool:
        """Whether the subscriber took it in."""
        try:
            call(*arguments)
            return True
        except Exception as error:
            # The write is durable and the other subscribers must get it; log the bug of this one.
            loop = asyncio.get_running_loop()
            loop.call_exception_handler({"message": "a store subscriber raised", "exception": error})
            return False

    async def _until(self, revision: int) -> None:
        if not self._open:
            raise StoreClosed
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reaching[waiter] = revision
        try:
            await waiter
        finally:
            del self._reaching[waiter]

    def _wake_writer(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        answers: Sequence[asyncio.Future[Sequence[Entry]]] = ()
        try:
            while self._queue or self._open:
                if not self._queue:
                    self._idle = loop.create_future()
                    await self._idle
                    self._idle = None
                    continue
                batch, answers = self._next_batch()
                if batch:
                    began_s = self._clock()
                    _answer(answers, await self._journal.commit(batch))
                    self.figures.written(len(batch), self._clock() - began_s)
        except Exception as error:
            self.fail(error)
            for answer in answers:
                _refuse(answer)

    def _next_batch(self) -> tuple[list[Transaction], list[asyncio.Future[Sequence[Entry]]]]:
        queue = self._queue
        batch: list[Transaction] = []
        answers: list[asyncio.Future[Sequence[Entry]]] = []
        size = 0
        while queue and len(batch) < MAX_BATCH and size < MAX_BATCH_BYTES:
            transaction, answer = queue.popleft()
            if answer.done():  # its caller was cancelled while waiting
                continue
            for op in transaction.ops:
                if type(op) is Put:
                    size += len(op.value)
            batch.append(transaction)
            answers.append(answer)
        return batch, answers

    def _refuse_waiting(self) -> None:
        for _, answer in self._queue:
            _refuse(answer)
        self._queue.clear()
        for waiter in self._reaching:
            _refuse(waiter)
        self._rings.close()


def _answer(answers: Sequence[asyncio.Future[Sequence[Entry]]], results: Sequence[Result]) -> None:
    for answer, result in zip(answers, results, strict=True):
        if answer.done():
            continue
        if isinstance(result, Exception):
            _raise_in(answer, result)
        else:
            answer.set_result(result)


def _refuse(answer: asyncio.Future[Sequence[Entry]] | asyncio.Future[None]) -> None:
    if not answer.done():
        _raise_in(answer, StoreClosed())


def _raise_in(answer: asyncio.Future[Sequence[Entry]] | asyncio.Future[None], error: Exception) -> None:
    """Set the error on a commit's future. Its caller may be gone, so the exception is marked as retrieved."""
    answer.set_exception(error)
    answer.exception()
