"""One stream of one agent, as a machine that never waits: the next messages to send, and the cursor.

    hello ──decide──▶ Resume ──▶ keys changed since the cursor are unsent
                 └──▶ FullSync ─▶ begin, items, keys, end
    change ─────────▶ the key is unsent        bucket request ──▶ a sync of those buckets

The session keeps keys, never objects: ``next`` says which of them to load, and what was loaded is the state of that
moment. What users changed goes first, also before a sync under way. A key that cannot be loaded is tried again later;
it blocks no other key, and the cursor stays before it until it was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from protobuf import Oneof

from shoal.control.database.position import Position
from shoal.control.service.desired.index import DesiredEntry, PlaceIndex
from shoal.control.service.desired.model import Failure, Loaded
from shoal.sync.keys import Place, chunks
from shoal.sync.versions import Cursor
from shoal.wire.fleet.v1 import cluster_pb as pb


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on from the cursor."""

    cursor: Cursor


@dataclass(frozen=True, slots=True)
class FullSync:
    """Send everything. ``observe_only``: the agent's history is not the database's, it must not delete by absence."""

    reason: str
    observe_only: bool = False


@dataclass(frozen=True, slots=True)
class WentBack:
    """The cursor is ahead of its database: a backup was restored. It needs an incarnation after this one."""

    database: str
    incarnation: int


def decide(cursor: Cursor, positions: Mapping[str, Position]) -> Resume | FullSync | WentBack:
    """How a stream begins, given the cursor that its agent brought."""
    if not cursor.positions:
        return FullSync("the agent has no cursor")
    sync: FullSync | None = None
    for name, position in positions.items():
        incarnation, number = cursor.positions.get(name, (0, 0))
        if (incarnation, number) > (position.incarnation, position.number):
            return WentBack(name, incarnation)
        if incarnation == 0:
            sync = sync or FullSync(f"the agent has nothing of the database {name} yet")
        elif incarnation != position.incarnation:
            sync = FullSync(
                f"the database {name} is at incarnation {position.incarnation}, the cursor is from {incarnation}",
                observe_only=True,
            )
        elif number < position.oldest:
            sync = sync or FullSync(
                f"the cursor is too old: changes of {name} up to {position.oldest} are no longer kept"
            )
    return sync or Resume(cursor)


@dataclass(slots=True)  # not frozen: made for every change
class Load:
    keys: tuple[str, ...]
    urgent: bool


@dataclass(slots=True)  # not frozen: made for every change
class Send:
    events: tuple[pb.WatchEvent, ...]


@dataclass(slots=True)  # not frozen: made for every change
class Wait:
    """Until something changes, or until this moment."""

    until: float


@dataclass(frozen=True, slots=True)
class Done:
    """A one-time sync is over; ``failed`` keys could not be loaded."""

    failed: tuple[str, ...]


Step = Send | Load | Wait | Done


@dataclass(slots=True)
class _Retry:
    due: float
    attempts: int


@dataclass(slots=True)
class _Sync:
    number: int
    buckets: tuple[int, ...]
    cursor: Cursor  # the moment it began
    rest: list[str]  # in reverse order: taken from the end


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    batch: int = 100
    digest_every_s: float = 60.0
    progress_every_s: float = 1.0
    retry_base_s: float = 0.2
    retry_cap_s: float = 30.0
    once: bool = False  # a sync and nothing else
    heartbeats: bool = False  # are taken on the stream


_NEVER = float("inf")
_UNANSWERED = 8  # answers to heartbeats
_SOON = 0.4  # of the time between two words about the cursor


class Moments(Protocol):
    """Where everything known has been received, and how a cursor is written."""

    def now(self) -> Cursor: ...

    def encode(self, cursor: Cursor) -> str: ...


