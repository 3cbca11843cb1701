"""Rollouts with their progress and decisions, and revisions that were taken back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0008"
down_revision = "0003"

JSON = sa.JSON().with_variant(JSONB(), "postgresql")
KEY, COUNT = sa.String(length=64), sa.BigInteger()


def upgrade() -> None:
    op.drop_table("rollouts")  # earlier versions never wrote it
    op.create_table(
        "rollouts",
        sa.Column("id", KEY, nullable=False),
        sa.Column("workspace_id", KEY, nullable=False),
        sa.Column("app_id", KEY, nullable=False),
        sa.Column("number", COUNT, nullable=False),
        sa.Column("deployment_id", KEY, nullable=False),
        sa.Column("revision", COUNT, nullable=False),
        sa.Column("stable_id", KEY, nullable=False),
        sa.Column("stable_revision", COUNT, nullable=False),
        sa.Column("digest", KEY, nullable=False),
        sa.Column("strategy", JSON, nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("progress", JSON, nullable=False),
        sa.Column("version", COUNT, nullable=False),
        sa.Column("due_at", COUNT, nullable=False),
        sa.Column("actor", sa.String(length=255), nullable=False),
        sa.Column("correlation", KEY, nullable=False),
        sa.Column("created_at", COUNT, nullable=False),
        sa.Column("updated_at", COUNT, nullable=False),
        sa.Column("ended_at", COUNT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollouts")),
        sa.UniqueConstraint("workspace_id", "app_id", "number", name=op.f("uq_rollouts_workspace_id_app_id_number")),
    )
    op.create_index(op.f("ix_rollouts_phase_due_at"), "rollouts", ["phase", "due_at"])
    op.create_table(
        "rollout_decisions",
        sa.Column("id", COUNT.with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("workspace_id", KEY, nullable=False),
        sa.Column("rollout_id", KEY, nullable=False),
        sa.Column("at", COUNT, nullable=False),
        sa.Column("actor", sa.String(length=255), nullable=False),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("numbers", JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollout_decisions")),
    )
    op.create_index(
        op.f("ix_rollout_decisions_workspace_id_rollout_id_id"),
        "rollout_decisions",
        ["workspace_id", "rollout_id", "id"],
    )
    op.create_table(
        "bad_revisions",
        sa.Column("app_id", KEY, nullable=False),
        sa.Column("digest", KEY, nullable=False),
        sa.Column("workspace_id", KEY, nullable=False),
        sa.Column("revision", COUNT, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", COUNT, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "digest", name=op.f("pk_bad_revisions")),
    )
