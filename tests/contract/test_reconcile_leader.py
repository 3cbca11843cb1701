"""Leader election on a Lease of a real server: two candidates, fenced writes, times in the form others read."""

from __future__ import annotations

import asyncio
import re

import pytest

from shoal.base.clock import FakeClock
from shoal.client import Client, LostLease, Obj, builtin
from shoal.reconcile import Elector, LeaseLock

LEASES = builtin("leases", "coordination.k8s.io")
MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


class Candidate:
    def __init__(self, cluster, identity: str, clock: FakeClock) -> None:
        self.client: Client = cluster.client()
        lock = LeaseLock(self.client, cluster.namespace, "leader")
        self.elector = Elector(lock, identity, clock=clock, random=lambda: 0.0)
        self.stop = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def start(self) -> Candidate:
        self.task = asyncio.create_task(self.elector.run(self.lead), name="candidate")
        return self

    async def lead(self) -> None:
        await self.stop.wait()

    async def end(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait([self.task])


async def until(clock: FakeClock, true, *, step_s: float = 1.0) -> None:
    """Let time pass on both clocks until something is true."""
    async with asyncio.timeout(20):
        while not true():
            await clock.advance(step_s)
            await asyncio.sleep(0.01)


async def lease_of(cluster) -> Obj:
    return (await cluster.client().of(LEASES).get("leader", cluster.namespace))["spec"]


def test_one_leads_and_the_other_follows_when_it_stops(api, clock: FakeClock) -> None:
    async def test(cluster) -> None:
        one = Candidate(cluster, "one", clock).start()
        await until(clock, one.elector.leading.is_set)
        two = Candidate(cluster, "two", clock).start()
        await until(clock, lambda: two.elector.leader == "one")
        spec = await lease_of(cluster)
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("one", 15, 0)
        assert MICRO_TIME.fullmatch(spec["renewTime"]) and MICRO_TIME.fullmatch(spec["acquireTime"])

        for _ in range(60):  # many leases long, in steps that let the renewals through
            await clock.advance(1)
            await asyncio.sleep(0.005)
        assert one.elector.fence.held and not two.elector.leading.is_set()
        assert (await lease_of(cluster))["renewTime"] > spec["renewTime"]

        one.stop.set()
        await until(clock, two.elector.leading.is_set)
        assert (await lease_of(cluster))["leaseTransitions"] == 1
        await two.end()
        await one.end()
        assert (await lease_of(cluster)).get("holderIdentity", "") == ""

    api.run(test, clock=clock)


def test_a_leader_cut_off_from_the_server_stops_before_the_next_one_starts(api, clock: FakeClock) -> None:
    async def test(cluster) -> None:
        one = Candidate(cluster, "one", clock).start()
        await until(clock, one.elector.leading.is_set)
        maps = one.client.fenced(one.elector.fence).of(builtin("configmaps"))
        await maps.create({"metadata": {"name": "mine", "namespace": cluster.namespace}})
        two = Candidate(cluster, "two", clock).start()
        await until(clock, lambda: two.elector.leader == "one")

        async def away(*_: object, **__: object) -> object:
            await asyncio.Event().wait()
            raise AssertionError

        one.client._transport = type("Away", (), {"request": staticmethod(away)})()  # type: ignore[assignment]
        both = []

        def taken_over() -> bool:
            both.append(one.elector.fence.held and two.elector.fence.held)
            return two.elector.leading.is_set()

        await until(clock, taken_over, step_s=0.5)
        assert not any(both)
        with pytest.raises(LostLease):
            await maps.delete("mine", cluster.namespace)
        assert one.task is not None
        with pytest.raises(LostLease):
            await one.task
        await two.end()

    api.run(test, clock=clock)


def test_what_others_put_on_the_lease_is_kept(api, clock: FakeClock) -> None:
    async def test(cluster) -> None:
        one = Candidate(cluster, "one", clock).start()
        await until(clock, one.elector.leading.is_set)
        leases = cluster.client().of(LEASES)
        await leases.patch("leader", {"metadata": {"labels": {"team": "a"}}}, cluster.namespace)
        before = (await lease_of(cluster))["renewTime"]
        for _ in range(12):
            await clock.advance(1)
            await asyncio.sleep(0.01)
        lease = await leases.get("leader", cluster.namespace)
        assert lease["spec"]["renewTime"] > before
        assert lease["metadata"]["labels"] == {"team": "a"}
        assert one.elector.fence.held
        await one.end()

    api.run(test, clock=clock)
