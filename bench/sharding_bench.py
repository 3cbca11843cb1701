"""Sharding, the manager's side: assignments, what moves when shards come, operations, decisions, memory.

    PYTHONPATH=src python bench/sharding_bench.py [--quick]

Workers are played: they hold Leases and acknowledge moves, and do nothing else. Assignments are key to slot to owner.
An operation is a change of a shard or of a slot that is written to the cluster: a phase, a step of a move, a slot given
away. The memory is that of a `shoal shard manager` process with 100 shards, after it has given 100 000 objects their
slots. Beside: the original claims 100 operations/s, decisions within 5 s, 10 ms per assignment, and reports 32 506
assignments/s against a fake client. Fails when a bar is missed, but not with ``--quick`` (a tenth of everything).
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import uvloop

from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.base.tasks import cancel_all
from shoal.client import Client, Scope, builtin, connect, load
from shoal.crds.shard import definitions
from shoal.errors import Conflict
from shoal.kube.objects import Obj
from shoal.kube.times import format_micro_time
from shoal.reconcile import Change, EventRecorder, Informer, Manager
from shoal.sharding.leases import ACKS, REPORT, Ack, AckKind, WorkerReport, encode_acks, encode_report
from shoal.sharding.manager import wiring
from shoal.sharding.manager.writers import CONFIGS, INSTANCES, LEASES, TABLE
from shoal.sharding.model import CONFIG_LABEL, SLOTS, SlotDuty, SlotEntry, read_table, slot_duty, slot_label
from shoal.sharding.plan import Members, share_out
from shoal.sharding.ring import object_key, slot_of_key
from shoal.testing.servers import local_server, start_server_process
from shoal.testing.waiting import eventually

NAMESPACE = "default"
IN_FLIGHT = 64
WAIT_S = 120.0


class Bars:
    """What was measured, beside what it has to be."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.failed = False

    def line(
        self, name: str, value: float, unit: str, *, least: float | None = None, most: float | None = None
    ) -> None:
        good = (least is None or value >= least) and (most is None or value <= most)
        bar = f"at least {least:g}" if least is not None else f"at most {most:g}" if most is not None else ""
        print(f"{name:<58} {value:>12,.2f} {unit:<8} {bar:<18} {'' if good else 'SHORT'}", flush=True)
        self.failed |= self.strict and not good


# pure


def assignments(bars: Bars, number: int) -> None:
    owners = share_out([""] * SLOTS, Members(settled=tuple(f"web-{n}" for n in range(100))), "consistent-hash")
    names = [f"site-{n}" for n in range(number)]
    began = time.perf_counter()
    for name in names:
        _ = owners[slot_of_key(object_key("example.com", "Website", "default", name))]
    bars.line("assignments", number / (time.perf_counter() - began), "/s", least=100_000)


def movement(bars: Bars) -> None:
    worst = 0.0
    for strategy in ("consistent-hash", "round-robin", "least-loaded"):
        heirs = [""] * SLOTS
        for size in range(64):
            known = tuple(f"web-{n}" for n in range(size))
            after = share_out(heirs, Members(settled=known, joining=(f"web-{size}",)), strategy)
            if size:
                moved = sum(before != now for before, now in zip(heirs, after, strict=True))
                worst = max(worst, moved / SLOTS * (size + 1))
            heirs = after
    bars.line("slots moved by one more shard, times (N + 1)", worst, "x", most=1.25)


# played workers


