"""The state of one place and stream at a relay, as a machine that never waits, and the sessions of agents served from
it.

    control plane ──events──▶ Mirror ──changed keys──▶ RelaySession ──▶ agent
                       ◀─ask──┘

The mirror holds the newest state of every key as it was received, tombstones too, and the cursor up to which it is
complete. It compares itself with each digest and asks for the buckets that differ. A relay cannot sign cursors, so it
forwards only those it was given: a session stays at the last cursor at which its agent had everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal.control.service.desired.index import APPLY, DesiredEntry, PlaceIndex
from shoal.control.service.desired.model import Loaded
from shoal.control.service.stream.protocol import FullSync, Resume, SessionConfig, WatchSession
from shoal.sync.digest import bucket_of, differing
from shoal.sync.keys import Place
from shoal.sync.versions import Cursor, Version, read_cursor
from shoal.wire.fleet.v1 import cluster_pb as pb

_CURSORS_KEPT = 16  # of one session: those under way are among the last few
_TOMBSTONES_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Ask:
    """These buckets differ: have them sent whole."""

    buckets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Restarted:
    """The control plane has another history than before: the agents served must begin anew."""

    reason: str


@dataclass(frozen=True, slots=True)
class Complete:
    """The mirror is of the control plane's history and whole: agents can be served from it."""


@dataclass(frozen=True, slots=True)
class Passing:
    """A change that a user's request led to goes on to the agents of the place."""

    key: str
    version: Version
    correlation: str


Command = Ask | Restarted | Complete | Passing


@dataclass(slots=True)
class _Sync:
    number: int
    buckets: frozenset[int]
    keys: set[str]
    at: dict[str, tuple[int, int]]


class Mirror:
    """One per place and stream; it outlives connections to the control plane."""

    def __init__(self, place: Place, stream: str, owner: str = "") -> None:
        self.index = PlaceIndex(place, stream)
        self.owner = owner  # secrets in it are wrapped for this agent's key: another owner needs another mirror
        self.cursor = ""  # everything up to here is in the mirror
        self.complete = False
        self.floor: dict[str, tuple[int, int]] = {}  # tombstones from before are not all here
        self._data: dict[str, bytes] = {}
        self._versions: dict[str, Version] = {}
        self._sync: _Sync | None = None
        self.moved: set[Callable[[], None]] = set()  # called when the cursor moves

    def __len__(self) -> int:
        return len(self._data)

    def request(
        self, place: Place, keys: tuple[str, ...], done: Callable[[Any], None], *, urgent: bool
    ) -> dict[str, Loaded | None]:
        """What is known of each key now: ``done`` is never needed."""
        return {
            key: Loaded(entry.number, self._data[key]) if (entry := self.index.entries.get(key)) is not None else None
            for key in keys
        }

    def disconnect(self) -> None:
        self._sync = None

    def receive(self, data: bytes) -> list[Command]:
        said = pb.WatchEvent.from_binary(data).event
        if said is None:
            return []
        match said.field:
            case "welcome":
                return self._welcome(said.value)
            case "item":
                return self._item(said.value, data)
            case "progress":
                self._moved(said.value.cursor)
                return []
            case "sync_begin":
                at = {each.database: (each.incarnation, each.number) for each in said.value.versions}
                self._sync = _Sync(said.value.sync, frozenset(said.value.buckets), set(), at)
                return []
            case "sync_keys":
                if self._sync is not None:
                    self._sync.keys.update(said.value.keys)
                return []
            case "sync_end":
                return self._synced(said.value)
            case "digest":
                return self._compared(said.value)
            case "heartbeat":  # unsolicited
                return []

    def _welcome(self, welcome: pb.Welcome) -> list[Command]:
        self._sync = None
        if welcome.resumed:
            return [Complete()] if self.complete else []
        if not welcome.observe_only:
            return []  # the sync that follows brings the mirror up to date while agents are served
        self._forget()
        return [Restarted(welcome.reason)]

    def _forget(self) -> None:
        for key in list(self.index.entries):
            self._drop(key)
        self.cursor, self.complete, self.floor = "", False, {}

    def _item(self, item: pb.Item, data: bytes) -> list[Command]:
        if item.version is None or item.action is None or not item.key:
            return []
        version = Version(item.version.database, item.version.incarnation, item.version.number)
        if not version.is_after(self._versions.get(item.key)):
            return []
        action = item.action.field if item.action.field in ("delete", "release") else APPLY
        entry = DesiredEntry(version.database, version.number, action, item.by_user)
        self._versions[item.key], self._data[item.key] = version, data
        self.index.entries.pop(item.key, None)  # to the end, so that the oldest tombstones come first
        self.index.entries[item.key] = entry
        if entry.wanted:
            self.index.digest.put(item.key, str(version))
        else:
            self.index.digest.drop(item.key)
            self._prune()
        for listener in self.index.listeners:
            listener.changed(item.key, entry)
        if self._sync is not None or not item.correlation:
            return []
        return [Passing(item.key, version, item.correlation)]

    def _prune(self) -> None:
        if len(self.index.entries) - len(self.index.digest) <= _TOMBSTONES_KEPT:
            return
        oldest = next(key for key, entry in self.index.entries.items() if not entry.wanted)
        version = self._versions[oldest]
        floor = self.floor.get(version.database, (0, 0))
        self.floor[version.database] = max(floor, (version.incarnation, version.number))
        self._drop(oldest)

    def _drop(self, key: str) -> None:
        del self.index.entries[key], self._data[key], self._versions[key]
        self.index.digest.drop(key)
        for listener in self.index.listeners:
            listener.forgotten(key)

    def _moved(self, cursor: str) -> None:
        if cursor and cursor != self.cursor and (self._sync is None or self._sync.buckets):
            self.cursor = cursor
            for tell in self.moved:
                tell()

    def _synced(self, end: pb.SyncEnd) -> list[Command]:
        sync, self._sync = self._sync, None
        if sync is None or sync.number != end.sync:
            return []
        for key in [key for key, entry in self.index.entries.items() if entry.wanted and key not in sync.keys]:
            version = self._versions[key]
            covered = sync.at.get(version.database, (0, 0)) >= (version.incarnation, version.number)
            if covered and (not sync.buckets or bucket_of(key) in sync.buckets):
                self._drop(key)  # agents find it by the next digest, and ask the control plane itself
        if sync.buckets:
            return []
        self._moved(end.cursor)
        if not self.complete:
            self.complete, self.floor = True, dict(sync.at)
        return [Complete()]

    def _compared(self, digest: pb.Digest) -> list[Command]:
        if self._sync is not None or not self.complete:
            return []
        differ = differing(self.index.digest.buckets, digest.buckets)
        if differ:
            return [Ask(tuple(differ))]
        self._moved(digest.cursor)
        return []


