"""A worker on a real API server, with a slot table that the test writes as a manager would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

from shoal.base.clock import RealClock
from shoal.client import Client, builtin
from shoal.client.transport import Transport
from shoal.errors import Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.sharding.leases import read_lease, taken
from shoal.sharding.model import (
    Move,
    MovePhase,
    SlotEntry,
    epoch_of,
    slot_label,
    state_name,
)
from shoal.sharding.worker import Owned, OwnershipLost, ShardedController
from shoal.testing.servers import local_server
from shoal.testing.sharding import CONFIG, SlotWorld
from shoal.testing.waiting import eventually

SECRETS = builtin("secrets")
LEASES = builtin("leases", "coordination.k8s.io")


@asynccontextmanager
async def world() -> AsyncIterator[SlotWorld]:
    async with local_server() as server:
        found = SlotWorld(Client(cast(Transport, server.transport), clock=RealClock(), field_manager="worker"))
        try:
            await found.begin()
            yield found
        finally:
            await found.end()


@asynccontextmanager
async def a_world() -> AsyncIterator[SlotWorld]:
    async with asyncio.timeout(60):
        async with world() as found:
            yield found


def recorder() -> tuple[ShardedController, list[str]]:
    """A controller that notes what it handles."""
    app, seen = ShardedController(), []

    @app.reconcile("", "ConfigMap")
    async def handle(owned: Owned) -> None:
        seen.append(f"{owned.key.name}@{owned.epoch}")

    return app, seen


def mine(slot: int, owner: str, term: int, epoch: int, **more: Any) -> SlotEntry:
    return SlotEntry(slot=slot, owner=owner, term=term, epoch=epoch, **more)


async def test_a_worker_handles_the_objects_of_its_slots_and_no_others() -> None:
    async with a_world() as world:
        await world.site("ours", 1)
        await world.site("theirs", 2)
        app, seen = recorder()
        world.start("a", app)
        await world.give(mine(1, "a", await world.held("a"), 5))
        await eventually(lambda: seen == ["ours@5"])
        await world.site("later", 1)
        await world.site("not-ours", 3)
        await eventually(lambda: seen == ["ours@5", "later@5"])
        await world.give(mine(2, "a", await world.held("a"), 6))
        await eventually(lambda: seen == ["ours@5", "later@5", "theirs@6"])


async def test_a_slot_moves_with_its_state_and_the_next_owner_goes_on() -> None:
    async with a_world() as world:
        await world.site("site", 1)
        kept: dict[str, bytes] = {}
        log: list[str] = []

        def controller(name: str) -> ShardedController:
            app = ShardedController()

            @app.reconcile("", "ConfigMap")
            async def handle(owned: Owned) -> None:
                log.append(f"{name}@{owned.epoch}")

            @app.save_state
            async def save(slot: int) -> bytes:
                return f"what {name} knew of {slot}".encode()

            @app.restore_state
            async def restore(slot: int, data: bytes) -> None:
                kept[name] = data

            return app

        for name in "ab":
            world.start(name, controller(name))
        terms = {name: await world.held(name) for name in "ab"}
        await world.give(mine(1, "a", terms["a"], 5))
        await eventually(lambda: log == ["a@5"])
        move = Move(phase=MovePhase.PREPARE, to="b", to_term=terms["b"], next_epoch=6)
        await world.give(mine(1, "a", terms["a"], 5, move=move))
        await eventually(lambda: _is(world.acks("b"), {1: "prepared"}))
        await world.give(mine(1, "a", terms["a"], 5, move=replace(move, phase=MovePhase.DRAIN)))
        await eventually(lambda: _is(world.acks("a"), {1: "drained"}))
        state = await world.states.get(state_name(CONFIG, 1, 6), "default")
        restore = Move(
            phase=MovePhase.RESTORE, source="a", state=state["metadata"]["name"], digest=state["spec"]["digest"]
        )
        await world.give(mine(1, "b", terms["b"], 6, move=restore))
        await eventually(lambda: log == ["a@5", "b@6"])
        assert kept == {"b": b"what a knew of 1"}
        await eventually(lambda: _is(world.acks("b"), {1: "restored"}))
        await world.give(mine(1, "b", terms["b"], 6))
        await eventually(lambda: _is(world.acks("b"), {}))


async def _is(asking: Awaitable[dict[int, str]], wanted: dict[int, str]) -> bool:
    return await asking == wanted


async def test_the_owner_stamps_its_epoch_on_the_object_and_its_children() -> None:
    async with a_world() as world:
        await world.site("site", 1)
        app = ShardedController()

        @app.reconcile("", "ConfigMap", controls=[("", "Secret")])
        async def handle(owned: Owned) -> None:
            about = {"name": f"{owned.key.name}-child"}
            await owned.ensure_child(
                {"apiVersion": "v1", "kind": "Secret", "metadata": about, "stringData": {"a": "1"}, "type": "Opaque"}
            )

        world.start("a", app)
        term = await world.held("a")
        await world.give(mine(1, "a", term, 5))
        secrets = world.client.of(SECRETS)

        async def epochs() -> tuple[int, int]:
            child = await secrets.get("site-child", "default")
            return epoch_of(await world.maps.get("site", "default"), CONFIG), epoch_of(child, CONFIG)

        await eventually(lambda: _same(epochs(), (5, 5)))
        child = await secrets.get("site-child", "default")
        assert child["metadata"]["labels"][slot_label(CONFIG)] == "1"
        assert child["metadata"]["ownerReferences"][0]["controller"] is True
        await world.give(mine(1, "a", term, 9))
        await eventually(lambda: _same(epochs(), (9, 9)))
        await secrets.delete("site-child", "default")  # a child that goes is made again
        await eventually(lambda: _same(epochs(), (9, 9)))


async def _same(asking: Awaitable[tuple[int, int]], wanted: tuple[int, int]) -> bool:
    try:
        return await asking == wanted
    except NotFound:
        return False


async def test_a_new_owner_writes_nothing_when_nothing_differs() -> None:
    async with a_world() as world:
        await world.site("site", 1)
        app, handled = ShardedController(), []

        @app.reconcile("", "ConfigMap", controls=[("", "Secret")])
        async def handle(owned: Owned) -> None:
            await owned.ensure_child({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "child"}, "data": {}})
            handled.append(owned.epoch)

        async def versions() -> list[str]:
            found = await world.maps.get("site", "default"), await world.client.of(SECRETS).get("child", "default")
            return [obj["metadata"]["resourceVersion"] for obj in found]

        world.start("a", app)
        term = await world.held("a")
        await world.give(mine(1, "a", term, 5))
        await eventually(lambda: 5 in handled)
        before = await versions()
        await world.give(mine(1, "a", term, 7))
        await eventually(lambda: 7 in handled)
        assert await versions() == before
        await world.client.of(SECRETS).delete("child", "default")
        await eventually(lambda: _stamped(world, "child", 7))  # it writes when there is something to write


async def _stamped(world: SlotWorld, child: str, epoch: int) -> bool:
    family = await world.client.of(SECRETS).get(child, "default"), await world.maps.get("site", "default")
    return {epoch_of(obj, CONFIG) for obj in family} == {epoch}


async def test_writes_of_a_handler_are_in_the_cache_before_the_watch_shows_them() -> None:
    async with a_world() as world:
        await world.site("site", 1)
        app, failures, told = ShardedController(), [], asyncio.Event()

        @app.reconcile("", "ConfigMap", controls=[("", "Secret")])
        async def handle(owned: Owned) -> None:
            wanted = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "child"}}
            try:
                for text in ("MQ==", "Mg=="):
                    made = await owned.ensure_child({**wanted, "data": {"a": text}})
                    (known,) = owned.children("", "Secret")
                    assert known["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
            except Exception as error:
                failures.append(error)
            told.set()

        worker = world.start("a", app)
        term = await world.held("a")
        secrets = worker.slot_cache(("", "Secret")).cache
        upsert = secrets.upsert
        secrets.upsert = lambda obj: told.is_set() and upsert(obj)  # type: ignore[method-assign]  # the watch is late
        worker.slot_cache(("", "Secret")).wrote = upsert  # type: ignore[method-assign, assignment]
        await world.give(mine(1, "a", term, 5))
        await asyncio.wait_for(told.wait(), 20)
        assert failures == []


async def test_a_worker_whose_lease_was_taken_writes_nothing_more_and_begins_a_new_term() -> None:
    async with a_world() as world:
        await world.site("site", 1)
        app, go_on = ShardedController(), asyncio.Event()
        outcome: list[str] = []

        @app.reconcile("", "ConfigMap")
        async def handle(owned: Owned) -> None:
            outcome.append("began")
            try:
                await go_on.wait()
                await owned.update_status({"a": 1})
            except (asyncio.CancelledError, OwnershipLost) as error:
                outcome.append(type(error).__name__)
                raise

        world.start("a", app)
        term = await world.held("a")
        await world.give(mine(1, "a", term, 5))
        await eventually(lambda: outcome == ["began"])
        leases = world.client.of(LEASES)

        async def take() -> bool:
            try:
                await leases.replace(taken(await leases.get("a", "default"), "2026-01-01T00:00:00.000000Z"))
            except Conflict:
                return False
            return True

        await eventually(take)
        await eventually(lambda: outcome == ["began", "CancelledError"])
        assert await world.held("a") > term + 1
        assert epoch_of(await world.maps.get("site", "default"), CONFIG) == 0


async def test_a_worker_that_is_stopped_leaves_when_its_slots_have_moved() -> None:
    async with a_world() as world:
        await world.site("site", 1)
        app, seen = recorder()
        world.start("a", app)
        term = await world.held("a")
        await world.give(mine(1, "a", term, 5))
        await eventually(lambda: seen == ["site@5"])
        _, stop, task = world.workers["a"]
        stop.set()
        leases = world.client.of(LEASES)

        async def leaving() -> bool:
            lease = read_lease(await leases.get("a", "default"))
            return lease.leaving and lease.held

        await eventually(leaving)
        assert not task.done()
        await world.give(mine(1, "b", 1, 6))
        await asyncio.wait_for(task, 10)
        assert not read_lease(await leases.get("a", "default")).held


async def test_the_acknowledgements_of_a_released_lease_are_kept() -> None:
    async with a_world() as world:
        await world.site("site", 1)
        app, seen = recorder()

        @app.save_state
        async def save(slot: int) -> bytes:
            return b"what it knew"

        world.start("a", app)
        term = await world.held("a")
        await world.give(mine(1, "a", term, 5))
        await eventually(lambda: seen == ["site@5"])
        move = Move(phase=MovePhase.DRAIN, to="b", to_term=1, next_epoch=6)
        await world.give(mine(1, "a", term, 5, move=move))
        await eventually(lambda: _is(world.acks("a"), {1: "drained"}))
        await world.end()
        lease = read_lease(await world.client.of(LEASES).get("a", "default"))
        assert not lease.held
        state = await world.states.get(state_name(CONFIG, 1, 6), "default")
        assert lease.acks[1].digest == state["spec"]["digest"]


async def test_a_handler_that_was_late_runs_again_when_the_slot_is_still_owned() -> None:
    async with a_world() as world:
        await world.site("site", 1)
        app, calls = ShardedController(), []

        @app.reconcile("", "ConfigMap")
        async def handle(owned: Owned) -> None:
            calls.append(owned.epoch)
            if len(calls) == 1:
                raise OwnershipLost("time was up, and then it was not")

        world.start("a", app)
        await world.give(mine(1, "a", await world.held("a"), 5))
        await eventually(lambda: calls == [5, 5])


async def test_many_objects_are_handled_in_batches_and_failures_are_tried_again() -> None:
    async with a_world() as world:
        for number in range(50):
            await world.site(f"s{number}", 1)
        app = ShardedController()
        sizes: list[int] = []
        done: set[str] = set()

        @app.reconcile_many("", "ConfigMap")
        async def handle(owned: list[Owned]) -> None:
            sizes.append(len(owned))
            if len(sizes) == 1:
                raise RuntimeError("not today")
            done.update(each.key.name for each in owned)

        world.start("a", app, batch=20, concurrency=1)
        await world.give(mine(1, "a", await world.held("a"), 5))
        await eventually(lambda: len(done) == 50)
        assert max(sizes) == 20


async def test_a_deletion_is_reported_once_and_a_lost_slot_is_not_a_deletion() -> None:
    async with a_world() as world:
        await world.site("one", 1)
        await world.site("two", 2)
        app, seen = recorder()
        gone: list[str] = []

        @app.gone("", "ConfigMap")
        async def went(obj: Obj) -> None:
            gone.append(obj["metadata"]["name"])

        world.start("a", app)
        term = await world.held("a")
        await world.give(mine(1, "a", term, 5), mine(2, "a", term, 5))
        await eventually(lambda: sorted(seen) == ["one@5", "two@5"])
        await world.give(mine(2, "b", 1, 6))
        await world.maps.delete("one", "default")
        await eventually(lambda: gone == ["one"])


async def test_an_owner_removes_children_and_the_object_itself() -> None:
    async with a_world() as world:
        await world.site("site", 1)
        app = ShardedController()

        @app.reconcile("", "ConfigMap", controls=[("", "Secret")])
        async def handle(owned: Owned) -> None:
            children = owned.children("", "Secret")
            if owned.object.get("data") == {"go": "yes"}:
                for child in children:
                    await owned.delete_child(child)
                await owned.delete()
            elif not children:
                await owned.ensure_child({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "child"}})

        world.start("a", app)
        await world.give(mine(1, "a", await world.held("a"), 5))
        secrets = world.client.of(SECRETS)
        await eventually(lambda: secrets.get("child", "default"))
        await world.maps.patch("site", {"data": {"go": "yes"}}, "default")

        async def gone() -> bool:
            kept = {it["metadata"]["name"] for it in (await world.maps.list()).items}
            return "site" not in kept and not (await secrets.list()).items

        await eventually(gone)
