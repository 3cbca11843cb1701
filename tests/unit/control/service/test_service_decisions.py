"""Small decisions of the cluster service: who is lost, whose turn it is, who may call, what a report changes."""

from __future__ import annotations

import pytest

from shoal.base.metrics import Metrics
from shoal.control.service.agents.admission import HelloLimiter
from shoal.control.service.agents.auth import ALLOWED
from shoal.control.service.agents.presence import Heard, judge
from shoal.control.service.config import ServiceConfig
from shoal.control.service.metrics import ServiceMetrics
from shoal.control.service.reports.rows import ReportedRow, take
from shoal.control.service.reports.rows import judge as judge_report
from shoal.errors import ConfigError
from shoal.sync.keys import Place
from shoal.wire.fleet.v1 import cluster_pb as pb
from shoal.wire.fleet.v1.cluster_connect import ClusterService


def heard(count: int, at_ms: int, lost: bool = False) -> list[Heard]:
    return [Heard(Place("c", f"{at_ms}-{n}"), at_ms, lost) for n in range(count)]


def judged(agents: list[Heard], recently_lost: int = 0):  # type: ignore[no-untyped-def]
    return judge(agents, 100_000, lost_after_ms=32_000, recently_lost=recently_lost, fraction=0.3)


def test_who_was_not_heard_for_too_long_is_lost() -> None:
    found = judged(heard(10, 99_000) + heard(2, 60_000) + heard(1, 50_000, lost=True))
    assert {agent.at_ms for agent in found.lost} == {60_000} and len(found.lost) == 2 and not found.frozen


def test_when_more_than_a_third_vanish_together_the_control_plane_blames_itself() -> None:
    found = judged(heard(6, 99_000) + heard(3, 60_000))
    assert found.frozen and found.lost == () and found.vanished == 3
    assert not judged(heard(7, 99_000) + heard(3, 60_000)).frozen, "exactly 30 % is still believed"
    assert judged(heard(7, 99_000) + heard(1, 60_000), recently_lost=3).frozen, "bit by bit counts too"


def test_one_of_two_agents_can_be_lost() -> None:
    assert len(judged(heard(1, 99_000) + heard(1, 60_000)).lost) == 1


def test_agents_that_were_lost_long_ago_do_not_freeze_the_rest() -> None:
    assert len(judged(heard(5, 99_000) + heard(20, 1_000, lost=True) + heard(1, 60_000)).lost) == 1


def test_hellos_take_turns_and_who_would_wait_too_long_takes_none() -> None:
    bucket = HelloLimiter(rate=10.0, burst=2)
    assert [bucket.take(100.0, 1.0) for _ in range(3)] == [0.0, 0.0, pytest.approx(0.1)]
    waits = [bucket.take(100.0, 1.0) for _ in range(20)]
    assert waits[8] == pytest.approx(1.0) and waits[9:] == [None] * 11
    assert bucket.take(101.0, 1.0) == pytest.approx(0.1)
    assert bucket.take(200.0, 0.0) == 0.0


def test_the_gate_knows_every_method_and_no_other() -> None:
    assert set(ALLOWED) == {method.name for method in ClusterService.desc().methods}


def test_settings_that_break_a_promise_are_refused() -> None:
    for wrong in (
        {"guard_s": 1.0},
        {"missed_heartbeats": 1},
        {"freeze_fraction": 0.0},
        {"digest_every_s": 0.0},
        {"batch": 0},
    ):
        with pytest.raises(ConfigError):
            ServiceConfig(**wrong)  # type: ignore[arg-type]


def test_metrics_have_names_of_the_control_plane_and_can_be_rendered() -> None:
    metrics = Metrics()
    counts = ServiceMetrics(metrics)
    counts.hops.labels("deployments", "sent").observe(0.02)
    text = metrics.render().decode()
    assert "shoal_control_hop_seconds_bucket" in text
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert names and all(name.startswith("shoal_control_") for name in names)


def a_row(**values: object) -> ReportedRow:
    row = {
        "cluster_id": "c", "shard": "s", "stream": "deployments", "key": "deployment/d", "kind": "deployment",
        "object_id": "d", "workspace_id": "w", "action": "apply", "number": 7, "committed_at": 1,
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
