"""Credentials, answers of rollouts' checks, and notifications that wait for delivery."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0011"
down_revision = "0010"

JSON = sa.JSON().with_variant(JSONB(), "postgresql")
KEY, NAME, COUNT = sa.String(length=64), sa.String(length=63), sa.BigInteger()


def upgrade() -> None:
    op.create_table(
        "credentials",
        sa.Column("id", KEY, nullable=False),
        sa.Column("workspace_id", KEY, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("annotations", JSON, nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("generation", COUNT, nullable=False),
        sa.Column("version", COUNT, nullable=False),
        sa.Column("created_at", COUNT, nullable=False),
        sa.Column("updated_at", COUNT, nullable=False),
        sa.Column("project_id", KEY, nullable=False),
        sa.Column("environment_id", KEY, nullable=False),
        sa.Column("revision", COUNT, nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("data_key", sa.LargeBinary(), nullable=False),
        sa.Column("master_key", KEY, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_credentials_project_id")),
        sa.ForeignKeyConstraint(["environment_id"], ["environments.id"], name=op.f("fk_credentials_environment_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_credentials")),
        sa.UniqueConstraint(
            "workspace_id", "environment_id", "name", name=op.f("uq_credentials_workspace_id_environment_id_name")
        ),
    )
    op.create_table(
        "rollout_checks",
        sa.Column("rollout_id", KEY, nullable=False),
        sa.Column("wave", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("settled_at", COUNT, autoincrement=False, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("region", KEY, nullable=False),
        sa.Column("workspace_id", KEY, nullable=False),
        sa.Column("asked_at", COUNT, nullable=False),
        sa.Column("due_at", COUNT, nullable=False),
        sa.Column("passed", sa.Boolean(), nullable=True),
        sa.Column("failures_in_a_row", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("numbers", JSON, nullable=False),
        sa.PrimaryKeyConstraint(
            "rollout_id", "wave", "step", "settled_at", "name", "region", name=op.f("pk_rollout_checks")
        ),
    )
    op.create_index(op.f("ix_rollout_checks_settled_at"), "rollout_checks", ["settled_at"])
    op.create_table(
        "rollout_notifications",
        sa.Column("id", COUNT.with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("workspace_id", KEY, nullable=False),
        sa.Column("rollout_id", KEY, nullable=False),
        sa.Column("app_id", KEY, nullable=False),
        sa.Column("event", sa.String(length=16), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("format", sa.String(length=16), nullable=False),
        sa.Column("secret", NAME, nullable=False),
        sa.Column("body", JSON, nullable=False),
        sa.Column("created_at", COUNT, nullable=False),
        sa.Column("due_at", COUNT, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("correlation", KEY, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollout_notifications")),
    )
    op.create_index(op.f("ix_rollout_notifications_due_at"), "rollout_notifications", ["due_at"])
