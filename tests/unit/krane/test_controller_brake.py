"""The brake over restarts and other ends: what was agreed to, or is not a deletion any more, holds nobody up."""

from __future__ import annotations

import asyncio
from pathlib import Path

from krane_doubles import FakeCluster, FakePlane, Rig, event

from shoal.wire.fleet.v1 import cluster_pb as pb


def _deployments(plane: FakePlane, count: int) -> None:
    for n in range(count):
        plane.desired.want(f"deployment/d{n:03}")


async def test_deletions_that_a_person_confirmed_hold_nothing_after_a_restart(tmp_path: Path) -> None:
    plane, cluster = FakePlane(), FakeCluster()
    _deployments(plane, 30)
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        await rig.settle()
        for n in range(12):
            plane.unwant(f"deployment/d{n:03}")
        await rig.settle()
        rig.controller.confirm_deletes(plane.desired.cursor)
        await rig.settle()
        assert len(cluster.deleted) == 12
        clock = rig.clock
    async with Rig(tmp_path, plane=plane, cluster=cluster, clock=clock) as rig:
        await rig.settle()
        assert rig.controller.status()["heldDeletes"] == []
        await rig.clock.advance(3600)
        plane.unwant("deployment/d020")
        await rig.settle()
        assert rig.running() == rig.wanted() and rig.controller.status()["heldDeletes"] == []


async def test_deletions_of_the_last_minutes_count_after_a_restart_too(tmp_path: Path) -> None:
    plane, cluster = FakePlane(), FakeCluster()
    _deployments(plane, 30)
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        await rig.settle()
        for n in range(5):
            plane.unwant(f"deployment/d{n:03}")
        await rig.settle()
        clock = rig.clock
    async with Rig(tmp_path, plane=plane, cluster=cluster, clock=clock) as rig:
        await rig.settle()
        plane.unwant("deployment/d020")
        await rig.settle()
        assert rig.controller.status()["heldDeletes"] == ["deployment/d020"]


async def test_namespaces_of_environments_that_no_user_deleted_wait_for_a_confirmation(tmp_path: Path) -> None:
    plane, cluster = FakePlane(), FakeCluster()
    _deployments(plane, 10)
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        await rig.settle()
        for n in range(7):
            plane.unwant(f"environment/e{n}")
        await rig.settle()
        assert len(cluster.deleted) == 5
        assert len(rig.controller.status()["heldDeletes"]) == 2
        plane.unwant("environment/asked", by_user=True)
        await rig.settle()
        assert cluster.deleted[5:] == ["environment/asked"]


async def test_a_held_key_that_is_released_is_not_held_any_more(tmp_path: Path) -> None:
    plane = FakePlane()
    _deployments(plane, 20)
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        for n in range(6):
            plane.unwant(f"deployment/d{n:03}")
        await rig.settle()
        assert rig.controller.status()["heldDeletes"] == ["deployment/d005"]
        plane.unwant("deployment/d005", release=True)
        await rig.settle()
        assert rig.controller.status()["heldDeletes"] == []


async def test_a_sync_of_the_history_before_does_not_end_the_observing_of_a_restored_one(tmp_path: Path) -> None:
    plane, cluster = FakePlane(), FakeCluster()
    for n in range(20):
        plane.desired.want(f"deployment/d{n:03}")
        plane.desired.unwant(f"deployment/d{n:03}", by_user=True)
    backup, number = dict(plane.desired.items), plane.desired.number
    for n in range(20):
        plane.desired.want(f"deployment/d{n:03}")
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        await rig.settle()
        cluster.blocked["live"] = asyncio.Event()  # the cluster is slow while a full sync is compared with it
        rig.controller.context.machine.cursor_refused()
        plane.cut()
        await rig.clock.advance(2)
        plane.desired.restore(backup, number)
        welcome, *rest = _restored(plane)
        plane.desired.hello = lambda *_: [welcome]  # type: ignore[method-assign]
        plane.cut()
        await rig.clock.advance(2)
        cluster.blocked.pop("live").set()
        await rig.settle()
        for message in rest:
            plane.push(message)
        await rig.clock.advance(60)
        assert cluster.deleted == [] and rig.controller.state().brake.count == 20  # type: ignore[union-attr]


def _restored(plane: FakePlane) -> list[pb.WatchEvent]:
    """What a stream of another history begins with."""
    return [event("welcome", pb.Welcome(reason="restored", observe_only=True)), *plane.desired.sync(())]
