"""Jobs of checks in the rows that say what runs where; the agents of these places run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.control.database.tables import Deployment, Topology
from shoal.control.database.transaction import Tx
from shoal.sync.keys import Place, key_of

JobKey = tuple[str, int, int, int]
"""Rollout, wave, step and when it was settled."""


def key_of_job(job: Mapping[str, Any]) -> JobKey:
    return job["rollout"], job["wave"], job["step"], job["settled"]


async def set_jobs(tx: Tx, row: Topology, jobs: Sequence[dict[str, Any]]) -> None:
    """Write the jobs of a row, and let its agent hear of them."""
    row.check_jobs = list(jobs) or None
    await tx.session.flush()
    made = await tx.session.get(Deployment, row.deployment_id)
    if row.cluster_id and made is not None:
        await tx.want(
            Place(row.cluster_id, row.shard), key_of("deployment", row.deployment_id), workspace_id=row.workspace_id,
            namespace=made.namespace, name=made.k8s_name,
        )  # fmt: skip


async def drop_jobs(tx: Tx, rows: Sequence[Topology], but: JobKey | None) -> None:
    """Remove all jobs of these rows but those of one moment of a rollout."""
    for row in rows:
        kept = [each for each in row.check_jobs or () if key_of_job(each) == but]
        if row.check_jobs and len(kept) < len(row.check_jobs):
            await set_jobs(tx, row, kept)
