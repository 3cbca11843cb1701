"""The controller: the consequence of each outcome, wiring, timeouts, resync, shutdown."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from shoal.base import logs
from shoal.base.clock import FakeClock
from shoal.base.metrics import Metrics
from shoal.client import Client, builtin
from shoal.errors import Conflict
from shoal.reconcile import (
    DONE,
    Controller,
    ControllerConfig,
    Informer,
    ObjectKey,
    Outcome,
    RateLimit,
    ReconcileMetrics,
    Result,
    Terminal,
    spec_changed,
)

A = ObjectKey("ns", "a")


def obj(name: str, version: int, *, generation: int = 1, owner: str = "", kind: str = "ReplicaSet") -> dict[str, Any]:
    about: dict[str, Any] = {"name": name, "namespace": "ns", "resourceVersion": str(version), "uid": name}
    about["generation"] = generation
    if owner:
        about["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": kind, "name": owner, "controller": True}]
    return {"metadata": about}


class Setup:
    """A controller whose informers are fed by hand."""

    def __init__(self, clock: FakeClock, reconcile: Callable[[ObjectKey], Awaitable[Result]], **config: Any) -> None:
        self.clock = clock
        client = Client(None, clock=clock)  # type: ignore[arg-type]
        self.sets = Informer(client.of(builtin("replicasets", "apps")), clock=clock, random=lambda: 0.5)
        self.pods = Informer(client.of(builtin("pods")), clock=clock, random=lambda: 0.5)
        self.metrics = ReconcileMetrics(Metrics())
        ids = iter(range(10**6))
        self.controller = Controller(
            "test", reconcile, clock=clock, random=lambda: 0.5, new_id=lambda: str(next(ids)), metrics=self.metrics,
            config=ControllerConfig(**{"limit": RateLimit(base_s=1, cap_s=100, rate=0), **config}),
        )  # fmt: skip

    def count(self, outcome: Outcome) -> float:
        return self.metrics.reconciles.labels("test", outcome).value

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.controller.run(), name="controller")
        try:
            await self.clock.settle()
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])


def recorder(*results: Any) -> tuple[list[str], Callable[[ObjectKey], Awaitable[Result]]]:
    """A reconcile that gives each of ``results`` in turn, then is done; and what it was called with."""
    calls: list[str] = []
    left = list(results)

    async def reconcile(key: ObjectKey) -> Result:
        calls.append(key.name)
        result = left.pop(0) if left else DONE
        if isinstance(result, Exception):
            raise result
        return result

    return calls, reconcile


async def test_work_starts_only_when_every_cache_is_synced(clock: FakeClock) -> None:
    calls, reconcile = recorder()

    setup = Setup(clock, reconcile)
    setup.controller.watches(setup.sets).owns(setup.pods, kind="ReplicaSet", group="apps")
    async with setup.running():
        setup.sets.cache.replace([obj("a", 1)], "1")
        await clock.settle()
        assert calls == []
        setup.pods.cache.replace([], "1")
        await clock.settle()
        assert calls == ["a"]


async def test_each_outcome_has_its_consequence(clock: FakeClock) -> None:
    results = [Result(after_s=5), RuntimeError("x"), Conflict("y"), Result(after_s=0), Terminal("never"), DONE]
    calls, reconcile = recorder(*results)

    setup = Setup(clock, reconcile)
    setup.controller.watches(setup.sets)
    async with setup.running():
        setup.sets.cache.replace([obj("a", 1)], "1")
        await clock.settle()
        assert len(calls) == 1
        await clock.advance(5)  # again as asked; fails, backs off 1 s
        assert len(calls) == 2
        await clock.advance(1)  # conflict, backs off 2 s
        assert len(calls) == 3
        await clock.advance(2)  # again at once; then terminal
        assert len(calls) == 5
        await clock.advance(1000)
        assert len(calls) == 5  # a terminal error is not retried
        setup.sets.cache.upsert(obj("a", 2))
        await clock.settle()
        assert len(calls) == 6  # but a change is a new chance
        counts = {outcome: setup.count(outcome) for outcome in Outcome}
    assert counts == {
        Outcome.DONE: 1, Outcome.AGAIN: 2, Outcome.CONFLICT: 1, Outcome.FAILED: 1, Outcome.TIMED_OUT: 0,
        Outcome.TERMINAL: 1,
    }  # fmt: skip


async def test_success_makes_the_next_failure_a_first_one(clock: FakeClock) -> None:
    calls, reconcile = recorder(RuntimeError(), RuntimeError(), DONE, RuntimeError())

    setup = Setup(clock, reconcile)
    async with setup.running():
        setup.controller.queue.add(A)
        await clock.advance(3)
        assert len(calls) == 3
        setup.controller.queue.add(A)
        await clock.advance(0)
        assert setup.controller.queue.failures(A) == 1


async def test_owned_objects_wake_only_their_controller(clock: FakeClock) -> None:
    calls, reconcile = recorder()

    setup = Setup(clock, reconcile)
    setup.controller.owns(setup.pods, kind="ReplicaSet", group="apps")
    setup.pods.cache.replace([obj("p1", 1, owner="a"), obj("p2", 1, owner="b", kind="Job"), obj("p3", 1)], "1")
    async with setup.running():
        assert calls == ["a"]
        setup.pods.cache.upsert(obj("p1", 2, owner="c"))  # adopted by another: both have to know
        await clock.settle()
        assert sorted(calls[1:]) == ["a", "c"]
        setup.pods.cache.remove(obj("p1", 3, owner="c"))
        await clock.settle()
        assert calls[3:] == ["c"]


async def test_predicates_filter_changes(clock: FakeClock) -> None:
    calls, reconcile = recorder()

    setup = Setup(clock, reconcile)
    setup.controller.watches(setup.sets, when=spec_changed)
    setup.sets.cache.replace([obj("a", 1)], "1")
    async with setup.running():
        setup.sets.cache.upsert(obj("a", 2))
        await clock.settle()
        assert len(calls) == 1
        setup.sets.cache.upsert(obj("a", 3, generation=2))
        await clock.settle()
        assert len(calls) == 2


async def test_a_reconcile_that_takes_too_long_is_cancelled_and_tried_again(clock: FakeClock) -> None:
    cancelled = []

    async def reconcile(key: ObjectKey) -> Result:
        if cancelled:
            return DONE
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(clock.monotonic())
            raise
        return DONE

    setup = Setup(clock, reconcile, timeout_s=30.0)
    async with setup.running():
        setup.controller.queue.add(A)
        await clock.advance(40)
        assert cancelled == [30.0]
        assert (setup.count(Outcome.TIMED_OUT), setup.count(Outcome.DONE)) == (1, 1)


async def test_a_key_is_never_worked_on_twice_at_once(clock: FakeClock) -> None:
    running: set[str] = set()
    most = 0

    async def reconcile(key: ObjectKey) -> Result:
        nonlocal most
        assert key.name not in running
        running.add(key.name)
        most = max(most, len(running))
        await clock.sleep(1)
        running.discard(key.name)
        return DONE

    setup = Setup(clock, reconcile, workers=4)
    async with setup.running():
        for _ in range(5):
            for name in "abcdef":
                setup.controller.queue.add(ObjectKey("ns", name))
            await clock.advance(0.3)
        await clock.advance(10)
        assert setup.count(Outcome.FAILED) == 0
    assert most == 4


async def test_resync_brings_every_object_again(clock: FakeClock) -> None:
    calls, reconcile = recorder()

    setup = Setup(clock, reconcile, resync_s=100.0)
    setup.controller.watches(setup.sets)
    setup.sets.cache.replace([obj("a", 1), obj("b", 1)], "1")
    async with setup.running():
        assert calls == ["a", "b"]
        await clock.advance(99)
        assert len(calls) == 2
        await clock.advance(11)
        assert sorted(calls[2:]) == ["a", "b"]


async def test_stopping_finishes_running_work_and_starts_none(clock: FakeClock) -> None:
    finished = []

    async def reconcile(key: ObjectKey) -> Result:
        await clock.sleep(5)
        finished.append(key.name)
        return DONE

    setup = Setup(clock, reconcile, resync_s=10.0)
    async with setup.running() as task:
        setup.controller.queue.add(A)
        setup.controller.queue.add(ObjectKey("ns", "b"))
        await clock.settle()
        setup.controller.stop()
        await clock.settle()
        assert not task.done()
        await clock.advance(5)
        await task
    assert finished == ["a"]


async def test_log_lines_of_a_reconcile_carry_its_id_and_key(clock: FakeClock) -> None:
    out = io.StringIO()
    logs.configure(stream=out)
    _, reconcile = recorder(RuntimeError("first"), RuntimeError("second"))

    setup = Setup(clock, reconcile)
    async with setup.running():
        setup.controller.queue.add(A)
        await clock.advance(1)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["controller"], line["key"]) for line in lines] == [("test", "ns/a")] * 2
    assert len({line["reconcile_id"] for line in lines}) == 2