def decide_alone(text: str, mirror: Mirror) -> Resume | FullSync | None:
    """How an agent's stream begins while the control plane cannot be asked. None: only the control plane can say, since
    the cursor is ahead of the mirror or of another history. ``BadCursor`` when it has not the form of one."""
    cursor, ours = read_cursor(text), read_cursor(mirror.cursor)
    if not cursor.positions:
        return FullSync("the agent has no cursor")
    sync: FullSync | None = None
    for name, (incarnation, number) in ours.positions.items():
        theirs = cursor.positions.get(name)
        if theirs is None:
            sync = sync or FullSync(f"the agent has nothing of the database {name} yet")
        elif theirs[0] != incarnation or theirs[1] > number or _strayed(name, cursor, ours):
            return None
        elif theirs < mirror.floor.get(name, (0, 0)):
            sync = sync or FullSync("the cursor is older than what the relay knows")
    return sync or Resume(cursor)


def _strayed(database: str, cursor: Cursor, ours: Cursor) -> bool:
    """Whether the two stand at one number of different histories."""
    one, other = cursor.marks.get(database, ""), ours.marks.get(database, "")
    return cursor.positions[database] == ours.positions[database] and bool(one and other) and one != other


class _Moments:
    """The cursors a session may name, each with the text it came with."""

    def __init__(self, mirror: Mirror, hello: str) -> None:
        self._mirror = mirror
        self._texts: dict[tuple[tuple[str, tuple[int, int]], ...], str] = {}
        if hello:
            self._remember(hello)

    def now(self) -> Cursor:
        return self._remember(self._mirror.cursor)

    def encode(self, cursor: Cursor) -> str:
        """Empty when it was forgotten: then the agent stays where it is."""
        return self._texts.get(_points(cursor), "")

    def _remember(self, text: str) -> Cursor:
        cursor = read_cursor(text)
        self._texts[_points(cursor)] = text
        if len(self._texts) > _CURSORS_KEPT:
            del self._texts[next(iter(self._texts))]
        return cursor


def _points(cursor: Cursor) -> tuple[tuple[str, tuple[int, int]], ...]:
    return tuple(sorted(cursor.positions.items()))


class RelaySession(WatchSession):
    """A session of the cluster service over a mirror. Its cursor is one that was given to the relay or the agent."""

    def __init__(
        self,
        mirror: Mirror,
        hello: str,
        config: SessionConfig,
        *,
        wake: Callable[[], None],
        random: Callable[[], float],
    ) -> None:
        self._moments = _Moments(mirror, hello)
        super().__init__(self._moments, mirror.index, config, wake=wake, random=random)
        self._had = read_cursor(hello) if hello else self._moments.now()  # the agent has everything up to here
        self._mirror = mirror

    def begin(self, how: Resume | FullSync, now: float) -> None:
        super().begin(how, now)
        self._mirror.moved.add(self._moved)

    def close(self) -> None:
        super().close()
        self._mirror.moved.discard(self._moved)

    def _moved(self) -> None:
        self._progress_due = float("-inf")  # as seldom as the control plane says it
        self._wake()

    @property
    def cursor(self) -> Cursor:
        if not (self._urgent or self._calm or self._loading or self._failing):
            self._had = self._moments.now()
        return self._had
