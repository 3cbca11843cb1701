"""What agents say of the jobs of rollouts' checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from shoal.control.database.plain import clean
from shoal.control.database.tables import Topology
from shoal.control.database.transaction import Tx
from shoal.sync.keys import Place
from shoal.wire.fleet.v1 import cluster_pb as pb

_STATES = {
    pb.CheckJobState.RUNNING: "running",
    pb.CheckJobState.SUCCEEDED: "succeeded",
    pb.CheckJobState.FAILED: "failed",
    pb.CheckJobState.TIMED_OUT: "timedOut",
    pb.CheckJobState.BROKEN: "broken",
}
_LONGEST_MESSAGE = 900


async def write_results(tx: Tx, place: Place, deployment_id: str, results: Sequence[pb.CheckJobResult]) -> None:
    """Jobs that the row does not have (any more) are left out, and the end of a job does not change."""
    said = {each.id: each for each in results if each.state in _STATES}
    rows = await tx.session.scalars(
        select(Topology).where(
            Topology.cluster_id == place.cluster, Topology.shard == place.shard,
            Topology.deployment_id == deployment_id, Topology.check_jobs.is_not(None),
        )
    )  # fmt: skip
    for row in rows:
        row.check_jobs = [_with_result(each, said.get(each["id"]), tx.now) for each in row.check_jobs or ()] or None
    await tx.session.flush()


def _with_result(job: dict[str, Any], said: pb.CheckJobResult | None, now_ms: int) -> dict[str, Any]:
    if said is None or (job.get("result") or {}).get("state", "running") != "running":
        return job
    message = clean(said.message, _LONGEST_MESSAGE)
    found = {"state": _STATES[said.state], "exitCode": said.exit_code, "message": message, "at": now_ms}
    return {**job, "result": found}
