"""When cyclic garbage is looked for: rarely, and not because objects were made.

A control plane holds a million small objects that stay, and the collector stops everything for a quarter of a second
to walk them. So what stays is put aside, and everything is looked at now and then only.
"""

from __future__ import annotations

import gc

from shoal.base.clock import Clock

_YOUNG = (20_000, 10, 100_000)  # the last: never by itself
_EVERY_S = 900.0


async def keep_aside(clock: Clock) -> None:
    """Until cancelled."""
    before = gc.get_threshold()
    gc.set_threshold(*_YOUNG)
    try:
        while True:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            await clock.sleep(_EVERY_S)
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
