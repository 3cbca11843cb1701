"""Sharding while everything breaks at once: no write of an earlier owner after one of a later, no object lost, no slot
without a worker for longer than promised. And a worker without guards is caught."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from shard_chaos import LEASE_S, World, sharded_world, template
from tests.chaos.rounds import ROUNDS

from shoal.base.tasks import cancel_all
from shoal.client import Scope, builtin
from shoal.sharding.model import slot_of
from shoal.testing.exclusion import violations
from shoal.testing.proxy import FaultProxy
from shoal.testing.tally import TALLY
from shoal.testing.waiting import eventually

OBJECTS = int(os.environ.get("SHARD_CHAOS_OBJECTS", "5000"))
SEED = int(os.environ.get("SHARD_CHAOS_SEED", "1"))
FAULTS_S = 60.0 * ROUNDS
CALM_S = 300.0


async def hurt_workers(world: World, random: Random) -> None:
    while True:
        await asyncio.sleep(random.uniform(0.5, 3.0))
        victims = world.victims()
        if len(victims) < 2:
            continue  # at least one worker must be left
        shard = random.choice(victims)
        long_s = random.choice((0.5, 1.4, 2.0)) * LEASE_S
        match random.randrange(6):
            case 0 | 1:
                await world.kill(shard)
            case 2 | 3:
                await world.pause(shard, long_s)
            case _:
                await world.cut(shard, random.choice((FaultProxy.refuse, FaultProxy.mute, FaultProxy.deafen)), long_s)


async def hurt_managers(world: World, random: Random) -> None:
    while True:
        await asyncio.sleep(random.uniform(5.0, 15.0))
        manager = random.choice(world.managers)
        if random.random() < 0.5:
            await world.hurt_manager(manager, signal.SIGKILL, random.uniform(0.5, 3.0))
        else:
            await world.hurt_manager(manager, signal.SIGSTOP, random.choice((3.0, 20.0)))


async def change_size(world: World, random: Random) -> None:
    """Scale up and down, and bring new templates out."""
    number = 0
    while True:
        await asyncio.sleep(random.uniform(8.0, 16.0))
        if random.random() < 0.6:
            size = random.choice((2, 3, 4, 5))
            world.note(f"{size} shards")
            await world.change(minShards=size, maxShards=size)
        else:
            number += 1
            world.note(f"template {number}")
            await world.change(template=template(number), update={"maxSurge": random.choice((1, 2))})


async def children_are_as_wanted(world: World) -> None:
    maps = {obj["metadata"]["name"]: obj for obj in (await world.client.of(builtin("configmaps")).list(Scope())).items}
    for obj in world.watch.items.cache:
        name = obj["metadata"]["name"]
        assert name in maps, f"{name} has no child"
        assert maps[name]["data"]["value"] == str(obj["spec"]["value"]), name
        assert maps[name]["metadata"]["ownerReferences"][0]["uid"] == obj["metadata"]["uid"]


@pytest.mark.alone
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})], ids=["uvloop"])
async def test_no_fault_breaks_exclusion_or_loses_an_object(tmp_path: Path) -> None:
    random = Random(SEED)

    async def main() -> None:
        async with sharded_world(tmp_path) as world:
            try:
                await everything(world)
            finally:
                print(*world.faults, sep="\n")
                stalled = f"the machine was late by {world.watch.stalled_s(0.0):.1f} s in all"
                print(f"longest without a worker: {world.watch.longest_s:.1f} s; {stalled}")

    async def everything(world: World) -> None:
        names = [f"item-{number:05}" for number in range(OBJECTS)]
        await world.settled(3, timeout_s=60.0)
        breaking = [
            asyncio.create_task(hurt_workers(world, random), name="workers"),
            asyncio.create_task(hurt_managers(world, random), name="managers"),
            asyncio.create_task(change_size(world, random), name="size"),
            asyncio.create_task(world.rewrite(names, random), name="rewrite"),
        ]
        filling = asyncio.create_task(world.fill(iter(names)), name="fill")
        try:
            await asyncio.sleep(FAULTS_S)
            for task in breaking:
                assert not task.done(), task.exception()
            await filling
        finally:
            await cancel_all(*breaking, filling)
        world.heal()
        await world.change(minShards=3, maxShards=3)
        await world.settled(3, timeout_s=CALM_S)
        found = {obj["metadata"]["name"] for obj in (await world.items.list(Scope())).items}
        assert found == set(names), "objects were lost"
        assert all(slot_of(obj, "items") is not None for obj in world.watch.items.cache)
        await children_are_as_wanted(world)
        accepted = world.accepted()
        print(f"{len(accepted)} accepted writes of {len({each.who for each in accepted})} processes")
        TALLY.checked += len(accepted)
        TALLY.faults += len(world.faults)
        TALLY.seeds.add(str(SEED))
        assert violations(accepted) == []
        assert world.watch.gaps == []

    await main()


@pytest.mark.alone
@pytest.mark.timeout(300)
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})], ids=["uvloop"])
@pytest.mark.parametrize("guard", ["whole", "broken"])
async def test_a_worker_that_wakes_up_late_does_no_harm_and_is_caught_without_its_guards(
    tmp_path: Path, guard: str
) -> None:
    """All workers write all the time. One is paused until its slots have another owner, and then resumes."""

    async def main() -> None:
        spec = {"minShards": 2, "maxShards": 2}
        async with sharded_world(tmp_path, spec=spec, SHARD_TEST_BEAT_S="0.2", SHARD_TEST_GUARD=guard) as world:
            await world.settled(2, timeout_s=60.0)
            names = [f"item-{number:03}" for number in range(60)]
            await world.fill(iter(names))
            await world.settled(2, timeout_s=60.0)
            sleeper = world.victims()[0]
            before = world.watch.terms()[sleeper.name]
            await world.pause(sleeper, 2.5 * LEASE_S)

            def back() -> bool:
                return world.watch.terms().get(sleeper.name, before) > before

            await eventually(back, timeout_s=60.0)
            await world.settled(2, timeout_s=60.0)
            found = violations(world.accepted())
            assert bool(found) is (guard == "broken"), found[:3]

    await main()
