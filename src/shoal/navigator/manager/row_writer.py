"""The only writer of rows: commits the changes of all streams in groups, and then puts them into the index, in order.

A stream waits only for its own write. If it ends while it waits, a committed write is still put into the index, so that
memory and disk never differ. While the database is unavailable the writer retries, and all streams wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.errors import BadRequest, ServiceUnavailable
from shoal.navigator.manager.index import Index
from shoal.navigator.manager.metrics import ManagerMetrics
from shoal.navigator.manager.registry import ClaimRegistry
from shoal.navigator.manager.rows import ClusterRemoved, Rows, RowsChanged, StoredWrite
from shoal.navigator.model import Row

_GROUP = 64  # writes
_GROUP_ROWS = 5000
_SLICE = 200  # rows put into the index before other tasks run
_BACKOFF = Backoff(base_s=0.05, cap_s=1.0, floor_s=0.05)

_log = get_logger("navigator.row_writer")


class StaleEpoch(Exception):
    """Another edge holds the cluster now."""


@dataclass(slots=True)
class _Job:
    write: StoredWrite
    epoch: int  # 0: any
    rows: Sequence[tuple[str, Row]]
    done: asyncio.Future[None]


class RowWriter:
    def __init__(
        self,
        rows: Rows,
        index: Index,
        registry: ClaimRegistry,
        metrics: ManagerMetrics,
        *,
        clock: Clock,
        grown: Callable[[int], None] = lambda count: None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """``grown`` is called with the number of rows put into the index, ``changed`` after every change of it."""
        self._rows = rows
        self._index = index
        self._registry = registry
        self._metrics = metrics
        self._clock = clock
        self._grown = grown
        self._changed = changed
        self._jobs: deque[_Job] = deque()
        self._wake = asyncio.Event()
        self._last_ms = 0
        self.away = ""  # why the database cannot be written now

    def stamp_ms(self) -> int:
        """The time of a change; it never decreases."""
        self._last_ms = max(self._last_ms, round(self._clock.wall_s() * 1000))
        return self._last_ms

    async def write(self, write: StoredWrite, *, epoch: int = 0, rows: Sequence[tuple[str, Row]] = ()) -> None:
        """Return when it is stored and ``rows`` are visible. ``StaleEpoch`` when ``epoch`` is not current."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._jobs.append(_Job(write, epoch, rows, done))
        self._wake.set()
        await done

    def post(self, write: StoredWrite) -> None:
        """Write it without waiting."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(_seen)
        self._jobs.append(_Job(write, 0, (), done))
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled; waiting writes are then dropped. After an error the edges send again what was being written:
        it may be stored and not shown."""
        self._wake.set()
        while True:
            try:
                await self._wake.wait()
                self._wake.clear()
                while self._jobs:
                    await self._commit_or_fail(self._take())
            except asyncio.CancelledError:
                for job in self._jobs:
                    job.done.cancel()
                raise

    async def commit_posted(self) -> None:
        """After ``run``: commit the posted writes that still wait."""
        if self._jobs:
            await self._rows.commit([job.write for job in self._jobs if job.epoch == 0])
            self._jobs.clear()

    def _take(self) -> list[_Job]:
        group: list[_Job] = []
        rows = 0
        while self._jobs and len(group) < _GROUP and rows < _GROUP_ROWS:
            job = self._jobs.popleft()
            if job.done.cancelled():
                continue  # its stream has ended without an acknowledgement
            if isinstance(job.write, RowsChanged):
                if job.epoch and not self._registry.holds(job.write.cluster, job.epoch):
                    job.done.set_exception(StaleEpoch)
                    continue
                rows += len(job.write.puts) + len(job.write.removals)
            group.append(job)
        return group

    async def _commit_or_fail(self, group: list[_Job]) -> None:
        try:
            await self._commit(group)
        except Exception:
            for job in group:
                if not job.done.done():
                    job.done.set_exception(ServiceUnavailable("the rows could not be written"))
            raise

    async def _commit(self, group: list[_Job]) -> None:
        if not group:
            return
        begun_s = self._clock.monotonic()
        try:
            await self._store([job.write for job in group])
        except BadRequest as error:
            await self._commit_each(group, error)
            return
        self._metrics.commit_s.observe(self._clock.monotonic() - begun_s)
        for job in group:
            await self._show(job)
            if not job.done.done():
                job.done.set_result(None)

    async def _commit_each(self, group: list[_Job], error: BadRequest) -> None:
        """The database refuses one of the writes: commit them one by one."""
        if len(group) > 1:
            for job in group:
                await self._commit([job])
        elif not group[0].done.done():
            _log.error("a write was refused by the database", error=error)
            group[0].done.set_exception(error)

    async def _store(self, writes: list[StoredWrite]) -> None:
        failures = 0
        while True:
            try:
                await self._rows.commit(writes)
                break
            except ServiceUnavailable as error:
                failures += 1
                self.away = str(error)
                if failures == 1:
                    _log.warning("rows cannot be stored", reason=str(error))
                await self._clock.sleep(_BACKOFF.bound_s(failures))
        if failures:
            _log.info("rows are stored again", failures=failures)
        self.away = ""

    async def _show(self, job: _Job) -> None:
        write = job.write
        if isinstance(write, ClusterRemoved):
            self._index.forget(write.cluster)
            self._changed()
        if not isinstance(write, RowsChanged):
            return
        cluster = self._index.cluster(write.cluster)
        for number, (kind, key) in enumerate(write.removals, 1):
            cluster.remove(kind, key)
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        for number, (key, row) in enumerate(job.rows, 1):
            cluster.put(key, row)
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        self._metrics.changes.labels("put").inc(len(job.rows))
        self._metrics.changes.labels("remove").inc(len(write.removals))
        self._grown(len(job.rows))
        self._changed()


def _seen(done: asyncio.Future[None]) -> None:
    """Retrieve the error, which has been logged: no task waits for it."""
    if not done.cancelled():
        done.exception()
