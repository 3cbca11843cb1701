"""The id of the request that led to a change, an event or a desired state, and when the agent had the change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0006"


def upgrade() -> None:
    for table in ("desired", "changes", "events"):
        op.add_column(table, sa.Column("correlation", sa.String(length=64), nullable=False, server_default=""))
    for table, names in (
        ("changes", ("received_at", "applied_at", "reported_at", "ready_at")),
        ("audit", ("accepted_at",)),
    ):
        for name in names:
            op.add_column(table, sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    for table in ("changes", "events", "audit"):
        present = sa.text("correlation <> ''")
        op.create_index(
            op.f(f"ix_{table}_workspace_id_correlation"),
            table,
            ["workspace_id", "correlation"],
            sqlite_where=present,
            postgresql_where=present,
        )
