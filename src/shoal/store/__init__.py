"""The revisioned store: a log of writes in one global order, read and watched from memory.

``open_store`` is the way in; everything else here is the seam (see ``shoal.store.model``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from shoal.base.logs import redact
from shoal.errors import ConfigError
from shoal.store.group import LogStore, exit_process
from shoal.store.journal import Journal
from shoal.store.memory import MemoryJournal
from shoal.store.model import (
    NO_ATTRS,
    Absent,
    At,
    Attrs,
    Compacted,
    Delete,
    Entry,
    Event,
    EventType,
    Exists,
    Fence,
    FutureRevision,
    Key,
    Op,
    Page,
    Put,
    Require,
    RequirementFailed,
    Store,
    StoreClosed,
    StoreReadOnly,
    StoreUnavailable,
    Watch,
)
from shoal.store.ring import RingLimits
from shoal.store.sqlite import SqliteJournal
from shoal.store.view import Whole

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")
_REDIS = ("redis://", "rediss://", "unix://")


def open_store(
    url: str,
    *,
    attrs_of: Callable[[Key, bytes], Attrs],
    limits: RingLimits | None = None,
    clock: Callable[[], float] = time.monotonic,
    on_fatal: Callable[[BaseException], None] = exit_process,
    events: str = "",
    unavailable_after_s: float = 10.0,
) -> LogStore:
    """The store at ``url``, still to be started: ``memory://``, ``sqlite:///`` with a path after the third slash (an
    absolute one begins with a fourth), or ``postgresql://``. ``attrs_of`` recomputes what a writer gave as ``attrs``,
    from a complete value; ``clock`` ages history; ``on_fatal`` is called when writes can no longer be made durable.

    For PostgreSQL, ``events`` is the URL of a Redis (``redis://``, ``rediss://``, ``unix://``) through which servers
    tell each other of writes, and ``unavailable_after_s`` is how long writes and fresh reads wait for a database that
    does not answer before they fail as StoreUnavailable."""
    journal: Journal
    if events and not url.startswith(_POSTGRES):
        raise ConfigError(f"events {redact(events)!r} are for a store on PostgreSQL, not for {url!r}; leave them out")
    if url.startswith(_POSTGRES):
        journal = _postgres(url, attrs_of, events, unavailable_after_s)
    elif url == "memory://":
        journal = MemoryJournal()
    elif url.startswith(_SQLITE) and len(url) > len(_SQLITE):
        journal = SqliteJournal(Path(url.removeprefix(_SQLITE)), attrs_of)
    else:
        raise ConfigError(
            f"store {url!r} is not known; use sqlite:///path, postgresql://user@host/database or memory://"
        )
    return LogStore(journal, limits=limits, clock=clock, on_fatal=on_fatal)


def _postgres(url: str, attrs_of: Callable[[Key, bytes], Attrs], events: str, unavailable_after_s: float) -> Journal:
    # Imported here: its client libraries cost a start that other stores do not have to pay.
    from shoal.store.postgres import Patience, PostgresJournal

    if events and not events.startswith(_REDIS):
        raise ConfigError(f"events {redact(events)!r} is not known; use redis://host:port, rediss:// or unix://path")
    patience = Patience(
        limit_s=unavailable_after_s,
        connect_s=min(3.0, unavailable_after_s),
        statement_s=min(3.0, unavailable_after_s / 2),
    )
    return PostgresJournal(url, attrs_of, events=events, patience=patience)


__all__ = [
    "NO_ATTRS",
    "Absent",
    "At",
    "Attrs",
    "Compacted",
    "Delete",
    "Entry",
    "Event",
    "EventType",
    "Exists",
    "Fence",
    "FutureRevision",
    "Key",
    "LogStore",
    "Op",
    "Page",
    "Put",
    "Require",
    "RequirementFailed",
    "RingLimits",
    "Store",
    "StoreClosed",
    "StoreReadOnly",
    "StoreUnavailable",
    "Watch",
    "Whole",
    "open_store",
]
