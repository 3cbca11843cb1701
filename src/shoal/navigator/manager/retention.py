"""Retention: deletes old history, and clusters without an edge."""

from __future__ import annotations

from contextlib import suppress

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.errors import Conflict, NotFound, ServiceUnavailable
from shoal.navigator.manager.clusters import Clusters
from shoal.navigator.manager.config import ManagerConfig
from shoal.navigator.manager.forgetting import ClusterForgetter
from shoal.navigator.manager.metrics import ManagerMetrics
from shoal.navigator.manager.row_writer import RowWriter
from shoal.navigator.manager.rows import ClusterHeard, Rows

_PAUSE_S = 0.05  # between two deletions, so that writers get their turn

_log = get_logger("navigator.retention")


class RetentionLoop:
    def __init__(
        self,
        rows: Rows,
        row_writer: RowWriter,
        clusters: Clusters,
        forgetter: ClusterForgetter,
        config: ManagerConfig,
        metrics: ManagerMetrics,
        *,
        clock: Clock,
    ) -> None:
        self._rows = rows
        self._row_writer = row_writer
        self._clusters = clusters
        self._forgetter = forgetter
        self._config = config
        self._metrics = metrics
        self._clock = clock

    async def sweep_forever(self) -> None:
        while True:
            try:
                await self.sweep()
            except ServiceUnavailable as error:
                _log.warning("old history cannot be deleted now", reason=str(error))
            await self._clock.sleep(self._config.sweep_s)

    async def sweep(self) -> None:
        now_ms = round(self._clock.wall_s() * 1000)
        await self._rows.prepare(now_ms)
        await self._forget(now_ms)
        await self._expire(now_ms - round(self._config.retention_s * 1000))
        await self._expire(now_ms - round(self._config.event_retention_s * 1000), transient=True)

    async def _expire(self, before_ms: int, *, transient: bool = False) -> None:
        while ended := await self._rows.expire(before_ms, transient=transient):
            self._metrics.expired.inc(ended)
            await self._clock.sleep(_PAUSE_S)

    async def save_heard_forever(self) -> None:
        while True:
            await self._clock.sleep(self._config.heard_every_s)
            self.save_heard()

    def save_heard(self) -> None:
        """Store the time of each cluster's last message."""
        for known in self._clusters.known.values():
            if known.heard_ms != known.saved_ms:
                known.saved_ms = known.heard_ms
                self._row_writer.post(
                    ClusterHeard(known.name, known.heard_ms, tuple(known.current_statuses().values()))
                )

    async def _forget(self, now_ms: int) -> None:
        limit_ms = round(self._config.forget_after_s * 1000)
        if not limit_ms:
            return
        for known in list(self._clusters.known.values()):
            if known.session is None and now_ms - known.heard_ms > limit_ms:
                with suppress(Conflict, NotFound):  # an edge claims it now, or a user forgets it
                    await self._forgetter.forget(known.name)
