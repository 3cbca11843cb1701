"""Removes old changes, and the tombstones that no agent needs any more.

A reader of changes reads the position first, then all desired state, then the changes after that position, and keeps
the highest number per object. So it misses nothing, and a change seen twice has no effect. A reader that is behind the
oldest change that is kept reads everything again.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import delete, or_, select, tuple_, update

from shoal.control.database.engine import Database
from shoal.control.database.tables import Change, Counter, Desired

BATCH = 1000  # rows per transaction of ``forget``, so that other transactions wait only briefly


class PrunedRows(NamedTuple):
    """How many rows were removed."""

    changes: int
    tombstones: int


async def forget(database: Database, keep_ms: int, keep_tombstones_ms: int, *, batch: int = BATCH) -> PrunedRows:
    """Remove changes older than ``keep_ms``, and then the tombstones that no agent can need: those of changes that were
    forgotten, once the agent has said that the object is gone or ``keep_tombstones_ms`` have passed."""
    changes = tombstones = 0
    while removed := await _forget_changes(database, keep_ms, batch):
        changes += removed
    while removed := await _forget_tombstones(database, keep_ms, max(keep_ms, keep_tombstones_ms), batch):
        tombstones += removed
    return PrunedRows(changes, tombstones)


async def _forget_changes(database: Database, keep_ms: int, batch: int) -> int:
    """One step; 0 when there is nothing left to do. Only a prefix goes, also when clocks have jumped."""
    async with database.reading() as session:
        found = (
            await session.execute(select(Change.number, Change.created_at).order_by(Change.number).limit(batch))
        ).all()
    before = database.time.now_ms() - keep_ms
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


async def _forget_tombstones(database: Database, keep_ms: int, keep_tombstones_ms: int, batch: int) -> int:
    now = database.time.now_ms()
    key = (Desired.cluster_id, Desired.shard, Desired.stream, Desired.key)
    oldest = select(Counter.oldest).scalar_subquery()
    dead = (
        Desired.action != "apply",
        Desired.number <= oldest,
        or_((Desired.gone_at > 0) & (Desired.gone_at < now - keep_ms), Desired.committed_at < now - keep_tombstones_ms),
    )
    async with database.reading() as session:
        found = (await session.execute(select(*key).where(*dead).limit(batch))).all()
    if not found:
        return 0
    async with database.transaction() as tx:
        await tx.session.execute(
            delete(Desired)
            .where(tuple_(*key).in_([tuple(row) for row in found]), *dead)  # looked at again: it may be wanted now
            .execution_options(synchronize_session=False)
        )
    return len(found)
