from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from shoal.store import NO_ATTRS, Compacted, Entry, Event, EventType, Key, RingLimits
from shoal.store.ring import Cursor, Rings, superseded


def entry(revision: int, resource: str = "pods", size: int = 100) -> Entry:
    return Entry(Key(resource, "", "a"), revision, 1, b"x" * size, 0, NO_ATTRS)


def updates(first: int, last: int, resource: str = "pods", size: int = 100) -> list[Event]:
    return [
        Event(EventType.MODIFIED, entry(n, resource, size), entry(n - 1, resource, size))
        for n in range(first, last + 1)
    ]


def filled(limits: RingLimits, events: Sequence[Event]) -> Rings:
    rings = Rings(limits, lambda: 0.0)
    for event in events:
        ring = rings.ring(event.entry.key.resource)
        rings.append(ring, [event])
        rings.trim([ring], event.entry.revision)
    return rings


def test_bytes_are_given_back_exactly() -> None:
    rings = filled(RingLimits(), updates(2, 50))
    deleted = Event(EventType.DELETED, entry(51), entry(50))
    rings.append(rings.ring("pods"), [deleted])
    assert rings.held_bytes == rings.ring("pods").bytes > 50 * 100
    rings.drop_through(51)
    assert rings.held_bytes == rings.ring("pods").bytes == 0


def test_the_largest_ring_pays_for_the_budget() -> None:
    small = updates(2, 10, "nodes")
    rings = filled(RingLimits(max_bytes=100_000), [*small, *updates(11, 500, size=1000)])
    assert rings.held_bytes <= 100_000
    assert rings.ring("nodes").events == small and rings.ring("nodes").floor == 0
    assert rings.ring("pods").floor > 400 and rings.floors() == {"pods": rings.ring("pods").floor}


def test_equal_rings_pay_alike() -> None:
    both = [event for n in range(2, 400) for event in updates(2 * n, 2 * n, "a") + updates(2 * n + 1, 2 * n + 1, "b")]
    rings = filled(RingLimits(max_bytes=100_000), both)
    left = [len(rings.ring(resource).events) for resource in "ab"]
    assert min(left) * 3 > max(left)


def test_positions_are_right_after_dropping() -> None:
    rings = filled(RingLimits(max_events=8), updates(2, 100))
    ring = rings.ring("pods")
    assert ring.events[0].entry.revision == ring.floor + 1
    assert ring.position(ring.floor) == ring.base and ring.position(100) == ring.end == 99
    with pytest.raises(Compacted):
        ring.position(ring.floor - 1)


def test_undo_gives_the_state_before_the_first_later_change() -> None:
    created = Event(EventType.ADDED, entry(1), None)
    rings = filled(RingLimits(), [created, *updates(2, 9)])
    assert rings.ring("pods").undo(0) == {created.entry.key: None}
    assert rings.ring("pods").undo(5) == {created.entry.key: entry(5)}
    assert rings.ring("pods").undo(9) == {}


def test_states_are_superseded_before_the_mark_of_their_deletion() -> None:
    created, deleted = Event(EventType.ADDED, entry(1), None), Event(EventType.DELETED, entry(3), entry(2))
    assert superseded([created, *updates(2, 2), deleted]) == [1, 2, 3]


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    ring = Rings(RingLimits(), lambda: 0.0).ring("pods")
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Cursor(ring, 0, lambda: 0).wait(), 0.001)
    assert not ring.waiters
