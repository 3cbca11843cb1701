"""Reads the changes and the desired state of a fleet's database, for tests."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import select

from shoal.control.database.engine import Database
from shoal.control.database.tables import Change, Desired
from shoal.sync.keys import Place


class ChangeRow(NamedTuple):
    number: int
    workspace_id: str
    stream: str
    place: Place
    key: str


class IndexRow(NamedTuple):
    place: Place
    key: str
    number: int
    action: str


async def changes_after(database: Database, number: int, limit: int = 10_000) -> list[ChangeRow]:
    """The changes after ``number`` that are still kept, oldest first."""
    columns = (Change.number, Change.workspace_id, Change.stream, Change.cluster_id, Change.shard, Change.key)
    async with database.reading() as session:
        found = await session.execute(
            select(*columns).where(Change.number > number).order_by(Change.number).limit(limit)
        )
        return [
            ChangeRow(row.number, row.workspace_id, row.stream, Place(row.cluster_id, row.shard), row.key)
            for row in found
        ]


async def desired_index(database: Database) -> list[IndexRow]:
    """Every row of ``desired``, tombstones too, in the order of places."""
    order = (Desired.cluster_id, Desired.shard, Desired.stream, Desired.key)
    async with database.reading() as session:
        found = await session.execute(select(*order, Desired.number, Desired.action).order_by(*order))
        return [IndexRow(Place(row.cluster_id, row.shard), row.key, row.number, row.action) for row in found]
