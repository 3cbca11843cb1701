"""The counts per slot are right whatever order a list and the writes that it overlaps end in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.base.clock import FakeClock
from shoal.base.metrics import Metrics
from shoal.client import Page
from shoal.crds.shard import ConfigSpec, ShardTarget
from shoal.errors import Conflict
from shoal.kube.objects import Obj
from shoal.reconcile.keys import ObjectKey
from shoal.sharding.manager.assigning import SlotChooser
from shoal.sharding.manager.memory import ManagerMemory, SlotCounts
from shoal.sharding.manager.metrics import ShardMetrics
from shoal.sharding.manager.sweep import SweepContext, SweepDeps, TargetSweep
from shoal.sharding.model import slot_label

ANY: Any = None
LABEL = slot_label("web")


class Server:
    """Objects with a revision; the test says when a write is carried out, when it is answered, and when a list ends."""

    def __init__(self) -> None:
        self.revision = 10
        self.labelled: dict[str, int] = {}
        self.answers: dict[str, asyncio.Future[None]] = {}
        self.lists: list[asyncio.Future[None]] = []

    async def patch(self, name: str, patch: Obj, namespace: str) -> Obj:
        answered = self.answers[name] = asyncio.get_running_loop().create_future()
        await answered
        if name in self.labelled:
            return {"metadata": {"name": name, "resourceVersion": str(self.labelled[name])}}
        raise Conflict("changed")

    async def pages(self, scope: Any, *, limit: int) -> AsyncIterator[Page]:
        items = [{"metadata": {"name": name, "namespace": "default", "labels": {LABEL: "1"}}} for name in self.labelled]
        page = Page(items, str(self.revision))
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lists.append(ended)
        await ended
        yield page

    def carry_out(self, name: str) -> None:
        self.revision += 1
        self.labelled[name] = self.revision


class World:
    def __init__(self) -> None:
        self.server = Server()
        self.memory = ManagerMemory()
        spec = ConfigSpec()
        deps = SweepDeps(
            client=ANY, clock=FakeClock(), random=lambda: 0.5, metrics=ShardMetrics(Metrics()), namespaces=ANY
        )
        shared = SweepContext(
            key=ObjectKey("default", "web"), memory=self.memory, chooser=SlotChooser(self.memory, "default"),
            spec=lambda: spec, entries=lambda: (), counted=self.counted,
        )  # fmt: skip
        self.sweep = TargetSweep(deps, shared, msgspec.convert({"group": "e.com", "kind": "Website"}, ShardTarget))

    def counted(self) -> None:
        whole = SlotCounts(known=True)
        whole.merge(self.sweep.counts)
        self.memory.objects = whole


# For each object: where its write is carried out and where it is answered, and where the lists begin and end.
STEPS = st.lists(st.sampled_from(["carry out", "refuse", "answer", "begin list", "end list"]), min_size=0, max_size=30)


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_every_object_is_counted_once_however_writes_and_lists_overlap(steps: list[str]) -> None:
    asyncio.run(_play(steps))


async def _play(steps: list[str]) -> None:
    world = World()
    server: Any = world.server
    writes: dict[str, asyncio.Task[None]] = {}
    for number in range(6):
        obj = {"metadata": {"name": f"s{number}", "namespace": "default", "resourceVersion": "1"}}
        writes[f"s{number}"] = asyncio.create_task(world.sweep._give(server, obj), name="give")
    await _turns()
    waiting, unanswered = list(writes), []
    listing: asyncio.Task[None] | None = None

    async def end_list() -> None:
        nonlocal listing
        if listing is not None:
            server.lists[-1].set_result(None)
            await listing
            listing = None

    async def answer() -> None:
        name = unanswered.pop(0)
        server.answers[name].set_result(None)
        await writes[name]

    for step in steps:
        if step in ("carry out", "refuse") and waiting:
            name = waiting.pop(0)
            if step == "carry out":
                server.carry_out(name)
            unanswered.append(name)
        elif step == "answer" and unanswered:
            await answer()
        elif step == "begin list" and listing is None:
            listing = asyncio.create_task(world.sweep._round(server), name="round")
            await _turns()
        elif step == "end list":
            await end_list()
    await end_list()
    unanswered += waiting  # these are refused
    while unanswered:
        await answer()
    assert world.memory.objects.total == len(server.labelled)
    await world.sweep._tasks.close()


async def _turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)
