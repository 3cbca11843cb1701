"""Recent events per resource, and the cursors of watches.

A ring holds the events of one resource since its *floor*, the revision of the last event it has dropped. A watch or a
list from the floor or later misses nothing, and a quiet resource can be watched from an old revision. All rings share
one budget of bytes, which the largest ring pays, so that a busy resource shortens its own history and not that of
others. Watches hold a position and no events: a slow one costs nothing and is closed when the ring has passed it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from shoal.store.model import Compacted, Entry, Event, EventType, Key, StoreClosed

Subscriber = Callable[[Sequence[Event]], None]
OnReset = Callable[[], None]

# Approximate overhead of an event, and of an old state of an object on top of its value.
_EVENT_BYTES = 100
_STATE_BYTES = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class RingLimits:
    """How much history is kept; the first limit reached applies. ``short`` names resources that change constantly and
    whose history is not read: node heartbeats and leader elections."""

    max_bytes: int = 64 << 20
    max_events: int = 50_000  # per resource
    max_age_s: float = 300.0  # also the lifetime of a page token
    short: frozenset[str] = frozenset({"leases.coordination.k8s.io"})
    short_events: int = 1000


class Ring:
    """Events of one resource in order; ``base`` is the number of events before ``events[0]``."""

    __slots__ = ("base", "bytes", "closed", "events", "floor", "max_events", "resource", "subscribers", "waiters")

    def __init__(self, resource: str, max_events: int) -> None:
        self.resource = resource
        self.max_events = max_events
        self.events: list[Event] = []
        self.base = 0
        self.floor = 0
        self.bytes = 0
        self.closed = False
        self.subscribers: tuple[tuple[Subscriber, OnReset | None], ...] = ()
        self.waiters: set[asyncio.Future[None]] = set()

    @property
    def end(self) -> int:
        return self.base + len(self.events)

    def position(self, after: int) -> int:
        """The position of the first event with a revision above ``after``; raises Compacted if some were dropped."""
        if after < self.floor:
            raise Compacted(after, self.floor)
        return self.base + bisect_right(self.events, after, key=_revision_of)

    def undo(self, revision: int) -> Mapping[Key, Entry | None]:
        """The objects that changed since ``revision``, in their state at that revision."""
        first = self.position(revision) - self.base
        before: dict[Key, Entry | None] = {}
        for event in self.events[first:]:
            before.setdefault(event.entry.key, event.previous)
        return before

    def drop(self, count: int) -> Sequence[Event]:
        dropped = self.events[:count]
        del self.events[:count]
        self.base += count
        self.bytes -= sum(map(_held_bytes, dropped))
        self.floor = dropped[-1].entry.revision
        return dropped

    def clear(self, floor: int) -> None:
        """Drop all events, and make every cursor too old, even those at the end."""
        self.base += len(self.events) + 1
        self.events = []
        self.bytes = 0
        self.floor = floor
        self.wake()

    def wake(self) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)


def _revision_of(event: Event) -> int:
    return event.entry.revision


def _held_bytes(event: Event) -> int:
    """Bytes freed by dropping the event: the view holds the newest state of an object, the ring the older ones."""
    held = _EVENT_BYTES
    if event.previous is not None:
        held += _STATE_BYTES + len(event.previous.value)
        if event.type is EventType.DELETED:
            held += _STATE_BYTES + len(event.entry.value)
    return held


class Rings:
    def __init__(self, limits: RingLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._rings: dict[str, Ring] = {}
        self._bytes = 0
        self._floor = 0  # floor of rings created later
        self._marks: deque[tuple[float, int]] = deque()  # (seen at, revision then), a few dozen per max_age_s
        self.aged = 0  # older snapshots are refused, even if the rings still have the events

    @property
    def held_bytes(self) -> int:
        return self._bytes

    def ring(self, resource: str) -> Ring:
        ring = self._rings.get(resource)
        if ring is None:
            limits = self._limits
            most = limits.short_events if resource in limits.short else limits.max_events
            ring = self._rings[resource] = Ring(resource, most)
            ring.floor = self._floor
        return ring

    def all(self) -> Sequence[Ring]:
        return tuple(self._rings.values())

    def floors(self) -> dict[str, int]:
        return {resource: ring.floor for resource, ring in self._rings.items() if ring.floor}

    def set_floors(self, floors: Mapping[str, int]) -> None:
        for resource, floor in floors.items():
            self.ring(resource).floor = floor

    def reset(self, floor: int) -> None:
        """Drop all history of all resources before ``floor``."""
        self._floor = self.aged = floor
        self._bytes = 0
        self._marks.clear()
        for ring in self._rings.values():
            ring.clear(floor)

    def append(self, ring: Ring, events: Sequence[Event]) -> None:
        ring.events.extend(events)
        held = sum(map(_held_bytes, events))
        ring.bytes += held
        self._bytes += held

    def trim(self, touched: Iterable[Ring], revision: int) -> Sequence[Event]:
        """Drop events over the limits. Called after every batch, so it mostly does nothing, and otherwise drops many
        events at once, because deleting from the head of a list moves its tail."""
        dropped: list[Event] = []
        for ring in touched:
            if len(ring.events) > ring.max_events + ring.max_events // 8:
                self._drop(ring, len(ring.events) - ring.max_events, dropped)
        limits, now = self._limits, self._clock()
        if not self._marks or now - self._marks[-1][0] > limits.max_age_s / 64:
            self._marks.append((now, revision))
            while self._marks[0][0] < now - limits.max_age_s:
                dropped += self.drop_through(self._marks.popleft()[1])
        if self._bytes > limits.max_bytes:
            self._shrink(limits.max_bytes - limits.max_bytes // 16, dropped)
        return dropped

    def drop_through(self, revision: int) -> Sequence[Event]:
        self.aged = max(self.aged, revision)
        dropped: list[Event] = []
        for ring in self._rings.values():
            if ring.events and ring.events[0].entry.revision <= revision:
                self._drop(ring, bisect_right(ring.events, revision, key=_revision_of), dropped)
        return dropped

    def _shrink(self, target_bytes: int, dropped: list[Event]) -> None:
        while self._bytes > target_bytes:
            ring = max(self._rings.values(), key=lambda ring: ring.bytes)
            over, count = self._bytes - target_bytes, 0
            for event in ring.events:
                if over <= 0:
                    break
                over -= _held_bytes(event)
                count += 1
            # One ring drops at most half of its events at a time: then another ring may be the largest.
            self._drop(ring, min(count, len(ring.events) // 2 + 1), dropped)

    def _drop(self, ring: Ring, count: int, dropped: list[Event]) -> None:
        if count > 0:
            before = ring.bytes
            dropped += ring.drop(count)
            self._bytes -= before - ring.bytes

    def close(self) -> None:
        for ring in self._rings.values():
            ring.closed = True
            for waiter in ring.waiters:
                if not waiter.done():
                    waiter.set_exception(StoreClosed())


def superseded(events: Iterable[Event]) -> list[int]:
    """Revisions that are not needed once these events are dropped, in an order in which every prefix may be deleted: an
    object's states come before its deletion, because deleting only the latter would bring the object back."""
    revisions: list[int] = []
    for event in events:
        if event.previous is not None:
            revisions.append(event.previous.revision)
        if event.type is EventType.DELETED:
            revisions.append(event.entry.revision)
    return revisions


