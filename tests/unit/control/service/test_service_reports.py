"""Reports about versions of a history that is over."""

from __future__ import annotations

from shoal.control.service.reports.rows import Row, take
from shoal.sync.keys import Place
from shoal.wire.fleet.v1 import cluster_pb as pb


def test_a_large_number_of_a_lost_history_does_not_count_as_the_newest_version() -> None:
    row = Row(
        place=Place("c", "s"), stream="deployments", key="deployment/d", kind="deployment", object_id="d",
        workspace_id="w", action="apply", number=80, committed_ms=1, applied=(0, 0), applied_ms=0, error=None,
        observed=None, observed_ms=0, order=(0, 0), fingerprint=0, gone_ms=0,
    )  # fmt: skip
    lost = pb.Version(database="main", incarnation=1, number=120)
    take(row, pb.DeploymentReport(key=row.key, applied=lost), 1, 2, 10)
    assert row.applied[1] < row.number, "whoever compares numbers must see that it is not applied"
    take(row, pb.DeploymentReport(key=row.key, applied=pb.Version(database="main", incarnation=2, number=80)), 2, 2, 20)
    assert row.applied == (2, 80)
