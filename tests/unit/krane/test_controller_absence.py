"""What nobody wants any more: absence, tombstones, the brake and the person who confirms."""

from __future__ import annotations

import asyncio
from pathlib import Path

from krane_doubles import FakeCluster, FakePlane, Rig, event

from shoal.errors import ServiceUnavailable
from shoal.krane.protocol import is_removal
from shoal.wire.fleet.v1 import cluster_pb as pb


def _deployments(plane: FakePlane, count: int) -> None:
    for n in range(count):
        plane.desired.want(f"deployment/d{n:03}")


async def test_what_a_full_sync_does_not_name_and_nobody_knows_is_removed(tmp_path: Path) -> None:
    plane = FakePlane()
    _deployments(plane, 30)
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        plane.desired.lose("deployment/d007")  # the row is gone, without a tombstone
        plane.cut()
        rig.controller.context.machine.cursor_refused()
        await rig.clock.advance(2)
        assert rig.cluster.deleted == ["deployment/d007"] and rig.running() == rig.wanted()
        assert plane.reports["deployment/d007"].gone
        assert "deployment/d007" not in rig.cache


async def test_a_digest_finds_what_was_lost_without_a_tombstone(tmp_path: Path) -> None:
    plane = FakePlane()
    _deployments(plane, 30)
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        plane.desired.lose("deployment/d007")
        plane.tell_digest()
        await rig.settle()
        assert rig.cluster.deleted == ["deployment/d007"] and len(plane.buckets) == 1
        plane.tell_digest()
        await rig.settle()
        assert len(plane.buckets) == 1  # now they agree


async def test_an_agent_that_lost_its_cache_still_finds_what_it_made(tmp_path: Path) -> None:
    plane, cluster = FakePlane(), FakeCluster()
    _deployments(plane, 30)
    async with Rig(tmp_path / "one", plane=plane, cluster=cluster) as rig:
        await rig.settle()
    plane.desired.lose("deployment/d007")
    async with Rig(tmp_path / "two", plane=plane, cluster=cluster) as rig:
        await rig.settle()
        assert cluster.deleted == ["deployment/d007"] and rig.running() == rig.wanted()


async def test_absence_alone_deletes_nothing_that_the_control_plane_knows(tmp_path: Path) -> None:
    plane = FakePlane()
    _deployments(plane, 10)
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        # a sync whose keys got lost: every object is missing from it
        number = pb.Version(database="main", incarnation=1, number=plane.desired.number)
        plane.push(event("sync_begin", pb.SyncBegin(sync=77, cursor=plane.desired.cursor, versions=[number])))
        plane.push(event("sync_end", pb.SyncEnd(sync=77, cursor=plane.desired.cursor)))
        await rig.settle()
        assert rig.cluster.deleted == [] and rig.running() == rig.wanted()
        assert len(plane.asked) == 10


async def test_absence_says_nothing_about_what_is_newer_than_the_sync_or_of_unknown_version(tmp_path: Path) -> None:
    plane, cluster = FakePlane(), FakeCluster()
    _deployments(plane, 3)
    foreign = pb.Item(key="deployment/unversioned", action=plane.desired.items["deployment/d000"].action)
    newer = pb.Item(
        key="deployment/newer",
        version=pb.Version(database="main", incarnation=1, number=999),
        action=foreign.action,
    )
    cluster.objects = {foreign.key: foreign, newer.key: newer}
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        await rig.settle()
        assert cluster.deleted == [] and {foreign.key, newer.key} < rig.running().keys()


async def test_absence_waits_while_the_control_plane_cannot_be_asked(tmp_path: Path) -> None:
    plane = FakePlane()
    _deployments(plane, 30)
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        plane.desired.lose("deployment/d007")
        real = plane.get_desired

        async def away(stream: object, request: object) -> pb.Item:
            raise ServiceUnavailable("away")

        plane.get_desired = away  # type: ignore[method-assign, assignment]
        plane.tell_digest()
        await rig.clock.advance(5)
        assert rig.cluster.deleted == []
        plane.get_desired = real  # type: ignore[method-assign]
        await rig.clock.advance(60)
        assert rig.cluster.deleted == ["deployment/d007"]


