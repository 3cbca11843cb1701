"""What really runs, to the control plane: in order, none lost, none twice in a row, and one slow call delays no other."""

from __future__ import annotations

import asyncio
from pathlib import Path

from krane_doubles import FakeCluster, FakePlane, Rig

from shoal.errors import BadRequest, ServiceUnavailable
from shoal.krane.config import Limits
from shoal.sync.digest import Digest
from shoal.sync.fingerprint import fingerprint
from shoal.wire.fleet.v1 import cluster_pb as pb


def _count(plane: FakePlane, key: str) -> int:
    return sum(report.key == key for request in plane.requests for report in request.reports)


async def test_what_is_applied_and_available_is_reported(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        item = plane.want("deployment/a", replicas=3)
        await rig.settle()
        report = plane.reports["deployment/a"]
        assert (report.available_replicas, report.desired_replicas) == (3, 3) and report.applied == item.version
        assert set(rig.cluster.delivered_keys) == {"deployment/a"}
        rig.cluster.available["deployment/a"] = 1
        rig.cluster.tell("deployment/a")
        await rig.settle()
        assert plane.reports["deployment/a"].available_replicas == 1


async def test_what_changes_within_a_moment_is_one_report(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane, limits=Limits(report_gather_s=0.02)) as rig:
        plane.want("deployment/a", replicas=3)
        await rig.settle()
        assert _count(plane, "deployment/a") == 0, "it waits for what comes with it"
        for available in (1, 2, 3):
            rig.cluster.available["deployment/a"] = available
            rig.cluster.tell("deployment/a")
            await rig.settle()
        await rig.clock.advance(0.02)
        await rig.settle()
        assert _count(plane, "deployment/a") == 1
        assert plane.reports["deployment/a"].available_replicas == 3


async def test_an_unchanged_report_is_left_out(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        plane.want("deployment/a")
        await rig.settle()
        sent = _count(plane, "deployment/a")
        for _ in range(10):
            await rig.clock.advance(1)  # the time of looking changes, nothing else
            rig.cluster.tell("deployment/a")
            await rig.settle()
        assert _count(plane, "deployment/a") == sent


async def test_after_a_reconnect_nothing_is_left_out_because_of_what_was_sent_before(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        plane.want("deployment/a")
        await rig.settle()
        sent = _count(plane, "deployment/a")
        plane.cut()
        await rig.clock.advance(1)
        rig.cluster.tell("deployment/a")
        await rig.settle()
        assert _count(plane, "deployment/a") == sent + 1


async def test_an_object_made_again_after_its_deletion_is_reported_again(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        plane.want("deployment/a")
        await rig.settle()
        plane.unwant("deployment/a", by_user=True)
        await rig.settle()
        assert plane.reports["deployment/a"].gone
        plane.want("deployment/a")
        await rig.settle()
        assert not plane.reports["deployment/a"].gone and plane.reports["deployment/a"].available_replicas == 1


async def test_one_slow_report_does_not_delay_the_others(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane, limits=Limits(report_batch=1, report_gather_s=0)) as rig:
        slow = plane.slow["deployment/slow"] = asyncio.Event()
        plane.want("deployment/slow")
        await rig.settle()
        for n in range(30):
            plane.want(f"deployment/d{n}")
        await rig.settle()
        assert len(plane.reports) == 30 and "deployment/slow" not in plane.reports
        slow.set()
        await rig.settle()
        assert "deployment/slow" in plane.reports


async def test_reports_of_one_object_arrive_in_order_and_never_side_by_side(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane, limits=Limits(report_batch=1, report_gather_s=0)) as rig:
        gate = plane.slow["deployment/a"] = asyncio.Event()
        for replicas in range(1, 8):
            plane.want("deployment/a", replicas=replicas)
            plane.want("deployment/b", replicas=replicas)
            await rig.settle()
        gate.set()
        await rig.settle()
        reports = [report for request in plane.requests for report in request.reports]
        versions = [report.applied.number for report in reports if report.key == "deployment/a"]  # type: ignore[union-attr]
        assert versions == [1, 13]
        for key in ("deployment/a", "deployment/b"):
            numbers = [request.sequence for request in plane.requests if request.reports[0].key == key]
            assert numbers == sorted(set(numbers))


async def test_while_the_control_plane_is_away_only_the_newest_per_key_is_kept_and_delivered_later(
    tmp_path: Path,
) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        for n in range(5):
            plane.want(f"deployment/d{n}", replicas=9)
        await rig.settle()
        plane.error = ServiceUnavailable("away")
        plane.requests.clear()
        for available in range(8):
            for n in range(5):
                rig.cluster.available[f"deployment/d{n}"] = available
                rig.cluster.tell(f"deployment/d{n}")
            await rig.clock.advance(20)
        assert rig.controller.status()["unreported"] == 5
        assert rig.controller.state().breaker != "closed"
        plane.error = None
        await rig.clock.advance(60)
        assert {report.available_replicas for report in plane.reports.values()} == {7}
        assert sum(len(request.reports) for request in plane.requests) <= 10


async def test_a_malformed_report_does_not_keep_the_others_from_arriving(tmp_path: Path) -> None:
    plane = FakePlane()
    real = plane.report

    async def picky(stream: object, request: pb.ReportDeploymentStatusRequest) -> pb.ReportResponse:
        if any(report.key == "deployment/bad" for report in request.reports):
            raise BadRequest("reports[0].instances[3].name: Required value")
        return await real(stream, request)  # type: ignore[arg-type]

    plane.report = picky  # type: ignore[method-assign, assignment]
    for key in ("deployment/a", "deployment/bad", "deployment/c"):
        plane.desired.want(key)
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.clock.advance(5)
        assert set(plane.reports) == {"deployment/a", "deployment/c"}


async def test_the_heartbeat_carries_a_digest_of_what_was_reported_and_differing_buckets_are_sent_again(
    tmp_path: Path,
) -> None:
    plane = FakePlane()
    for n in range(20):
        plane.desired.want(f"deployment/d{n}")
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        theirs = Digest()
        for key, report in plane.reports.items():
            theirs.put(key, str(fingerprint(report)))
        assert rig.controller.state().reported == theirs.buckets
        from shoal.sync.digest import bucket_of

        plane.requests.clear()
        await rig.clock.advance(1)
        rig.controller.resend([bucket_of("deployment/d7")], rig.clock.monotonic())
        await rig.settle()
        resent = {report.key for request in plane.requests for report in request.reports}
        assert "deployment/d7" in resent and all(bucket_of(k) == bucket_of("deployment/d7") for k in resent)


async def test_what_was_delivered_after_the_heartbeat_was_written_is_not_sent_again(tmp_path: Path) -> None:
    plane = FakePlane()
    async with Rig(tmp_path, plane=plane) as rig:
        asked_s = rig.clock.monotonic()
        plane.want("deployment/a")
        await rig.settle()
        plane.requests.clear()
        rig.controller.resend(range(256), asked_s - 1)
        await rig.settle()
        assert plane.requests == []


async def test_an_object_the_control_plane_does_not_know_is_asked_for(tmp_path: Path) -> None:
    plane = FakePlane()
    for n in range(20):
        plane.desired.want(f"deployment/d{n}")
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        plane.desired.lose("deployment/d3")
        rig.cluster.available["deployment/d3"] = 0
        rig.cluster.tell("deployment/d3")
        await rig.clock.advance(1)
        assert rig.cluster.deleted == ["deployment/d3"]


async def test_gone_is_reported_only_when_nothing_is_left_in_the_cluster(tmp_path: Path) -> None:
    class Lingering(FakeCluster):
        async def delete(self, key: str, namespace: str, name: str) -> None:
            self.deleted.append(key)
            self.available[key] = 0
            self.tell(key)

    plane, cluster = FakePlane(), Lingering()
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        plane.want("deployment/a")
        await rig.settle()
        plane.unwant("deployment/a", by_user=True)
        await rig.settle()
        report = plane.reports["deployment/a"]
        assert not report.gone and report.available_replicas == 0
        del cluster.objects["deployment/a"]
        cluster.tell("deployment/a")
        await rig.settle()
        assert plane.reports["deployment/a"].gone
