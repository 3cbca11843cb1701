"""An edge beside a large cluster: how long its first sync takes, how much memory, and what a quiet cluster costs.

    PYTHONPATH=src python bench/navigator_edge_bench.py [--pods 10000] [--services 2000]

The API server, the edge and a manager that only remembers are three processes' worth of work; the manager is in this
one. The time of the sync is from the start of the edge's process until the manager has every row, so it includes
starting Python. Traffic is counted on the TCP connection, TLS and HTTP/2 included, over intervals in which nothing
happens. Fails when a bar is not held in one of three attempts.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from shoal.base import logs
from shoal.base.clock import RealClock
from shoal.client import Client, connect, load
from shoal.testing.navigator import ManagerModel, RecordingManager, recording_manager
from shoal.testing.proxy import TcpProxy
from shoal.testing.servers import server_process

SYNC_BAR_S, MEMORY_BAR_MB, QUIET_BAR_BYTES, CHANGE_BAR_MS = 5.0, 150.0, 1000.0, 250.0
ATTEMPTS = 3
INTERVAL_S = 2.0  # instead of 30: what an interval costs does not depend on its length
QUIET_INTERVALS = 5
CHANGES = 200
_PARALLEL = 32


class Counting(TcpProxy):
    """Counts what goes through."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.bytes = 0

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        while data := await reader.read(65536):
            self.bytes += len(data)
            writer.write(data)
            await writer.drain()
        writer.close()


def pod(at: int) -> dict[str, Any]:
    """Of the size that pods have: two containers, variables, mounts, probes and a whole status."""
    name = f"web-{at % 200}-{at:05d}"
    image = "registry.example/shop/web@sha256:" + "a1" * 32
    env = [{"name": f"SETTING_{n}", "value": f"value-of-setting-{n}"} for n in range(8)]
    mounts = [{"name": "config", "mountPath": "/etc/config"}, {"name": "data", "mountPath": "/var/data"}]
    probe = {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 5}
    containers = [
        {"name": each, "image": image, "env": env, "volumeMounts": mounts, "readinessProbe": probe,
         "ports": [{"containerPort": 8080}], "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
        for each in ("web", "istio-proxy")
    ]  # fmt: skip
    volumes = [{"name": "config", "configMap": {"name": "web"}}, {"name": "data", "emptyDir": {}}]
    labels = {"app": f"web-{at % 200}", "version": "v1", "pod-template-hash": "6f7c9d8b5", "team": "shop"}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": f"team-{at % 20}", "labels": labels},
        "spec": {"nodeName": f"node-{at % 500}", "containers": containers, "volumes": volumes},
    }  # fmt: skip


