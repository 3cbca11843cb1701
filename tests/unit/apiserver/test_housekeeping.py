"""What the API server does in the background goes on, whatever happens to one job, one loop or another server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from shoal.apiserver.context import ServerConfig
from shoal.base.clock import FakeClock
from shoal.base.metrics import PROCESS
from shoal.base.supervision import define_loop_metrics
from shoal.store import Delete, Op, Require
from shoal.testing.servers import LocalServer, local_server
from shoal.testing.waiting import eventually

EVENTS = "/api/v1/namespaces/default/events"
NAMESPACES = "/api/v1/namespaces"
CONFIG = ServerConfig(ca_certificate="test CA", event_ttl_s=600.0)


def an_event(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "involvedObject": {"namespace": "default", "name": "p", "kind": "Pod"}, "reason": "Test"}  # fmt: skip


def restarts() -> float:
    """Of the loop that does the jobs."""
    return dict(define_loop_metrics(PROCESS).values()).get(("housekeeping/jobs",), 0.0)


async def names(server: LocalServer) -> list[str]:
    return [each["metadata"]["name"] for each in (await server.get(EVENTS))["items"]]


async def test_events_that_another_server_has_deleted_first_do_not_end_housekeeping(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with local_server(clock=clock, config=CONFIG) as server:
        for number in range(3):
            await server.post(EVENTS, an_event(f"e{number}"))
        commit, raced = server.store.commit, False

        async def late(ops: Sequence[Op], requires: Sequence[Require] = ()) -> Any:
            """The other server's deletion of one of them commits first."""
            nonlocal raced
            if not raced and all(isinstance(op, Delete) for op in ops):
                raced = True
                await commit([ops[1]])
            return await commit(ops, requires)

        monkeypatch.setattr(server.store, "commit", late)
        await clock.advance(700)
        assert raced and await names(server) == []
        await server.post(EVENTS, an_event("later"))
        await clock.advance(700)
        assert await names(server) == [], "events are still expired"


async def test_a_job_that_cannot_be_done_is_tried_again_and_the_others_are_done(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with local_server(clock=clock, config=CONFIG) as server:
        broken, before = True, restarts()
        store = server.server.housekeeping.writer.store

        async def failing(write: Any) -> Any:
            if broken and write.new["metadata"].get("namespace") == "bad":
                raise RuntimeError("a fault of this job")
            return await store(write)

        monkeypatch.setattr(server.server.housekeeping.writer, "store", failing)
        for name in ("bad", "good"):
            await server.post(NAMESPACES, {"metadata": {"name": name}})
            await server.delete(f"{NAMESPACES}/{name}/serviceaccounts/default")

        async def accounts() -> list[int]:
            await clock.advance(1)
            return [(await server.call("GET", f"{NAMESPACES}/{name}/serviceaccounts/default")).status for name in ("bad", "good")]  # fmt: skip

        await eventually(accounts, until=lambda found: found == [404, 200])
        assert restarts() == before, "the job failed, and not the loop"
        broken = False
        await eventually(accounts, until=lambda found: found == [200, 200])


async def test_a_loop_that_fails_begins_again_with_every_object(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with local_server(clock=clock, config=CONFIG) as server:
        keeping = server.server.housekeeping
        store, failures, before = keeping.writer.store, 1, restarts()

        async def failing(write: Any) -> Any:
            nonlocal failures
            if failures and write.new["metadata"].get("namespace") == "n":
                failures -= 1
                raise asyncio.CancelledError("of a task that the loop waits for")  # ends the loop, and its job is lost
            return await store(write)

        await server.post(NAMESPACES, {"metadata": {"name": "n"}})
        monkeypatch.setattr(keeping.writer, "store", failing)
        await server.delete(f"{NAMESPACES}/n/serviceaccounts/default")

        async def status() -> int:
            await clock.advance(1)
            return (await server.call("GET", f"{NAMESPACES}/n/serviceaccounts/default")).status

        await eventually(status, until=lambda found: found == 200)
        assert restarts() == before + 1
