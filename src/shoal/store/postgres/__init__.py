"""The store on PostgreSQL, for any number of servers; an optional Redis reduces latency."""

from __future__ import annotations

from shoal.store.postgres.journal import PostgresJournal
from shoal.store.postgres.link import LinkTimeouts

__all__ = ["LinkTimeouts", "PostgresJournal"]
