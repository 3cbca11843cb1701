"""Revisions are exchanged region by region: weights, told instances, broken revisions and forgotten gateways."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0003"
down_revision = "0007"

JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    for name, kind in (("revision", sa.BigInteger()), ("weight", sa.Integer()), ("routed", sa.Integer()),
                       ("target", sa.Integer())):  # fmt: skip
        op.add_column("deployment_topology", sa.Column(name, kind, nullable=False, server_default="0"))
    op.add_column("deployment_topology", sa.Column("instances", sa.Integer(), nullable=True))
    op.add_column("deployments", sa.Column("broken_at", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("sentinels", sa.Column("forgotten", JSON, nullable=True))
    op.add_column("instances", sa.Column("outdated", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.execute(
        "UPDATE deployment_topology SET revision = "
        "(SELECT d.revision FROM deployments AS d WHERE d.id = deployment_topology.deployment_id)"
    )
    op.execute(  # until now all regions led to the live revision
        "UPDATE deployment_topology SET weight = 100, routed = 100 "
        "WHERE deployment_id IN (SELECT a.live_deployment_id FROM apps AS a)"
    )
