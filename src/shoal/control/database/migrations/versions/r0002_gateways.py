"""Where gateways let those of other regions in, and the certificates by which they know each other."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"

JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("sentinels", sa.Column("entries", JSON, nullable=True))
    op.create_table(
        "gateway_certificates",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("authority", sa.LargeBinary(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("data_key", sa.LargeBinary(), nullable=False),
        sa.Column("master_key", sa.String(length=64), nullable=False),
        sa.Column("shown", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gateway_certificates")),
        sa.UniqueConstraint("workspace_id", "revision", name=op.f("uq_gateway_certificates_workspace_id_revision")),
    )