class Shards:
    """Many shards of one config: Leases, heartbeats, acknowledgements."""

    def __init__(self, client: Client, config: str, *, lease_s: int = 60) -> None:
        self._leases = client.of(LEASES)
        self._informer = Informer(client.of(TABLE), clock=RealClock(), random=Random(1).random)
        self._informer.cache.add_handler(self._on_change)
        self._changed = asyncio.Event()
        self._config = config
        self._lease_s = lease_s
        self._held: dict[str, Obj] = {}
        self._acks: dict[str, dict[int, Ack]] = {}
        self._seen: dict[str, tuple[SlotEntry, ...]] = {}
        self.load = 0.5
        self.steps = 0  # changes of slots that the table showed
        self._tasks = [
            asyncio.create_task(self._informer.run(), name="tables"),
            asyncio.create_task(self._follow(), name="follow"),
            asyncio.create_task(self._beat(), name="beat"),
        ]

    async def stop(self) -> None:
        await cancel_all(*self._tasks)

    async def join(self, *names: str) -> None:
        limit = asyncio.Semaphore(IN_FLIGHT)

        async def one(name: str) -> None:
            about = {"name": name, "namespace": NAMESPACE, "labels": {CONFIG_LABEL: self._config}}
            spec = {
                "holderIdentity": f"{name}_1", "leaseDurationSeconds": self._lease_s, "leaseTransitions": 1,
                "renewTime": format_micro_time(time.time()),
            }  # fmt: skip
            async with limit:
                self._held[name] = await self._leases.create({"metadata": about, "spec": spec})
            self._acks[name] = {}

        await asyncio.gather(*map(one, names))

    def entries(self) -> list[SlotEntry]:
        found = []
        for table in self._informer.cache:
            found += read_table(table)
        return found

    def at_rest(self, shards: int) -> bool:
        entries = self.entries()
        owners = {entry.owner for entry in entries}
        return "" not in owners and len(owners) == shards and not any(entry.move for entry in entries)

    def _on_change(self, change: Change) -> None:
        self._changed.set()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 5)
            await asyncio.gather(*map(self._renew, tuple(self._held)))

    async def said(self, load: float) -> None:
        """Everybody reports a load."""
        self.load = load
        await asyncio.gather(*map(self._renew, tuple(self._held)))

    async def _renew(self, name: str) -> None:
        lease = self._held[name]
        notes = {REPORT: encode_report(WorkerReport(load=self.load)), ACKS: encode_acks(self._acks[name])}
        about = {**lease["metadata"], "annotations": notes}
        spec = {**lease["spec"], "renewTime": format_micro_time(time.time())}
        try:
            self._held[name] = await self._leases.replace({**lease, "metadata": about, "spec": spec})
        except Conflict:
            self._held[name] = await self._leases.get(name, NAMESPACE)

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            busy: set[str] = set()
            for table in self._informer.cache:
                entries = read_table(table)
                before = self._seen.get(table["metadata"]["name"])
                self._seen[table["metadata"]["name"]] = entries
                for number, entry in enumerate(entries):
                    if before is None or before[number] != entry:
                        self.steps += before is not None
                        busy |= self._heed(entry)
            await asyncio.gather(*map(self._renew, busy))

    def _heed(self, entry: SlotEntry) -> set[str]:
        move, slot = entry.move, entry.slot
        if move is None:
            for acks in self._acks.values():
                acks.pop(slot, None)
            return set()
        for name in {entry.owner, move.to} & set(self._held):
            match slot_duty(entry, name, 1):
                case SlotDuty.PREPARE:
                    ack = Ack(slot, move.next_epoch, AckKind.PREPARED)
                case SlotDuty.DRAIN:
                    ack = Ack(slot, move.next_epoch, AckKind.DRAINED)
                case SlotDuty.RESTORE:
                    ack = Ack(slot, entry.epoch, AckKind.RESTORED)
                case _:
                    continue
            self._acks[name][slot] = ack
        return {entry.owner, move.to} & set(self._held)


# the manager in this process


