"""Reading the sequence of changes, and forgetting its beginning.

Whoever follows it reads ``position`` first, then the whole (``desired_index``), then what came after
(``changes_after``), and holds on to the highest number per object: nothing is missed, and what is seen twice does no
harm.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from sqlalchemy import delete, or_, select, tuple_, update

from shoal.control.database.engine import Database
from shoal.control.database.tables import Change, Counter, Desired
from shoal.errors import Expired
from shoal.sync.keys import Place

_PAGE = 5000
_STEP = 1000  # rows per transaction of ``forget``, so that other transactions wait only briefly


class ChangeRow(NamedTuple):
    number: int
    workspace_id: str
    stream: str
    place: Place
    key: str
    created_at: int


class IndexRow(NamedTuple):
    place: Place
    key: str
    number: int
    action: str


class PrunedRows(NamedTuple):
    """How many rows were removed."""

    changes: int
    tombstones: int


async def changes_after(database: Database, number: int, limit: int = 10_000) -> list[ChangeRow]:
    """The next changes in their order. ``Expired`` when some of them were forgotten."""
    async with database.reading() as session:
        oldest = (await session.execute(select(Counter.oldest))).scalar_one()
        if number < oldest:
            raise Expired(
                f"changes up to {oldest} of database {database.name!r} are no longer kept: read everything again"
            )
        found = await session.execute(
            select(Change.number, Change.workspace_id, Change.stream, Change.cluster_id, Change.shard, Change.key,
                   Change.created_at)
            .where(Change.number > number).order_by(Change.number).limit(limit)
        )  # fmt: skip
        return [
            ChangeRow(
                row.number, row.workspace_id, row.stream, Place(row.cluster_id, row.shard), row.key, row.created_at
            )
            for row in found
        ]


async def desired_index(database: Database) -> AsyncIterator[IndexRow]:
    """Every row of ``desired``, tombstones too, in the order of places. Not of one moment: what changes meanwhile is
    seen in either state, and again by whoever follows the changes from a position read before."""
    order = (Desired.cluster_id, Desired.shard, Desired.stream, Desired.key)
    asked = select(*order, Desired.number, Desired.action).order_by(*order).limit(_PAGE)
    after: tuple[str, ...] | None = None
    place = Place("", "")
    while True:
        async with database.reading() as session:
            page = (await session.execute(asked if after is None else asked.where(tuple_(*order) > after))).all()
        for row in page:
            if place.cluster != row.cluster_id or place.shard != row.shard:
                place = Place(row.cluster_id, row.shard)
            yield IndexRow(place, row.key, row.number, row.action)
        if len(page) < _PAGE:
            return
        last = page[-1]
        after = (last.cluster_id, last.shard, last.stream, last.key)


async def forget(database: Database, keep_ms: int, keep_tombstones_ms: int) -> PrunedRows:
    """Remove changes older than ``keep_ms``, and then the tombstones that nobody can need: those of changes that were
    forgotten, once the agent has said that the object is gone or ``keep_tombstones_ms`` have passed."""
    changes = tombstones = 0
    while removed := await _forget_changes(database, keep_ms):
        changes += removed
    while removed := await _forget_tombstones(database, keep_ms, max(keep_ms, keep_tombstones_ms)):
        tombstones += removed
    return PrunedRows(changes, tombstones)


async def _forget_changes(database: Database, keep_ms: int) -> int:
    """One step; 0 when there is nothing left to do. Only a prefix goes, also when clocks have jumped."""
    async with database.reading() as session:
        found = (
            await session.execute(select(Change.number, Change.created_at).order_by(Change.number).limit(_STEP))
        ).all()
    before = round(database.clock.wall_s() * 1000) - keep_ms
    old = 0
    while old < len(found) and found[old].created_at < before:
        old += 1
    if not old:
        return 0
    last = found[old - 1].number
    async with database.transaction() as tx:
        await tx.session.execute(delete(Change).where(Change.number <= last))
        await tx.session.execute(
            update(Counter)
            .where(Counter.oldest < last)
            .values(oldest=last)
            .execution_options(synchronize_session=False)
        )
    return old


async def _forget_tombstones(database: Database, keep_ms: int, keep_tombstones_ms: int) -> int:
    now = round(database.clock.wall_s() * 1000)
    key = (Desired.cluster_id, Desired.shard, Desired.stream, Desired.key)
    oldest = select(Counter.oldest).scalar_subquery()
    dead = (
        Desired.action != "apply",
        Desired.number <= oldest,
        or_((Desired.gone_at > 0) & (Desired.gone_at < now - keep_ms), Desired.committed_at < now - keep_tombstones_ms),
    )
    async with database.reading() as session:
        found = (await session.execute(select(*key).where(*dead).limit(_STEP))).all()
    if not found:
        return 0
    async with database.transaction() as tx:
        await tx.session.execute(
            delete(Desired)
            .where(tuple_(*key).in_([tuple(row) for row in found]), *dead)  # looked at again: it may be wanted now
            .execution_options(synchronize_session=False)
        )
    return len(found)
