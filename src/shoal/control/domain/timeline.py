"""The steps of everything that one request led to, with times: from the request to each cluster and back.

    Accepted ─▶ Committed ─▶ Received ─▶ Applied ─▶ Reported ─▶ Ready        (per object and cluster, from Received on)

They are read from the audit log, from ``changes`` and from the events that carry the id of the request. Times of
``Received`` and ``Applied`` are those of the agent's clock. A change that has not come all the way has a last step
``Waiting``; one that a newer change of the same object replaced on the way, ``Overtaken``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Row, and_, select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database.tables import Audit, Change, Desired, Event
from shoal.control.domain.objects import time_text
from shoal.control.domain.placement.facts import Infrastructure

MOST_CHANGES = 1000  # of one request
_RUNS = ("deployment", "sentinel")  # kinds of which instances become ready
_ORDER = ("Accepted", "Committed", "Received", "Applied", "Reported", "Ready", "Overtaken", "Waiting")
_HOPS = (("Received", "received_at"), ("Applied", "applied_at"), ("Reported", "reported_at"), ("Ready", "ready_at"))

Step = dict[str, Any]


async def read_steps(
    session: AsyncSession, workspace_id: str, correlation: str, infrastructure: Infrastructure, now: int
) -> list[tuple[int, Step]]:
    """The steps in one workspace, each with its time in milliseconds, in no order."""
    steps: list[tuple[int, Step]] = []
    here = (Audit.workspace_id == workspace_id, Audit.correlation == correlation)
    for audit in await session.scalars(select(Audit).where(*here).order_by(Audit.id).limit(MOST_CHANGES)):
        about = {"kind": audit.kind, "name": audit.name}
        steps.append(_step(audit.accepted_at or audit.at, "Accepted", f"{audit.actor}: {audit.action}", **about))
        steps.append(_step(audit.at, "Committed", "the change is in the database", **about))
    found = select(Event).where(Event.workspace_id == workspace_id, Event.correlation == correlation)
    for row in await session.scalars(found.order_by(Event.id).limit(MOST_CHANGES)):
        about = {"kind": row.kind, "name": row.name, "region": row.region, "type": row.type}
        steps.append(_step(row.at, row.reason, row.message, **about))
    for change in await _changes(session, workspace_id, correlation):
        steps += _steps_of(change, infrastructure, now)
    return steps


def in_order(steps: list[tuple[int, Step]], correlation: str) -> list[Step]:
    """By time; steps of the same millisecond in the order in which they happen."""
    steps.sort(key=lambda each: (each[0], _place(each[1]["reason"])))
    return [{"at": time_text(at), **step, "correlation": correlation} for at, step in steps]


def _place(reason: str) -> int:
    return _ORDER.index(reason) if reason in _ORDER else _ORDER.index("Committed")


async def _changes(session: AsyncSession, workspace_id: str, correlation: str) -> list[Row[Any]]:
    of_change = and_(
        Desired.cluster_id == Change.cluster_id,
        Desired.shard == Change.shard,
        Desired.stream == Change.stream,
        Desired.key == Change.key,
    )
    found = await session.execute(
        select(
            Change,
            Desired.number.label("newest"),
            Desired.name,
            Desired.action,
            Desired.committed_at,
            Desired.error,
        )
        .outerjoin(Desired, of_change)
        .where(Change.workspace_id == workspace_id, Change.correlation == correlation)
        .order_by(Change.number)
        .limit(MOST_CHANGES)
    )
    return list(found.all())


def _steps_of(row: Row[Any], infrastructure: Infrastructure, now: int) -> Iterator[tuple[int, Step]]:
    change: Change = row.Change
    kind, _, id_ = change.key.partition("/")
    about = {
        "kind": kind.capitalize(),
        "name": row.name or id_,
        "region": infrastructure.region_of_cluster(change.cluster_id),
        "cluster": infrastructure.cluster_name(change.cluster_id),
    }
    removal = row.newest == change.number and row.action != "apply"
    for reason, column in _HOPS:
        at = getattr(change, column)
        if at:
            yield _step(
                at, reason, f"v{change.number}{' is removed' if removal and reason == 'Applied' else ''}", **about
            )
    if row.newest is not None and row.newest != change.number and not change.reported_at:
        yield _step(row.committed_at, "Overtaken", f"v{change.number} was replaced by v{row.newest}", **about)
    elif waits := _waits(row, kind, removal=removal):
        error = row.error or {}
        type_ = "Warning" if error else "Normal"
        why = f": {error['reason']}: {error['message']}" if error else ""
        yield _step(now, "Waiting", f"v{change.number} is {waits}{why}", type=type_, **about)


def _waits(row: Row[Any], kind: str, *, removal: bool) -> str:
    """What the newest change of an object has not reached yet; empty when it has come all the way."""
    change: Change = row.Change
    if row.newest != change.number:
        return ""
    if not change.reported_at:
        return "not reported as applied yet"
    return "not ready yet" if kind in _RUNS and not removal and not change.ready_at else ""


def _step(
    at: int,
    reason: str,
    message: str,
    *,
    kind: str,
    name: str,
    region: str = "",
    cluster: str = "",
    type: str = "Normal",
) -> tuple[int, Step]:
    return at, {
        "type": type, "reason": reason, "kind": kind, "name": name, "region": region, "cluster": cluster,
        "message": message,
    }  # fmt: skip
