"""Calls between services, from an edge with a real Prometheus."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from protobuf import Oneof

from shoal.app.ports import any_free
from shoal.base.asgi import Receive, Scope, Send, answer, serving
from shoal.base.clock import RealClock
from shoal.client import Client
from shoal.client.transport import Transport
from shoal.navigator.connections import ServiceConnection, read_connections
from shoal.navigator.edge.config import RequestConfig
from shoal.testing.navigator import RecordingManager, recording_manager, running_edge
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually
from shoal.wire.navigator.v1 import navigator_pb as pb

PROMETHEUS = shutil.which("prometheus")
BOUNDS = (5, 10, 25)


class Metrics:
    """A mesh that answers a hundred requests between two scrapes, one in ten of them badly."""

    def __init__(self) -> None:
        self._scrapes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self._scrapes += 1
        lines = [
            line
            for cluster in ("east", "west")
            for pair in (("front", "stock"), ("stock", "stars"))
            for line in self._series(cluster, *pair)
        ]
        await answer(send, 200, ("\n".join(lines) + "\n").encode(), "text/plain")

    def _series(self, cluster: str, source: str, destination: str) -> list[str]:
        labels = (
            f'mesh_cluster="{cluster}",reporter="source",source_cluster="{cluster}",destination_cluster="{cluster}",'
            f'source_workload_namespace="shop",destination_service_namespace="shop",'
            f'source_canonical_service="{source}",destination_canonical_service="{destination}"'
        )
        seen = 100 * self._scrapes
        lines = [
            f'istio_requests_total{{{labels},response_code="200"}} {seen * 0.9}',
            f'istio_requests_total{{{labels},response_code="503"}} {seen * 0.1}',
        ]
        for at, bound in enumerate((*BOUNDS, "+Inf")):
            lines.append(f'istio_request_duration_milliseconds_bucket{{{labels},le="{bound}"}} {seen * (at + 1) / 4}')
        return lines


@asynccontextmanager
async def prometheus(folder: Path) -> AsyncIterator[str]:
    assert PROMETHEUS is not None
    target, port = any_free("127.0.0.1"), any_free("127.0.0.1")
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "mesh", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}],
    }
    (folder / "prometheus.yaml").write_bytes(orjson.dumps(config))
    arguments = [
        PROMETHEUS, f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    async with serving(Metrics(), host="127.0.0.1", port=target, clock=RealClock()):
        process = await asyncio.create_subprocess_exec(*arguments, stderr=subprocess.DEVNULL)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            await process.wait()


async def ask(manager: RecordingManager, id_: str, **asked: Any) -> list[ServiceConnection]:
    now_ms = int(time.time() * 1000)
    what = Oneof("connections", pb.ServiceConnections(start_ms=now_ms - 60_000, end_ms=now_ms, **asked))
    parts = await manager.ask(id_, what)
    if parts[-1].error:
        return []  # it has not started yet
    found, warnings = read_connections(orjson.loads(b"".join(part.part for part in parts)), "here")
    assert not warnings
    return found


@pytest.mark.skipif(PROMETHEUS is None, reason="Prometheus is not installed")
async def test_connections_come_with_rates_errors_and_histograms_of_the_cluster_alone(tmp_path: Path) -> None:
    async with prometheus(tmp_path) as url, local_server() as server, recording_manager() as manager:
        client = Client(cast(Transport, server.transport), clock=RealClock())
        config = RequestConfig(prometheus=url, prometheus_cluster_label="mesh_cluster=east")
        async with running_edge(client, manager.join_file(), requests=config):
            await manager.until(lambda: manager.current is not None)
            turn = 0

            async def both() -> list[ServiceConnection]:
                nonlocal turn
                turn += 1
                found = await ask(manager, f"all-{turn}")
                return found if len(found) == 2 and all(each.latency_ms.total > 0 for each in found) else []

            found = await eventually(both, timeout_s=60)
            assert {each.source.cluster for each in found} == {"east"}
            assert {(each.source.service, each.destination.service) for each in found} == {
                ("front", "stock"), ("stock", "stars")
            }  # fmt: skip
            for each in found:
                assert each.errors / each.requests == pytest.approx(0.1, rel=0.05)
                assert each.latency_ms.bounds == (5.0, 10.0, 25.0, float("inf"))
                assert each.latency_ms.counts[1] / each.latency_ms.total == pytest.approx(0.5, rel=0.05)
            assert len(await ask(manager, "of-stock", namespace="shop", service="stock")) == 2
            (one,) = await ask(manager, "of-front", namespace="shop", service="front")
            assert one.destination.service == "stock"
            assert await ask(manager, "of-none", namespace="other", service="front") == []


async def test_an_edge_without_prometheus_refuses_with_the_reason() -> None:
    async with local_server() as server, recording_manager() as manager:
        client = Client(cast(Transport, server.transport), clock=RealClock())
        async with running_edge(client, manager.join_file()):
            await manager.until(lambda: manager.current is not None)
            what = Oneof("connections", pb.ServiceConnections(start_ms=1, end_ms=2))
            parts = await manager.ask("1", what)
            assert parts[-1].reason == "BadRequest" and "requests.prometheus" in parts[-1].error
