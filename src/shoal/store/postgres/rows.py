"""Converts rows of the log into entries and events, and a whole log into a server's initial state.

The database stores a value without its revision. The reader inserts it: the writing server from memory, the others
here, so all servers have the same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

from shoal.store.journal import Lookup, deleted_entry
from shoal.store.model import Attrs, Entry, Event, EventType, Key

AttrsOf = Callable[[Key, bytes], Attrs]


class LogRow(NamedTuple):
    """A row of ``shoal.log``, columns in the order in which every query here names them."""

    revision: int
    mark: int
    prior: int
    created: int
    hole: int
    resource: str
    namespace: str
    name: str
    value: bytes | None  # None: a deletion


COLUMNS = ", ".join(f"l.{name}" for name in LogRow._fields)


def filled(value: bytes, hole: int, revision: int) -> bytes:
    """The complete value, with the revision."""
    return b"%b%d%b" % (value[:hole], revision, value[hole:])


def bare(value: bytes, hole: int, revision: int) -> bytes:
    """The value without its revision, as the database stores it."""
    return value[:hole] + value[hole + len(str(revision)) :]


def key_of(row: LogRow) -> Key:
    return Key(sys.intern(row.resource), sys.intern(row.namespace), row.name)


def event_of(row: LogRow, lookup: Lookup, attrs_of: AttrsOf) -> Event | None:
    """The event of the row, given the objects before it in ``lookup``; None for the deletion of an absent object."""
    key = key_of(row)
    previous = lookup(key)
    if row.value is None:
        return None if previous is None else Event(EventType.DELETED, deleted_entry(previous, row.revision), previous)
    value = filled(row.value, row.hole, row.revision)
    entry = Entry(key, row.revision, row.created, value, row.hole, attrs_of(key, value))
    return Event(EventType.ADDED if previous is None else EventType.MODIFIED, entry, previous)


class StoreHistory:
    """Turns the rows of a log, in order, into the current entries and the events above the floors."""

    def __init__(self, floors: Mapping[str, int], attrs_of: AttrsOf) -> None:
        self._floors = floors
        self._attrs_of = attrs_of
        self.entries: dict[Key, Entry] = {}
        self.events: list[Event] = []
        self.superseded: list[int] = []  # left by a server that ended between dropping events and deleting rows

    def add(self, row: LogRow) -> None:
        event = event_of(row, self.entries.get, self._attrs_of)
        if event is None:  # the object's states were deleted first; only the deletion is left
            self.superseded.append(row.revision)
            return
        key = event.entry.key
        deleted = event.type is EventType.DELETED
        if deleted:
            del self.entries[key]
        else:
            self.entries[key] = event.entry
        if row.revision > self._floors.get(row.resource, 0):
            self.events.append(event)
            return
        if event.previous is not None:
            self.superseded.append(event.previous.revision)
        if deleted:
            self.superseded.append(row.revision)
