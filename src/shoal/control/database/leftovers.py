"""Removes what deleted clusters leave behind: tombstones that no agent will ever confirm, and instances.

Clusters are rows of the fleet's database; what was wanted or reported there may be in any of the databases. It is done
when a cluster is deleted, and again with the retention, should the process have ended in between.
"""

from __future__ import annotations

from sqlalchemy import delete, select

from shoal.control.database.engine import Database, Databases
from shoal.control.database.tables import Cluster, Desired, Instance


async def forget_deleted_clusters(databases: Databases) -> int:
    """Returns how many clusters had left something."""
    forgotten: set[str] = set()
    for database in databases.all:
        named = await _named(database)
        async with databases.fleet.reading() as session:  # after the rows: a cluster is made before they are
            named -= set(await session.scalars(select(Cluster.id)))
        if named:
            await _forget(database, named)
        forgotten |= named
    return len(forgotten)


async def _named(database: Database) -> set[str]:
    """Clusters with tombstones that are not confirmed, or with instances."""
    pending = select(Desired.cluster_id).where(Desired.action != "apply", Desired.gone_at == 0)
    async with database.reading() as session:
        return {
            *await session.scalars(pending.distinct()),
            *await session.scalars(select(Instance.cluster_id).distinct()),
        }


async def _forget(database: Database, clusters: set[str]) -> None:
    async with database.transaction(serial=False) as tx:
        for statement in (
            delete(Desired).where(Desired.cluster_id.in_(clusters), Desired.action != "apply"),
            delete(Instance).where(Instance.cluster_id.in_(clusters)),
        ):
            await tx.session.execute(statement.execution_options(synchronize_session=False))