async def test_a_sync_without_half_of_the_objects_deletes_none_until_a_person_confirms(tmp_path: Path) -> None:
    plane = FakePlane()
    _deployments(plane, 40)
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        for n in range(20):
            plane.desired.lose(f"deployment/d{n:03}")
        plane.tell_digest()
        await rig.clock.advance(3600)
        assert rig.cluster.deleted == []
        brake = rig.controller.state().brake
        assert brake is not None and brake.held and brake.count == 20 and brake.reason
        assert plane.reports["deployment/d000"].error.reason == "DeletionHeld"  # type: ignore[union-attr]
        rig.controller.confirm_deletes(plane.desired.cursor)
        await rig.settle()
        assert sorted(rig.cluster.deleted) == [f"deployment/d{n:03}" for n in range(20)]
        assert rig.running() == rig.wanted() and not rig.controller.state().brake.held  # type: ignore[union-attr]


async def test_tombstones_past_the_brake_wait_and_survive_a_restart(tmp_path: Path) -> None:
    plane, cluster = FakePlane(), FakeCluster()
    _deployments(plane, 40)
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        await rig.settle()
        for n in range(12):
            plane.unwant(f"deployment/d{n:03}")
        await rig.settle()
        assert len(cluster.deleted) == 5  # the larger of five and a tenth of forty
        clock = rig.clock
    async with Rig(tmp_path, plane=plane, cluster=cluster, clock=clock) as rig:
        await rig.clock.advance(1200)
        assert len(cluster.deleted) == 5 and len(rig.controller.status()["heldDeletes"]) == 7
        rig.controller.confirm_deletes(plane.desired.cursor)
        await rig.settle()
        assert rig.running() == rig.wanted() and len(cluster.deleted) == 12


async def test_a_single_held_deletion_waits_for_a_person_however_long_it_takes(tmp_path: Path) -> None:
    plane, cluster = FakePlane(), FakeCluster()
    _deployments(plane, 20)
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        await rig.settle()
        for n in range(6):
            plane.unwant(f"deployment/d{n:03}")
        await rig.clock.advance(3600)
        clock = rig.clock
    async with Rig(tmp_path, plane=plane, cluster=cluster, clock=clock) as rig:
        await rig.clock.advance(3600)
        assert len(cluster.deleted) == 5 and rig.controller.status()["heldDeletes"] == ["deployment/d005"]


async def test_what_a_user_deletes_is_exempt_from_the_brake(tmp_path: Path) -> None:
    plane = FakePlane()
    _deployments(plane, 40)
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        for n in range(40):
            plane.unwant(f"deployment/d{n:03}", by_user=True)
        await rig.settle()
        assert rig.running() == {} and len(rig.cluster.deleted) == 40


async def test_a_confirmation_does_not_reach_deletions_that_came_after_it(tmp_path: Path) -> None:
    plane = FakePlane()
    _deployments(plane, 40)
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        for n in range(8):
            plane.unwant(f"deployment/d{n:03}")
        await rig.settle()
        confirmed = plane.desired.cursor
        plane.unwant("deployment/d039")
        await rig.settle()
        assert rig.controller.confirm_deletes("not a cursor") == []
        assert len(rig.controller.confirm_deletes(confirmed)) == 3
        await rig.settle()
        assert len(rig.cluster.deleted) == 8 and "deployment/d039" in rig.running()
        assert rig.controller.status()["heldDeletes"] == ["deployment/d039"]