async def operations(bars: Bars, shards: int) -> None:
    async with local_server() as server:
        transport: Any = server.transport
        client = Client(transport, clock=RealClock(), field_manager="bench")
        for definition in definitions():
            await client.of(builtin("customresourcedefinitions", "apiextensions.k8s.io")).create(definition)
        manager = Manager(client, clock=RealClock(), random=Random(1).random)
        numbers, ids = count(1), Ids()
        events = EventRecorder(client, "shard-manager", "bench", clock=RealClock(), new_suffix=ids.new_suffix)
        wiring.add(
            manager, events,
            wiring.ManagerDeps(
                clock=RealClock(), random=Random(1).random, new_id=lambda: str(next(numbers)),
                new_suffix=ids.new_suffix, metrics=Metrics(),
            ),
        )  # fmt: skip
        manager.add(events)
        running = asyncio.create_task(manager.run(), name="manager")
        await manager.ready.wait()
        configs, instances = client.of(CONFIGS), client.of(INSTANCES)
        spec = {
            "externalWorkers": True,
            "maxShards": 1000,
            "sustainedFor": "1s",
            "cooldown": "1s",
            "leaseDuration": "60s",
        }
        await configs.create({"metadata": {"name": "web", "namespace": NAMESPACE}, "spec": spec})
        players = Shards(client, "web")
        await players.join("web-0")
        await eventually(lambda: players.at_rest(1), timeout_s=WAIT_S)
        before = server.store.revision
        players.steps = 0
        began = time.perf_counter()
        await players.join(*(f"web-{number}" for number in range(1, shards)))
        await eventually(lambda: players.at_rest(shards), timeout_s=WAIT_S)
        took_s = time.perf_counter() - began
        written = 2 * len((await instances.list()).items)  # made, and running
        bars.line(f"{shards} shards joining: until all slots are theirs", took_s, "s")
        bars.line("shard operations", (players.steps + written) / took_s, "/s", least=1000)
        print(f"{'':<58} {players.steps:,} steps of slots, {server.store.revision - before:,} writes in all")
        await asyncio.sleep(1.5)
        status = await configs.get("web", NAMESPACE)
        wanted = status["status"]["desiredShards"]
        began = time.perf_counter()
        await players.said(0.95)

        async def desired() -> int:
            return int((await configs.get("web", NAMESPACE))["status"]["desiredShards"])

        await eventually(desired, until=lambda shards: shards != wanted, timeout_s=WAIT_S, every_s=0.02)
        took_s = time.perf_counter() - began
        bars.line("load over the threshold until it is decided (sustained 1 s)", took_s, "s", most=5)
        await players.stop()
        manager.stop()
        await running


# the manager as a process


async def memory(bars: Bars, shards: int, objects: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = start_server_process(Path(folder), "--port", "0")
        try:
            async with connect(load(Path(server.kubeconfig)), clock=RealClock()) as client:
                await _memory(bars, client, server.kubeconfig, shards, objects)
        finally:
            server.process.terminate()
            server.process.wait()


async def _memory(bars: Bars, client: Client, kubeconfig: str, shards: int, objects: int) -> None:
    for definition in definitions():
        await client.of(builtin("customresourcedefinitions", "apiextensions.k8s.io")).create(definition)
    maps = client.of(builtin("configmaps"))
    numbers = iter(range(objects))

    async def fill() -> None:
        for number in numbers:
            about = {"name": f"object-{number}", "namespace": NAMESPACE, "labels": {"sharded": "yes"}}
            await maps.create({"metadata": about, "data": {"text": "x" * 100}})

    await asyncio.gather(*(fill() for _ in range(IN_FLIGHT)))
    target = {"kind": "ConfigMap", "selector": {"matchLabels": {"sharded": "yes"}}}
    spec = {"targets": [target], "maxShards": 1000, "leaseDuration": "600s"}
    players = Shards(client, "web", lease_s=600)
    process = start_manager(kubeconfig)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        await players.join(*(f"web-{number}" for number in range(shards)))
        began = time.perf_counter()
        await client.of(CONFIGS).create({"metadata": {"name": "web", "namespace": NAMESPACE}, "spec": spec})
        unassigned = Scope(label_selector=f"sharded=yes,!{slot_label('web')}")
        while (page := await maps.page(unassigned, limit=1)).items:
            await asyncio.sleep(0.2)
            if process.poll() is not None:
                raise RuntimeError(f"the manager ended with {process.returncode}")
        took_s = time.perf_counter() - began
        await eventually(lambda: players.at_rest(shards), timeout_s=WAIT_S)
        del page
        bars.line(f"{objects:,} objects given a slot by the sweep", objects / took_s, "/s")
        bars.line(
            f"manager with {shards} shards and {objects:,} objects, highest", peak_mb(process.pid), "MB", most=128
        )
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        await players.stop()


def start_manager(kubeconfig: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "shoal", "shard", "manager", "--kubeconfig", kubeconfig, "--port", "0"]
    return subprocess.Popen([*command, "--no-elect", "--log-level", "warning"], stdout=subprocess.PIPE)


def peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


async def measure(bars: Bars, *, quick: bool) -> None:
    await operations(bars, 20 if quick else 100)
    await memory(bars, 10 if quick else 100, 10_000 if quick else 100_000)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    bars = Bars(strict=not given.quick)
    assignments(bars, 20_000 if given.quick else 200_000)
    movement(bars)
    uvloop.run(measure(bars, quick=given.quick))
    return 1 if bars.failed else 0


if __name__ == "__main__":
    sys.exit(main())
