"""Samples of what gateways count."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0009"
down_revision = "0008"

JSON = sa.JSON().with_variant(JSONB(), "postgresql")
KEY, COUNT = sa.String(length=64), sa.BigInteger()


def upgrade() -> None:
    op.create_table(
        "traffic",
        sa.Column("environment_id", KEY, nullable=False),
        sa.Column("from_at", COUNT, nullable=False),
        sa.Column("span_ms", COUNT, nullable=False),
        sa.Column("region_id", KEY, nullable=False),
        sa.Column("workspace_id", KEY, nullable=False),
        sa.Column("deployments", JSON, nullable=False),
        sa.PrimaryKeyConstraint("environment_id", "from_at", "span_ms", "region_id", name=op.f("pk_traffic")),
    )
    op.create_index(op.f("ix_traffic_span_ms_from_at"), "traffic", ["span_ms", "from_at"])
