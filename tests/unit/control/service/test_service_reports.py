"""Reports about versions of a history that is over."""

from __future__ import annotations

from shoal.control.service.reports.rows import ReportedRow, take
from shoal.wire.fleet.v1 import cluster_pb as pb


def test_a_large_number_of_a_lost_history_does_not_count_as_the_newest_version() -> None:
    row = ReportedRow(
        cluster_id="c", shard="s", stream="deployments", key="deployment/d", kind="deployment", object_id="d",
        workspace_id="w", action="apply", number=80, committed_at=1, applied_incarnation=0, applied_number=0,
        applied_at=0, error=None, observed=None, observed_at=0, report_epoch=0, report_sequence=0, fingerprint=0,
        gone_at=0,
    )  # fmt: skip
    lost = pb.Version(database="main", incarnation=1, number=120)
    row, _ = take(row, pb.DeploymentReport(key=row.key, applied=lost), 1, 2, 10)
    assert row.applied[1] < row.number, "a comparison of numbers must show that it is not applied"
    current = pb.Version(database="main", incarnation=2, number=80)
    row, _ = take(row, pb.DeploymentReport(key=row.key, applied=current), 2, 2, 20)
    assert row.applied == (2, 80)
