"""The revisioned store: a log of writes in one global order, read and watched from memory.

``open_store`` is the way in; everything else here is the seam (see ``shoal.store.model``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from shoal.errors import ConfigError
from shoal.store.group import LogStore, exit_process
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
    Watch,
)
from shoal.store.ring import RingLimits
from shoal.store.sqlite import SqliteJournal

_SQLITE = "sqlite:///"


def open_store(
    url: str,
    *,
    attrs_of: Callable[[Key, bytes], Attrs],
    limits: RingLimits | None = None,
    clock: Callable[[], float] = time.monotonic,
    on_fatal: Callable[[BaseException], None] = exit_process,
) -> LogStore:
    """The store at ``url``, still to be started: ``memory://`` or ``sqlite:///`` with a path after the third slash (an
    absolute one begins with a fourth). ``attrs_of`` recomputes what a writer gave as ``attrs``, from a complete value;
    ``clock`` ages history; ``on_fatal`` is called when writes can no longer be made durable."""
    if url == "memory://":
        journal: MemoryJournal | SqliteJournal = MemoryJournal()
    elif url.startswith(_SQLITE) and len(url) > len(_SQLITE):
        journal = SqliteJournal(Path(url.removeprefix(_SQLITE)), attrs_of)
    else:
        raise ConfigError(f"store {url!r} is not known; use memory:// or sqlite:///path")
    return LogStore(journal, limits=limits, clock=clock, on_fatal=on_fatal)


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
    "Watch",
    "open_store",
]
