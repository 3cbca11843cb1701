"""What gateways do for a candidate besides its weight, and the preview hosts of apps."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0010"
down_revision = "0009"

JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("deployment_topology", sa.Column("extras", JSON, nullable=True))
    op.add_column("apps", sa.Column("preview_host", sa.String(length=255), nullable=False, server_default=""))
    op.create_index(op.f("ix_apps_preview_host"), "apps", ["preview_host"])
