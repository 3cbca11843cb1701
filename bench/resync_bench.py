"""What periodic resyncs cost: all controllers and the scheduler, in one process with the API server, on 5000 pods.

    PYTHONPATH=src python bench/resync_bench.py [--pods N]

ReplicaSets of 100 pods each on 100 nodes, nothing changes. Hours pass on a fake clock, once without resyncs and once
with them at the default period; the difference in CPU time, by the time that passed, is the share of a core. The API
server's part is included. Fails at one percent or more.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import cast

import uvloop

from shoal.apiserver.context import ServerConfig
from shoal.base import logs
from shoal.base.clock import FakeClock
from shoal.base.metrics import Metrics
from shoal.client.transport import Transport
from shoal.controllers.context import ControllerContext
from shoal.controllers.nodelifecycle.config import NodeLifecycleConfig
from shoal.controllers.persistentvolume.config import VolumeConfig
from shoal.controllers.wiring import add_all
from shoal.kube.objects import Obj
from shoal.reconcile import ResyncConfig, ResyncMetrics
from shoal.reconcile.resync import Difference
from shoal.scheduler.wiring import build
from shoal.testing.controllers import running
from shoal.testing.losses import LossyTransport
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually

PER_SET, NODES = 100, 100
PASSED_S, STEP_S = 4 * 3600.0, 30.0
BAR = 0.01
SIZE = {"cpu": "64", "memory": "64Gi", "pods": "110"}
READY = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": SIZE, "capacity": SIZE}


def replica_set(name: str) -> Obj:
    labels = {"app": name, "team": "a"}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    wanted = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}
    return {"metadata": {"name": name}, "spec": {"replicas": PER_SET, **wanted}}


async def cpu_s(pods: int, folder: Path, resync: ResyncConfig | None) -> float:
    """The CPU time of this process for ``PASSED_S`` of a cluster at rest."""
    clock = FakeClock()
    lifecycle = NodeLifecycleConfig(grace_s=1e9, startup_grace_s=1e9)  # these nodes send no heartbeats

    def all_of_them(context: ControllerContext) -> None:
        add_all(lambda account: context, VolumeConfig(directory=folder), lifecycle)
        build(context.manager, clock=clock, random=context.random, metrics=Metrics(), events=context.events)

    async with local_server(clock=clock, config=ServerConfig(empties_namespaces=False)) as server:
        transport = LossyTransport(cast(Transport, server.transport))
        async with running(transport, [all_of_them], clock=clock, resync=resync) as context:
            for at in range(NODES):
                await context.resource("nodes").create({"metadata": {"name": f"n{at}"}, "status": READY})
            for at in range(pods // PER_SET):
                await context.resource("replicasets", "apps").create(replica_set(f"rs{at}"), "default")
            cache = context.informer("pods").cache

            async def bound() -> bool:
                await clock.advance(0.1)
                return len(cache) == pods and all(pod["spec"].get("nodeName") for pod in cache)

            await eventually(bound, timeout_s=600.0, every_s=0.001)
            await clock.advance(STEP_S)
            started_s, end_s = time.process_time(), clock.monotonic() + PASSED_S
            while clock.monotonic() < end_s:
                await clock.advance(STEP_S)
            return time.process_time() - started_s


async def main(pods: int) -> int:
    logs.configure(level="error")  # hours pass in seconds, so watches end as if their connection were dead
    metrics = ResyncMetrics(Metrics())
    config = ResyncConfig(metrics=metrics)
    with tempfile.TemporaryDirectory() as folder:
        without_s = await cpu_s(pods, Path(folder), None)
        with_s = await cpu_s(pods, Path(folder), config)
    rounds = metrics.rounds.labels("pods").value
    corrections = sum(metrics.corrections.labels("pods", each.value).value for each in Difference)
    share = (with_s - without_s) / PASSED_S
    verdict = "ok" if share < BAR and not corrections else "MISSED"
    print(
        f"{pods} pods, {PASSED_S / 3600:.0f} h at rest: {without_s:.2f} s of CPU without resyncs, {with_s:.2f} s with"
    )
    print(f"{rounds:.0f} rounds over the pods, {corrections:.0f} corrections (expected: 0)")
    print(f"resyncs every {config.period_s:.0f} s: {share:.3%} of a core (bar: {BAR:.0%})  {verdict}")
    return int(verdict != "ok")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=5000)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main(parser.parse_args().pods)))