class WatchSession:
    """``wake`` is called when ``next`` may have something else to say. ``random`` gives numbers from 0 to 1."""

    def __init__(
        self,
        index: Moments,
        place_index: PlaceIndex,
        config: SessionConfig,
        *,
        wake: Callable[[], None],
        random: Callable[[], float],
    ) -> None:
        self._index = index
        self._place = place_index
        self._config = config
        self._wake = wake
        self._random = random
        self._events: list[pb.WatchEvent] = []
        self._urgent: dict[str, None] = {}  # unsent, in order; disjoint from the other sets
        self._calm: dict[str, None] = {}
        self._loading: dict[str, int] = {}  # the version that was known when loading began
        self._failing: dict[str, _Retry] = {}
        self._sync: _Sync | None = None
        self._asked: set[int] = set()  # buckets for the next sync
        self._syncs = 0
        self._told: Cursor | None = None  # the cursor the agent knows
        self._progress_due = _NEVER
        self._digest_due = _NEVER
        self.closed = False

    # what happens

    def begin(self, how: Resume | FullSync, now: float) -> None:
        """Say how the stream begins, and listen to the changes from here on."""
        if self._config.once:
            self._start_sync(())
            return
        self._place.listeners.add(self)
        resumed = isinstance(how, Resume)
        heartbeats = self._config.heartbeats
        welcome = pb.Welcome(resumed=resumed, heartbeats=heartbeats)
        if isinstance(how, FullSync):
            welcome = pb.Welcome(resumed=False, reason=how.reason, observe_only=how.observe_only, heartbeats=heartbeats)
        self._events.append(_event("welcome", welcome))
        if isinstance(how, Resume):
            self._told = how.cursor
            for key in self._place.after(how.cursor.positions):
                self.changed(key, self._place.entries[key])
            self._progress_due = now
        else:
            self._start_sync(())
        self._digest_due = now + self._config.digest_every_s * self._random()

    def close(self) -> None:
        """Listen no more. Harmless when called again."""
        self.closed = True
        self._place.listeners.discard(self)

    def changed(self, key: str, entry: DesiredEntry) -> None:
        """The key has a newer version than was sent."""
        if key in self._loading:
            return  # what is being loaded may be older: ``loaded`` compares
        self._failing.pop(key, None)
        if entry.by_user:
            self._calm.pop(key, None)
            self._urgent[key] = None
        elif key not in self._urgent:
            self._calm[key] = None
        self._wake()

    def forgotten(self, key: str) -> None:
        for unsent in (self._urgent, self._calm, self._failing):
            unsent.pop(key, None)

    def ask(self, buckets: Sequence[int]) -> None:
        """The agent has found that these buckets differ."""
        self._asked.update(bucket for bucket in buckets if 0 <= bucket < 256)
        self._wake()

    def answer(self, heartbeat: pb.HeartbeatResponse) -> None:
        """To what the agent said of itself on this stream; one that does not listen is not answered for ever."""
        if len(self._events) >= _UNANSWERED:
            return
        self._events.append(_event("heartbeat", heartbeat))
        self._wake()

    # what to do

    def next(self, now: float) -> Step:
        if self._events:
            events, self._events = tuple(self._events), []
            return Send(events)
        if self._urgent:
            return self._take(self._urgent, urgent=True)
        if self._sync is not None and self._sync.rest:
            return self._take_sync(self._sync)
        if self._config.once and (self._sync is None or self._failing):
            return Done(tuple(self._failing))
        if self._sync is not None:
            return self._end_sync(self._sync, now)
        if self._asked:
            self._start_sync(tuple(sorted(self._asked)))
            self._asked.clear()
            return self.next(now)
        if self._calm:
            return self._take(self._calm, urgent=False)
        if self._failing:
            due = [key for key, retry in self._failing.items() if retry.due <= now]
            if due:
                return Load(self._began(due[: self._config.batch]), urgent=False)
        return self._idle(now)

    def loaded(self, found: Mapping[str, Loaded | Failure | None], now: float) -> list[tuple[str, Loaded]]:
        """What to send of the keys that ``Load`` asked for. The rest is tried again, or is not there."""
        sending: list[tuple[str, Loaded]] = []
        for key, result in found.items():
            known = self._loading.pop(key, 0)
            entry = self._place.entries.get(key)
            if isinstance(result, Loaded):
                sending.append((key, result))
                known = result.number
            if entry is not None and result is Failure.LATER:
                self._fail(key, now)
                continue
            self._failing.pop(key, None)
            if entry is not None and entry.number > known:
                self.changed(key, entry)
        if sending and self._progress_due == _NEVER:
            self._progress_due = now + self._config.progress_every_s
        return sending

    def accompany(self, now: float) -> pb.WatchEvent | None:
        """Where we are, for who sends objects at this moment anyway: it is due soon and costs nothing then."""
        soon = now + _SOON * self._config.progress_every_s
        if self._progress_due > soon or self._urgent or self._calm or self._loading or self._sync is not None:
            return None
        self._progress_due = _NEVER
        self._told = cursor = self.cursor
        return self._progress(cursor)

    @property
    def cursor(self) -> Cursor:
        """Everything up to here was sent: where the index is, but before each key that is still unsent."""
        cursor = self._index.now()
        lowest: dict[str, int] = {}
        for unsent in (self._urgent, self._calm, self._loading, self._failing):
            for key in unsent:
                entry = self._place.entries.get(key)
                if entry is not None:
                    lowest[entry.database] = min(lowest.get(entry.database, entry.number), entry.number)
        if not lowest:
            return cursor
        return Cursor(
            {
                name: (incarnation, min(number, lowest.get(name, number + 1) - 1))
                for name, (incarnation, number) in cursor.positions.items()
            }
        )

    @property
    def place(self) -> Place:
        return self._place.place

    @property
    def syncing(self) -> bool:
        return self._sync is not None

    @property
    def syncs(self) -> int:
        """How many have begun."""
        return self._syncs

    @property
    def unsent(self) -> int:
        rest = len(self._sync.rest) if self._sync is not None else 0
        return len(self._urgent) + len(self._calm) + len(self._loading) + len(self._failing) + rest

    # how

    def _began(self, keys: Sequence[str]) -> tuple[str, ...]:
        for key in keys:
            entry = self._place.entries.get(key)
            self._loading[key] = entry.number if entry is not None else 0
        return tuple(keys)

    def _take(self, queue: dict[str, None], *, urgent: bool) -> Load:
        keys = list(queue)[: self._config.batch]
        for key in keys:
            del queue[key]
        return Load(self._began(keys), urgent=urgent)

    def _take_sync(self, sync: _Sync) -> Load:
        keys = [sync.rest.pop() for _ in range(min(self._config.batch, len(sync.rest)))]
        for key in keys:
            self._calm.pop(key, None)
            self._failing.pop(key, None)
        return Load(self._began(keys), urgent=False)

    def _start_sync(self, buckets: tuple[int, ...]) -> None:
        self._syncs += 1
        keys = self._place.to_transfer(buckets)
        cursor = self.cursor
        self._sync = _Sync(self._syncs, buckets, cursor, keys[::-1])
        begin = pb.SyncBegin(
            sync=self._syncs,
            cursor=self._index.encode(cursor),
            buckets=list(buckets),
            count=len(keys),
            versions=[
                pb.Version(database=name, incarnation=incarnation, number=number)
                for name, (incarnation, number) in cursor.positions.items()
            ],
        )
        self._events.append(_event("sync_begin", begin))

    def _end_sync(self, sync: _Sync, now: float) -> Send:
        """The keys are those wanted now: what became unwanted since the sync began is a change and follows as one."""
        self._sync = None
        chosen = frozenset(sync.buckets)
        keys = list(self._place.wanted()) if not chosen else self._place.digest.keys_in(chosen)
        events = [_event("sync_keys", pb.SyncKeys(sync=sync.number, keys=part)) for part in chunks(keys)]
        cursor = _earlier(sync.cursor, self.cursor)
        end = pb.SyncEnd(sync=sync.number, cursor=self._index.encode(cursor))
        events.append(_event("sync_end", end))
        self._told = cursor
        self._progress_due = now
        return Send(tuple(events))

    def _idle(self, now: float) -> Send | Wait:
        """Nothing to send but where we are."""
        if self._digest_due <= now:
            self._digest_due = now + self._config.digest_every_s * (0.5 + self._random())
            return self._tell_digest()
        if self._progress_due <= now:
            self._progress_due = _NEVER
            cursor = self.cursor
            if cursor != self._told:
                self._told = cursor
                return Send((self._progress(cursor),))
        until = min(self._digest_due, self._progress_due)
        if self._failing:
            until = min(until, *(retry.due for retry in self._failing.values()))
        return Wait(until)

    def _tell_digest(self) -> Send:
        cursor = self.cursor
        self._told = cursor
        self._progress_due = _NEVER
        digest = pb.Digest(cursor=self._index.encode(cursor), buckets=self._place.digest.buckets)
        return Send((_event("digest", digest),))

    def _progress(self, cursor: Cursor) -> pb.WatchEvent:
        return _event("progress", pb.Progress(cursor=self._index.encode(cursor)))

    def _fail(self, key: str, now: float) -> None:
        known = self._failing.get(key)
        attempts = known.attempts + 1 if known is not None else 1
        bound_s = min(self._config.retry_cap_s, self._config.retry_base_s * 2.0 ** min(attempts - 1, 30))
        self._failing[key] = _Retry(now + bound_s * (0.5 + 0.5 * self._random()), attempts)


def _event(field: str, value: Any) -> pb.WatchEvent:
    return pb.WatchEvent(event=cast(Any, Oneof(field, value)))


def _earlier(one: Cursor, other: Cursor) -> Cursor:
    return Cursor(
        {
            name: (incarnation, min(number, other.positions.get(name, (incarnation, number))[1]))
            for name, (incarnation, number) in one.positions.items()
        }
    )
