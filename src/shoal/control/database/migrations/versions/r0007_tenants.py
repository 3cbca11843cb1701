"""What a workspace may use, and the hosts and domains that belong to one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0007"
down_revision = "0005"

JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("workspaces", sa.Column("policy", JSON, nullable=True))
    op.create_table(
        "hosts",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("reserved_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host", name=op.f("pk_hosts")),
    )
    op.create_table(
        "domains",
        sa.Column("domain", sa.String(length=255), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("domain", name=op.f("pk_domains")),
    )
    op.create_index(op.f("ix_domains_workspace_id"), "domains", ["workspace_id"])
