"""What a report changes in its row."""

from __future__ import annotations

from itertools import pairwise

import pytest

from shoal.control.service.reports.rows import ReportedRow, observed, take
from shoal.control.service.reports.rows import judge as judge_report
from shoal.wire.fleet.v1 import cluster_pb as pb


def test_a_large_number_of_a_lost_history_does_not_count_as_the_newest_version() -> None:
    row = ReportedRow(
        cluster_id="c", shard="s", stream="deployments", key="deployment/d", kind="deployment", object_id="d",
        workspace_id="w", action="apply", number=80, committed_at=1, correlation="", applied_incarnation=0,
        applied_number=0, applied_at=0, error=None, observed=None, observed_at=0, report_epoch=0, report_sequence=0,
        fingerprint=0, gone_at=0,
    )  # fmt: skip
    lost = pb.Version(database="main", incarnation=1, number=120)
    row, _ = take(row, pb.DeploymentReport(key=row.key, applied=lost), 1, 2, 10)
    assert row.applied[1] < row.number, "a comparison of numbers must show that it is not applied"
    current = pb.Version(database="main", incarnation=2, number=80)
    row, _ = take(row, pb.DeploymentReport(key=row.key, applied=current), 2, 2, 20)
    assert row.applied == (2, 80)


def a_row(**values: object) -> ReportedRow:
    row = {
        "cluster_id": "c", "shard": "s", "stream": "deployments", "key": "deployment/d", "kind": "deployment",
        "object_id": "d", "workspace_id": "w", "action": "apply", "number": 7, "committed_at": 1, "correlation": "",
        "applied_incarnation": 0, "applied_number": 0, "applied_at": 0, "error": None, "observed": None,
        "observed_at": 0, "report_epoch": 2, "report_sequence": 5, "fingerprint": 11, "gone_at": 0,
    }  # fmt: skip
    return ReportedRow(**{**row, **values})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("order", "fingerprint", "expected"),
    [((2, 5), 12, "old"), ((2, 4), 12, "old"), ((1, 99), 12, "old"), ((2, 6), 11, "same"), ((3, 1), 12, "stored")],
)
def test_reports_of_one_object_are_ordered_by_epoch_and_sequence(
    order: tuple[int, int], fingerprint: int, expected: str
) -> None:
    assert judge_report(a_row(), order, fingerprint) == expected


def said(number: int, incarnation: int = 1, **fields: object) -> pb.DeploymentReport:
    version = pb.Version(database="main", incarnation=incarnation, number=number)
    return pb.DeploymentReport(key="deployment/d", applied=version, **fields)  # type: ignore[arg-type]


def test_a_version_is_applied_once_and_ready_once() -> None:
    row, news = take(a_row(), said(6), 1, 1, 10)
    assert not news.applied, "it is an older version"
    row, news = take(row, said(7, desired_replicas=2, available_replicas=1), 2, 1, 20)
    assert news.applied and not news.ready
    row, news = take(row, said(7, desired_replicas=2, available_replicas=2), 3, 1, 30)
    assert news.ready and not news.applied and row.applied_at == 20
    _, news = take(row, said(7, desired_replicas=2, available_replicas=2, drift=["x"]), 4, 1, 40)
    assert not news.ready


def test_the_same_number_of_another_incarnation_is_not_the_newest_version() -> None:
    _, news = take(a_row(), said(7, incarnation=1), 1, 2, 10)
    assert not news.applied


def test_gone_counts_only_for_what_is_not_wanted() -> None:
    row, _ = take(a_row(), said(7, gone=True), 1, 1, 10)
    assert row.gone_at == 0 and row.fingerprint == 0, "it was removed in the cluster, and is still wanted"
    row, _ = take(a_row(action="delete"), said(7, gone=True), 1, 1, 10)
    assert row.gone_at == 10


