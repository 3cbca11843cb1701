"""Measures the load of a controller behind the proxy, for the report in its shard's Lease.

The controller reports nothing itself. The proxy sees its requests (how many at once, how long they take), counts the
objects of its slots, and reads the depth of its work queues from its ``/metrics`` if it has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from msgspec import structs

from shoal.base.clock import Clock
from shoal.base.http1.dial import HttpAddress, fetch
from shoal.base.http1.errors import TransportError
from shoal.base.http1.limits import AnswerLimits, Deadlines
from shoal.base.http1.messages import request_bytes
from shoal.base.logs import get_logger
from shoal.base.metrics import Metrics
from shoal.base.tasks import run_all
from shoal.client import Client, Scope
from shoal.client.verbs import MetadataClient
from shoal.errors import ApiError, ConfigError
from shoal.sharding.leases import WorkerReport
from shoal.sharding.model import SLOTS, slot_label, slot_selector
from shoal.sharding.proxy.kinds import Kinds
from shoal.sharding.worker.gauges import Gauges

log = get_logger("shard.proxy")

_COUNT_S = 30.0  # objects are counted this often, and sooner when slots move
_PAUSE_S = 1.0  # between two counts
_SCRAPE_S = 5.0
_TIMEOUT_S = 3.0
_LIMITS = AnswerLimits(body_bytes=8 * 1024 * 1024)
_PAGE = 500


@dataclass(frozen=True, slots=True)
class QueueSource:
    """Where the controller tells its queues' depth: a plain HTTP URL and the name of a metric."""

    host: str
    port: int
    path: str
    metric: str


def read_queue_source(url: str, metric: str) -> QueueSource | None:
    """From settings; None when there is no URL."""
    if not url:
        return None
    parts = urlsplit(url)
    try:
        port = parts.port or 80
    except ValueError:
        port = 0
    if parts.scheme != "http" or not parts.hostname or not port:
        raise ConfigError(
            f"metrics_url is {url!r}: use http://HOST:PORT/PATH, for example http://127.0.0.1:8080/metrics"
        )
    path = (parts.path or "/metrics") + (f"?{parts.query}" if parts.query else "")
    return QueueSource(parts.hostname, port, path, metric)


def total(text: str, metric: str) -> float:
    """The sum of a metric over all its labels, in Prometheus' text format; 0 when it is absent."""
    found = 0.0
    for line in text.splitlines():
        if line.startswith(metric) and line[len(metric) : len(metric) + 1] in ("{", " ", "\t"):
            value = line.rpartition("}")[2] if "}" in line else line[len(metric) :]
            try:
                found += float(value.split()[0])
            except (ValueError, IndexError):
                continue
    return found


class ProxyLoad:
    def __init__(
        self,
        client: Client,
        kinds: Kinds,
        config: str,
        *,
        slots: Callable[[], frozenset[int]],
        source: QueueSource | None,
        gauges: Gauges,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._client = client
        self._kinds = kinds
        self._config = config
        self._slots = slots
        self._source = source
        self.gauges = gauges
        self._clock = clock
        self._changed = asyncio.Event()
        self._in_flight = 0
        self._objects = 0
        self._queue_depth = 0
        self._scraped = True  # whether the last scrape succeeded
        prefix = "shard_proxy_"
        self._latency_s = metrics.histogram(
            f"{prefix}request_seconds", "requests of the controller, no watches"
        ).labels()
        metrics.gauge(f"{prefix}requests_in_flight", "requests under way, no watches").follow(
            lambda: float(self._in_flight)
        )
        metrics.gauge(f"{prefix}objects", "objects of the shard's slots, children not counted").follow(
            lambda: float(self._objects)
        )
        metrics.gauge(f"{prefix}queue_length", "objects in the controller's queues, as it says").follow(
            lambda: float(self._queue_depth)
        )

    @contextmanager
    def request(self) -> Iterator[None]:
        """A request of the controller that ends by itself: not a watch."""
        began_s = self._clock.monotonic()
        self._in_flight += 1
        self.gauges.began(began_s)
        try:
            yield
        finally:
            ended_s = self._clock.monotonic()
            self._in_flight -= 1
            self.gauges.ended(ended_s, ended_s - began_s)
            self._latency_s.observe(ended_s - began_s)

    def changed(self) -> None:
        """Slots or kinds may have changed: count again."""
        self._changed.set()

    def report(self, said: WorkerReport) -> WorkerReport:
        """The worker's report with what was measured."""
        return structs.replace(
            said,
            objects=self._objects,
            queue_depth=self._queue_depth,
            busy=round(self.gauges.busy(), 3),
            latency_s=round(self.gauges.latency_s, 4),
        )

    async def run(self) -> None:
        await run_all({"proxy/count": self._count(), "proxy/scrape": self._scrape()})

    async def _count(self) -> None:
        while True:
            try:
                self._objects = await self._counted(self._slots())
            except (ApiError, TransportError) as error:
                log.warning("counting the shard's objects failed", reason=str(error))
            await self._clock.sleep(_PAUSE_S)
            timer = self._clock.call_later(_COUNT_S - _PAUSE_S, self._changed.set)
            try:
                await self._changed.wait()
            finally:
                timer.cancel()
            self._changed.clear()

    async def _counted(self, slots: frozenset[int]) -> int:
        if not slots:
            return 0
        selector = slot_label(self._config) if len(slots) == SLOTS else slot_selector(self._config, slots)
        found = 0
        for kind in self._kinds.targets:
            async for page in MetadataClient(self._client, kind).pages(Scope(label_selector=selector), limit=_PAGE):
                found += len(page.items)
        return found

    async def _scrape(self) -> None:
        source = self._source
        if source is None:
            return
        headers = [("host", source.host), ("connection", "close"), ("user-agent", "shard-proxy")]
        request = request_bytes("GET", source.path, headers)
        address, deadlines = HttpAddress(source.host, source.port), Deadlines(total_s=_TIMEOUT_S)
        while True:
            reason = ""
            try:
                reply = await fetch(
                    address, request, clock=self._clock, connect_s=_TIMEOUT_S, deadlines=deadlines, limits=_LIMITS
                )
                reason = "" if reply.status == 200 else f"{address}{source.path} answered {reply.status}"
            except TransportError as error:
                reason = str(error)
            self._queue_depth = 0 if reason else int(total(reply.body.decode("utf-8", "replace"), source.metric))
            if reason and self._scraped:
                log.warning("the controller's metrics could not be read; its queue counts as empty", reason=reason)
            self._scraped = not reason
            await self._clock.sleep(_SCRAPE_S)
