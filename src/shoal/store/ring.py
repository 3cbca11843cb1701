"""Recent events per resource, and the cursors of those who watch them.

A ring keeps what happened to one resource since its *floor*: the revision of the last event it has dropped, so a
watch (or a list) from the floor or later misses nothing, and a quiet resource can be watched from far back. All
rings share one budget of bytes, paid by the largest ring, so that a busy resource shortens its own history and not
that of others. Watchers hold a position and no events: slow ones cost nothing and fall off.
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

# About what an event weighs by itself, and what an old state of an object does on top of its value.
_EVENT_BYTES = 100
_STATE_BYTES = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class RingLimits:
    """How much history is kept, whichever bound is met first. ``short`` names resources that change all the time and
    that nobody reads history of: node heartbeats and leader elections."""

    max_bytes: int = 64 << 20
    max_events: int = 50_000  # of one resource
    max_age_s: float = 300.0  # also how long a page token is good
    short: frozenset[str] = frozenset({"leases.coordination.k8s.io"})
    short_events: int = 1000


class Ring:
    """Events of one resource in order; ``base`` is the position of ``events[0]`` since the beginning of time."""

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
        """Where the events with a revision above ``after`` begin; Compacted when some of them are gone."""
        if after < self.floor:
            raise Compacted(after, self.floor)
        return self.base + bisect_right(self.events, after, key=_revision_of)

    def undo(self, revision: int) -> Mapping[Key, Entry | None]:
        """What has changed since ``revision``, as it was then."""
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
        """Forget everything, and leave every cursor behind, also those at the end."""
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
    """What dropping the event would free: the newest state of an object is the view's, older ones are the ring's."""
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
        self._floor = 0  # of rings yet to come
        self._marks: deque[tuple[float, int]] = deque()  # (seen at, revision then), a few dozen per max_age_s
        self.aged = 0  # snapshots at revisions below this one are not given out any more, whatever the rings still hold

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
        """Nothing before ``floor`` can be asked for any more, of any resource."""
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
        """Drop what is over the limits. Called after every batch, so it mostly does nothing, and when it does it drops
        a good piece at once: a list gives up its head only by moving its tail."""
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
            # One ring pays at most half of what it has at a time: then another may be the largest.
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
    """Revisions no one can ask for once these events are gone, in an order in which every prefix may be forgotten: an
    object's states before the mark of its deletion, or forgetting half would bring it back."""
    revisions: list[int] = []
    for event in events:
        if event.previous is not None:
            revisions.append(event.previous.revision)
        if event.type is EventType.DELETED:
            revisions.append(event.entry.revision)
    return revisions


class Cursor:
    """A Watch (see the seam), for one reader."""

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
        if events and events[0].entry.revision <= self._after:  # a watch from a revision that was yet to come
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
