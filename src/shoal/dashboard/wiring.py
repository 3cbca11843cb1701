"""The page of a control plane, put together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from shoal.base.clock import Clock
from shoal.base.metrics import Metrics
from shoal.base.supervision import supervise
from shoal.base.tasks import run_all
from shoal.control.api.access import Credentials
from shoal.control.database.engine import Databases
from shoal.control.database.sessions import Sessions
from shoal.control.database.tokens import ApiTokens
from shoal.control.domain.access import OPERATORS
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.live_reads import LiveReads
from shoal.dashboard.files import PageFiles
from shoal.dashboard.gate import PageGate
from shoal.dashboard.live.hub import Feeds
from shoal.dashboard.live.ticks import Ticks
from shoal.dashboard.login import CodeLogin, Login, TokenLogin
from shoal.dashboard.metrics import PageMetrics
from shoal.dashboard.navigator import NavigatorClient, NavigatorPlaces
from shoal.dashboard.page import FleetPage, PageDeps
from shoal.dashboard.topics.apps import AppTopics
from shoal.dashboard.topics.entrances import EntranceTopics
from shoal.dashboard.topics.fleet import FleetTopics
from shoal.dashboard.topics.model import TopicDeps
from shoal.dashboard.topics.registry import Topics
from shoal.dashboard.topics.seen import SeenTopics
from shoal.dashboard.topics.why import WhyTopics
from shoal.sync.keys import Place


class Dashboard:
    """``page`` serves it; ``run`` keeps what it shows up to date. The ``gate`` must be that of the API's requests."""

    def __init__(
        self,
        fleet: Fleet,
        tokens: ApiTokens,
        sessions: Sessions,
        databases: Databases,
        *,
        clock: Clock,
        metrics: Metrics,
        gate: PageGate,
        navigator: NavigatorPlaces,
        grant_key: bytes,
        new_id: Callable[[], str],
        version: str,
        files: PageFiles | None = None,
        operators: Collection[str] = OPERATORS,
        broken: Callable[[], Mapping[Place, int]] = dict,
    ) -> None:
        self._clock = clock
        self._databases = databases
        self._ticks = Ticks(clock)
        kept = PageMetrics(metrics)
        self._feeds = Feeds(clock, kept)
        reads = LiveReads(databases)
        client = NavigatorClient(navigator, grant_key, clock)
        deps = TopicDeps(fleet, reads, self._ticks, clock, client, broken)
        known = [
            topic
            for group in (FleetTopics, AppTopics, EntranceTopics, SeenTopics, WhyTopics)
            for topic in group(deps).topics()
        ]
        topics = Topics(known, self._feeds, reads)
        self.page = FleetPage(
            PageDeps(
                clock=clock, new_id=new_id, metrics=kept, gate=gate, files=files or PageFiles(),
                login=Login([CodeLogin(sessions), TokenLogin(sessions)], clock), sessions=sessions,
                credentials=Credentials(tokens, sessions), operators=operators,
                reads=reads, topics=topics, navigator=client, leave=self._feeds.leave, version=version,
            )
        )  # fmt: skip

    async def run(self) -> None:
        """Until cancelled."""
        watched = {
            f"page/{each.name}": supervise(
                "page-ticks", partial(self._ticks.run, each), clock=self._clock, detail=each.name
            )
            for each in self._databases.all
        }
        try:
            await run_all({"page/feeds": supervise("page-feeds", self._feeds.run, clock=self._clock), **watched})
        finally:
            await self._feeds.close()
