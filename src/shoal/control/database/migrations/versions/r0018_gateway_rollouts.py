"""Rollouts of gateways: what both revisions are, and where each gateway is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0018"
down_revision = "0016"

JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("sentinels", sa.Column("rollout", JSON, nullable=True))
    op.add_column("rollouts", sa.Column("contents", JSON, nullable=True))
