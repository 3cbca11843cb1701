"""A hundred simulated clusters with 200 000 pods on one manager process: memory, questions, how soon a change is seen.

    PYTHONPATH=src python bench/navigator_bench.py [--clusters 100] [--pods 2000] [--quick]

The manager is a process of its own (SQLite, TLS, its REST API); the edges are in this one, each with its own
connection, and send what a cluster of that size has: pods, services with their endpoints, deployments and nodes.
Questions go over HTTP, one after the other, while changes go on. A change is seen when the manager has stored it and
put it into its index: then it acknowledges. Before all that, a real cluster and its edge, each a process, with the
manager in this one: from the answer to a write until its row is in the index. Fails when a bar is not held in one of
three attempts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pyqwest
import uvloop

from shoal.base import logs
from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.client import connect as connect_client
from shoal.client import load
from shoal.navigator.manager.config import ManagerConfig
from shoal.navigator.manager.sqlite import SqliteRows
from shoal.navigator.manager.tokens import EDGE, NavigatorTokens
from shoal.testing.managers import (
    COMMAND,
    ManagerProcess,
    SimulatedEdge,
    edge_client,
    manager_process,
    running_manager,
)
from shoal.testing.servers import server_process
from shoal.testing.waiting import eventually

MEMORY_BAR_MB, INDEXED_BAR_MS, SCAN_BAR_MS, VISIBLE_BAR_MS = 1000.0, 50.0, 500.0, 250.0
ATTEMPTS = 3
KINDS = ("nodes", "deployments", "services", "endpointslices", "pods")
CHUNK_ROWS = 250
SYNCING = 8  # clusters that send at the same time

# Each with what it is answered from.
INDEXED = {
    "label": "pods where labels.app = 'app-7' and cluster = 'c3'",
    "label, all clusters": "pods where labels.app = 'app-7' limit 100",
    "namespace": "pods where namespace = 'team-5' and cluster = 'c3'",
    "key": "pods where namespace = 'team-5' and name = 'app-5-6f7-5'",
    "service": "pods where service = 'app-9' and cluster = 'c2'",
    "nodes by cluster": "nodes where cluster = 'c1'",
}
SCANS = {
    "image": "pods where image ~ 'v2' and not ready limit 100",
    "region": "pods where image ~ 'v2' and region = 'eu' and not ready count by cluster",
    "restarts": "pods where restarts > 3 limit 100",
    "count by node": "pods count by node limit 50",
}


def pod(cluster: int, number: int, *, version: int = 0) -> dict[str, Any]:
    """Of the size and shape that an edge sends."""
    app, name = number % 200, f"app-{number % 200}-6f7-{number}"
    ready = number % 50 != 0
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": f"team-{app % 20}",
            "uid": f"{cluster:08x}-0000-4000-8000-{number:012x}",
            "resourceVersion": str(100_000 + number + version),
            "creationTimestamp": f"2026-01-{1 + number % 28:02}T10:{number % 60:02}:00Z",
            "labels": {
                "app": f"app-{app}", "app.kubernetes.io/name": f"app-{app}", "pod-template-hash": "6f7",
                "team": f"team-{app % 20}", "version": f"v{app % 4}",
            },
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"app-{app}-6f7", "controller": True}
            ],
        },
        "spec": {
            "nodeName": f"node-{number % 40}",
            "serviceAccountName": f"app-{app}",
            "containers": [
                {
                    "name": name_, "image": f"registry.example/{image}", "ports": [{"containerPort": 8080}],
                    "env": [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(6)],
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
                }
                for name_, image in (("main", f"app-{app}:v{app % 4}"), ("sidecar", "proxy:1.9"))
            ],
        },
        "status": {
            "phase": "Running",
            "podIP": f"10.{cluster}.{number // 250}.{number % 250}",
            "hostIP": f"192.168.{cluster}.{number % 40}",
            "conditions": [
                {"type": "Ready", "status": "True" if ready else "False"},
                {"type": "PodScheduled", "status": "True"},
            ],
            "containerStatuses": [
                {
                    "name": name_, "ready": ready, "restartCount": number % 5 if version == 0 else version,
                    "state": {"running": {"startedAt": "2026-01-01T10:00:00Z"}}, "image": "x", "imageID": "sha256:0",
                }
                for name_ in ("main", "sidecar")
            ],
        },
    }  # fmt: skip


def keyed(objects: Iterator[dict[str, Any]]) -> dict[str, bytes]:
    rows = {}
    for obj in objects:
        metadata = obj["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else metadata["name"]
        rows[key] = orjson.dumps(obj)
    return rows


def contents(cluster: int, pods: int) -> dict[str, dict[str, bytes]]:
    apps = range(200)

    def slices() -> Iterator[dict[str, Any]]:
        for app in apps:
            endpoints = [
                {
                    "addresses": [f"10.{cluster}.{n // 250}.{n % 250}"], "conditions": {"ready": n % 50 != 0},
                    "targetRef": {"kind": "Pod", "name": f"app-{app}-6f7-{n}"}, "nodeName": f"node-{n % 40}",
                }
                for n in range(app, pods, 200)
            ]  # fmt: skip
            labels = {"kubernetes.io/service-name": f"app-{app}"}
            yield {
                "metadata": {"name": f"app-{app}-x", "namespace": f"team-{app % 20}", "labels": labels},
                "ports": [{"port": 8080}], "endpoints": endpoints,
            }  # fmt: skip

    def named(app: int) -> dict[str, Any]:
        return {"name": f"app-{app}", "namespace": f"team-{app % 20}", "labels": {"app": f"app-{app}"}}

    return {
        "pods": keyed(pod(cluster, number) for number in range(pods)),
        "services": keyed(
            {
                "metadata": named(app),
                "spec": {
                    "clusterIP": f"10.96.{app}.{cluster}",
                    "selector": {"app": f"app-{app}"},
                    "ports": [{"port": 80}],
                },
            }
            for app in apps
        ),
        "endpointslices": keyed(slices()),
        "deployments": keyed(
            {"metadata": named(app), "spec": {"replicas": 10}, "status": {"replicas": 10, "readyReplicas": 10}}
            for app in apps
        ),
        "nodes": keyed(
            {"metadata": {"name": f"node-{n}", "labels": {"zone": f"z{n % 3}"}}, "status": {"conditions": []}}
            for n in range(40)
        ),
    }


async def tokens(folder: Path, clusters: int) -> list[str]:
    rows = SqliteRows(folder / "navigator.db")
    await rows.open(manager=False)
    made = NavigatorTokens(rows, clock=RealClock(), new_id=Ids().new_uid)
    found = [(await made.create(kind=EDGE, cluster=f"c{number}"))[0] for number in range(clusters)]
    await rows.close()
    return found


async def connect(
    process: ManagerProcess, texts: list[str], closing: AsyncExitStack, *, first: int = 0
) -> list[SimulatedEdge]:
    """An edge for each token, of the clusters from number ``first`` on."""
    edges = []
    for number, text in enumerate(texts, first):
        region = "eu" if number % 2 else "us"
        edge = SimulatedEdge(
            edge_client(process.url, process.ca, closing), text, f"c{number}", f"edge-{number}", kinds=KINDS,
            metadata={"region": region, "environment": "production", "version": "1.31"},
        )  # fmt: skip
        edges.append(edge)
    await asyncio.gather(*(edge.open() for edge in edges))
    for edge in edges:
        closing.push_async_callback(edge.close)
        assert edge.accepted is not None, edge.rejected
    return edges


async def sync(edges: list[SimulatedEdge], pods: int, *, first: int = 0) -> float:
    """Everything of all clusters, a few at a time; the seconds it takes without making it up."""
    turns, making = asyncio.Semaphore(SYNCING), [0.0]

    async def one(number: int, edge: SimulatedEdge) -> None:
        async with turns:
            begun = time.perf_counter()
            rows = contents(number, pods)
            making[0] += time.perf_counter() - begun
            for kind in KINDS:
                await edge.sync(kind, rows[kind], chunk_rows=CHUNK_ROWS)
            await edge.verify()
            assert edge.resyncs == [], edge.resyncs
            if number:
                edge.rows.clear()  # 400 MB of no use here

    begun = time.perf_counter()
    await asyncio.gather(*(one(number, edge) for number, edge in enumerate(edges, first)))
    return time.perf_counter() - begun - making[0]


class Asking:
    """Questions over the REST API, on one connection."""

    def __init__(self, process: ManagerProcess, closing: AsyncExitStack) -> None:
        transport = pyqwest.HTTPTransport(tls_ca_cert=process.ca, http_version=pyqwest.HTTPVersion.HTTP2)
        closing.push_async_callback(transport.aclose)
        self._client = pyqwest.Client(transport)
        self._url, self._headers = process.url, {"authorization": f"Bearer {process.admin_token}"}

    async def ask(self, text: str) -> tuple[float, int]:
        """Milliseconds, and how many rows there are."""
        begun = time.perf_counter()
        answer = await self._client.get(f"{self._url}/api/v1/query?q={quote(text)}", headers=self._headers)
        took_ms = (time.perf_counter() - begun) * 1000
        body = json.loads(answer.content)
        if answer.status != 200:
            raise RuntimeError(f"{text}: {body}")
        return took_ms, int(body.get("total", len(body["items"])))

    async def metrics(self) -> str:
        answer = await self._client.get(f"{self._url}/metrics", headers=self._headers)
        return bytes(answer.content).decode()


async def questions(asking: Asking, asked: Mapping[str, str], rounds: int) -> dict[str, tuple[float, float, int]]:
    """Median and 99th percentile, and how many rows were found, of each."""
    found = {}
    for name, text in asked.items():
        await asking.ask(text)
        times = []
        for _ in range(rounds):
            took_ms, total = await asking.ask(text)
            times.append(took_ms)
        found[name] = statistics.median(times), p99(times), total
    return found


async def changes(edge: SimulatedEdge, count: int, *, pause_s: float) -> list[float]:
    """Milliseconds until each of ``count`` changes could be seen."""
    numbers, times = random.Random(7), []
    total = len(edge.rows["pods"])
    for version in range(1, count + 1):
        number = numbers.randrange(total)
        changed = pod(0, number, version=version)
        key = f"{changed['metadata']['namespace']}/{changed['metadata']['name']}"
        delta = edge.delta("pods", {key: orjson.dumps(changed)})
        begun = time.perf_counter()
        await edge.stored(edge.send("delta", delta))
        times.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(pause_s)
    assert edge.resyncs == [], edge.resyncs
    return times


async def through_an_edge(bars: Bars, pods: int, count: int) -> None:
    """What a change in a cluster takes to be seen, with everything that is on its way."""
    with server_process() as cluster, tempfile.TemporaryDirectory(prefix="navigator-bench-") as name:
        folder = Path(name)
        async with (
            connect_client(load(cluster.kubeconfig), clock=RealClock()) as client,
            running_manager(folder, config=ManagerConfig()) as running,
        ):
            await client.request("POST", "/api/v1/namespaces", body={"metadata": {"name": "bench"}})
            for number in range(pods):
                body = {
                    "metadata": {"name": f"p{number}"},
                    "spec": {"containers": pod(0, number)["spec"]["containers"]},
                }
                await client.request("POST", "/api/v1/namespaces/bench/pods", body=body)
            join = await running.join_file(folder, "real")
            edge = await asyncio.create_subprocess_exec(
                *COMMAND, "edge", "--join", str(join), "--kubeconfig", str(cluster.kubeconfig), "--port", "0",
                "--log-level", "warning", stdout=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            try:
                index = running.manager.index
                await eventually(
                    lambda: len(list(index.rows("pods", cluster="real"))) == pods, timeout_s=60, every_s=0.001
                )
                times = []
                for turn in range(count):
                    key, text = f"p{turn % pods}", str(turn)
                    await client.request(
                        "PATCH", f"/api/v1/namespaces/bench/pods/{key}", body={"metadata": {"labels": {"turn": text}}},
                        content_type="application/merge-patch+json",
                    )  # fmt: skip
                    begun = time.perf_counter()
                    await eventually(
                        lambda text=text: any(index.labelled("pods", "turn", text)), timeout_s=60, every_s=0.001
                    )
                    times.append((time.perf_counter() - begun) * 1000)
                    await asyncio.sleep(0.01)
            finally:
                edge.terminate()
                await edge.wait()
            bars.show("change in a cluster until seen, p50", statistics.median(times), "ms")
            bars.show("change in a cluster until seen, p99", p99(times), "ms", VISIBLE_BAR_MS)


def p99(times: list[float]) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * 0.99))]


def rss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def files_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.glob("navigator.db*")) / 1e6


class Bars:
    def __init__(self) -> None:
        self.failed = False

    def show(self, name: str, value: float, unit: str, bar: float | None = None) -> None:
        held = bar is None or value <= bar
        self.failed |= not held
        limit = "" if bar is None else f"   (bar {bar:g} {unit}{'' if held else ': NOT HELD'})"
        print(f"  {name:<44}{value:>10.1f} {unit}{limit}", flush=True)


async def attempt(folder: Path, clusters: int, pods: int, rounds: int) -> bool:
    bars = Bars()
    await through_an_edge(bars, 200, 4 * rounds)
    with manager_process(folder, "--port", "0") as process:
        texts = await tokens(folder, clusters)
        async with AsyncExitStack() as closing:
            edges = await connect(process, texts, closing)
            took_s = await sync(edges, pods)
            bars.show("rows", clusters * (pods + 640), "")
            bars.show("sync of everything", took_s, "s")
            bars.show("manager's memory", rss_mb(process.pid), "MB", MEMORY_BAR_MB)
            asking = Asking(process, closing)
            changing = asyncio.create_task(changes(edges[0], 4 * rounds, pause_s=0.02), name="changes")
            for asked, bar in ((INDEXED, INDEXED_BAR_MS), (SCANS, SCAN_BAR_MS)):
                for name, (median, slowest, total) in (await questions(asking, asked, rounds)).items():
                    bars.show(f"{name} ({total} rows), p50", median, "ms")
                    bars.show(f"{name}, p99", slowest, "ms", bar)
            times = await changing
            bars.show("change until seen, beside questions, p50", statistics.median(times), "ms")
            bars.show("change until seen, beside questions, p99", p99(times), "ms")
            times = await changes(edges[0], 4 * rounds, pause_s=0.005)
            bars.show("change until seen, p50", statistics.median(times), "ms")
            bars.show("change until seen, p99", p99(times), "ms", VISIBLE_BAR_MS)
            bars.show("manager's memory after that", rss_mb(process.pid), "MB", MEMORY_BAR_MB)
        process.stop()
        bars.show("database", files_mb(folder), "MB")
        begun = time.perf_counter()
        process.start()
        bars.show("start with everything, from the disk", time.perf_counter() - begun, "s")
        bars.show("manager's memory after that", rss_mb(process.pid), "MB", MEMORY_BAR_MB)
    return not bars.failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument("--pods", type=int, default=2000, help="per cluster")
    parser.add_argument("--rounds", type=int, default=100, help="of each question")
    parser.add_argument("--attempts", type=int, default=ATTEMPTS)
    parser.add_argument("--quick", action="store_true", help="a tenth of it, once")
    options = parser.parse_args()
    logs.configure(level="warning")
    clusters, pods, rounds = options.clusters, options.pods, options.rounds
    if options.quick:
        clusters, rounds = max(4, clusters // 10), 20
    for number in range(1, (1 if options.quick else options.attempts) + 1):
        print(f"attempt {number}: {clusters} clusters with {pods} pods each")
        with tempfile.TemporaryDirectory(prefix="navigator-bench-") as folder:
            if uvloop.run(attempt(Path(folder), clusters, pods, rounds)):
                return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
