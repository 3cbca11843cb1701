"""Notifications about rollouts, written in the transaction of what they tell; ``shoal.control.checks.delivery`` sends
them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from shoal.control.database.tables import App, Environment, Project, Rollout, RolloutNotification
from shoal.control.database.transaction import Tx
from shoal.control.rollout.strategy import Strategy

START, PAUSE, SUCCESS, ROLLBACK = "start", "pause", "success", "rollback"


async def notify(
    tx: Tx, rollout: Rollout, strategy: Strategy, event: str, text: str, numbers: Mapping[str, Any] | None = None
) -> None:
    """``event`` is one of those above, ``text`` a sentence for people. Nothing is sent if the transaction is undone."""
    wanted = [each for each in strategy.notify if event in each.on]
    if not wanted:
        return
    named = (
        await tx.session.execute(
            select(App.name.label("app"), Project.name.label("project"), Environment.name.label("environment"))
            .join(Project, Project.id == App.project_id)
            .join(Environment, Environment.id == App.environment_id)
            .where(App.id == rollout.app_id)
        )
    ).first()
    if named is None:
        return  # the app is gone, and its rollout with it
    body = {
        "event": event, "project": named.project, "environment": named.environment, "app": named.app,
        "rollout": rollout.number, "revision": rollout.revision, "stableRevision": rollout.stable_revision,
        "text": text, "numbers": dict(numbers or {}),
    }  # fmt: skip
    for each in wanted:
        tx.session.add(
            RolloutNotification(
                workspace_id=rollout.workspace_id, rollout_id=rollout.id, app_id=rollout.app_id, event=event,
                url=each.url, format=each.format, secret=each.secret, body=body, created_at=tx.now, due_at=tx.now,
                attempts=0, correlation=tx.correlation,
            )
        )  # fmt: skip