def service(at: int) -> dict[str, Any]:
    about = {"name": f"web-{at}", "namespace": f"team-{at % 20}", "labels": {"app": f"web-{at}"}}
    spec = {"selector": {"app": f"web-{at}"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": spec}


async def fill(client: Client, pods: int, services: int) -> None:
    for at in range(20):
        about = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{at}"}}
        await client.request("POST", "/api/v1/namespaces", body=about)
    turn = asyncio.Semaphore(_PARALLEL)

    async def create(obj: dict[str, Any]) -> None:
        async with turn:
            place = obj["metadata"]["namespace"]
            await client.request("POST", f"/api/v1/namespaces/{place}/{obj['kind'].lower()}s", body=obj)

    for make, count in ((pod, pods), (service, services)):
        for start in range(0, count, 1000):
            await asyncio.gather(*(create(make(at)) for at in range(start, min(count, start + 1000))))


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


async def start_edge(join: Path, kubeconfig: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from shoal.app.commands.navigator import app; app()", "edge", "--join", str(join),
        "--kubeconfig", kubeconfig, "--port", "0", "--log-level", "warning",
        env={
            **os.environ, "SHOAL_EDGE_SYNC__INTERVAL_S": str(INTERVAL_S), "SHOAL_EDGE_SYNC__MIN_INTERVAL_S": "1",
            "SHOAL_EDGE_SYNC__MAX_INTERVAL_S": str(INTERVAL_S), "SHOAL_EDGE_CONNECTION__KEEP_ALIVE_S": "1",
        },
        stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip


async def changes(client: Client, manager: RecordingManager) -> list[float]:
    """From the answer to a write until the manager has its row, in milliseconds."""
    times = []
    for at in range(CHANGES):
        place, name = f"team-{at % 20}", f"web-{at % 200}-{at:05d}"
        began = time.perf_counter()
        patch = {"metadata": {"labels": {"turn": str(at)}}}
        await client.request("PATCH", f"/api/v1/namespaces/{place}/pods/{name}", body=patch,
                             content_type="application/merge-patch+json")  # fmt: skip
        mark, key = f'"turn":"{at}"'.encode(), f"{place}/{name}"
        await manager.until(lambda mark=mark, key=key: mark in manager.model.rows["pods"][key])
        times.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0.02)
    return sorted(times)


async def run(pods: int, services: int) -> bool:
    with server_process() as cluster, tempfile.TemporaryDirectory() as folder:
        async with (
            connect(load(cluster.kubeconfig), clock=RealClock()) as client,
            recording_manager(ManagerModel(strict=False)) as manager,
            Counting(manager.port) as line,
        ):
            await fill(client, pods, services)
            join = manager.join_file(Path(folder), url=f"https://127.0.0.1:{line.port}")
            began = time.perf_counter()
            edge = await start_edge(join, cluster.kubeconfig)
            try:
                await manager.until(lambda: manager.claims, timeout_s=60)
                claimed_s = time.perf_counter() - began

                def complete() -> bool:
                    rows = manager.model.rows
                    return len(rows.get("pods", ())) >= pods and len(rows.get("services", ())) >= services

                await manager.until(complete, timeout_s=120)
                synced_s = time.perf_counter() - began
                spent_s = cpu_s(edge.pid)
                sync_bytes = line.bytes
                await manager.until(lambda: manager.model.verifications >= 2, timeout_s=60)
                peak_mb, now_mb = rss_mb(edge.pid, "VmHWM"), rss_mb(edge.pid, "VmRSS")
                quiet = await quiet_bytes(manager, line)
                times = await changes(client, manager)
                await asyncio.sleep(0.1)
                after_mb = rss_mb(edge.pid, "VmRSS")
            finally:
                edge.terminate()
                await edge.wait()
    size = sum(len(data) for rows in manager.model.rows.values() for data in rows.values())
    p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
    print(f"  the edge's own work for the sync: {spent_s:.2f} s of a core")
    print(f"  {pods} pods, {services} services: {size / 1e6:.1f} MB of rows, {sync_bytes / 1e6:.1f} MB sent")
    return all(
        (
            bar("sync, from the start of the process", synced_s, SYNC_BAR_S, "s"),
            bar("of it until the claim", claimed_s, SYNC_BAR_S, "s"),
            bar("memory of the edge, at most", peak_mb, MEMORY_BAR_MB, "MB"),
            bar("memory of the edge, after the sync", now_mb, MEMORY_BAR_MB, "MB"),
            bar("memory of the edge, in the end", after_mb, MEMORY_BAR_MB, "MB"),
            bar("bytes per interval of a quiet cluster", quiet, QUIET_BAR_BYTES, "B"),
            bar("a change until the manager has it, p50", p50, CHANGE_BAR_MS, "ms"),
            bar("a change until the manager has it, p99", p99, CHANGE_BAR_MS, "ms"),
        )
    )


async def quiet_bytes(manager: RecordingManager, line: Counting) -> float:
    start = manager.model.verifications
    before = line.bytes
    await manager.until(lambda: manager.model.verifications >= start + QUIET_INTERVALS, timeout_s=120)
    return (line.bytes - before) / QUIET_INTERVALS


def bar(what: str, value: float, limit: float, unit: str) -> bool:
    good = value <= limit
    print(f"  {'ok  ' if good else 'LATE'} {what:42} {value:9.2f} {unit}  (bar {limit:g})")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--services", type=int, default=2_000)
    asked = parser.parse_args()
    logs.configure(level="error")
    for attempt in range(1, ATTEMPTS + 1):
        print(f"attempt {attempt}")
        if uvloop.run(run(asked.pods, asked.services)):
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
