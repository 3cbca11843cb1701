"""All feeds of the process: each is started for its first page, and ends a while after its last one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

from shoal.base.clock import Clock
from shoal.base.supervision import supervise
from shoal.base.tasks import OwnedTasks
from shoal.dashboard.live.feed import Feed, Source, Subscription
from shoal.dashboard.metrics import PageMetrics

LINGER_S = 10.0  # people go from view to view, and back
_SWEEP_S = 2.0


class Feeds:
    """``run`` ends the feeds that nobody shows any more."""

    def __init__(self, clock: Clock, metrics: PageMetrics) -> None:
        self._clock = clock
        self._tasks = OwnedTasks()
        self._running: dict[Hashable, tuple[Feed, asyncio.Task[None]]] = {}
        self._count = metrics.feeds

    def subscribe(
        self, key: Hashable, name: str, source: Source, id_: int, wake: Callable[[], None]
    ) -> tuple[Feed, Subscription]:
        """``key`` names the topic, its parameters, and everything that decides which rows may be seen."""
        found = self._running.get(key)
        if found is None:
            feed = Feed(name, source, self._clock)
            running = supervise("page-feed", feed.run, clock=self._clock, detail=name)
            found = self._running[key] = feed, self._tasks.start(running, name=f"page/{name}")
            self._count.labels(name).inc()
        feed = found[0]
        subscription = Subscription(feed, id_, wake)
        feed.subscriptions.add(subscription)
        wake()
        return feed, subscription

    def leave(self, feed: Feed, subscription: Subscription) -> None:
        feed.subscriptions.discard(subscription)
        feed.idle_since_s = self._clock.monotonic()

    async def run(self) -> None:
        while True:
            await self._clock.sleep(_SWEEP_S)
            await self._sweep()

    async def close(self) -> None:
        await self._tasks.close()

    async def _sweep(self) -> None:
        before_s = self._clock.monotonic() - LINGER_S
        for key, (feed, task) in list(self._running.items()):
            if not feed.subscriptions and feed.idle_since_s <= before_s:
                del self._running[key]
                self._count.labels(feed.name).inc(-1)
                task.cancel()
