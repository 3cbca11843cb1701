"""How long a sweep pauses when the server does not answer: new objects wait that long for their slots."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from shoal.base.clock import RealClock
from shoal.base.metrics import Metrics
from shoal.client import TransportError
from shoal.crds.shard import ShardTarget
from shoal.reconcile.keys import ObjectKey
from shoal.sharding.manager.assigning import SlotChooser
from shoal.sharding.manager.memory import ManagerMemory
from shoal.sharding.manager.metrics import ShardMetrics
from shoal.sharding.manager.sweep import SweepContext, SweepDeps, TargetSweep

ANY: Any = None


class Enough(Exception):
    pass


class Counting(RealClock):
    """Does not wait, and ends the sweep after some pauses."""

    def __init__(self, pauses: int) -> None:
        self._left = pauses
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if len(self.pauses) == self._left:
            raise Enough


class Server:
    """Answers lists or not, and never a watch."""

    def __init__(self, *, lists: bool) -> None:
        self._lists = lists

    async def pages(self, scope: Any, *, limit: int) -> AsyncIterator[Any]:
        if not self._lists:
            raise TransportError("no connection")
        return
        yield

    async def watch(self, scope: Any, **more: Any) -> Any:
        raise TransportError("the watch broke")


async def pauses(server: Server, count: int) -> list[float]:
    clock, memory = Counting(count), ManagerMemory()
    deps = SweepDeps(
        client=ANY, clock=clock, random=lambda: 0.999, metrics=ShardMetrics(Metrics()), namespaces=ANY, period_s=300.0
    )
    shared = SweepContext(
        key=ObjectKey("default", "web"), memory=memory, chooser=SlotChooser(memory, "default"), spec=lambda: None, entries=lambda: (),
        counted=lambda: None,
    )  # fmt: skip
    sweep = TargetSweep(deps, shared, ShardTarget(kind="Website"))
    try:
        await sweep.assign_slots(server)  # type: ignore[arg-type]
    except Enough:
        pass
    return clock.pauses


async def test_broken_watches_after_good_lists_do_not_add_up_to_longer_pauses() -> None:
    assert max(await pauses(Server(lists=True), 12)) <= 1.0


async def test_an_unavailable_server_is_tried_every_few_seconds() -> None:
    found = await pauses(Server(lists=False), 12)
    assert found[0] <= 1.0 < found[-1] <= 10.0
