"""Which programs work with the tables, for those that do not know their revision."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "compatibility",
        sa.Column("oldest", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("oldest", name=op.f("pk_compatibility")),
    )
