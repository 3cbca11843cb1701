"""Which owners are enqueued, and when: changes in number at once, changes of state paced, others not at all."""

from __future__ import annotations

from typing import Any

from shoal.base.clock import FakeClock
from shoal.controllers.pods.owners import selector_of
from shoal.controllers.pods.pace import WINDOW_S, Pace
from shoal.controllers.pods.triggers import Triggers
from shoal.reconcile import Cache, ObjectKey, WorkQueue
from shoal.testing.workloads import pod, replica_set, stored

OWNER = stored(replica_set())
KEY = ObjectKey("default", "web")


class World:
    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.queue: WorkQueue[ObjectKey] = WorkQueue(clock=clock)
        self.owners, self.pods = Cache(), Cache()
        self.owners.replace([OWNER], "1")
        self.pods.replace([], "1")
        pace = Pace(self.queue, clock)
        self.pods.add_handler(
            Triggers(kind="ReplicaSet", group="apps", owners=self.owners, selector_of=selector_of, pace=pace)
        )

    async def taken(self) -> int:
        """How many keys are ready; they are worked off."""
        count = len(self.queue)
        for _ in range(count):
            self.queue.done(await self.queue.get())
        return count


def changed(obj: Any, **options: Any) -> Any:
    fresh = pod(obj["metadata"]["name"], uid=obj["metadata"]["uid"], owner=options.pop("owner", OWNER), **options)
    return fresh


async def test_pods_that_come_or_go_are_acted_upon_at_once(clock: FakeClock) -> None:
    world = World(clock)
    for number in range(3):
        one, other = pod(f"one-{number}", owner=OWNER), pod(f"other-{number}", owner=OWNER)
        for step in (
            lambda one=one: world.pods.upsert(one),
            lambda one=one: world.pods.upsert(changed(one, deleting=True)),
            lambda other=other: world.pods.upsert(other),
            lambda other=other: world.pods.upsert(changed(other, phase="Failed")),
        ):
            step()
            assert await world.taken() == 1


async def test_the_end_of_a_pod_that_was_going_can_wait(clock: FakeClock) -> None:
    world = World(clock)
    pods = [pod(f"p{number}", owner=OWNER, deleting=True) for number in range(5)]
    for one in pods:
        world.pods.upsert(one)
    await world.taken()
    runs = 0
    for one in pods:
        world.pods.remove(changed(one, deleting=True))
        runs += await world.taken()
    await clock.advance(WINDOW_S)
    runs += await world.taken()
    assert runs == 2


async def test_changes_of_state_are_paced_and_the_last_is_not_lost(clock: FakeClock) -> None:
    world = World(clock)
    pods = [pod(f"p{number}", owner=OWNER, ready=False) for number in range(10)]
    for one in pods:
        world.pods.upsert(one)
    await world.taken()
    runs = 0
    for one in pods:
        world.pods.upsert(changed(one, ready=True))
        runs += await world.taken()
        await clock.advance(WINDOW_S / 10)
    await clock.advance(WINDOW_S)
    runs += await world.taken()
    assert 2 <= runs <= 3


async def test_a_single_change_of_state_is_not_delayed(clock: FakeClock) -> None:
    world = World(clock)
    one = pod(owner=OWNER, ready=False)
    world.pods.upsert(one)
    await world.taken()
    await clock.advance(10)
    world.pods.upsert(changed(one, ready=True))
    assert await world.taken() == 1


async def test_what_owners_do_not_read_is_passed_over(clock: FakeClock) -> None:
    world = World(clock)
    one = pod(owner=OWNER, node="")
    world.pods.upsert(one)
    await world.taken()
    world.pods.upsert(changed(one, node="node-1"))
    world.pods.upsert(changed(one, node="node-1", annotations={"a": "b"}))
    assert (await world.taken(), world.queue.waiting) == (0, 0)


async def test_pods_of_other_owners_enqueue_nothing(clock: FakeClock) -> None:
    world = World(clock)
    job = {**OWNER, "kind": "Job", "apiVersion": "batch/v1"}
    world.pods.upsert(pod(owner=job))
    assert await world.taken() == 0


async def test_orphans_enqueue_the_owners_that_select_them(clock: FakeClock) -> None:
    world = World(clock)
    world.pods.upsert(pod("other", labels={"app": "other"}))
    assert await world.taken() == 0
    free = pod("free", labels={})
    world.pods.upsert(free)
    assert await world.taken() == 0
    world.pods.upsert(changed(free, owner=None, labels={"app": "web"}))
    assert await world.taken() == 1
    world.pods.upsert(changed(free, owner=None, labels={"app": "web"}, ready=False))
    assert await world.taken() == 0


async def test_a_pod_that_leaves_its_owner_concerns_the_owner(clock: FakeClock) -> None:
    world = World(clock)
    one = pod(owner=OWNER, labels={"app": "web"})
    world.pods.upsert(one)
    await world.taken()
    world.pods.upsert(changed(one, owner=None, labels={"app": "other"}))
    assert await world.taken() == 1
