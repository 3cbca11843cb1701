"""The load of a controller behind the proxy: its requests, and its queue from its metrics."""

from __future__ import annotations

import re

import pytest

from shoal.base.clock import FakeClock
from shoal.base.metrics import Metrics
from shoal.client import Client
from shoal.errors import ConfigError
from shoal.sharding.leases import WorkerReport
from shoal.sharding.proxy.kinds import Kinds
from shoal.sharding.proxy.load import ProxyLoad, QueueSource, read_queue_source, total
from shoal.sharding.worker.gauges import Gauges
from shoal.testing.servers import local_server

METRICS = """\
# HELP workqueue_depth Current depth of workqueue
# TYPE workqueue_depth gauge
workqueue_depth{name="web site",controller="{odd}"} 3
workqueue_depth{name="b"} 4.5e+01 1700000000000
workqueue_depth_total{name="b"} 1000
workqueue_depth broken
"""


def test_a_metric_is_summed_over_its_labels() -> None:
    assert total(METRICS, "workqueue_depth") == 48.0
    assert total("queue 7\nqueued 8\n", "queue") == 7.0
    assert total(METRICS, "absent") == 0.0


def test_only_plain_http_urls_are_sources() -> None:
    assert read_queue_source("", "q") is None
    assert read_queue_source("http://127.0.0.1:8080", "q") == QueueSource("127.0.0.1", 8080, "/metrics", "q")
    for url in ("https://127.0.0.1/metrics", "127.0.0.1:8080", "http://127.0.0.1:99999/metrics"):
        with pytest.raises(ConfigError, match="use http://HOST:PORT/PATH"):
            read_queue_source(url, "q")


async def test_requests_of_the_controller_are_its_load() -> None:
    clock, metrics = FakeClock(), Metrics()
    gauges = Gauges(clock, handlers=4, cpus=1.0, memory_limit_bytes=1 << 30)
    async with local_server() as server:
        client = Client(server.transport, clock=clock)
        load = ProxyLoad(
            client, Kinds(client), "websites", slots=frozenset, source=None, gauges=gauges, clock=clock, metrics=metrics
        )  # fmt: skip
        with load.request():
            with load.request():
                assert in_flight(metrics) == 2
                await clock.advance(1.0)
            await clock.advance(1.0)
            found = load.report(WorkerReport(metrics={"own": 1.0}))
    assert (found.busy, found.latency_s, found.metrics) == (0.375, 1.0, {"own": 1.0})  # 2 and 1 of 4, for a second each
    assert in_flight(metrics) == 0
    assert load.report(WorkerReport()).latency_s == 2.0


def in_flight(metrics: Metrics) -> float:
    (line,) = re.findall(r"^shard_proxy_requests_in_flight (\S+)$", metrics.render().decode(), re.MULTILINE)
    return float(line)
