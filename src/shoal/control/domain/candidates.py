"""A first look at deployments that were reported on: for which apps there may be something to be done.

Most reports change nothing, so each report costs two plain statements here. ``readiness`` then examines the apps that
they find.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from shoal.control.database.plain import document, listed
from shoal.control.database.rows import RowQuery
from shoal.control.database.transaction import Tx
from shoal.control.domain.gate import WAITING, RowFacts, finished_moves, serving
from shoal.control.domain.plan import told_instances
from shoal.sync.keys import Place

# ``n`` is the deployment that a row's revision was made as, where an older one was taken over
_ROWS = (
    "SELECT d.id, d.app_id, d.environment_id, d.workspace_id, COALESCE(n.status, d.status) AS status, "
    "COALESCE(n.broken_at, d.broken_at) AS broken_at, t.id AS topology_id, t.region_id, t.cluster_id, t.shard, "
    "t.replicas, t.autoscaling, t.desired_status, t.moved_from, t.weight, t.routed, t.instances, "
    "w.number, w.applied_number, w.error, "
    "(SELECT count(*) FROM instances AS i WHERE i.workspace_id = d.workspace_id AND i.deployment_id = d.id "
    "AND i.cluster_id = t.cluster_id AND i.shard = t.shard AND i.ready AND i.status = 'running' "
    "AND NOT i.outdated) AS ready "
    "FROM deployments AS d JOIN deployment_topology AS t ON t.deployment_id = d.id "
    "LEFT JOIN deployments AS n ON n.workspace_id = d.workspace_id AND n.app_id = d.app_id AND n.revision = t.revision "
    "LEFT JOIN desired AS w ON w.cluster_id = t.cluster_id AND w.shard = t.shard AND w.stream = 'deployments' "
    "AND w.key = 'deployment/' || d.id AND w.action = 'apply' "
    "WHERE d.desired_state = 'running' AND d.id IN ({ids}) ORDER BY d.id, t.id"
)
_FAILED = (
    "SELECT DISTINCT i.deployment_id FROM {rows} JOIN instances AS i ON i.workspace_id = {first} "
    "AND i.deployment_id = {second} WHERE i.status = 'failed'"
)
_SERVED = (
    "SELECT {second} AS environment_id, s.region_id FROM {rows} "
    "JOIN sentinels AS s ON s.workspace_id = {first} AND s.environment_id IN ({second}, '') "
    "JOIN desired AS k ON k.cluster_id = s.cluster_id AND k.shard = s.shard AND k.stream = 'sentinels' "
    "AND k.key = 'keys/' || {second} AND k.action = 'apply'"
)
_SQLITE = {
    "ids": "SELECT value FROM json_each(:ids)", "rows": "json_each(:rows) AS r",
    "first": "json_extract(r.value, '$[0]')", "second": "json_extract(r.value, '$[1]')",
}  # fmt: skip
_POSTGRES = {
    "ids": "SELECT jsonb_array_elements_text(CAST(:ids AS jsonb))",
    "rows": "jsonb_array_elements(CAST(:rows AS jsonb)) AS r(value)",
    "first": "(r.value->>0)", "second": "(r.value->>1)",
}  # fmt: skip


class ReportedRow(NamedTuple):
    """A deployment in one region, and how many instances of it are ready there."""

    id: str
    app_id: str
    environment_id: str
    workspace_id: str
    status: str
    broken_at: int
    topology_id: str
    region_id: str
    cluster_id: str
    shard: str
    replicas: int
    autoscaling: Any
    desired_status: str
    moved_from: str
    weight: int
    routed: int
    instances: int | None
    number: int | None
    applied_number: int
    error: Any
    ready: int


class FailedDeployment(NamedTuple):
    deployment_id: str


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
_FAILURES = {
    dialect: RowQuery(_FAILED.format(**words), FailedDeployment)
    for dialect, words in (("sqlite", _SQLITE), ("postgresql", _POSTGRES))
}
_REGIONS_SERVED = {
    dialect: RowQuery(_SERVED.format(**words), ServedRegion)
    for dialect, words in (("sqlite", _SQLITE), ("postgresql", _POSTGRES))
}


async def concerned(tx: Tx, deployment_ids: Collection[str]) -> set[str]:
    """Return the ids of apps whose revisions wait or are exchanged, have finished moves, fail or recover, or lack a
    gateway in a region."""
    await tx.session.flush()
    found: set[str] = set()
    suspects: dict[str, ReportedRow] = {}  # by id: deployments with too few ready instances
    running: dict[str, _Running] = {}  # by app
    for row in await tx.ask(_REPORTED[tx.dialect], {"ids": listed(sorted(deployment_ids))}):
        facts = _facts(row)
        if row.status in WAITING or _is_exchanged(row, facts):
            found.add(row.app_id)
            continue
        if row.broken_at and facts.healthy:
            found.add(row.app_id)
        elif not row.broken_at and row.weight and facts.ready < facts.needed:
            suspects[row.id] = row
        known = running.setdefault(row.app_id, _Running(_Home(row.workspace_id, row.environment_id), []))
        known.rows.append(facts)
    asked = [(row.workspace_id, row.id) for row in suspects.values() if row.app_id not in found]
    if asked:
        failed = await tx.ask(_FAILURES[tx.dialect], {"rows": listed(sorted(asked))})
        found |= {suspects[each.deployment_id].app_id for each in failed}
    found |= {id_ for id_, known in running.items() if finished_moves(known.rows)}
    ready = {id_: set(serving(known.rows)) for id_, known in running.items() if id_ not in found}
    if any(ready.values()):
        have = await _served(tx, (running[id_].home for id_ in ready))
        found |= {id_ for id_, regions in ready.items() if regions - have.get(running[id_].home.environment_id, set())}
    return found


def _is_exchanged(row: ReportedRow, facts: RowFacts) -> bool:
    """Whether another revision is or was there beside it; a region without instances has nothing to exchange."""
    if row.desired_status == "stopped" or not facts.needed:
        return False
    return row.weight < 100 or row.routed < 100 or row.instances is not None


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
        needed=0 if stopped else told_instances(row.instances, row.replicas, document(row.autoscaling)),
        ready=row.ready,
        applied=row.number is not None and row.applied_number >= row.number and not document(row.error),
        moved_from=row.moved_from,
    )
