"""The revisioned store: a log of writes in one global order, read and watched from memory.

``open_store`` opens one; everything else here is its interface (see ``shoal.store.model``).
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
    Put,
    Require,
    RequirementFailed,
    Store,
    StoreClosed,
    StoreFull,
    StorePage,
    StoreReadOnly,
    StoreUnavailable,
    Watch,
)
from shoal.store.ring import RingLimits
from shoal.store.sqlite import SqliteJournal
from shoal.store.urls import POSTGRES, SQLITE
from shoal.store.view import Whole

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
    """The store at ``url``, not started yet: ``memory://``, ``sqlite:///`` with a path after the third slash (an
    absolute one begins with a fourth), or ``postgresql://``. ``attrs_of`` recomputes the ``attrs`` of a write from its
    complete value; ``clock`` ages history; ``on_fatal`` is called when writes can no longer be made durable.

    For PostgreSQL, ``events`` is the URL of a Redis (``redis://``, ``rediss://``, ``unix://``) through which servers
    notify each other of writes, and ``unavailable_after_s`` is how long writes and fresh reads wait for a database that
    does not respond before they fail with StoreUnavailable."""
    journal: Journal
    if events and not url.startswith(POSTGRES):
        raise ConfigError(f"events {redact(events)!r} needs a PostgreSQL store, but the store is {url!r}; leave it out")
    if url.startswith(POSTGRES):
        journal = _postgres(url, attrs_of, events, unavailable_after_s)
    elif url == "memory://":
        journal = MemoryJournal()
    elif url.startswith(SQLITE) and len(url) > len(SQLITE):
        journal = SqliteJournal(Path(url.removeprefix(SQLITE)), attrs_of)
    else:
        raise ConfigError(
            f"store {url!r} is not supported; use sqlite:///path, postgresql://user@host/database or memory://"
        )
    return LogStore(journal, limits=limits, clock=clock, on_fatal=on_fatal)


def _postgres(url: str, attrs_of: Callable[[Key, bytes], Attrs], events: str, unavailable_after_s: float) -> Journal:
    # Imported here, so that other stores do not pay the start-up time of its client libraries.
    from shoal.store.postgres import LinkTimeouts, PostgresJournal

    if events and not events.startswith(_REDIS):
        raise ConfigError(
            f"events {redact(events)!r} is not supported; use redis://host:port, rediss:// or unix://path"
        )
    timeouts = LinkTimeouts(
        limit_s=unavailable_after_s,
        connect_s=min(3.0, unavailable_after_s),
        statement_s=min(3.0, unavailable_after_s / 2),
    )
    return PostgresJournal(url, attrs_of, events=events, timeouts=timeouts)


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
    "StorePage",
    "Put",
    "Require",
    "RequirementFailed",
    "RingLimits",
    "Store",
    "StoreClosed",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "Watch",
    "Whole",
    "open_store",
]
