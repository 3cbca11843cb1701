"""Long-lived objects are frozen for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import warnings

from shoal.base.clock import FakeClock
from shoal.base.tasks import cancel_all
from shoal.control.service import garbage


async def test_what_stays_is_put_aside_at_the_start_and_when_a_fleet_has_come_and_given_back_at_the_end() -> None:
    with warnings.catch_warnings():  # what other tests left to the collector is not this one's
        warnings.simplefilter("ignore", ResourceWarning)
        gc.unfreeze()
        while gc.collect():
            pass

    before, clock, streams, frozen = gc.get_threshold(), FakeClock(), [0], list[int]()
    real, put_aside = gc.freeze, 0

    def freeze() -> None:
        nonlocal put_aside
        put_aside += 1
        frozen.append(streams[0])
        real()

    gc.freeze = freeze
    try:
        task = asyncio.create_task(garbage.freeze_kept_objects(clock, lambda: streams[0]), name="aside")
        await clock.settle()
        assert frozen == [0] and gc.get_threshold() == garbage.THRESHOLDS
        streams[0] = 500
        await clock.advance(garbage.LOOK_S)
        assert frozen == [0], "they still come"
        await clock.advance(garbage.LOOK_S)
        assert frozen == [0, 500], "settled"
        streams[0] = 505
        await clock.advance(10 * garbage.LOOK_S)
        assert frozen == [0, 500], "a few more are not worth it"
        await clock.advance(garbage.EVERY_S)
        assert frozen == [0, 500, 505], "now and then in any case"
        assert gc.get_freeze_count() > 0
        await cancel_all(task)
        assert gc.get_threshold() == before and gc.get_freeze_count() == 0
    finally:
        gc.freeze = real
        gc.unfreeze()
        gc.set_threshold(*before)