async def test_a_held_key_that_is_wanted_again_is_not_held_any_more(tmp_path: Path) -> None:
    plane = FakePlane()
    _deployments(plane, 20)
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        for n in range(6):
            plane.unwant(f"deployment/d{n:03}")
        await rig.settle()
        assert rig.controller.status()["heldDeletes"] == ["deployment/d005"]
        plane.want("deployment/d005", replicas=3)
        await rig.settle()
        assert rig.controller.status()["heldDeletes"] == [] and rig.running() == rig.wanted()
        rig.controller.confirm_deletes(plane.desired.cursor)
        await rig.settle()
        assert rig.running() == rig.wanted()


async def test_a_restored_backup_deletes_nothing_by_absence_before_it_was_judged_as_a_whole(tmp_path: Path) -> None:
    plane = FakePlane()
    _deployments(plane, 10)
    backup, number = dict(plane.desired.items), plane.desired.number
    for n in range(10, 30):
        plane.desired.want(f"deployment/d{n:03}")
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        plane.unwant("deployment/d001", by_user=True)
        await rig.settle()
        plane.desired.restore(backup, number)
        plane.cut()
        await rig.clock.advance(30)
        assert rig.cluster.deleted == ["deployment/d001"]  # by the user, before
        assert set(rig.wanted()) < set(rig.running()) and "deployment/d001" in rig.running()
        assert rig.controller.state().brake.count == 20  # type: ignore[union-attr]
        rig.controller.confirm_deletes(plane.desired.cursor)
        await rig.settle()
        assert rig.running() == rig.wanted()


async def test_tombstones_of_a_restored_backup_are_braked_even_if_a_user_had_asked_for_them(tmp_path: Path) -> None:
    plane = FakePlane()
    for n in range(20):
        plane.desired.want(f"deployment/d{n:03}")
        plane.desired.unwant(f"deployment/d{n:03}", by_user=True)
    backup, number = dict(plane.desired.items), plane.desired.number
    for n in range(20):
        plane.desired.want(f"deployment/d{n:03}")  # wanted again, after the backup
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        assert len(rig.running()) == 20
        plane.desired.restore(backup, number)
        plane.cut()
        await rig.clock.advance(60)
        assert rig.cluster.deleted == [] and rig.controller.state().brake.count == 20  # type: ignore[union-attr]
        rig.controller.confirm_deletes(plane.desired.cursor)
        await rig.settle()
        assert rig.running() == rig.wanted() == {}


async def test_a_restored_backup_that_takes_little_away_passes_the_brake_by_itself(tmp_path: Path) -> None:
    plane = FakePlane()
    _deployments(plane, 20)
    plane.desired.unwant("deployment/d000", by_user=True)
    backup, number = dict(plane.desired.items), plane.desired.number
    plane.desired.want("deployment/d000")
    plane.desired.want("deployment/after")
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        plane.desired.restore(backup, number)
        plane.cut()
        await rig.clock.advance(60)
        assert sorted(rig.cluster.deleted) == ["deployment/after", "deployment/d000"]
        assert rig.running() == rig.wanted() and not rig.controller.status()["observeOnly"]


async def test_tombstones_of_what_is_not_there_do_not_count_for_the_brake(tmp_path: Path) -> None:
    plane = FakePlane()
    for n in range(20):
        plane.desired.unwant(f"deployment/d{n:03}")
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        assert rig.controller.status()["heldDeletes"] == [] and len(rig.cache) == 0
        assert all(report.gone for report in plane.reports.values()) and len(plane.reports) == 20


async def test_a_deletion_is_reported_even_when_the_agent_restarts_before_it_could_be(tmp_path: Path) -> None:
    plane, cluster = FakePlane(), FakeCluster()
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        plane.want("deployment/a")
        await rig.settle()
        plane.slow["deployment/a"] = asyncio.Event()
        plane.unwant("deployment/a", by_user=True)
        await rig.settle()
        assert cluster.deleted and not plane.reports["deployment/a"].gone
        item = rig.cache.get("deployment/a")
        assert item is not None and is_removal(item)
    plane.slow.clear()
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        await rig.settle()
        assert plane.reports["deployment/a"].gone and len(rig.cache) == 0
