"""Long-lived objects are frozen for the garbage collector."""

from __future__ import annotations

import asyncio

import pytest

from shoal.base.clock import FakeClock
from shoal.base.tasks import cancel_all
from shoal.control.service import garbage


class RecordedCollector:
    """Stands for the module ``gc``: the real one would walk everything that the test run holds, five times."""

    def __init__(self, inherited: int = 0) -> None:
        self.frozen = inherited
        self.made = 100  # objects that are not frozen
        self.threshold = self.before = (700, 10, 10)
        self.done: list[str] = []

    def get_threshold(self) -> tuple[int, int, int]:
        return self.threshold

    def set_threshold(self, *threshold: int) -> None:
        assert len(threshold) == 3
        self.threshold = threshold

    def get_freeze_count(self) -> int:
        return self.frozen

    def unfreeze(self) -> None:
        self.frozen, self.made = 0, self.made + self.frozen
        self.done.append("unfreeze")

    def collect(self) -> None:
        self.done.append("collect")

    def freeze(self) -> None:
        self.frozen, self.made = self.frozen + self.made, 0
        self.done.append("freeze")

    def taken(self) -> list[str]:
        done, self.done = self.done, []
        return done


FROZEN = ["unfreeze", "collect", "freeze"]


async def test_objects_are_frozen_at_the_start_and_once_a_fleet_has_connected_and_released_at_the_end(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc, streams = RecordedCollector(), [0]
    monkeypatch.setattr(garbage, "gc", gc)
    task = asyncio.create_task(garbage.freeze_kept_objects(clock, lambda: streams[0]), name="garbage")
    await clock.settle()
    assert gc.taken() == FROZEN[1:] and gc.threshold == garbage.THRESHOLDS
    streams[0] = 500
    await clock.advance(garbage.LOOK_S)
    assert gc.taken() == [], "streams still come"
    await clock.advance(garbage.LOOK_S)
    assert gc.taken() == FROZEN, "their number has settled"
    streams[0] = 505
    await clock.advance(10 * garbage.LOOK_S)
    assert gc.taken() == [], "a few more streams are not worth a collection"
    await clock.advance(garbage.EVERY_S)
    assert gc.taken() == FROZEN, "it is time again"
    await cancel_all(task)
    assert gc.taken() == ["unfreeze"] and gc.threshold == gc.before


async def test_what_a_forked_process_inherits_stays_frozen_until_there_are_as_many_others(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc = RecordedCollector(inherited=1000)
    monkeypatch.setattr(garbage, "gc", gc)
    task = asyncio.create_task(garbage.freeze_kept_objects(clock, lambda: 0), name="garbage")
    await clock.settle()
    assert gc.taken() == FROZEN[1:]
    gc.made = 1000
    await clock.advance(garbage.EVERY_S + garbage.LOOK_S)
    assert gc.taken() == FROZEN[1:], "the others are being frozen"
    await clock.advance(garbage.EVERY_S + garbage.LOOK_S)
    assert gc.taken() == FROZEN
    await cancel_all(task)
