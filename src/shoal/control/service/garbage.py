"""Settings of the cyclic garbage collector for a control plane.

A control plane holds a million small objects for long, and the collector would stop the process for a quarter of a
second to walk them. So they are frozen: the loaded state at the start, then the streams once a fleet has connected.

What a forked process inherits is frozen already, and lies in pages that it shares with others. Walking it writes to all
of them: these objects stay frozen until there are as many others.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

from shoal.base.clock import Clock

THRESHOLDS = (20_000, 20, 50)
LOOK_S = 2.0
EVERY_S = 900.0


async def freeze_kept_objects(clock: Clock, streams: Callable[[], int]) -> None:
    """Freeze long-lived objects at the start and after many streams came, until cancelled."""
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    aside, last, due = -1, streams(), float("-inf")
    inherited = gc.get_freeze_count()
    try:
        while True:
            count, now = streams(), clock.monotonic()
            settled = count == last and abs(count - aside) > 20 + aside // 5
            if settled or now >= due:
                if gc.get_freeze_count() > 2 * inherited:
                    gc.unfreeze()
                gc.collect()
                gc.freeze()
                aside, due = count, now + EVERY_S
            last = count
            await clock.sleep(LOOK_S)
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
