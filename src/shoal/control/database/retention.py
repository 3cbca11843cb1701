"""Retention: removes old changes and tombstones, stored answers, events, audit rows, and what deleted clusters left.
Samples of traffic are added up to minutes, and removed later.

It deletes in transactions of at most a thousand rows, so that others wait only briefly. Any number of
control planes may do this on one database: they find less to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import delete, select, tuple_

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.control.database.changes import BATCH, forget
from shoal.control.database.engine import Database, Databases
from shoal.control.database.leftovers import forget_deleted_clusters
from shoal.control.database.tables import Audit, Event, Idempotency, RolloutCheck, Traffic
from shoal.control.database.traffic import MINUTE_MS, fold_samples
from shoal.errors import ConfigError, ServiceUnavailable

_HOUR_S = 3600.0
_DAY_S = 24 * _HOUR_S

_log = get_logger("control.database")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long things are kept. An agent that was away for longer than ``changes_s`` reads everything again."""

    changes_s: float = _DAY_S
    tombstones_s: float = 90 * _DAY_S  # of objects whose agent never said that they are gone
    idempotency_s: float = _DAY_S
    events_s: float = 14 * _DAY_S
    audit_s: float = 400 * _DAY_S
    samples_s: float = _HOUR_S  # of traffic; older ones are added up to minutes
    traffic_s: float = _DAY_S
    every_s: float = 600.0
    batch: int = BATCH  # rows of one transaction

    def __post_init__(self) -> None:
        for name in (
            "changes_s", "tombstones_s", "idempotency_s", "events_s", "audit_s", "samples_s", "traffic_s", "every_s",
            "batch",
        ):  # fmt: skip
            if getattr(self, name) <= 0:
                raise ConfigError(f"retention.{name} is {getattr(self, name)}: use more than 0")
        if self.tombstones_s < self.changes_s:
            raise ConfigError(
                f"retention.tombstones_s is {self.tombstones_s}: use changes_s ({self.changes_s}) or more"
            )
        if self.traffic_s < self.samples_s:
            raise ConfigError(f"retention.traffic_s is {self.traffic_s}: use samples_s ({self.samples_s}) or more")


class SweptRows(NamedTuple):
    """How many rows were removed; ``samples`` were added up to minutes."""

    changes: int
    tombstones: int
    idempotency: int
    events: int
    audit: int
    samples: int
    traffic: int
    checks: int


async def run_retention(databases: Databases, retention: Retention, clock: Clock) -> None:
    """Sweep all databases now and then, until cancelled."""
    while True:
        for database in databases.all:
            try:
                await sweep(database, retention)
            except ServiceUnavailable as error:
                _log.warning("retention waits for the database", database=database.name, reason=error.message)
        try:
            await forget_deleted_clusters(databases)
        except ServiceUnavailable as error:
            _log.warning("retention waits for a database", reason=error.message)
        await clock.sleep(retention.every_s)


async def sweep(database: Database, retention: Retention) -> SweptRows:
    changes_ms, tombstones_ms = round(retention.changes_s * 1000), round(retention.tombstones_s * 1000)
    forgotten = await forget(database, changes_ms, tombstones_ms, batch=retention.batch)
    answers = await _all_steps(database, retention.idempotency_s, _forget_answers, retention.batch)
    events = await _all_steps(database, retention.events_s, _forget_events, retention.batch)
    audit = await _all_steps(database, retention.audit_s, _forget_audit, retention.batch)
    old_ms = database.time.now_ms() - round(retention.samples_s * 1000)
    samples = await fold_samples(database, old_ms - old_ms % MINUTE_MS)
    traffic = await _all_steps(database, retention.traffic_s, _forget_traffic, retention.batch)
    checks = await _all_steps(database, retention.events_s, _forget_checks, retention.batch)
    return SweptRows(forgotten.changes, forgotten.tombstones, answers, events, audit, samples, traffic, checks)


async def _all_steps(database: Database, keep_s: float, step: Any, batch: int) -> int:
    before = database.time.now_ms() - round(keep_s * 1000)
    count = 0
    while removed := await step(database, before, batch):
        count += removed
    return count


async def _forget_answers(database: Database, before: int, batch: int) -> int:
    key = (Idempotency.workspace_id, Idempotency.key)
    asked = select(*key).where(Idempotency.created_at < before).order_by(Idempotency.created_at).limit(batch)
    async with database.reading() as session:
        found = [tuple(row) for row in await session.execute(asked)]
    if found:
        await _delete(database, delete(Idempotency).where(tuple_(*key).in_(found), Idempotency.created_at < before))
    return len(found)


async def _forget_events(database: Database, before: int, batch: int) -> int:
    return await _forget_prefix(database, Event, before, batch)


async def _forget_audit(database: Database, before: int, batch: int) -> int:
    return await _forget_prefix(database, Audit, before, batch)


async def _forget_traffic(database: Database, before: int, batch: int) -> int:
    key = (Traffic.environment_id, Traffic.from_at, Traffic.span_ms, Traffic.region_id)
    old = (Traffic.span_ms == MINUTE_MS, Traffic.from_at < before - MINUTE_MS)
    async with database.reading() as session:
        found = [tuple(row) for row in await session.execute(select(*key).where(*old).limit(batch))]
    if found:
        await _delete(database, delete(Traffic).where(tuple_(*key).in_(found)))
    return len(found)


async def _forget_checks(database: Database, before: int, batch: int) -> int:
    """Answers of rollouts' checks: of a step that is under way they are asked again, whatever was known."""
    asked = select(RolloutCheck.rollout_id).where(RolloutCheck.settled_at < before).distinct().limit(batch)
    async with database.reading() as session:
        found = list(await session.scalars(asked))
    if found:
        old = RolloutCheck.rollout_id.in_(found), RolloutCheck.settled_at < before
        await _delete(database, delete(RolloutCheck).where(*old))
    return len(found)


async def _forget_prefix(database: Database, table: type[Event] | type[Audit], before: int, batch: int) -> int:
    """Ids are in the order of time, near enough: the rows up to the first that is too young."""
    async with database.reading() as session:
        rows = (await session.execute(select(table.id, table.at).order_by(table.id).limit(batch))).all()
    old = next((n for n, row in enumerate(rows) if row.at >= before), len(rows))
    if old:
        await _delete(database, delete(table).where(table.id <= rows[old - 1].id))
    return old


async def _delete(database: Database, statement: Any) -> None:
    async with database.transaction(serial=False) as tx:
        await tx.session.execute(statement.execution_options(synchronize_session=False))
