"""Hours of ordinary work: memory, open files, tasks and latency must stay flat.

    python bench/soak.py [--seconds 1200] [--watchers 1000] [--hours 24]

*Real*: a cluster of 100 simulated nodes over TLS, with watchers, while Deployments are scaled and rolled and objects
are created, changed and deleted at a steady rate. *Virtual*: API server, controllers, scheduler and nodes in this
process, while a day passes on a fake clock, with work in every hour. A sample is taken every few seconds (or every
hour); the last third may not exceed the first one (after a warm-up) by more than the tolerance. Prints the samples as
JSON lines, then the verdicts.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from shoal.apiserver.context import ServerConfig
from shoal.base import logs
from shoal.base.clock import FakeClock, RealClock
from shoal.base.metrics import Metrics
from shoal.client import Client, Scope, builtin, connect, load
from shoal.controllers.context import ControllerContext
from shoal.controllers.nodelifecycle.config import NodeLifecycleConfig
from shoal.controllers.persistentvolume.config import VolumeConfig
from shoal.controllers.wiring import add_all
from shoal.errors import ApiError
from shoal.kube.objects import Obj
from shoal.node.simulated import FleetConfig, SimulatedFleet
from shoal.scheduler.wiring import build
from shoal.testing.controllers import running
from shoal.testing.servers import ServerProcess, local_server, server_process
from shoal.testing.waiting import eventually
from shoal.testing.watchers import idle_watchers

NODES, DEPLOYMENTS, MAPS = 100, 20, 200
RATE = 100.0  # changes a second
EVERY_S, PROBES = 10.0, 100
WARM_UP = 0.2  # of the time: caches fill and the allocator finds its size


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    memory_mb: float
    files: int
    tasks: int  # threads of the process, or tasks of the loop
    p99_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How much larger the last third may be: a factor and an amount."""

    factor: float
    more: float


TOLERANCES = {
    "memory_mb": Tolerance(1.05, 10.0),
    "files": Tolerance(1.0, 10.0),
    "tasks": Tolerance(1.0, 10.0),
    "p99_ms": Tolerance(2.0, 20.0),
}


def verdicts(name: str, samples: Sequence[Sample]) -> bool:
    """Print one line per figure; False when one grows."""
    kept = list(samples)[int(len(samples) * WARM_UP) :]
    third = max(1, len(kept) // 3)
    good = True
    for figure, tolerance in TOLERANCES.items():
        first = statistics.median(getattr(each, figure) for each in kept[:third])
        last = statistics.median(getattr(each, figure) for each in kept[-third:])
        held = last <= first * tolerance.factor + tolerance.more
        good = good and held
        print(f"{name}: {figure} {first:.1f} -> {last:.1f} over {len(kept)} samples  {'ok' if held else 'GROWS'}")
    return good


def sampled(name: str, samples: list[Sample], sample: Sample) -> None:
    samples.append(sample)
    print(json.dumps({"soak": name, **{key: round(value, 1) for key, value in asdict(sample).items()}}), flush=True)


def deployment(name: str, replicas: int, image: str) -> Obj:
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}
    return {"metadata": {"name": name}, "spec": spec}


# -- real time ---------------------------------------------------------------------------------------------------------


async def real(seconds: float, watchers: int) -> bool:
    flags = ("--port", "0", "--components", "apiserver,scheduler,controllers,nodes", "--nodes", str(NODES))
    with server_process(None, *flags, "--runtime", "simulated", "--log-level", "error") as server:
        path = "/api/v1/namespaces/default/configmaps"
        with idle_watchers(server, watchers, path) as watching:
            return await _under_load(server, seconds, watching.drain)


async def _under_load(server: ServerProcess, seconds: float, drain: Callable[[], None]) -> bool:
    samples: list[Sample] = []
    async with connect(load(server.kubeconfig), clock=RealClock()) as client:
        for at in range(DEPLOYMENTS):
            await client.of(builtin("deployments", "apps")).create(deployment(f"d{at}", 20, "app:0"), "default")
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(_churn(client, stop), name="soak/objects")
            group.create_task(_roll(client, stop), name="soak/deployments")
            begun_s = time.monotonic()
            while time.monotonic() - begun_s < seconds:
                await asyncio.sleep(EVERY_S)
                await asyncio.to_thread(drain)
                p99_ms = await _latency_ms(client)
                sampled("real", samples, _sample(server.process.pid, time.monotonic() - begun_s, p99_ms))
            stop.set()
    return verdicts("real", samples)


