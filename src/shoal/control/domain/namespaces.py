"""The namespace of a deleted environment goes, in every cluster that may have it.

An agent makes the namespace with the first deployment, so no row says where it is. The rows of deployments do, and they
stay for a while after the deployments are gone (``retention.changes_s``). An environment that is older than the oldest
change may have been anywhere: then all places are told, and those without the namespace have nothing to do.
"""

from __future__ import annotations

from sqlalchemy import select

from shoal.control.database.tables import Change, Counter, Desired, Environment
from shoal.control.domain.work import PendingWork
from shoal.sync.keys import NAMESPACED, Place, key_of


async def remove(work: PendingWork, environment: Environment) -> None:
    """Tell the agents to delete the namespace."""
    places = await _places(work, environment)
    key = key_of(NAMESPACED, environment.id)
    for place in places:
        work.want(
            place,
            key,
            workspace_id=environment.workspace_id,
            namespace=environment.namespace,
            name=environment.namespace,
        )
    await work.unwant_many([(place, key) for place in places])


async def _places(work: PendingWork, environment: Environment) -> list[Place]:
    await work.flush()
    known = await work.session.execute(
        select(Desired.cluster_id, Desired.shard)
        .where(Desired.workspace_id == environment.workspace_id, Desired.namespace == environment.namespace)
        .distinct()
    )
    places = {Place(row.cluster_id, row.shard) for row in known}
    if await _may_be_forgotten(work, environment):
        places |= work.infrastructure.agents.keys()
    return sorted(place for place in places if place.cluster in work.infrastructure.clusters)


async def _may_be_forgotten(work: PendingWork, environment: Environment) -> bool:
    """Whether changes since the creation of the environment, and with them its rows, may have been removed."""
    if not await work.session.scalar(select(Counter.oldest)):
        return False
    oldest = await work.session.scalar(select(Change.created_at).order_by(Change.number).limit(1))
    return oldest is None or oldest > environment.created_at