@pytest.mark.parametrize(("stale", "expected"), [([], "healthy"), (["a"], "healthy"), (["a", "b"], "stale")])
def test_a_gateway_is_stale_when_none_of_its_replicas_hears_of_its_cluster(stale: list[str], expected: str) -> None:
    report = pb.SentinelReport(
        key="sentinel/s", health=pb.SentinelHealth.HEALTHY, desired_replicas=2, available_replicas=2, stale=stale
    )
    assert observed(report)["health"] == expected and observed(report)["stale"] == stale


def test_a_verdict_is_kept_with_the_version_that_the_gateway_accepted() -> None:
    version = pb.Version(database="main", incarnation=1, number=9)
    verdicts = [
        pb.Verdict(sentinel="a", accepted=True, version=version),
        pb.Verdict(sentinel="b", accepted=True),
        pb.Verdict(sentinel="c", accepted=False, message="no", version=version),
    ]
    found = observed(pb.SentinelReport(key="route/r", verdicts=verdicts))
    assert found["versions"] == {"a": 9, "b": 0}, "an agent of the version before says none"
    assert found["refused"] == [{"gateway": "c", "message": "no"}]


def test_a_silent_replica_that_was_taken_out_of_its_service_does_not_make_the_gateway_stale() -> None:
    report = pb.SentinelReport(
        key="sentinel/s", health=pb.SentinelHealth.HEALTHY, desired_replicas=2, available_replicas=1, stale=["b"]
    )
    assert observed(report)["health"] == "stale"
    report.taken_out = ["b"]
    assert observed(report)["health"] == "healthy" and observed(report)["takenOut"] == ["b"]


def test_why_pods_are_missing_is_kept_and_is_news_once() -> None:
    refused = pb.DeploymentReport(reason="FailedCreate", message="exceeded quota", desired_replicas=2)
    first, news = take(a_row(), refused, 1, 1, 5)
    assert first.observed["fault"] == {"reason": "FailedCreate", "message": "exceeded quota"} and news.fault
    again, news = take(first, refused, 2, 1, 6)
    assert not news.fault
    well, news = take(again, pb.DeploymentReport(desired_replicas=2, available_replicas=2), 3, 1, 7)
    assert "fault" not in well.observed and not news.fault


def _events(reasons: list[str], *, every_ms: int, row: ReportedRow | None = None) -> tuple[ReportedRow, list[int]]:
    """What is stored in the end, and which of the reports are told as events."""
    row, told = row or a_row(), []
    for number, reason in enumerate(reasons):
        report = pb.SentinelReport(key="sentinel/s", reason=reason, message="m", desired_replicas=1)
        row, news = take(row, report, number + 1, 1, (number + 1) * every_ms)
        row = row.with_documents()
        told += [number] if news.fault else []
    return row, told


def test_a_failed_pull_and_its_pause_are_one_fault() -> None:
    _, told = _events(["ErrImagePull", "ImagePullBackOff"] * 10, every_ms=5_000)
    assert told == [0]


def test_faults_that_take_turns_are_told_again_with_growing_pauses() -> None:
    _, told = _events(["Error", "CrashLoopBackOff", ""] * 400, every_ms=5_000)
    errors = [number * 5 for number in told if number % 3 == 0]
    assert len(errors) == len(told) / 2
    pauses = [later - earlier for earlier, later in pairwise(errors)]
    assert pauses[:3] == [60, 120, 240] and pauses == sorted(pauses)
    assert len(errors) <= 8, "of 400 times"


def test_a_fault_is_told_of_each_version_and_after_a_long_time_as_if_it_were_new() -> None:
    row, told = _events(["Error", "", "Error"], every_ms=1_000)
    assert told == [0]
    _, told = _events(["Error", "", "Error"], every_ms=4_000, row=row._replace(number=row.number + 1))
    assert told == [2], "what a user has changed fails for the same reason"
    _, told = _events(["", "Error", "", "Error"], every_ms=10_000_000, row=row)
    assert told == [1, 3]
