"""Jobs of rollouts' checks beside the instances of a candidate."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0016"
down_revision = "0012"

JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("deployment_topology", sa.Column("check_jobs", JSON, nullable=True))
