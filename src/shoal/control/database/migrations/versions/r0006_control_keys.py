"""Keys of the control plane itself, wrapped by the master key."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "control_keys",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("data_key", sa.LargeBinary(), nullable=False),
        sa.Column("master_key", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_control_keys")),
    )
