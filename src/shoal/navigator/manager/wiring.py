"""Builds a manager: the service for edges, and the state for answers.

manager = Manager(rows, clock=…, new_id=…)
await manager.open()                 # tables, then everything into memory
app = manager.app                    # for a listener, beside the REST application
await manager.run()                  # until cancelled; streams end with it
manager.view, manager.changes, manager.history, manager.edges, manager.options, manager.admin, manager.tokens
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from sys import intern

from shoal.base.asgi import Application
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.metrics import PROCESS, Metrics
from shoal.base.supervision import Run, supervise
from shoal.base.tasks import run_all
from shoal.errors import ServiceUnavailable
from shoal.navigator.change_signal import ChangeSignal
from shoal.navigator.manager.clusters import Clusters
from shoal.navigator.manager.config import ManagerConfig
from shoal.navigator.manager.edges import EdgeLinks
from shoal.navigator.manager.forgetting import ClusterForgetter
from shoal.navigator.manager.history import ManagerHistory
from shoal.navigator.manager.index import Index
from shoal.navigator.manager.live import LiveView
from shoal.navigator.manager.metrics import ManagerMetrics
from shoal.navigator.manager.objects import make_row
from shoal.navigator.manager.options import EdgeOptions
from shoal.navigator.manager.registry import ClaimRegistry
from shoal.navigator.manager.retention import RetentionLoop
from shoal.navigator.manager.row_writer import RowWriter
from shoal.navigator.manager.rows import Rows
from shoal.navigator.manager.service import ManagerCalls
from shoal.navigator.manager.tokens import NavigatorTokens
from shoal.navigator.model import Freshness
from shoal.wire.navigator.v1.navigator_connect import ManagerServiceASGIApplication

DEFAULTS = ManagerConfig()
_ENVELOPE_BYTES = 64 << 10  # overhead of a message

_log = get_logger("navigator")


class Manager:
    """One per process and database."""

    def __init__(
        self,
        rows: Rows,
        *,
        clock: Clock,
        new_id: Callable[[], str],
        config: ManagerConfig = DEFAULTS,
        metrics: Metrics = PROCESS,
        name: str = "manager",
        grown: Callable[[int], None] = lambda count: None,
    ) -> None:
        """``grown`` is called with the number of objects added to memory."""
        counts = ManagerMetrics(metrics)
        self._rows = rows
        self._clock = clock
        self._grown = grown
        self._loaded = False
        self.config = config
        self.changes = ChangeSignal(clock)
        self.index = Index()
        self.registry = ClaimRegistry(grace_s=config.grace_s)
        self.clusters = Clusters(
            self.index, stale_intervals=config.stale_intervals, keep_alive_s=config.keep_alive_s,
            changed=self.changes.notify,
        )  # fmt: skip
        self.row_writer = RowWriter(
            rows, self.index, self.registry, counts, clock=clock, grown=grown, changed=self.changes.notify
        )
        self.tokens = NavigatorTokens(rows, clock=clock, new_id=new_id)
        self.options = EdgeOptions(rows, self.clusters)
        self.edges = EdgeLinks(config, counts, clock=clock, new_id=new_id)
        self.view = LiveView(self.index, self.clusters, rows, clock=clock)
        self.history = ManagerHistory(self.index, self.clusters, rows, clock=clock, retention_s=config.retention_s)
        self.admin = ClusterForgetter(self.registry, self.clusters, self.row_writer, self.tokens)
        self.keeper = RetentionLoop(rows, self.row_writer, self.clusters, self.admin, config, counts, clock=clock)
        self.calls = ManagerCalls(
            self.registry, self.clusters, self.index, self.row_writer, self.edges, self.tokens, self.options, config,
            counts,
            clock=clock, name=name,
        )  # fmt: skip
        self.app: Application = ManagerServiceASGIApplication(
            self.calls, read_max_bytes=config.max_message_bytes + _ENVELOPE_BYTES
        )
        counts.streams.follow(lambda: float(self.calls.connected))
        counts.rows.follow(lambda: float(len(self.index)))
        for freshness in Freshness:
            counts.clusters.follow(partial(self._count, freshness), freshness)

    async def open(self) -> None:
        """Lock the database and read all rows into memory."""
        await self._rows.open()
        try:
            await self._rows.prepare(round(self._clock.wall_s() * 1000))
            await self._load()
            await self.tokens.refresh()
            await self.options.load()
        except BaseException:
            await self._rows.close()
            raise

    async def run(self) -> None:
        """Until cancelled."""
        try:
            loops: dict[str, Run] = {
                "navigator-row-writer": self.row_writer.run,
                "navigator-tokens": lambda: self.tokens.refresh_every(self.config.guard_s),
                "navigator-sweep": self.keeper.sweep_forever,
                "navigator-heard": self.keeper.save_heard_forever,
            }
            await run_all({name: supervise(name, loop, clock=self._clock) for name, loop in loops.items()})
        finally:
            self.calls.end_all()

    async def close(self) -> None:
        """After ``run``: store the time of each cluster's last message, and close the database."""
        try:
            self.keeper.save_heard()
            await self.row_writer.commit_posted()
        except ServiceUnavailable as error:
            _log.warning("the times of the last messages were not stored", reason=str(error))
        finally:
            await self._rows.close()

    @property
    def ready(self) -> tuple[bool, dict[str, str]]:
        """Whether it is ready, and the state of its parts."""
        parts = {
            "loaded": "ok" if self._loaded else "reading the database",
            "database": self.row_writer.away or "ok",
        }
        return all(state == "ok" for state in parts.values()), parts

    async def _load(self) -> None:
        now_s, begun_s = self._clock.monotonic(), self._clock.monotonic()
        for stored in await self._rows.clusters():
            self.clusters.restore(stored)
            self.registry.restore(stored.name, stored.edge, stored.epoch, now_s)
        async for piece in self._rows.load():
            for row in piece:
                cluster = self.index.cluster(row.cluster)
                kind = intern(row.kind)
                made = make_row(cluster.name, kind, row.key, row.fingerprint, row.since_ms, row.data)
                cluster.put(row.key, made)
            self._grown(len(piece))
        self._loaded = True
        _log.info("rows loaded", clusters=len(self.clusters.known), rows=len(self.index),
                  seconds=round(self._clock.monotonic() - begun_s, 2))  # fmt: skip

    def _count(self, freshness: Freshness) -> float:
        now_s = self._clock.monotonic()
        return float(sum(cluster.freshness is freshness for cluster in self.clusters.list_(now_s)))
