"""`shoal` as the processes of a sharding test run it, and the controller that its workers run.

    python shard_process.py shard worker shard_process:app ...

Surroundings: SHARD_TEST_JOURNALS is a folder for journals of accepted writes; SHARD_TEST_SKEW_S is how wrong the wall
clock is; SHARD_TEST_BEAT_S makes every object be written that often; SHARD_TEST_GUARD=broken takes away everything that
keeps a worker from writing late.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

from shoal.base.clock import RealClock
from shoal.kube.objects import Obj
from shoal.sharding.worker import Owned, ShardedController
from shoal.testing.exclusion import journal_to, unguarded

CONFIG, GROUP, KIND = "items", "chaos.shoal.dev", "Item"
_HANDLER_S = 0.3  # so long that some are always at it

app = ShardedController()
_beats = count(1)
_beat_s = float(os.environ.get("SHARD_TEST_BEAT_S", "0"))
_handled: Counter[int] = Counter()  # by slot: the state that moves


@app.reconcile(GROUP, KIND, controls=[("", "ConfigMap")])
async def item(owned: Owned) -> float | None:
    value = str(owned.spec.get("value", 0))
    name = owned.key.name
    await owned.ensure_child(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}}
    )
    status: Obj = {"observedGeneration": owned.object["metadata"]["generation"]}
    if _beat_s:
        await asyncio.sleep(_HANDLER_S)
        status["beat"] = next(_beats)
    await owned.update_status(status)
    _handled[owned.slot] += 1
    return _beat_s or None


@app.save_state
async def save(slot: int) -> bytes:
    return str(_handled[slot]).encode()


@app.restore_state
async def restore(slot: int, data: bytes) -> None:
    _handled[slot] = int(data)


def skew_clock(by_s: float) -> None:
    """The wall clock is wrong; what counts is the monotonic one."""
    wall_s, now = RealClock.wall_s, RealClock.now

    def wrong_wall_s(self: RealClock) -> float:
        return wall_s(self) + by_s

    def wrong_now(self: RealClock) -> datetime:
        return now(self) + timedelta(seconds=by_s)

    RealClock.wall_s = wrong_wall_s  # type: ignore[method-assign]
    RealClock.now = wrong_now  # type: ignore[method-assign]


if "SHARD_TEST_JOURNALS" in os.environ and "SHARD_ID" in os.environ:
    who = f"{os.environ['SHARD_ID']}-{os.getpid()}"
    app.journal = journal_to(Path(os.environ["SHARD_TEST_JOURNALS"]) / f"{who}.jsonl", who, config=CONFIG)


if __name__ == "__main__":
    from shoal.app.main import main

    skew_clock(float(os.environ.get("SHARD_TEST_SKEW_S", "0")))
    if os.environ.get("SHARD_TEST_GUARD") == "broken":
        for where, name, changed in unguarded():
            setattr(where, name, changed)
    sys.exit(main())
