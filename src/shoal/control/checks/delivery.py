"""Delivers notifications of rollouts, at least once, and gives up after an hour.

Control planes claim a notification as they claim a check. A delivery that fails is tried again with back-off; the
first failure and the last one are events of the app.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import orjson
from sqlalchemy import CursorResult, delete, select, update

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.outbound import OutboundCall
from shoal.control.checks.calls import CallScope, WorkspaceCallFailed, WorkspaceCalls
from shoal.control.checks.metrics import CheckMetrics
from shoal.control.checks.passes import AT_ONCE, OF_ONE_WORKSPACE, count_done, fair_share, of_databases
from shoal.control.checks.plan import LEASE_MS
from shoal.control.checks.webhook import quoted
from shoal.control.database.engine import Database, Databases
from shoal.control.database.tables import App, RolloutNotification
from shoal.control.database.transaction import Tx
from shoal.control.domain.objects import time_text

KEEP_MS = 3600 * 1000  # how long delivery is tried
_EVERY_S = 1.0
_READ = 500  # rows of one pass
_BACKOFF = Backoff(base_s=5.0, cap_s=300.0)
_SIGNS = {"start": "▶", "pause": "⏸", "success": "✔", "rollback": "↩"}


class NotificationSender:
    def __init__(self, databases: Databases, calls: WorkspaceCalls, *, clock: Clock, metrics: CheckMetrics) -> None:
        self._databases = databases
        self._calls = calls
        self._clock = clock
        self._metrics = metrics

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.send_due()
            await self._clock.sleep(_EVERY_S)

    async def send_due(self) -> int:
        """One pass. Returns how many were delivered."""
        due = await of_databases(self._databases, _due, "notifications")
        chosen = fair_share(due, lambda each: each[1].workspace_id, AT_ONCE, OF_ONE_WORKSPACE)
        parts = (self._send(database, row) for database, row in chosen)
        return await count_done(*parts, name="control-notifications/send")

    async def _send(self, database: Database, row: RolloutNotification) -> bool:
        claimed_ms = await database.run(partial(_claim, row=row), serial=False, short=True)
        if not claimed_ms:
            return False
        why = await self._deliver(row)
        if not why:
            await database.run(partial(_delete, row=row), serial=False, short=True)
            self._metrics.notifications.labels("delivered").inc()
            return True
        result = await database.run(partial(_failed, row=row, claimed_ms=claimed_ms, why=why), serial=False, short=True)
        self._metrics.notifications.labels(result).inc()
        return False

    async def _deliver(self, row: RolloutNotification) -> str:
        """Why it was not delivered; empty once it was."""
        call = OutboundCall(
            url=row.url, headers=(("content-type", "application/json"),), body=orjson.dumps(payload(row))
        )
        try:
            environment_id = await self._environment_of(row)
            reply = await self._calls.send(CallScope(row.workspace_id, environment_id, row.secret), call)
        except WorkspaceCallFailed as error:
            return str(error)
        if 200 <= reply.status < 300:
            return ""
        return f"it {quoted(reply)}"

    async def _environment_of(self, row: RolloutNotification) -> str:
        async with self._databases.of(row.workspace_id).reading() as session:
            return await session.scalar(select(App.environment_id).where(App.id == row.app_id)) or ""


def payload(row: RolloutNotification) -> dict[str, Any]:
    """What is sent. ``id`` tells a delivery that is repeated."""
    body, app = row.body, f"{row.body['project']}/{row.body['environment']}/{row.body['app']}"
    if row.format == "slack":
        sign = _SIGNS.get(row.event, "•")
        return {"text": f"{sign} *{app}* revision {body['revision']}, {row.event}: {_escaped(body['text'])}"}
    return {"id": f"{row.rollout_id}-{row.id}", "at": time_text(row.created_at), **body}


def _escaped(text: str) -> str:
    """Slack reads commands and links between angle brackets."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


async def _due(database: Database) -> list[tuple[Database, RolloutNotification]]:
    async with database.reading() as session:
        rows = list(
            await session.scalars(
                select(RolloutNotification)
                .where(RolloutNotification.due_at <= database.time.now_ms())
                .order_by(RolloutNotification.due_at, RolloutNotification.id)
                .limit(_READ)
            )
        )
    return [(database, row) for row in rows]


async def _claim(tx: Tx, row: RolloutNotification) -> int:
    """When the claim ends; 0 where another process has it."""
    until = tx.now + LEASE_MS
    return until if await _change(tx, row, row.due_at, due_at=until) else 0


async def _failed(tx: Tx, row: RolloutNotification, claimed_ms: int, why: str) -> str:
    """Try again later, or give up. Returns what is counted."""
    attempts = row.attempts + 1
    next_ms = tx.now + round(_BACKOFF.bound_s(attempts) * 1000)
    is_last = next_ms > row.created_at + KEEP_MS
    if not is_last and not await _change(tx, row, claimed_ms, due_at=next_ms, attempts=attempts):
        return "failed"  # another process has it by now
    if is_last:
        await _delete(tx, row)
    if is_last or attempts == 1:
        tail = "; it was given up after an hour" if is_last else ""
        app = f"{row.body['project']}/{row.body['environment']}/{row.body['app']}"
        message = f"the notification about {row.event} was not delivered: {why}{tail}"
        with tx.caused_by(row.correlation):
            tx.event(
                workspace_id=row.workspace_id, kind="App", object_id=row.app_id, name=app, type="Warning",
                reason="NotificationFailed", message=message,
            )  # fmt: skip
    return "dropped" if is_last else "failed"


async def _change(tx: Tx, row: RolloutNotification, due_ms: int, **values: Any) -> bool:
    done = await tx.session.execute(
        update(RolloutNotification)
        .where(RolloutNotification.id == row.id, RolloutNotification.due_at == due_ms)
        .values(**values)
        .execution_options(synchronize_session=False)
    )
    return cast("CursorResult[Any]", done).rowcount == 1


async def _delete(tx: Tx, row: RolloutNotification) -> None:
    await tx.session.execute(
        delete(RolloutNotification).where(RolloutNotification.id == row.id).execution_options(synchronize_session=False)
    )
