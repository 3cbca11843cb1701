"""The tables of rollouts: where each is, what was decided, what checks say, whom to tell, and what was taken back."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from shoal.control.database.table_base import NAME_LENGTH, Base, Key, Serial


class Rollout(Base):
    """The way of an app from one revision, *stable*, to another, the *candidate*. One per app has not ended at most.

    Those of an environment are about its gateways: ``app_id`` is the environment's id, and in place of deployments
    ``contents`` says what both revisions are."""

    __tablename__ = "rollouts"
    id: Mapped[str] = mapped_column(Key, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Key)
    app_id: Mapped[str] = mapped_column(Key)
    number: Mapped[int]  # of the app's rollouts, from 1
    deployment_id: Mapped[str] = mapped_column(Key)  # the candidate
    revision: Mapped[int]
    stable_id: Mapped[str] = mapped_column(Key, default="")  # empty for the first revision of an app
    stable_revision: Mapped[int] = mapped_column(default=0)
    digest: Mapped[str] = mapped_column(String(64), default="")  # of what the candidate runs, with its secrets
    strategy: Mapped[dict[str, Any]]  # with all defaults, as it was when the rollout began
    contents: Mapped[dict[str, Any] | None]  # of gateways: candidate and stable, each with what people wrote
    phase: Mapped[str] = mapped_column(String(16))  # running, keeping, goingBack, frozen or ended
    outcome: Mapped[str] = mapped_column(String(16), default="")  # of an ended one: promoted, rolledBack or superseded
    progress: Mapped[dict[str, Any]]  # step, waits and the accumulators of analysis
    version: Mapped[int] = mapped_column(default=1)  # rises with each change of progress
    due_at: Mapped[int] = mapped_column(default=0)  # when time alone may change something; 0: never
    actor: Mapped[str] = mapped_column(default="")  # who applied the candidate
    correlation: Mapped[str] = mapped_column(String(64), default="")
    created_at: Mapped[int]
    updated_at: Mapped[int]
    ended_at: Mapped[int] = mapped_column(default=0)
    __table_args__ = (UniqueConstraint("workspace_id", "app_id", "number"), Index(None, "phase", "due_at"))


class RolloutDecision(Base):
    """What the engine or a person decided about a rollout, with the numbers that it was decided from."""

    __tablename__ = "rollout_decisions"
    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    workspace_id: Mapped[str] = mapped_column(Key)
    rollout_id: Mapped[str] = mapped_column(Key)
    at: Mapped[int]
    actor: Mapped[str] = mapped_column(default="")  # empty: the engine
    action: Mapped[str] = mapped_column(String(32))  # start, step, wave, promote, rollback, freeze, end, pause, resume…
    reason: Mapped[str] = mapped_column(Text)
    wave: Mapped[int] = mapped_column(Integer)
    step: Mapped[int] = mapped_column(Integer)
    numbers: Mapped[dict[str, Any]]
    __table_args__ = (Index(None, "workspace_id", "rollout_id", "id"),)


class RolloutCheck(Base):
    """What a check said of one settling of a step. Control planes claim a row by moving ``due_at`` on."""

    __tablename__ = "rollout_checks"
    rollout_id: Mapped[str] = mapped_column(Key, primary_key=True)
    wave: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    step: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    settled_at: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(String(NAME_LENGTH), primary_key=True)
    region: Mapped[str] = mapped_column(Key, primary_key=True, default="")  # empty: all of the wave at once
    workspace_id: Mapped[str] = mapped_column(Key)
    asked_at: Mapped[int] = mapped_column(default=0)
    due_at: Mapped[int]
    passed: Mapped[bool | None]  # of the newest answer; None: none yet, or inconclusive
    failures_in_a_row: Mapped[int] = mapped_column(Integer, default=0)
    reason: Mapped[str] = mapped_column(Text, default="")
    numbers: Mapped[dict[str, Any]]
    __table_args__ = (Index(None, "settled_at"),)


class RolloutNotification(Base):
    """A notification that has not been delivered yet."""

    __tablename__ = "rollout_notifications"
    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    workspace_id: Mapped[str] = mapped_column(Key)
    rollout_id: Mapped[str] = mapped_column(Key)
    app_id: Mapped[str] = mapped_column(Key)
    event: Mapped[str] = mapped_column(String(16))  # start, pause, success or rollback
    url: Mapped[str] = mapped_column(Text)
    format: Mapped[str] = mapped_column(String(16))  # json or slack
    secret: Mapped[str] = mapped_column(String(NAME_LENGTH), default="")  # name of the credential
    body: Mapped[dict[str, Any]]
    created_at: Mapped[int]
    due_at: Mapped[int]
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    correlation: Mapped[str] = mapped_column(String(64), default="")
    __table_args__ = (Index(None, "due_at"),)


class BadRevision(Base):
    """Contents of a revision that was taken back: the same is refused unless it is forced."""

    __tablename__ = "bad_revisions"
    app_id: Mapped[str] = mapped_column(Key, primary_key=True)
    digest: Mapped[str] = mapped_column(
        String(64), primary_key=True
    )  # of containers, overrides and versions of secrets
    workspace_id: Mapped[str] = mapped_column(Key)
    revision: Mapped[int]
    reason: Mapped[str] = mapped_column(Text)
    at: Mapped[int]