async def _churn(client: Client, stop: asyncio.Event) -> None:
    maps, number = client.of(builtin("configmaps")), 0
    while not stop.is_set():
        number += 1
        name = f"c{number % MAPS}"
        try:
            if number // MAPS % 3 == 0:
                await maps.create({"metadata": {"name": name}, "data": {"n": str(number)}}, "default")
            elif number // MAPS % 3 == 1:
                await maps.patch(name, {"data": {"n": str(number)}}, "default")
            else:
                await maps.delete(name, "default")
        except ApiError:
            pass  # it is there already, or gone
        await asyncio.sleep(1 / RATE)


async def _roll(client: Client, stop: asyncio.Event) -> None:
    deployments, number = client.of(builtin("deployments", "apps")), 0
    while not stop.is_set():
        number += 1
        change = {"spec": {"replicas": 10 + number % 20}} if number % 2 else deployment("", 20, f"app:{number}")
        change.pop("metadata", None)
        try:
            await deployments.patch(f"d{number % DEPLOYMENTS}", change, "default")
        except ApiError:
            pass
        await asyncio.sleep(1.0)


async def _latency_ms(client: Client) -> float:
    maps, times = client.of(builtin("configmaps")), []
    for _ in range(PROBES):
        begun_s = time.perf_counter()
        await maps.list(Scope(namespace="kube-public"))
        times.append((time.perf_counter() - begun_s) * 1000)
    return sorted(times)[int(PROBES * 0.99) - 1]


def _sample(pid: int, at_s: float, p99_ms: float) -> Sample:
    status = Path(f"/proc/{pid}/status").read_text()
    threads = int(status.partition("Threads:")[2].split()[0])
    memory = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    return Sample(at_s, memory, len(os.listdir(f"/proc/{pid}/fd")), threads, p99_ms)


# -- virtual time ------------------------------------------------------------------------------------------------------


async def virtual(hours: int) -> bool:
    clock = FakeClock()
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory() as folder:

        def all_of_them(context: ControllerContext) -> None:
            add_all(lambda account: context, VolumeConfig(directory=Path(folder)), NodeLifecycleConfig())
            build(context.manager, clock=clock, random=context.random, metrics=Metrics(), events=context.events)

        def nodes(context: ControllerContext) -> None:
            fleet = SimulatedFleet(context.manager, FleetConfig(nodes=10), clock=clock, events=context.events)
            context.manager.add(fleet)

        async with local_server(clock=clock, config=ServerConfig()) as server:
            async with (
                running(server, [nodes], clock=clock),
                running(server, [all_of_them], clock=clock) as context,
            ):
                for hour in range(hours):
                    begun_s = time.perf_counter()
                    await _work(context, clock, hour)
                    for _ in range(60):
                        await clock.advance(60.0)
                    gc.collect()
                    took_ms = (time.perf_counter() - begun_s) * 1000
                    sample = _sample(os.getpid(), clock.monotonic(), took_ms)
                    tasks = len(asyncio.all_tasks())
                    sampled("virtual", samples, Sample(sample.at_s, sample.memory_mb, sample.files, tasks, took_ms))
    return verdicts("virtual", samples)


async def _work(context: ControllerContext, clock: FakeClock, hour: int) -> None:
    """Deployments come, roll and go, in a namespace that goes with them."""
    name = f"hour{hour}"
    await context.resource("namespaces").create({"metadata": {"name": name}})
    deployments = context.resource("deployments", "apps")
    for at in range(5):
        await deployments.create(deployment(f"d{at}", 20, "app:1"), name)
    cache = context.informer("pods").cache

    async def placed() -> bool:
        await clock.advance(0.5)
        own = [pod for pod in cache if pod["metadata"]["namespace"] == name]
        return len(own) >= 100 and all(pod["spec"].get("nodeName") for pod in own)

    await eventually(placed, timeout_s=120.0, every_s=0.001)
    await context.resource("namespaces").delete(name)


async def main(options: argparse.Namespace) -> int:
    logs.configure(level="error")
    good = await virtual(options.hours) if options.hours else True
    if options.seconds:
        good = await real(options.seconds, options.watchers) and good
    return int(not good)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1200.0, help="of real time; 0: none")
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument("--hours", type=int, default=24, help="of virtual time; 0: none")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main(parser.parse_args())))
