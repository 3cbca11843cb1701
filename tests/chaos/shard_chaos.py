"""Sharding in processes that can be broken: an API server, two managers, and workers behind proxies.

The test plays the kubelet: for each pod that the manager makes it runs a worker, starts it again when it dies, and ends
it when the pod is deleted. ``Watch`` looks at the slot table all the time and notes for how long slots had no worker.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import orjson
from shard_process import CONFIG, GROUP, KIND

from shoal.base.clock import RealClock
from shoal.base.tasks import cancel_all
from shoal.client import Client, Scope, builtin, connect, load
from shoal.crds.shard import definitions
from shoal.errors import Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.reconcile import Change, Informer
from shoal.sharding.leases import read_lease
from shoal.sharding.manager.writers import CONFIGS, LEASES, PODS, TABLE
from shoal.sharding.model import CONFIG_LABEL, SlotDuty, SlotEntry, epoch_of, read_table, slot_duty
from shoal.testing.exclusion import Accepted, read_journals
from shoal.testing.proxy import TcpProxy
from shoal.testing.servers import ServerProcess, server_process
from shoal.testing.waiting import eventually

NAMESPACE = "default"
LEASE_S = 6.0
MANAGER_LEASE_S = 15.0
HERE = Path(__file__).parent
_SKEWS_S = (0, -7200, 86400, 40)  # of workers, in turn
_MANAGER_SKEWS_S = (0, 50)
_LOOK_S = 0.2
_LATE_S = 0.1
_IN_FLIGHT = 16


class Process:
    """One `shoal` process that can be killed, paused and started again."""

    def __init__(self, name: str, *arguments: str, log: Path, **environ: str) -> None:
        self.name = name
        self._command = [sys.executable, str(HERE / "shard_process.py"), *arguments]
        self._environ = {**os.environ, "PYTHONPATH": f"{HERE.parents[1] / 'src'}:{HERE}", **environ}
        self._log = log
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def start(self) -> None:
        self.end()
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, env=self._environ, stdout=log, stderr=log)
        self.starts += 1

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, what: signal.Signals) -> None:
        if self.running:
            assert self.process is not None
            self.process.send_signal(what)

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@dataclass
class Shard:
    """A worker of a pod, and the way to the API server that only it uses."""

    name: str
    process: Process
    link: TcpProxy
    leaving: bool = False
    down: bool = False  # killed, paused or cut off by the test
    busy: bool = False  # something is being done to it
    dead_terms: set[int] = field(default_factory=set)


class Kubelet:
    """Runs a worker for every pod of the ShardConfig."""

    def __init__(self, client: Client, server: ServerProcess, folder: Path, **environ: str) -> None:
        self._pods = client.of(PODS)
        self._server = server
        self._folder = folder
        self._environ = environ
        self.shards: dict[str, Shard] = {}
        self._started = 0

    async def run(self) -> None:
        scope = Scope(namespace=NAMESPACE, label_selector=f"{CONFIG_LABEL}={CONFIG}")
        try:
            while True:
                present = {pod["metadata"]["name"]: pod for pod in (await self._pods.list(scope)).items}
                for name, pod in present.items():
                    if name not in self.shards:
                        await self._start(pod)
                    elif pod["metadata"].get("deletionTimestamp") and not self.shards[name].leaving:
                        self.shards[name].leaving = True
                        self.shards[name].process.send(signal.SIGTERM)
                for shard in tuple(self.shards.values()):
                    await self._look_after(shard, shard.name in present)
                await asyncio.sleep(_LOOK_S)
        finally:
            for shard in self.shards.values():
                shard.process.end()
                await shard.link.__aexit__(None, None, None)

    async def _look_after(self, shard: Shard, wanted: bool) -> None:
        if shard.process.running or shard.down:
            return
        if not wanted or shard.leaving:
            with suppress(NotFound):
                await self._pods.delete(shard.name, NAMESPACE, grace_period_s=0)
            await shard.link.__aexit__(None, None, None)
            del self.shards[shard.name]
        else:
            shard.process.start()

    def _kubeconfig(self, name: str, port: int) -> Path:
        access = orjson.loads(Path(self._server.kubeconfig).read_bytes())
        access["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
        path = self._folder / f"{name}.kubeconfig"
        path.write_bytes(orjson.dumps(access))
        return path

    async def _start(self, pod: Obj) -> None:
        about = pod["metadata"]
        if about.get("deletionTimestamp"):
            return
        name = about["name"]
        link = TcpProxy(int(self._server.url.rpartition(":")[2]))
        await link.__aenter__()
        kubeconfig = self._kubeconfig(name, link.port)
        env = {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"]}
        env["SHARD_TEST_SKEW_S"] = str(_SKEWS_S[self._started % len(_SKEWS_S)])
        env |= self._environ
        self._started += 1
        worker = Process(
            name, "shard", "worker", "shard_process:app", "--kubeconfig", str(kubeconfig), "--log-level", "info",
            log=self._folder / f"{name}.log", **env,
        )  # fmt: skip
        self.shards[name] = Shard(name, worker, link)
        worker.start()
        with suppress(NotFound, Conflict):
            await self._pods.bind(name, "node", NAMESPACE, uid=about["uid"])
            status = {"status": {"phase": "Running", "podIP": "127.0.0.1"}}
            await self._pods.patch(name, status, NAMESPACE, subresource="status")


@dataclass(frozen=True)
class Gap:
    """A slot that had no working owner for longer than promised."""

    slot: int
    seconds: float
    allowed: float
    entry: SlotEntry


class Watch:
    """Everything that the server shows: objects, tables, Leases."""

    def __init__(self, client: Client, world: World) -> None:
        def informer(resource: Any, **scope: Any) -> Informer:
            return Informer(client.of(resource), clock=RealClock(), random=Random(1).random, scope=Scope(**scope))

        ours = {"namespace": NAMESPACE, "label_selector": f"{CONFIG_LABEL}={CONFIG}"}
        self._world = world
        self._tables = informer(TABLE, **ours)
        self._leases = informer(LEASES, **ours)
        self.seen: list[Accepted] = []  # the stamps of objects, as the server showed them
        self.gaps: list[Gap] = []
        self.longest_s = 0.0
        self._since: dict[int, tuple[SlotEntry, float]] = {}
        self._stalls: list[tuple[float, float]] = []  # when this process could not look in time, and by how much
        self._parsed: dict[str, tuple[str, tuple[SlotEntry, ...]]] = {}
        self.items = Informer(client.resource(GROUP, "v1", "items"), clock=RealClock(), random=Random(2).random)
        self.items.cache.add_handler(self._noted)

    def _noted(self, change: Change) -> None:
        if change.new is not None:
            about = change.new["metadata"]
            # people write too, and keep the stamp: what is seen says only that stamps of one object never go back
            stamp, epoch = f"stamp/{about['uid']}", epoch_of(change.new, CONFIG)
            self.seen.append(Accepted(stamp, int(about["resourceVersion"]), epoch, "server", about["name"]))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in (self._tables, self._leases, self.items):
                group.create_task(informer.run())
            group.create_task(self._look())

    def entries(self) -> Iterator[SlotEntry]:
        for table in self._tables.cache:
            name, version = table["metadata"]["name"], table["metadata"]["resourceVersion"]
            if self._parsed.get(name, ("",))[0] != version:
                self._parsed[name] = version, read_table(table)
            yield from self._parsed[name][1]

    def terms(self) -> dict[str, int]:
        """Of the Leases that workers hold."""
        read = [read_lease(obj) for obj in self._leases.cache]
        return {lease.shard: lease.term for lease in read if lease.held}

    def served(self) -> set[int]:
        """Slots whose owner is able to work."""
        terms, found = self.terms(), set()
        for entry in self.entries():
            shard = self._world.kubelet.shards.get(entry.owner)
            term = terms.get(entry.owner, -1)
            if shard is None or shard.down or term in shard.dead_terms:
                continue
            if slot_duty(entry, entry.owner, term) is SlotDuty.WORK:
                found.add(entry.slot)
        return found

    async def _look(self) -> None:
        while True:
            now_s = time.monotonic()
            self._measure(now_s)
            await asyncio.sleep(_LOOK_S)
            late_s = time.monotonic() - now_s - _LOOK_S
            if late_s > _LATE_S:
                self._stalls.append((now_s, late_s))

    def stalled_s(self, since_s: float) -> float:
        """How long the machine has kept this process from sampling; it may have delayed the others as long."""
        return sum(late_s for at_s, late_s in self._stalls if at_s >= since_s)

    def _measure(self, now_s: float) -> None:
        served = self.served()
        for entry in self.entries():
            if not entry.owner and entry.slot not in self._since:
                continue  # before the first worker
            known = self._since.get(entry.slot)
            if entry.slot in served:
                self._since[entry.slot] = entry, now_s
            elif known is None or (known[0].owner, known[0].term) != (entry.owner, entry.term):
                self._since[entry.slot] = entry, now_s  # it has an owner, also if that owner does not work
                if known is not None:
                    self._passed(known, now_s)
            else:
                self._passed(known, now_s)

    def _passed(self, known: tuple[SlotEntry, float], now_s: float) -> None:
        entry, since_s = known
        self.longest_s = max(self.longest_s, now_s - since_s)
        allowed = 1.25 * LEASE_S + 2.0 + self._world.without_manager_s(since_s, now_s) + self.stalled_s(since_s)
        if now_s - since_s > allowed:
            self.gaps.append(Gap(entry.slot, now_s - since_s, allowed, entry))


class World:
    def __init__(self, client: Client, server: ServerProcess, folder: Path, **environ: str) -> None:
        (folder / "journals").mkdir()
        self.client = client
        self.folder = folder
        self.items = client.resource(GROUP, "v1", "items")
        self.configs = client.of(CONFIGS)
        self.kubelet = Kubelet(client, server, folder, SHARD_TEST_JOURNALS=str(folder / "journals"), **environ)
        self.managers = [
            Process(
                f"manager-{number}", "shard", "manager", "--kubeconfig", server.kubeconfig, "--namespace", NAMESPACE,
                "--port", "0", "--name", f"manager-{number}", log=folder / f"manager-{number}.log",
                SHARD_TEST_SKEW_S=str(skew_s),
            )
            for number, skew_s in enumerate(_MANAGER_SKEWS_S)
        ]  # fmt: skip
        self.watch = Watch(client, self)
        self.faults: list[str] = []
        self._managers_hurt: list[tuple[str, float, float]] = []  # who, from when, until when
        self._began_s = time.monotonic()

    def note(self, text: str) -> None:
        self.faults.append(f"{time.monotonic() - self._began_s:6.1f} {text}")

    async def begin(self, **spec: Any) -> None:
        crds = self.client.of(builtin("customresourcedefinitions", "apiextensions.k8s.io"))
        for definition in (*definitions(), _definition()):
            await crds.create(definition)
        targets = [{"group": GROUP, "kind": KIND, "controlled": [{"kind": "ConfigMap"}]}]
        given = {
            "minShards": 3, "maxShards": 3, "leaseDuration": f"{LEASE_S:g}s", "heartbeatInterval": "2s",
            "healthCheckInterval": "6s", "gracefulShutdownTimeout": "20s", "migrationTimeout": "10s",
            "cooldown": "1s", "sustainedFor": "1s", "targets": targets, "template": template(0), **spec,
        }  # fmt: skip
        config = {"metadata": {"name": CONFIG, "namespace": NAMESPACE}, "spec": given}
        await eventually(lambda: self._create(config))

    async def _create(self, config: Obj) -> bool:
        await self.configs.create(config)
        return True

    async def change(self, **spec: Any) -> None:
        await self.configs.patch(CONFIG, {"spec": spec}, NAMESPACE)

    # objects

    async def fill(self, names: Iterator[str]) -> None:
        """Create objects, some at a time."""

        async def some() -> None:
            for name in names:
                body = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"value": 0}}
                await self.items.create(body)

        await asyncio.gather(*(some() for _ in range(_IN_FLIGHT)))

    async def rewrite(self, names: list[str], random: Random) -> None:
        """Change objects for ever."""
        while True:
            with suppress(NotFound):  # not created yet
                value = {"spec": {"value": random.randrange(1_000_000)}}
                await self.items.patch(random.choice(names), value, NAMESPACE)
            await asyncio.sleep(0.01)

    def unhandled(self) -> list[str]:
        """Objects whose status does not show their last change."""
        found = []
        for obj in self.watch.items.cache:
            if (obj.get("status") or {}).get("observedGeneration") != obj["metadata"]["generation"]:
                found.append(obj["metadata"]["name"])
        return found

    def accepted(self) -> list[Accepted]:
        return [*read_journals((self.folder / "journals").glob("*.jsonl")), *self.watch.seen]

    async def settled(self, shards: int, *, timeout_s: float) -> None:
        """Wait until so many shards serve all slots and every object is handled."""

        def calm() -> bool:
            entries = list(self.watch.entries())
            owners = {entry.owner for entry in entries}
            assert len(self.watch.served()) == 1024, f"{len(self.watch.served())} slots are served, by {owners}"
            assert not any(entry.move for entry in entries), "slots move"
            assert len(owners) == shards, owners
            left = self.unhandled()
            assert not left, f"{len(left)} objects are not handled, as {left[:3]}"
            return True

        await eventually(calm, timeout_s=timeout_s)

    # faults

    def without_manager_s(self, since_s: float, until_s: float) -> float:
        """What failovers of managers add: a lease for each that was hurt then, or shortly before."""
        hurt = {who for who, begin, end in self._managers_hurt if begin <= until_s and end + MANAGER_LEASE_S >= since_s}
        return MANAGER_LEASE_S * len(hurt)

    @asynccontextmanager
    async def _down(self, shard: Shard, what: str) -> AsyncIterator[None]:
        self.note(f"{shard.name}: {what}")
        shard.down = shard.busy = True
        try:
            yield
        finally:
            shard.down = shard.busy = False

    async def kill(self, shard: Shard) -> None:
        shard.dead_terms.add(self.watch.terms().get(shard.name, -1))
        async with self._down(shard, "killed"):
            shard.process.send(signal.SIGKILL)
            await asyncio.sleep(0.5)

    async def pause(self, shard: Shard, for_s: float) -> None:
        async with self._down(shard, f"paused for {for_s:.1f} s"):
            shard.process.send(signal.SIGSTOP)
            try:
                await asyncio.sleep(for_s)
            finally:
                shard.process.send(signal.SIGCONT)

    async def cut(self, shard: Shard, how: Callable[[TcpProxy], None], for_s: float) -> None:
        async with self._down(shard, f"{how.__name__} for {for_s:.1f} s"):
            how(shard.link)
            await asyncio.sleep(for_s)
            shard.link.heal()

    async def hurt_manager(self, manager: Process, what: signal.Signals, for_s: float) -> None:
        self.note(f"{manager.name}: {what.name} for {for_s:.1f} s")
        began_s = time.monotonic()
        self._managers_hurt.append((manager.name, began_s, began_s + for_s))
        manager.send(what)
        await asyncio.sleep(for_s)
        if what is signal.SIGSTOP:
            manager.send(signal.SIGCONT)
        else:
            manager.start()

    def victims(self) -> list[Shard]:
        terms = self.watch.terms()
        return [
            shard for shard in self.kubelet.shards.values()
            if not (shard.busy or shard.leaving) and shard.process.running and shard.name in terms
        ]  # fmt: skip

    def heal(self) -> None:
        """Let everything go on that was paused, cut off or killed."""
        for manager in self.managers:
            manager.send(signal.SIGCONT)
            if not manager.running:
                manager.start()
        for shard in self.kubelet.shards.values():
            shard.process.send(signal.SIGCONT)
            shard.link.heal()

    def stop(self) -> None:
        for manager in self.managers:
            manager.end()


def template(number: int) -> Obj:
    """Of workers; another number makes another template."""
    container = {"name": "worker", "image": "shoal/shard-worker", "env": [{"name": "UPDATE", "value": str(number)}]}
    return {"spec": {"containers": [container]}}


def _definition() -> Obj:
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": loose, "status": loose}}
    version = {
        "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip
    names = {"plural": "items", "singular": "item", "kind": KIND, "listKind": f"{KIND}List"}
    return {
        "metadata": {"name": f"items.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


@asynccontextmanager
async def sharded_world(folder: Path, *, spec: dict[str, Any] | None = None, **environ: str) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        server = stack.enter_context(server_process(folder / "server", "--port", "0"))
        client = await stack.enter_async_context(
            connect(load(Path(server.kubeconfig)), clock=RealClock(), field_manager="chaos")
        )
        world = World(client, server, folder, **environ)
        await world.begin(**(spec or {}))
        stack.callback(world.stop)
        for manager in world.managers:
            manager.start()
        running = [
            asyncio.create_task(world.watch.run(), name="watch"),
            asyncio.create_task(world.kubelet.run(), name="kubelet"),
        ]
        try:
            yield world
            for task in running:
                if task.done():
                    task.result()
        finally:
            await cancel_all(*running)
