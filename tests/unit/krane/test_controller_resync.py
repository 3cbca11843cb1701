"""The safety net: every object is asked for again, drift is put back or reported, strays are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from krane_doubles import FakeCluster, FakePlane, Rig

from shoal.base.clock import FakeClock, Timer
from shoal.errors import ServiceUnavailable
from shoal.wire.fleet.v1 import cluster_pb as pb


async def test_every_object_is_asked_for_at_least_every_ten_minutes_evenly_spread(tmp_path: Path) -> None:
    plane = FakePlane()
    for n in range(60):
        plane.desired.want(f"deployment/d{n}")
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.clock.advance(600)
        assert set(plane.asked) == set(rig.wanted())
        for _ in range(5):
            plane.asked.clear()
            await rig.clock.advance(600)
            assert set(plane.asked) == set(rig.wanted()) and max(Counter(plane.asked).values()) <= 3
        plane.asked.clear()
        await rig.clock.advance(30)
        assert 3 <= len(plane.asked) <= 9  # no bursts


async def test_a_change_nobody_told_us_of_is_found_by_asking(tmp_path: Path) -> None:
    plane = FakePlane()
    plane.silent.add("deployment/a")
    plane.desired.want("deployment/a")
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        plane.want("deployment/a", replicas=5)
        await rig.clock.advance(600)
        assert rig.running() == rig.wanted()


async def test_a_digest_shows_a_missed_change_and_only_its_bucket_is_sent(tmp_path: Path) -> None:
    plane = FakePlane()
    plane.silent.add("deployment/d7")
    for n in range(50):
        plane.desired.want(f"deployment/d{n}")
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        plane.want("deployment/d7", replicas=5)
        plane.tell_digest()
        await rig.settle()
        assert rig.running() == rig.wanted() and [len(one) for one in plane.buckets] == [1]
        assert rig.controller.version_last_seen != ""


async def test_drift_is_put_back_at_once_where_the_object_says_so(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        plane.want("deployment/a")
        await rig.settle()
        rig.cluster.drift["deployment/a"] = ["spec.replicas"]
        rig.cluster.tell("deployment/a")
        await rig.settle()
        assert rig.cluster.drift == {} and len(rig.cluster.applied) == 2


async def test_drift_is_left_and_reported_where_the_object_says_so(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        plane.want("deployment/a", drift=pb.Drift.REPORT)
        await rig.settle()
        rig.cluster.drift["deployment/a"] = ["spec.replicas"]
        rig.cluster.tell("deployment/a")
        await rig.clock.advance(1800)
        report = plane.reports["deployment/a"]
        assert isinstance(report, pb.DeploymentReport)
        assert report.drift == ["spec.replicas"] and len(rig.cluster.applied) == 1
        del rig.cluster.objects["deployment/a"]
        rig.cluster.tell("deployment/a")
        await rig.settle()
        report = plane.reports["deployment/a"]
        assert isinstance(report, pb.DeploymentReport)
        assert report.drift == ["(deleted)"] and not report.gone


async def test_an_object_somebody_deleted_in_the_cluster_comes_back(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        plane.want("deployment/a")
        await rig.settle()
        del rig.cluster.objects["deployment/a"]
        rig.cluster.tell("deployment/a")
        await rig.settle()
        assert rig.running() == rig.wanted()


async def test_an_object_that_vanished_unseen_is_put_back_by_the_periodic_look(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        plane.want("deployment/a")
        await rig.settle()
        del rig.cluster.objects["deployment/a"]  # and no event comes
        await rig.clock.advance(1300)
        assert rig.running() == rig.wanted()


async def test_somebody_who_keeps_changing_an_object_does_not_make_us_write_all_the_time(tmp_path: Path) -> None:
    plane, cluster = FakePlane(), FakeCluster()
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        plane.want("deployment/a")
        await rig.settle()
        for _ in range(300):
            cluster.drift["deployment/a"] = ["spec.replicas"]
            cluster.tell("deployment/a")
            await rig.clock.advance(1)
        assert 6 <= len(cluster.applied) <= 12
        cluster.drift.clear()
        await rig.clock.advance(1500)
        cluster.drift["deployment/a"] = ["spec.replicas"]
        cluster.tell("deployment/a")
        await rig.settle()
        assert cluster.drift == {}  # left alone for a while, it is corrected at once again


async def test_drift_that_is_seen_while_the_object_is_being_applied_is_looked_at_afterwards(tmp_path: Path) -> None:
    class Overtaken(FakeCluster):
        async def apply(self, item: pb.Item) -> None:
            await super().apply(item)
            if len(self.applied) == 2:
                self.drift[item.key] = ["spec.replicas"]
                self.tell(item.key)

    plane, cluster = FakePlane(), Overtaken()
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        plane.want("deployment/a")
        await rig.settle()
        plane.want("deployment/a")
        await rig.clock.advance(10)
        assert cluster.drift == {} and len(cluster.applied) == 3


async def test_a_stray_of_ours_that_nobody_knows_is_found_by_the_periodic_look(tmp_path: Path) -> None:
    plane, cluster = FakePlane(), FakeCluster()
    for n in range(20):
        plane.desired.want(f"deployment/d{n}")
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        await rig.settle()
        stray = pb.Item(
            key="deployment/stray",
            version=pb.Version(database="main", incarnation=1, number=1),
            action=plane.desired.items["deployment/d1"].action,
        )
        cluster.objects[stray.key] = stray
        await rig.clock.advance(1300)
        assert cluster.deleted == ["deployment/stray"]


class CountingClock(FakeClock):
    timers = 0

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        self.timers += 1
        return super().call_later(delay_s, callback)


async def test_an_idle_controller_with_a_hundred_objects_wakes_rarely(tmp_path: Path) -> None:
    plane = FakePlane()
    for n in range(100):
        plane.desired.want(f"deployment/d{n}")
    clock = CountingClock()
    async with Rig(tmp_path, plane=plane, clock=clock) as rig:
        await rig.clock.advance(700)
        before = clock.timers
        await rig.clock.advance(60)
        assert 0 < clock.timers - before < 100  # timers started in a minute


async def test_what_was_there_before_a_restart_is_applied_once_more_within_minutes(tmp_path: Path) -> None:
    plane, cluster = FakePlane(), FakeCluster()
    for n in range(20):
        plane.desired.want(f"deployment/d{n}")
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        await rig.settle()
    for away in (False, True):
        cluster.applied.clear()
        plane.error = ServiceUnavailable("away") if away else None
        async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
            await rig.settle()
            assert len(cluster.applied) <= 1  # not all at once
            await rig.clock.advance(600)
            assert sorted(key for key, _ in cluster.applied) == sorted(rig.wanted())
