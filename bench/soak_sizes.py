"""Scenes of size: one figure grows step by step, each step is measured, and the largest size is held for a while.

*agents* of one control plane, *watchers* of one API server, *clusters* in one process, *pods* of one cluster, and
*objects* of one navigator. Each has the benchmark's own load: what a step measures is comparable with it.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import fleet_bench
import navigator_bench
from clusters_bench import cpu_s, rss_mb, works
from soak_model import Recording, Sample
from soak_sampling import EVERY_S, Timings, hold, sampled, tasks_in

from shoal.base.clock import RealClock
from shoal.client import Client, Scope, builtin, connect, load
from shoal.testing.clusters import EmbeddedCluster, embedded_cluster
from shoal.testing.managers import manager_process
from shoal.testing.servers import ServerProcess, server_process
from shoal.testing.waiting import eventually
from shoal.testing.watchers import IdleWatchers, idle_watchers
from shoal.testing.workloads import deployment, template

SIZES: dict[str, Sequence[int]] = {
    "agents": (100, 250, 500, 1000),
    "watchers": (500, 1000, 2500, 5000),
    "clusters": (1, 10, 25, 50, 100),
    "pods": (1000, 5000, 10_000, 25_000, 50_000),
    "navigator": (20_000, 50_000, 100_000, 200_000),
}
SETTLE_S, IDLE_S = 5.0, 10.0
QUIET_RATE = 200  # changes a second while a size is held
NAMESPACE = "default"


# -- agents of a control plane -----------------------------------------------------------------------------------------


async def agents(recording: Recording, minutes: float, sizes: Sequence[int]) -> None:
    objects = 100
    recording.about = (
        f"simulated agents with {objects} objects each on one control plane (SQLite, TLS); changes at "
        f"{fleet_bench.RATE} a second at each size, {QUIET_RATE} a second while {sizes[-1]} are held"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with fleet_bench.served(folder, sizes[-1], objects) as (fleet, pid, command):
            before_mb, connected = rss_mb(pid), 0
            tasks: list[asyncio.Task[None]] = []
            for size in sizes:
                begun_s = time.monotonic()
                tasks += fleet_bench.start_agents(fleet, range(connected, size))
                connected = size
                await eventually(lambda size=size: fleet.synced >= 2 * size, timeout_s=300.0)
                synced_s = time.monotonic() - begun_s
                await asyncio.sleep(SETTLE_S)
                memory_mb = rss_mb(pid)
                made = await fleet_bench.deliver(fleet, pid, command, 10.0, size)
                all_s = await fleet_bench.for_all(fleet, size, command)
                recording.size(
                    size=size, memory_mb=memory_mb, each_kb=1024 * (memory_mb - before_mb) / size, sync_s=synced_s,
                    change_p50_ms=made.p50_ms, change_p99_ms=made.p99_ms, changes_per_s=made.rate, all_s=all_s,
                )  # fmt: skip

            async def sample() -> Sample:
                made = await fleet_bench.deliver(fleet, pid, command, EVERY_S, sizes[-1], rate=QUIET_RATE)
                tasks = int((await command("look"))["tasks"])
                return sampled(pid, folder, tasks=tasks, p99_ms=made.p99_ms)

            await hold(recording, minutes, sample)
            await fleet_bench.stop_agents(fleet, tasks)


# -- watchers of an API server -----------------------------------------------------------------------------------------


async def watchers(recording: Recording, minutes: float, sizes: Sequence[int]) -> None:
    recording.about = (
        "watchers of ConfigMaps over TLS, each on an HTTP/1.1 connection of its own, on one API server; the fan-out is "
        f"the time until all have a write, two writes a second while {sizes[-1]} are held"
    )
    os.environ["SHOAL_CLUSTER_AUDIT_LOG"] = "off"
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    with server_process() as server:
        async with connect(load(server.kubeconfig), clock=RealClock()) as client, AsyncExitStack() as stack:
            fan = _FanOut(client)
            for size in sizes:
                begun_s = time.monotonic()
                added = size - fan.watchers
                fan.groups.append(stack.enter_context(idle_watchers(server, added, path)))
                opened_s = time.monotonic() - begun_s
                for _ in range(3):
                    await fan.write()  # connections have their buffers
                times = [await fan.write() for _ in range(10)]
                recording.size(
                    size=size, memory_mb=rss_mb(server.process.pid), open_s=opened_s,
                    fan_out_ms=1000 * statistics.median(times), fan_out_max_ms=1000 * max(times),
                    events_per_s=size / statistics.median(times),
                )  # fmt: skip

            async def sample() -> Sample:
                timings, end_s = Timings(), time.monotonic() + EVERY_S
                while time.monotonic() < end_s:
                    timings.add(await fan.write())
                    await asyncio.sleep(0.5)
                tasks = tasks_in((await client.send("GET", "/metrics")).body.decode())
                pid, folder = server.process.pid, server.directory
                return sampled(pid, folder, tasks=tasks, p99_ms=timings.take_p99())

            await hold(recording, minutes, sample)


class _FanOut:
    """Writes an object again and again, until all watchers have each write."""

    def __init__(self, client: Client) -> None:
        self._maps = client.of(builtin("configmaps"))
        self._number = 0
        self.groups: list[IdleWatchers] = []

    @property
    def watchers(self) -> int:
        return sum(map(len, self.groups))

    async def write(self) -> float:
        """The seconds from the request until the last watcher has the event."""
        self._number += 1
        mark, begun_s = f"mark-{self._number}-", time.perf_counter()
        body = {"metadata": {"name": "seen"}, "data": {"mark": mark}}
        reading = asyncio.gather(*(asyncio.to_thread(each.read_until, mark.encode()) for each in self.groups))
        await (self._maps.create(body, NAMESPACE) if self._number == 1 else self._maps.patch("seen", body, NAMESPACE))
        await reading
        return time.perf_counter() - begun_s


# -- clusters in one process -------------------------------------------------------------------------------------------

# Each cluster keeps five minutes of history, which fills while the clusters are held, so the work is small. The audit
# log is off: it would grow to 1 GB in each.
TOUCHED = 4


async def clusters(recording: Recording, minutes: float, sizes: Sequence[int]) -> None:
    recording.about = (
        "whole clusters of 3 simulated nodes in one process, each with its port and SQLite file; each brings a "
        f"Deployment to Running. While {sizes[-1]} are held, {TOUCHED} of them get a read and a write every second"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with AsyncExitStack() as stack:
            up: list[EmbeddedCluster] = []
            before_mb = rss_mb("self")
            for size in sizes:
                begun_s = time.monotonic()
                added = []
                while len(up) < size:
                    added.append(
                        await stack.enter_async_context(embedded_cluster(folder / f"c{len(up)}", audit_log="off"))
                    )
                    up.append(added[-1])
                started_s = time.monotonic() - begun_s
                await asyncio.gather(*map(works, added))
                await asyncio.sleep(SETTLE_S)
                before_s = cpu_s("self")
                await asyncio.sleep(IDLE_S)
                recording.size(
                    size=size, memory_mb=rss_mb("self"), each_mb=(rss_mb("self") - before_mb) / size,
                    start_s=started_s / len(added), idle_cpu_percent=100 * (cpu_s("self") - before_s) / IDLE_S,
                )  # fmt: skip

            async def sample() -> Sample:
                timings, end_s, turn = Timings(), time.monotonic() + EVERY_S, 0
                while time.monotonic() < end_s:
                    turn += 1
                    chosen = random.sample(up, min(TOUCHED, len(up)))
                    await asyncio.gather(*(_touch(each, timings, turn) for each in chosen))
                    await asyncio.sleep(1.0)
                tasks = len(asyncio.all_tasks())
                return sampled("self", folder, tasks=tasks, p99_ms=timings.take_p99())

            await hold(recording, minutes, sample)


async def _touch(cluster: EmbeddedCluster, timings: Timings, turn: int) -> None:
    """A read and a write of the Deployment."""
    deployments = cluster.client.of(builtin("deployments", "apps"))
    await timings.of(deployments.get("web", NAMESPACE))
    change = {"metadata": {"annotations": {"turn": str(turn)}}}
    await timings.of(deployments.patch("web", change, NAMESPACE))


# -- pods of a cluster -------------------------------------------------------------------------------------------------

POD_NODES, OF_DEPLOYMENT = 1000, 1000


async def pods(recording: Recording, minutes: float, sizes: Sequence[int]) -> None:
    recording.about = (
        f"pods of Deployments of {OF_DEPLOYMENT} on {POD_NODES} simulated nodes, with API server, scheduler, "
        f"controllers and nodes in one process, over TLS. While {sizes[-1]} are held, some pods come and go"
    )
    os.environ["SHOAL_CLUSTER_EVENT_TTL_S"] = "120"
    os.environ["SHOAL_CLUSTER_AUDIT_LOG"] = "off"
    flags = ("--port", "0", "--components", "apiserver,scheduler,controllers,nodes", "--log-level", "error")
    with server_process(None, *flags, "--nodes", str(POD_NODES), "--runtime", "simulated") as server:
        async with connect(load(server.kubeconfig), clock=RealClock()) as client:
            listed = client.of(builtin("nodes"))
            await eventually(listed.list, until=lambda found: len(found.items) >= POD_NODES, timeout_s=300, every_s=0.5)
            await asyncio.sleep(SETTLE_S)
            made = 0
            for size in sizes:
                created_s = await _grow(recording, client, made, size)
                await asyncio.sleep(SETTLE_S)
                await _measure_pods(recording, server, client, size, (size - made) / created_s)
                made = size
            timings = Timings()
            scaled = client.of(builtin("deployments", "apps"))

            async def sample() -> Sample:
                end_s, turn = time.monotonic() + EVERY_S, 0
                while time.monotonic() < end_s:
                    turn += 1
                    await scaled.scale("d0", OF_DEPLOYMENT - 50 * (turn % 2), NAMESPACE)
                    await _probe(client, timings, 10)
                    await asyncio.sleep(1.0)
                tasks = tasks_in((await client.send("GET", "/metrics")).body.decode())
                pid, folder = server.process.pid, server.directory
                return sampled(pid, folder, tasks=tasks, p99_ms=timings.take_p99())

            await hold(recording, minutes, sample)


async def _grow(recording: Recording, client: Client, made: int, size: int) -> float:
    """Bring the cluster to ``size`` ready pods; the seconds that this takes."""
    deployments, begun_s = client.of(builtin("deployments", "apps")), time.monotonic()
    requests = {"requests": {"cpu": "1m", "memory": "1Mi"}}
    for at in range(made // OF_DEPLOYMENT, size // OF_DEPLOYMENT):
        pod = template(f"d{at}", containers=[{"name": "main", "image": "app:1", "resources": requests}])
        await deployments.create(deployment(f"d{at}", OF_DEPLOYMENT, template=pod))

    async def ready() -> int:
        found = await deployments.list()
        return sum((each.get("status") or {}).get("readyReplicas", 0) for each in found.items)

    shown = made
    while (count := await ready()) < size:
        if count >= shown + 5000:
            shown = count
            recording.progress(f"{count} of {size} pods are ready")
        await asyncio.sleep(0.5)
    return time.monotonic() - begun_s


async def _measure_pods(
    recording: Recording, server: ServerProcess, client: Client, size: int, pods_per_s: float
) -> None:
    found, lists, labelled = client.of(builtin("pods")), Timings(), Timings()
    memory_mb = rss_mb(server.process.pid)
    for _ in range(3):
        await lists.of(found.list(Scope(namespace=NAMESPACE)))
    for at in range(20):
        await labelled.of(found.list(Scope(namespace=NAMESPACE, label_selector=f"app=d{at % (size // OF_DEPLOYMENT)}")))
    created = Timings()
    await _probe(client, created, 300)
    watched = await _watch_latency(client, 100)
    before_s = cpu_s(server.process.pid)
    await asyncio.sleep(IDLE_S)
    recording.size(
        size=size, memory_mb=memory_mb, pods_per_s=pods_per_s, list_s=lists.quantile(0.5) / 1000,
        list_1000_ms=labelled.quantile(0.5), create_p50_ms=created.quantile(0.5), create_p99_ms=created.quantile(0.99),
        watch_p50_ms=watched.quantile(0.5), watch_p99_ms=watched.quantile(0.99),
        idle_cpu_percent=100 * (cpu_s(server.process.pid) - before_s) / IDLE_S,
    )  # fmt: skip


async def _probe(client: Client, timings: Timings, count: int) -> None:
    """Create pods one after the other, and delete them; they stay unscheduled. Only creating is timed."""
    found = client.of(builtin("pods"))
    spec = {"schedulerName": "none", "containers": [{"name": "main", "image": "app:1"}]}
    for at in range(count):
        await timings.of(found.create({"metadata": {"name": f"probe-{at}"}, "spec": spec}, NAMESPACE))
    for at in range(count):
        await found.delete(f"probe-{at}", NAMESPACE, grace_period_s=0)


async def _watch_latency(client: Client, count: int) -> Timings:
    """From the request that changes a pod until a watch of all pods of its namespace has the event."""
    found, timings, waiting = client.of(builtin("pods")), Timings(), dict[str, asyncio.Event]()
    page = await found.page(Scope(namespace=NAMESPACE), limit=count)
    async with _watched_marks(client, page.resource_version, waiting):
        for at, pod in enumerate(page.items):
            mark = f"{page.resource_version}-{at}"  # one that the pod does not have yet
            seen = waiting[mark] = asyncio.Event()
            begun_s = time.perf_counter()
            change = {"metadata": {"annotations": {"soak/mark": mark}}}
            await found.patch(pod["metadata"]["name"], change, NAMESPACE)
            await asyncio.wait_for(seen.wait(), 30.0)
            timings.add(time.perf_counter() - begun_s)
    return timings


@asynccontextmanager
async def _watched_marks(client: Client, version: str, waiting: dict[str, asyncio.Event]) -> AsyncIterator[None]:
    """Watch all pods from a revision, and set the event of each mark that comes."""

    async def read() -> None:
        async with await client.of(builtin("pods")).watch(
            Scope(namespace=NAMESPACE), resource_version=version
        ) as watch:
            async for event in watch:
                mark = (event.object["metadata"].get("annotations") or {}).get("soak/mark", "")
                if mark in waiting:
                    waiting[mark].set()

    reading = asyncio.create_task(read(), name="soak/watch")
    try:
        yield
    finally:
        reading.cancel()
        await asyncio.wait({reading})


# -- objects of a navigator --------------------------------------------------------------------------------------------

PODS_OF_CLUSTER = 2000


async def navigator(recording: Recording, minutes: float, sizes: Sequence[int]) -> None:
    recording.about = (
        f"pods of simulated clusters of {PODS_OF_CLUSTER} (with 640 other objects each) in one navigator (SQLite, "
        "TLS); queries one after the other, and changes of one cluster"
    )
    with tempfile.TemporaryDirectory() as name, manager_process(Path(name), "--port", "0") as process:
        folder = Path(name)
        texts = await navigator_bench.tokens(folder, sizes[-1] // PODS_OF_CLUSTER)
        await asyncio.sleep(SETTLE_S)  # the manager reads new tokens at most every second
        async with AsyncExitStack() as closing:
            edges, asking = [], navigator_bench.Asking(process, closing)
            for size in sizes:
                first, last = len(edges), size // PODS_OF_CLUSTER
                added = await navigator_bench.connect(process, texts[first:last], closing, first=first)
                synced_s = await navigator_bench.sync(added, PODS_OF_CLUSTER, first=first)
                edges += added
                indexed = await navigator_bench.questions(asking, navigator_bench.INDEXED, 50)
                scans = await navigator_bench.questions(asking, navigator_bench.SCANS, 10)
                times = await navigator_bench.changes(edges[0], 200, pause_s=0.005)
                recording.size(
                    size=size, memory_mb=rss_mb(process.pid), objects_per_s=(last - first) * 2640 / synced_s,
                    indexed_p99_ms=max(p99 for _, p99, _ in indexed.values()),
                    scan_p99_ms=max(p99 for _, p99, _ in scans.values()),
                    change_p50_ms=statistics.median(times), change_p99_ms=navigator_bench.p99(times),
                )  # fmt: skip

            async def sample() -> Sample:
                end_s, times = time.monotonic() + EVERY_S, []
                while time.monotonic() < end_s:
                    times += await navigator_bench.changes(edges[0], 20, pause_s=0.02)
                    for text in navigator_bench.INDEXED.values():
                        times.append((await asking.ask(text))[0])
                tasks = tasks_in(await asking.metrics())
                return sampled(process.pid, folder, tasks=tasks, p99_ms=navigator_bench.p99(times))

            await hold(recording, minutes, sample)
