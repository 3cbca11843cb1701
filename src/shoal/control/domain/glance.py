"""A first look at deployments that were reported on: which of them may have something to be done.

Most reports change nothing. So this is two plain statements that every report costs; whoever is named here is looked at
again, properly, by ``readiness``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import TextClause, text

from shoal.control.database.plain import document, listed
from shoal.control.database.transaction import Tx
from shoal.control.domain.gate import WAITING, RowFacts, finished_moves, serving
from shoal.control.domain.plan import needed_instances
from shoal.sync.keys import Place

_ALWAYS = WAITING | {"superseded"}

_ROWS = (
    "SELECT d.id, d.environment_id, d.workspace_id, d.status, t.id, t.region_id, t.cluster_id, t.shard, t.replicas, "
    "t.autoscaling, t.desired_status, t.moved_from, w.number, w.applied_number, w.error, "
    "(SELECT count(*) FROM instances AS i WHERE i.workspace_id = d.workspace_id AND i.deployment_id = d.id "
    "AND i.cluster_id = t.cluster_id AND i.shard = t.shard AND i.ready AND i.status = 'running') "
    "FROM deployments AS d JOIN deployment_topology AS t ON t.deployment_id = d.id "
    "LEFT JOIN desired AS w ON w.cluster_id = t.cluster_id AND w.shard = t.shard AND w.stream = 'deployments' "
    "AND w.key = 'deployment/' || d.id AND w.action = 'apply' "
    "WHERE d.desired_state = 'running' AND d.id IN ({ids}) ORDER BY d.id, t.id"
)
_SERVED = (
    "SELECT {environment}, s.region_id FROM {rows} JOIN sentinels AS s ON s.workspace_id = {workspace} "
    "AND s.environment_id IN ({environment}, '') "
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


def _built(words: dict[str, str]) -> tuple[TextClause, TextClause]:
    return text(_ROWS.format(**words)), text(_SERVED.format(**words))


_STATEMENTS = {"sqlite": _built(_SQLITE), "postgresql": _built(_POSTGRES)}


async def concerned(tx: Tx, deployment_ids: Collection[str]) -> set[str]:
    """The ids of those that wait for something, whose moves are finished, or that run where there is no gateway yet."""
    await tx.session.flush()
    rows, served = _STATEMENTS[tx.dialect]
    found: set[str] = set()
    running: dict[str, tuple[tuple[str, str], list[RowFacts]]] = {}  # by id: workspace and environment, and rows
    for row in await tx.ask(rows, {"ids": listed(sorted(deployment_ids))}):
        if row[3] in _ALWAYS:
            found.add(row[0])
        else:
            running.setdefault(row[0], ((row[2], row[1]), []))[1].append(_facts(row))
    found |= {id_ for id_, (_, facts) in running.items() if finished_moves(facts)}
    ready = {id_: (home, set(serving(facts))) for id_, (home, facts) in running.items() if id_ not in found}
    if any(regions for _, regions in ready.values()):
        have = await _served(tx, served, (home for home, _ in ready.values()))
        found |= {id_ for id_, (home, regions) in ready.items() if regions - have.get(home[1], set())}
    return found


async def _served(tx: Tx, statement: TextClause, homes: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """By environment, the ids of the regions in which it has a gateway."""
    have: dict[str, set[str]] = {}
    for environment, region in await tx.ask(statement, {"rows": listed(sorted(set(homes)))}):
        have.setdefault(environment, set()).add(region)
    return have


def _facts(row: Any) -> RowFacts:
    id_, region_id, cluster, shard, replicas, autoscaling, status, moved_from, number, applied, error, ready = row[4:]
    return RowFacts(
        id=id_,
        region_id=region_id,
        region="",
        place=Place(cluster, shard),
        desired_status=status,
        needed=0 if status == "stopped" else needed_instances(replicas, document(autoscaling)),
        ready=ready,
        applied=number is not None and applied >= number and not document(error),
        moved_from=moved_from,
    )
