"""Controllers behind the proxy have a load: the proxy measures it, and the manager scales and rebalances by it."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from shard_world import NAMESPACE, World, world
from test_proxy import a_world, names, through
from test_shard_sweep import kind, website

from shoal.app.ports import any_free
from shoal.app.sharding.proxy import ShardProxy
from shoal.base.asgi import serving
from shoal.base.clock import RealClock
from shoal.base.metrics import Metrics
from shoal.base.tasks import cancel_all
from shoal.client import builtin
from shoal.sharding.leases import WorkerReport, read_lease
from shoal.sharding.proxy.load import QueueSource
from shoal.sharding.worker import WorkerConfig
from shoal.testing.waiting import eventually

HOST = "127.0.0.1"


class ControllerMetrics:
    """The /metrics of a controller."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            text = f'workqueue_depth{{name="a"}} {self.depth - 2}\nworkqueue_depth{{name="b"}} 2\n'
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": text.encode()})


@asynccontextmanager
async def metrics_of(depth: int) -> AsyncIterator[QueueSource]:
    port = any_free(HOST)
    async with serving(ControllerMetrics(depth), host=HOST, port=port, clock=RealClock()):
        yield QueueSource(HOST, port, "/metrics", "workqueue_depth")


def answer(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as reply:
        found: bytes = reply.read()
        return found


async def test_a_proxy_reports_objects_queue_and_latency_and_answers_health(tmp_path: Path) -> None:
    async with metrics_of(42) as source, a_world(tmp_path) as proxies:
        port = any_free(HOST)
        kubeconfig = await proxies.proxy("a", health=(HOST, port), queue=source)
        for number in range(4):
            await proxies.site(f"s{number}", number)
        await proxies.give("a", 5, 0, 1, 2)
        async with through(kubeconfig) as client:

            async def seen() -> bool:
                return await names(client) == ["s0", "s1", "s2"]

            await eventually(seen)

        async def report() -> WorkerReport:
            return read_lease(
                await proxies.client.of(builtin("leases", "coordination.k8s.io")).get("a", "default")
            ).report

        async def measured() -> bool:
            found = await report()
            assert (found.objects, found.queue_depth) == (3, 42), found
            return found.latency_s > 0

        await eventually(measured)
        health = await asyncio.to_thread(answer, f"http://{HOST}:{port}/readyz")
        assert orjson.loads(health) == {"ok": True, "checks": {"lease": "held"}}
        metrics = (await asyncio.to_thread(answer, f"http://{HOST}:{port}/metrics")).decode()
        for line in ("objects 3.0", "queue_length 42.0", "requests_in_flight 0.0", "request_seconds_count"):
            assert f"shard_proxy_{line}" in metrics
        assert "shard_worker_slots 3.0" in metrics


async def test_scaling_and_rebalancing_follow_the_load_of_controllers_behind_proxies() -> None:
    async with world() as w, metrics_of(100) as busy, metrics_of(2) as idle:
        websites = await kind(w, "Website", "websites")
        for number in range(10):
            await websites.create(website(f"site-{number}"))
        await w.config(
            "web", targets=[{"group": "example.com", "kind": "Website"}], loadBalanceStrategy="least-loaded",
            minShards=2, heartbeatInterval="500ms", sustainedFor="1s", rebalanceThreshold=0.1, queueDepthLimit=20,
            healthCheckInterval="500ms",
        )  # fmt: skip
        tasks = [asyncio.create_task(run(w, name, queue), name=name) for name, queue in (("a", busy), ("b", idle))]
        try:
            await eventually(lambda: events(w, "Rebalancing", "from the busiest shard"), timeout_s=30.0)
            await eventually(lambda: events(w, "ScalingUp", "2 to 4 shards: 51 queued per shard"), timeout_s=30.0)

            async def fewer() -> bool:
                owners = await w.owners("web")
                return owners["a"] < owners["b"]

            await eventually(fewer, timeout_s=30.0)
        finally:
            await cancel_all(*tasks)


async def events(w: World, reason: str, text: str) -> bool:
    found = await w.messages(reason)
    assert any(text in message for message in found), (found, await w.status("web"))
    return True


async def run(w: World, shard: str, queue: QueueSource) -> None:
    config = WorkerConfig(config="web", shard=shard, namespace=NAMESPACE)
    proxy = ShardProxy(w.client, config, clock=RealClock(), token="t", metrics=Metrics(), queue=queue)
    await proxy.run(asyncio.Event())
