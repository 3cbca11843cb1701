"""The cost of idle clusters, and of many clusters in one process.

    PYTHONPATH=src python bench/clusters_bench.py [--quick]

One cluster is ``shoal cluster start --nodes 3``, with nodes of each kind, measured from outside. Many are whole
clusters in this process, each with its own port and SQLite file; each has to bring a Deployment to Running. Fails when
a bar, which is for one cluster, is not held; ``--quick`` measures for a shorter time.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from shoal.base import logs
from shoal.client import builtin
from shoal.testing.clusters import EmbeddedCluster, clusters
from shoal.testing.servers import start_server_process
from shoal.testing.waiting import eventually
from shoal.testing.workloads import deployment

CPU_BAR, RSS_BAR_MB = 1.0, 150.0  # percent of a core, for one cluster
CLUSTERS = 20
SETTLE_S = 20.0
_TICKS_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int | str) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_S


def rss_mb(pid: int | str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def idle(runtime: str, seconds: float) -> bool:
    """One cluster of three nodes, doing nothing but staying alive."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ("--port", "0", "--components", "apiserver,scheduler,controllers,nodes")
        started = start_server_process(Path(folder), *flags, "--nodes", "3", "--runtime", runtime)
        try:
            time.sleep(SETTLE_S)
            pid = started.process.pid
            before = cpu_s(pid)
            time.sleep(seconds)
            percent, rss = 100 * (cpu_s(pid) - before) / seconds, rss_mb(pid)
        finally:
            started.process.terminate()
            started.process.wait()
    good = percent < CPU_BAR and rss < RSS_BAR_MB
    bars = f"(bars: {CPU_BAR:g} %, {RSS_BAR_MB:g} MB)"
    print(
        f"one idle cluster of 3 {runtime} nodes: {percent:.2f} % of a core, {rss:.0f} MB {bars}"
        f"{'' if good else '  MISSED'}",
        flush=True,
    )
    return good


async def many(seconds: float) -> None:
    """Twenty clusters: each works, and what they cost together."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        async with clusters(Path(folder), CLUSTERS) as up:
            started_s = time.perf_counter() - began
            await asyncio.gather(*(works(each) for each in up))
            worked_s = time.perf_counter() - began - started_s
            await asyncio.sleep(SETTLE_S)
            before = cpu_s("self")
            await asyncio.sleep(seconds)
            percent = 100 * (cpu_s("self") - before) / seconds
            print(
                f"{CLUSTERS} clusters of 3 nodes in one process: started in {started_s:.1f} s, a Deployment Running in "
                f"each after {worked_s:.1f} s; idle {percent:.1f} % of a core, {rss_mb('self'):.0f} MB in all "
                f"({rss_mb('self') / CLUSTERS:.0f} MB each)"
            )


async def works(cluster: EmbeddedCluster) -> None:
    """A Deployment comes to Running."""
    resource = cluster.client.of(builtin("deployments", "apps"))
    await resource.create(deployment("web", 3))

    async def available() -> bool:
        found = await resource.get("web", "default")
        return (found.get("status") or {}).get("availableReplicas") == 3

    await eventually(available, timeout_s=120, every_s=0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    logs.configure(level="warning")
    os.environ["SHOAL_LOG_LEVEL"] = "warning"
    seconds = 20.0 if options.quick else 60.0
    held = [idle(runtime, seconds) for runtime in ("process", "simulated")]
    uvloop.run(many(min(seconds, 30.0)))
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
