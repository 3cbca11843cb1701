"""A first look at deployments that were reported on: which of them may have something to be done.

Most reports change nothing, so each report costs two plain statements here. ``readiness`` then examines the deployments
that they find.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from shoal.control.database.plain import document, listed
from shoal.control.database.rows import RowQuery
from shoal.control.database.transaction import Tx
from shoal.control.domain.gate import WAITING, RowFacts, finished_moves, serving
from shoal.control.domain.plan import needed_instances
from shoal.sync.keys import Place

_ALWAYS = WAITING | {"superseded"}

_ROWS = (
    "SELECT d.id, d.environment_id, d.workspace_id, d.status, t.id AS topology_id, t.region_id, t.cluster_id, t.shard, "
    "t.replicas, t.autoscaling, t.desired_status, t.moved_from, w.number, w.applied_number, w.error, "
    "(SELECT count(*) FROM instances AS i WHERE i.workspace_id = d.workspace_id AND i.deployment_id = d.id "
    "AND i.cluster_id = t.cluster_id AND i.shard = t.shard AND i.ready AND i.status = 'running') AS ready "
    "FROM deployments AS d JOIN deployment_topology AS t ON t.deployment_id = d.id "
    "LEFT JOIN desired AS w ON w.cluster_id = t.cluster_id AND w.shard = t.shard AND w.stream = 'deployments' "
    "AND w.key = 'deployment/' || d.id AND w.action = 'apply' "
    "WHERE d.desired_state = 'running' AND d.id IN ({ids}) ORDER BY d.id, t.id"
)
_SERVED = (
    "SELECT {environment} AS environment_id, s.region_id FROM {rows} "
    "JOIN sentinels AS s ON s.workspace_id = {workspace} AND s.environment_id IN ({environment}, '') "
    "JOIN desired AS k ON k.cluster_id = s.cluster_id AND k.shard = s.shard AND k.stream = 'sentinels' "
    "AND k.key = 'keys/' || {environment} AND k.action = 'apply'"
)
_SQLITE = {
    "ids": "SELECT value FROM json_each(:ids)", "rows": "json_each(:rows) AS r",
    "workspace": "json_extract(r.value, '$[0]')", "environment": "json_extract(r.value, '$[1]')",
}  # fmt: skip
_POSTGRES = {
    "ids": "SELECT jsonb_array_elements_text(CAST(:ids AS jsonb))",
    "rows": "jsonb_array_elements(CAST(:rows AS jsonb)) AS r(value)",
    "workspace": "(r.value->>0)", "environment": "(r.value->>1)",
}  # fmt: skip


class ReportedRow(NamedTuple):
    """A deployment in one region, and how many instances of it are ready there."""

    id: str
    environment_id: str
    workspace_id: str
    status: str
    topology_id: str
    region_id: str
    cluster_id: str
    shard: str
    replicas: int
    autoscaling: Any
    desired_status: str
    moved_from: str
    number: int | None
    applied_number: int
    error: Any
    ready: int


class ServedRegion(NamedTuple):
    environment_id: str
    region_id: str


class _Home(NamedTuple):
    """The owner of a deployment."""

    workspace_id: str
    environment_id: str


class _Running(NamedTuple):
    home: _Home
    rows: list[RowFacts]


_REPORTED = {
    dialect: RowQuery(_ROWS.format(**words), ReportedRow)
    for dialect, words in (("sqlite", _SQLITE), ("postgresql", _POSTGRES))
}
_REGIONS_SERVED = {
    dialect: RowQuery(_SERVED.format(**words), ServedRegion)
    for dialect, words in (("sqlite", _SQLITE), ("postgresql", _POSTGRES))
}


async def concerned(tx: Tx, deployment_ids: Collection[str]) -> set[str]:
    """Return the ids of deployments that wait or are superseded, have finished moves, or lack a gateway in a region."""
    await tx.session.flush()
    found: set[str] = set()
    running: dict[str, _Running] = {}  # by id
    for row in await tx.ask(_REPORTED[tx.dialect], {"ids": listed(sorted(deployment_ids))}):
        if row.status in _ALWAYS:
            found.add(row.id)
        else:
            known = running.setdefault(row.id, _Running(_Home(row.workspace_id, row.environment_id), []))
            known.rows.append(_facts(row))
    found |= {id_ for id_, known in running.items() if finished_moves(known.rows)}
    ready = {id_: set(serving(known.rows)) for id_, known in running.items() if id_ not in found}
    if any(ready.values()):
        have = await _served(tx, (running[id_].home for id_ in ready))
        found |= {id_ for id_, regions in ready.items() if regions - have.get(running[id_].home.environment_id, set())}
    return found


async def _served(tx: Tx, homes: Iterable[_Home]) -> dict[str, set[str]]:
    """By environment, the ids of the regions in which it has a gateway."""
    have: dict[str, set[str]] = {}
    for row in await tx.ask(
        _REGIONS_SERVED[tx.dialect], {"rows": listed([tuple(home) for home in sorted(set(homes))])}
    ):
        have.setdefault(row.environment_id, set()).add(row.region_id)
    return have


def _facts(row: ReportedRow) -> RowFacts:
    stopped = row.desired_status == "stopped"
    return RowFacts(
        id=row.topology_id,
        region_id=row.region_id,
        region="",
        place=Place(row.cluster_id, row.shard),
        desired_status=row.desired_status,
        needed=0 if stopped else needed_instances(row.replicas, document(row.autoscaling)),
        ready=row.ready,
        applied=row.number is not None and row.applied_number >= row.number and not document(row.error),
        moved_from=row.moved_from,
    )
