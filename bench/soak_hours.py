"""Ordinary work for a long time: in real time against a cluster's process, and a virtual day in this process.

*Real*: a cluster of 100 simulated nodes over TLS, with watchers, while objects are created, read, changed, applied,
listed, watched and deleted, and Deployments are scaled and rolled. *Virtual*: API server, controllers, scheduler and
nodes, while hours pass on a fake clock; in every hour a namespace with Deployments comes, is rolled and goes.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import tempfile
import time
from pathlib import Path

from soak_model import Recording, Sample
from soak_sampling import EVERY_S, Timings, hold, sampled, tasks_in
from soak_watchers import watchers_process

from shoal.apiserver.context import ServerConfig
from shoal.base.clock import FakeClock, RealClock
from shoal.base.metrics import Metrics
from shoal.client import Client, Scope, builtin, connect, load
from shoal.controllers.context import ControllerContext
from shoal.controllers.nodelifecycle.config import NodeLifecycleConfig
from shoal.controllers.persistentvolume.config import VolumeConfig
from shoal.controllers.wiring import add_all
from shoal.errors import ApiError
from shoal.node.simulated import FleetConfig, SimulatedFleet
from shoal.scheduler.wiring import build
from shoal.testing.controllers import running
from shoal.testing.servers import ServerProcess, local_server, server_process
from shoal.testing.waiting import eventually
from shoal.testing.workloads import deployment, template

NODES, DEPLOYMENTS, REPLICAS, MAPS = 100, 20, 20, 200
WORKERS, PAUSE_S = 4, 0.04  # each worker makes one request after the other, with this pause
WATCHERS = 500
READS = 100  # in a virtual hour, to know the latency
NAMESPACE = "default"
# What would grow until its limit is reached after an hour or a day gets a limit that is reached in the warm-up.
LIMITS = {
    "SHOAL_CLUSTER_EVENT_TTL_S": "120",
    "SHOAL_CLUSTER_AUDIT_MAX_SIZE": "5",
    "SHOAL_CLUSTER_AUDIT_MAX_BACKUPS": "2",
    "SHOAL_LOG_LEVEL": "error",
}


# -- real time ---------------------------------------------------------------------------------------------------------


async def real(recording: Recording, minutes: float, seed: int) -> None:
    recording.about = (
        f"mixed work on a cluster of {NODES} simulated nodes with {DEPLOYMENTS * REPLICAS} pods and {WATCHERS} "
        f"watchers over TLS, for {minutes:g} minutes of real time"
    )
    recording.note(
        "Events live for 2 minutes and the audit log has 3 files of 5 MB, so both are full before the judging"
    )
    os.environ.update(LIMITS)
    flags = ("--port", "0", "--components", "apiserver,scheduler,controllers,nodes", "--nodes", str(NODES))
    with server_process(None, *flags, "--runtime", "simulated") as server:
        with watchers_process(server, WATCHERS, f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments") as watchers:
            async with connect(load(server.kubeconfig), clock=RealClock()) as client:
                await _under_work(recording, minutes, server, _Work(client, random.Random(seed)))
            if watchers.poll() is not None:
                raise RuntimeError("the watchers have ended: the server closed a watch")


async def _under_work(recording: Recording, minutes: float, server: ServerProcess, work: _Work) -> None:
    client, numbers = work.client, work.numbers
    deployments = client.of(builtin("deployments", "apps"))
    for at in range(DEPLOYMENTS):
        await deployments.create(deployment(f"d{at}", REPLICAS), NAMESPACE)
    workers = [asyncio.create_task(work.objects(random.Random(numbers.random())), name=f"soak/objects/{at}")
               for at in range(WORKERS)]  # fmt: skip
    workers.append(asyncio.create_task(work.roll(random.Random(numbers.random())), name="soak/deployments"))

    async def sample() -> Sample:
        await asyncio.sleep(EVERY_S)
        for task in workers:
            if task.done():
                task.result()  # a worker runs for ever, or has failed
        metrics = (await client.send("GET", "/metrics")).body.decode()
        p99_ms = work.timings.take_p99()
        tasks = tasks_in(metrics)
        return sampled(server.process.pid, server.directory, tasks=tasks, p99_ms=p99_ms)

    begun_s = time.monotonic()
    try:
        await hold(recording, minutes, sample)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.wait(workers)
    took_s = time.monotonic() - begun_s
    recording.note(f"{work.requests} requests, {work.requests / took_s:.0f} a second, {work.refused} of them refused")


class _Work:
    """Requests of a seeded mix; ``timings`` has those about one object."""

    def __init__(self, client: Client, numbers: random.Random) -> None:
        self.client, self.numbers = client, numbers
        self._maps = client.of(builtin("configmaps"))
        self.timings = Timings()
        self.requests = 0
        self.refused = 0  # the object is there already, or gone, or was changed meanwhile

    async def objects(self, numbers: random.Random) -> None:
        kinds = (self._get, self._create, self._patch, self._apply, self._delete, self._list, self._pods, self._watch)
        while True:
            (do,) = numbers.choices(kinds, weights=(30, 15, 15, 10, 12, 10, 5, 3))
            self.requests += 1
            try:
                await do(f"c{numbers.randrange(MAPS)}", "x" * numbers.randrange(2000))
            except ApiError:
                self.refused += 1
            await asyncio.sleep(PAUSE_S)

    async def _get(self, name: str, text: str) -> None:
        await self.timings.of(self._maps.get(name, NAMESPACE))

    async def _create(self, name: str, text: str) -> None:
        await self.timings.of(self._maps.create({"metadata": {"name": name}, "data": {"text": text}}, NAMESPACE))

    async def _patch(self, name: str, text: str) -> None:
        await self.timings.of(self._maps.patch(name, {"data": {"text": text}}, NAMESPACE))

    async def _apply(self, name: str, text: str) -> None:
        applied = {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE},
            "data": {"applied": text},
        }  # fmt: skip
        await self.timings.of(self._maps.apply(applied, field_manager="soak", force=True))

    async def _delete(self, name: str, text: str) -> None:
        await self.timings.of(self._maps.delete(name, NAMESPACE))

    async def _list(self, name: str, text: str) -> None:
        await self._maps.list(Scope(namespace=NAMESPACE), limit=100)

    async def _pods(self, name: str, text: str) -> None:
        labels = f"app=d{len(text) % DEPLOYMENTS}"
        await self.client.of(builtin("pods")).list(Scope(namespace=NAMESPACE, label_selector=labels))

    async def _watch(self, name: str, text: str) -> None:
        """Open a watch, read its first events, close it."""
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        reply = await self.client.stream("GET", path, params={"watch": "true"})
        try:
            async for _ in reply.chunks():
                break
        finally:
            await reply.close()

    async def roll(self, numbers: random.Random) -> None:
        """Every second a Deployment is scaled, or gets another image."""
        deployments = self.client.of(builtin("deployments", "apps"))
        for version in range(1, 1_000_000):
            name = f"d{numbers.randrange(DEPLOYMENTS)}"
            change = {"spec": {"replicas": numbers.randrange(REPLICAS // 2, REPLICAS * 3 // 2)}}
            if version % 2:
                change = {"spec": {"template": template(name, f"app:{version}")}}
            try:
                await deployments.patch(name, change, NAMESPACE)
            except ApiError:
                self.refused += 1
            self.requests += 1
            await asyncio.sleep(1.0)


# -- virtual time ------------------------------------------------------------------------------------------------------


async def virtual(recording: Recording, hours: int) -> None:
    recording.about = (
        f"API server, controllers, scheduler and 10 nodes in one process, for {hours} hours on a fake clock"
    )
    recording.note("the store is in memory; p99_ms is of the requests of an hour, in real time")
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def all_of_them(context: ControllerContext) -> None:
            add_all(lambda account: context, VolumeConfig(directory=folder), NodeLifecycleConfig())
            build(context.manager, clock=clock, random=context.random, metrics=Metrics(), events=context.events)

        def nodes(context: ControllerContext) -> None:
            fleet = SimulatedFleet(context.manager, FleetConfig(nodes=10), clock=clock, events=context.events)
            context.manager.add(fleet)

        async with (
            local_server(clock=clock, config=ServerConfig()) as server,
            running(server, [nodes], clock=clock),
            running(server, [all_of_them], clock=clock) as context,
        ):
            for hour in range(hours):
                timings = Timings()
                await _work(context, clock, hour, timings)
                for _ in range(60):
                    await clock.advance(60.0)
                gc.collect()
                tasks = len(asyncio.all_tasks())
                p99_ms = timings.take_p99()
                recording.sample(sampled("self", folder, at_s=clock.monotonic(), tasks=tasks, p99_ms=p99_ms))


async def _work(context: ControllerContext, clock: FakeClock, hour: int, timings: Timings) -> None:
    """Deployments come, are rolled and go, with the namespace that they are in."""
    name = f"hour{hour}"
    await context.resource("namespaces").create({"metadata": {"name": name}})
    deployments = context.resource("deployments", "apps")
    for at in range(5):
        await timings.of(deployments.create(deployment(f"d{at}", 20, about={"namespace": name})))
    await _placed(context, clock, name, "app:1")
    for at in range(5):
        await timings.of(deployments.patch(f"d{at}", {"spec": {"template": template(f"d{at}", "app:2")}}, name))
    await _placed(context, clock, name, "app:2")
    for at in range(READS):
        await timings.of(deployments.get(f"d{at % 5}", name))
    await context.resource("namespaces").delete(name)


async def _placed(context: ControllerContext, clock: FakeClock, namespace: str, image: str) -> None:
    """Time passes until all pods are of one image and have a node."""
    cache = context.informer("pods").cache

    async def placed() -> bool:
        await clock.advance(0.5)
        own = [pod for pod in cache if pod["metadata"]["namespace"] == namespace]
        specs = [pod["spec"] for pod in own if pod["spec"]["containers"][0]["image"] == image]
        return len(specs) >= 100 and all(spec.get("nodeName") for spec in specs)

    await eventually(placed, timeout_s=300.0, every_s=0.001)