class Cursor:
    """A ``Watch`` (``shoal.store.model``), for one reader."""

    __slots__ = ("_after", "_newest", "_open", "_position", "_ring", "_waiter")

    def __init__(self, ring: Ring, after: int, newest: Callable[[], int]) -> None:
        self._ring = ring
        self._position = ring.position(after)
        self._after = after
        self._newest = newest
        self._open = True
        self._waiter: asyncio.Future[None] | None = None

    @property
    def revision(self) -> int:
        if self._open and self._position == self._ring.end:
            self._after = max(self._after, self._newest())
        return self._after

    def take(self, limit: int = 1000) -> Sequence[Event]:
        ring = self._ring
        if not self._open:
            return ()
        first = self._position - ring.base
        if first < 0:
            raise Compacted(self._after, ring.floor)
        events = ring.events[first : first + limit]
        self._position += len(events)
        if events and events[0].entry.revision <= self._after:  # a watch from a future revision
            events = [event for event in events if event.entry.revision > self._after]
        if events:
            self._after = events[-1].entry.revision
        return events

    async def wait(self) -> None:
        ring = self._ring
        if not self._open or ring.closed:
            raise StoreClosed
        if self._position < ring.end:
            return
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        ring.waiters.add(waiter)
        try:
            await waiter
        finally:
            ring.waiters.discard(waiter)

    def close(self) -> None:
        self._open = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(StoreClosed())
