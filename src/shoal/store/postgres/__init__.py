"""The store on PostgreSQL, for any number of servers; Redis makes it quicker and is not needed."""

from __future__ import annotations

from shoal.store.postgres.journal import PostgresJournal
from shoal.store.postgres.link import Patience

__all__ = ["Patience", "PostgresJournal"]
