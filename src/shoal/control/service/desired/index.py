"""Index of desired state in memory: per place and stream, the version of every key and a digest of them all.

The index holds no objects. It is loaded once per process, follows the changes, and notifies the sessions of a place
which keys to send. A key that is not wanted any more stays as a tombstone, so that an agent that returns with an old
cursor is told of it. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from shoal.control.database.position import Position
from shoal.control.service.desired.marks import Marks
from shoal.sync.digest import Digest, bucket_of
from shoal.sync.keys import Place
from shoal.sync.versions import Cursor, Version, encode_cursor

APPLY = "apply"


@dataclass(slots=True)
class DesiredEntry:
    database: str
    number: int
    action: str  # apply, delete or release
    by_user: bool
    gone: bool = False  # a tombstone that the agent has confirmed

    @property
    def wanted(self) -> bool:
        return self.action == APPLY


class Listener(Protocol):
    """A session that wants to hear of the changes of its place."""

    def changed(self, key: str, entry: DesiredEntry) -> None: ...

    def forgotten(self, key: str) -> None: ...


class PlaceIndex:
    """The keys of one place on one stream."""

    __slots__ = ("digest", "entries", "listeners", "place", "stream")

    def __init__(self, place: Place, stream: str) -> None:
        self.place = place
        self.stream = stream
        self.entries: dict[str, DesiredEntry] = {}
        self.digest = Digest()  # of what is wanted; tombstones are not in it
        self.listeners: set[Listener] = set()

    def wanted(self) -> Iterator[str]:
        return (key for key, entry in self.entries.items() if entry.wanted)

    def after(self, positions: Mapping[str, tuple[int, int]]) -> list[str]:
        """Keys that changed after the cursor, tombstones too."""
        return [
            key
            for key, entry in self.entries.items()
            if entry.number > (positions[entry.database][1] if entry.database in positions else -1)
        ]

    def to_transfer(self, buckets: Iterable[int] = ()) -> list[str]:
        """Keys to send in a sync, of these buckets or of all: users' changes first, the newest of them first."""
        chosen = frozenset(buckets)
        keys = [
            key
            for key, entry in self.entries.items()
            if (entry.wanted or not entry.gone) and (not chosen or bucket_of(key) in chosen)
        ]
        keys.sort(key=lambda key: (not self.entries[key].by_user, -self.entries[key].number))
        return keys


class DesiredIndex:
    """All places, and the positions up to which they are complete."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = keys  # that sign the cursors, per database
        self._places: dict[tuple[Place, str], PlaceIndex] = {}
        self.positions: dict[str, Position] = {}
        self.marks: dict[str, Marks] = {}
        self._encoded: tuple[Cursor, str] = (Cursor({}), "")

    def of(self, place: Place, stream: str) -> PlaceIndex:
        place_index = self._places.get((place, stream))
        if place_index is None:
            place_index = self._places[place, stream] = PlaceIndex(place, stream)
        return place_index

    def put(self, place: Place, stream: str, key: str, entry: DesiredEntry) -> bool:
        """Take a newer version of a key; False when it was known. The sessions of the place hear of it."""
        place_index = self.of(place, stream)
        known = place_index.entries.get(key)
        if known is not None and known.database == entry.database and entry.number <= known.number:
            known.gone = known.gone or (entry.gone and entry.number == known.number)
            return False
        place_index.entries[key] = entry
        self._stamp(place_index, key, entry)
        for listener in place_index.listeners:
            listener.changed(key, entry)
        return True

    def forget(self, place: Place, stream: str, key: str) -> None:
        """There is no such row (any more)."""
        place_index = self.of(place, stream)
        if place_index.entries.pop(key, None) is not None:
            place_index.digest.drop(key)
            for listener in place_index.listeners:
                listener.forgotten(key)

    def confirm_gone(self, place: Place, stream: str, key: str) -> None:
        """The agent has removed what this tombstone says."""
        entry = self.of(place, stream).entries.get(key)
        if entry is not None and not entry.wanted:
            entry.gone = True

    def restart(self, database: str, position: Position) -> None:
        """The database has another history: forget what came from it."""
        for place_index in self._places.values():
            for key in [key for key, entry in place_index.entries.items() if entry.database == database]:
                del place_index.entries[key]
                place_index.digest.drop(key)
        self.positions[database] = position
        self.marks[database] = Marks()

    def moved(self, database: str, position: Position) -> None:
        """Everything up to this position is in the index."""
        self.positions[database] = position

    def prune(self) -> int:
        """Drop tombstones that no cursor can ask for any more and that the agent has confirmed."""
        dropped = 0
        for place_index in self._places.values():
            old = [
                key
                for key, entry in place_index.entries.items()
                if not entry.wanted and entry.gone and entry.number <= self.positions[entry.database].oldest
            ]
            for key in old:
                del place_index.entries[key]
            dropped += len(old)
        return dropped

    def version(self, entry: DesiredEntry) -> Version:
        return Version(entry.database, self.positions[entry.database].incarnation, entry.number)

    def now(self) -> Cursor:
        """The cursor of who has received everything in the index."""
        return Cursor({name: (at.incarnation, at.number) for name, at in self.positions.items()})

    def encode(self, cursor: Cursor) -> str:
        """Most sessions are at the same cursor, so the last one is kept."""
        if self._encoded[0] != cursor:
            marks = {name: self.marks[name].at(at[1]) for name, at in cursor.positions.items() if name in self.marks}
            self._encoded = (cursor, encode_cursor(cursor, self._keys, marks))
        return self._encoded[1]

    def _stamp(self, place_index: PlaceIndex, key: str, entry: DesiredEntry) -> None:
        if entry.wanted:
            # as ``Version`` is written
            place_index.digest.put(key, f"{entry.database}:{self.positions[entry.database].incarnation}:{entry.number}")
        else:
            place_index.digest.drop(key)
