"""Desired state into the cluster: what arrives is applied, newest first and last, whatever fails on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from krane_doubles import Desired, FakeCluster, FakePlane, Rig, event, inline

from shoal.errors import Forbidden, Invalid, ServiceUnavailable, Unauthorized
from shoal.krane.config import Limits
from shoal.krane.controller import SentinelController
from shoal.krane.model import Fenced
from shoal.sync.keys import StreamKind
from shoal.sync.versions import BadCursor
from shoal.wire.fleet.v1 import cluster_pb as pb


async def test_everything_desired_is_applied_at_first_contact_and_each_change_afterwards(tmp_path: Path) -> None:
    plane = FakePlane()
    for n in range(5):
        plane.desired.want(f"deployment/d{n}")
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        assert rig.running() == rig.wanted() and len(rig.running()) == 5
        plane.want("deployment/d3", replicas=4)
        plane.unwant("deployment/d4", by_user=True)
        await rig.settle()
        assert rig.running() == rig.wanted() and len(rig.running()) == 4


async def test_an_older_version_is_never_applied_over_a_newer_one(tmp_path: Path) -> None:
    plane = FakePlane()
    old = plane.desired.want("deployment/a", replicas=1)
    newest = plane.desired.want("deployment/a", replicas=2)
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        plane.push(event("item", old))
        await rig.settle()
        assert rig.cluster.applied == [("deployment/a", 2)]
        gone = plane.unwant("deployment/a", by_user=True)
        plane.push(event("item", newest))
        await rig.settle()
        assert gone.version is not None and rig.running() == {}
        assert rig.cluster.applied == [("deployment/a", 2)]


async def test_one_task_per_key_and_only_the_newest_of_what_came_meanwhile(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        gate = rig.cluster.blocked["deployment/a"] = asyncio.Event()
        for replicas in range(1, 9):
            plane.want("deployment/a", replicas=replicas)
            await rig.settle()
        assert rig.cluster.busy == {"deployment/a"}
        gate.set()
        await rig.settle()
        assert [number for _, number in rig.cluster.applied] == [1, 8]


async def test_what_reaches_a_worker_late_is_not_applied_over_what_is_known(tmp_path: Path) -> None:
    plane, cluster = FakePlane(), FakeCluster()
    old = plane.desired.want("deployment/a")
    plane.desired.want("deployment/a", replicas=2)
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        await rig.settle()
        cluster.objects.clear()  # so that the cluster itself would not refuse it
        rig.controller.context.inbox.offer(old)
        await rig.settle()
        assert ("deployment/a", 1) not in cluster.applied


async def test_a_failing_key_is_retried_with_growing_pauses_blocks_nobody_and_is_visible(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        rig.cluster.failing["deployment/bad"] = Invalid("the image is not a name")
        plane.want("deployment/bad")
        for n in range(20):
            plane.want(f"deployment/good{n}")
        await rig.settle()
        assert len(rig.running()) == 20
        (shown,) = rig.controller.status()["failing"]
        assert shown["key"] == "deployment/bad" and shown["message"] == "the image is not a name"
        assert shown["retrySeconds"] == 3.75  # 5 s, jittered between a half and all of it
        report = plane.reports["deployment/bad"]
        assert report.error is not None and report.error.reason == "Invalid" and report.error.attempts == 1
        assert report.error.version == plane.desired.items["deployment/bad"].version
        state = rig.controller.state()
        assert (state.retrying, state.buffered) == (1, 0)
        await rig.clock.advance(3600)
        assert rig.controller.status()["failing"][0]["retrySeconds"] <= 300.0
        assert 14 <= rig.controller.status()["failing"][0]["attempts"] <= 24
        assert rig.controller.state().lag_seconds >= 3600  # of the oldest key that is not applied
        del rig.cluster.failing["deployment/bad"]
        await rig.clock.advance(300)
        assert rig.running() == rig.wanted() and rig.controller.state().lag_seconds == 0
        assert plane.reports["deployment/bad"].error is None


async def test_a_newer_version_of_a_failing_key_is_tried_at_once(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        rig.cluster.failing["deployment/a"] = Invalid("no")
        plane.want("deployment/a")
        await rig.settle()
        rig.cluster.failing.clear()
        plane.want("deployment/a", replicas=2)
        await rig.settle()
        assert rig.running() == rig.wanted()


async def test_an_error_of_ours_in_one_object_does_not_end_the_controller(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        rig.cluster.failing["deployment/a"] = KeyError("a bug")
        plane.want("deployment/a")
        plane.want("deployment/b")
        await rig.settle()
        assert list(rig.running()) == ["deployment/b"]
        assert plane.reports["deployment/a"].error.reason == "KeyError"  # type: ignore[union-attr]


async def test_a_full_buffer_stops_the_reading_and_drops_nothing(tmp_path: Path) -> None:
    plane = FakePlane()
    limits = Limits(buffer=5, apply_parallel=2, report_gather_s=0)
    async with Rig(tmp_path, plane=plane, limits=limits) as rig:
        gates = [rig.cluster.blocked.setdefault(f"deployment/d{n}", asyncio.Event()) for n in range(2)]
        for n in range(20):
            plane.want(f"deployment/d{n}")
        await rig.settle()
        assert rig.controller.state().buffered == 5 and rig.cluster.most_busy <= 3
        for gate in gates:
            gate.set()
        await rig.settle()
        assert rig.running() == rig.wanted() and len(rig.running()) == 20


async def test_the_cursor_moves_only_when_what_lies_before_it_is_on_disk(tmp_path: Path) -> None:
    plane, disk_full = FakePlane(), False

    async def disk(job: Callable[[], None]) -> None:
        if disk_full:
            raise OSError(28, "No space left on device")
        await inline(job)

    async with Rig(tmp_path, plane=plane, offload=disk) as rig:
        await rig.settle()
        before = rig.controller.version_last_seen
        disk_full = True
        plane.want("deployment/a")
        await rig.clock.advance(5)
        assert rig.running() == rig.wanted()  # what runs does not wait for the disk
        assert rig.controller.version_last_seen == before and plane.received[-1:] != [plane.desired.cursor]
        assert "No space" in rig.controller.status()["cacheError"]
        disk_full = False
        await rig.clock.advance(60)
        assert rig.controller.version_last_seen == plane.desired.cursor == plane.received[-1]


async def test_a_stream_that_was_cut_goes_on_from_its_cursor(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        plane.want("deployment/a")
        await rig.settle()
        seen = plane.desired.cursor
        plane.cut()
        await rig.settle()
        assert rig.controller.state().connection == "connecting"
        plane.desired.want("deployment/b")
        await rig.clock.advance(1)
        assert rig.controller.state().connection == "watching"
        assert plane.hellos[-1].cursor == seen and rig.running() == rig.wanted()
        assert plane.desired.syncs == 1  # only the first time


async def test_a_refused_token_is_logged_visible_and_backed_off_exponentially(tmp_path: Path) -> None:
    plane = FakePlane()
    plane.error = Unauthorized("the token was revoked")
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.clock.advance(1)
        assert rig.controller.state().connection == "unauthorized"
        assert "revoked" in rig.controller.status()["reason"]
        await rig.clock.advance(600)
        assert 10 < plane.attempts < 60  # not a tight loop: up to 30 s between two
        plane.error = None
        plane.desired.want("deployment/a")
        await rig.clock.advance(30)
        assert rig.controller.state().connection == "watching" and rig.running() == rig.wanted()


async def test_another_clusters_token_shows_as_unauthorized_too(tmp_path: Path) -> None:
    plane = FakePlane()
    plane.error = Forbidden("the token is bound to cluster 'c2'")
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        assert rig.controller.state().connection == "unauthorized"


async def test_a_fenced_agent_applies_nothing_any_more(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        plane.want("deployment/a")
        await rig.settle()
        item = plane.desired.want("deployment/b")
        plane.push(event("item", item))
        plane.cut(Fenced("fenced: epoch 1 was replaced by 2"))
        rig.session.end()
        await rig.clock.advance(120)
        assert list(rig.running()) == ["deployment/a"]
        assert rig.controller.state().connection == "fenced" and rig.session.fenced.is_set()


async def test_a_cursor_that_is_refused_leads_to_a_full_sync(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        plane.want("deployment/a")
        await rig.settle()
    plane.desired.want("deployment/b")
    plane.error = BadCursor("its signature is wrong")
    async with Rig(tmp_path, plane=plane, cluster=rig.cluster) as rig:
        await rig.settle()
        plane.error = None
        await rig.clock.advance(2)
        assert plane.hellos[-1].cursor == "" and rig.running() == rig.wanted()


async def test_any_number_of_failed_reconnects_is_followed_by_another_try(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        for _ in range(3):
            plane.error = ServiceUnavailable("away")
            plane.cut()
            await rig.clock.advance(900)
            assert rig.controller.state().connection == "connecting"
            plane.error = None
            plane.desired.want("deployment/a")
            await rig.clock.advance(45)
            assert rig.controller.state().connection == "watching" and rig.running() == rig.wanted()


async def test_the_breaker_opens_after_failures_stays_open_for_its_time_and_closes_after_success(
    tmp_path: Path,
) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        plane.want("deployment/a")
        await rig.clock.advance(120)  # well past the first minute of its life
        plane.error = ServiceUnavailable("away")
        plane.cut()
        await rig.clock.advance(10)
        assert rig.controller.state().breaker == "open"
        rig.cluster.available["deployment/a"] = 0
        rig.cluster.tell("deployment/a")
        before = plane.attempts
        await rig.clock.advance(120)
        assert 6 <= plane.attempts - before <= 12  # one call, a report or the stream, each time it is half-open
        plane.error = None
        await rig.clock.advance(40)
        assert rig.controller.state().breaker == "closed"
        assert plane.reports["deployment/a"].available_replicas == 0


async def test_stop_ends_every_task(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.plane.want("deployment/a")
    rig.cluster.blocked["deployment/a"] = asyncio.Event()
    before = asyncio.all_tasks()
    await rig.controller.start()
    await rig.settle()
    await rig.controller.stop()
    assert asyncio.all_tasks() == before
    assert rig.plane.streams == 0


async def test_a_restart_resumes_from_the_cursor_without_a_full_sync_and_without_applying_all_again(
    tmp_path: Path,
) -> None:
    plane, cluster = FakePlane(), FakeCluster()
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        for n in range(10):
            plane.want(f"deployment/d{n}")
        await rig.settle()
    seen, applied = plane.desired.cursor, list(cluster.applied)
    plane.desired.want("deployment/new")
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        await rig.settle()
        assert plane.hellos[-1].cursor == seen and plane.desired.syncs == 1
        assert rig.running() == rig.wanted() and ("deployment/new", 11) in cluster.applied
        assert len(cluster.applied) <= len(applied) + 2  # the others are looked at one by one, later


async def test_while_the_control_plane_is_away_the_cached_state_is_kept_and_put_back(tmp_path: Path) -> None:
    plane, cluster = FakePlane(), FakeCluster()
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        plane.want("deployment/a")
        plane.want("deployment/b")
        await rig.settle()
    del cluster.objects["deployment/a"]  # the cluster lost it while nobody looked
    plane.error = ServiceUnavailable("away")
    async with Rig(tmp_path, plane=plane, cluster=cluster, joined=False) as rig:
        await rig.clock.advance(60)
        assert rig.running() == rig.wanted() and cluster.deleted == []


async def test_what_failed_before_a_restart_is_tried_again_after_it(tmp_path: Path) -> None:
    plane, cluster = FakePlane(), FakeCluster()
    cluster.failing["deployment/a"] = ServiceUnavailable("the API server is away")
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        plane.want("deployment/a")
        plane.want("deployment/b")
        await rig.settle()
        plane.unwant("deployment/b", by_user=True)
        cluster.failing["deployment/b"] = ServiceUnavailable("the API server is away")
        await rig.settle()
    cluster.failing.clear()
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        await rig.settle()
        assert rig.running() == rig.wanted() == {"deployment/a": 1}


async def test_release_lets_it_run_and_stops_owning_it(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        plane.want("deployment/a")
        await rig.settle()
        plane.unwant("deployment/a", release=True)
        await rig.settle()
        assert rig.cluster.released == ["deployment/a"] and rig.cluster.deleted == []
        assert plane.reports["deployment/a"].gone


async def test_a_cluster_that_has_a_newer_version_than_we_know_makes_us_ask(tmp_path: Path) -> None:
    plane, cluster = FakePlane(), FakeCluster()
    plane.silent.add("deployment/a")
    plane.desired.want("deployment/a")
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        await rig.settle()
        newer = plane.want("deployment/a", replicas=3)  # another agent applied it, and we never heard of it
        cluster.objects["deployment/a"] = newer
        cached = rig.cache.get("deployment/a")
        assert cached is not None
        rig.controller.context.inbox.offer(cached)
        await rig.settle()
        assert rig.cluster.applied == [("deployment/a", 1), ("deployment/a", 2)]


async def test_the_sentinel_controller_has_its_own_stream_and_reports_at_once(tmp_path: Path) -> None:
    desired = Desired()
    desired.want("deployment/a")
    desired.want("sentinel/s", replicas=2)
    plane = FakePlane(desired)
    async with Rig(tmp_path, plane=plane, kind=SentinelController) as rig:
        await rig.settle()
        assert list(rig.running()) == ["sentinel/s"]
        report = plane.reports["sentinel/s"]
        assert isinstance(report, pb.SentinelReport) and report.available_replicas == 2
        assert rig.controller.stream is StreamKind.SENTINELS


async def test_one_controller_failing_to_connect_does_not_stop_the_other(tmp_path: Path) -> None:
    broken, plane = FakePlane(), FakePlane()
    broken.error = ServiceUnavailable("away")
    async with Rig(tmp_path, plane=broken, kind=SentinelController) as one, Rig(tmp_path, plane=plane) as other:
        plane.want("deployment/a")
        await one.clock.advance(60)
        await other.settle()
        assert one.controller.state().breaker != "closed"
        assert other.controller.state().breaker == "closed" and other.running() == other.wanted()


async def test_calls_that_fail_together_because_one_connection_broke_do_not_open_the_breaker(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane, limits=Limits(report_batch=1, report_gather_s=0)) as rig:
        gate = asyncio.Event()
        for n in range(10):
            plane.slow[f"deployment/d{n}"] = gate
            plane.want(f"deployment/d{n}")
        await rig.clock.advance(1)
        plane.error = ServiceUnavailable("the connection broke")
        gate.set()
        await rig.settle()
        plane.error = None
        assert rig.controller.state().breaker == "closed"
        await rig.clock.advance(1)
        assert len(plane.reports) == 10
