"""Leader election on a real server, with every kind of lock: two candidates, fenced writes, readable times."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from redis.asyncio import Redis

from shoal.base.clock import FakeClock
from shoal.client import Client, LostLease, TransportError, builtin
from shoal.client.transport import Reply, StreamReply, Transport
from shoal.errors import AlreadyExists, Conflict
from shoal.kube.objects import Obj
from shoal.reconcile import Elector, LeaseLock, Lock, LockRecord
from shoal.reconcile.redis_lock import RedisLock
from shoal.testing.databases import redis_server, shared_redis

LEASES = builtin("leases", "coordination.k8s.io")
MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_scopes = itertools.count()


class Busy:
    """How many calls of candidates' locks are under way. Time stands still until they have been answered: on a slow
    machine a renewal would otherwise take many seconds of the fake clock, and be late."""

    def __init__(self) -> None:
        self.calls = 0
        self.idle = asyncio.Event()

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def counting(*args: Any) -> Any:
            self.calls += 1
            try:
                return await call(*args)
            finally:
                self.forget()

        return counting

    def forget(self) -> None:
        """One call has ended, or time must not wait for it."""
        self.calls -= 1
        self.idle.set()

    async def over(self) -> None:
        await asyncio.sleep(0)
        while self.calls:
            self.idle.clear()
            await self.idle.wait()


class Leases:
    """Locks in a Lease. It has no clock: candidates measure time themselves."""

    def __init__(self) -> None:
        self.busy = Busy()

    def of(self, client: Client, namespace: str) -> Lock:
        return LeaseLock(client, namespace, "leader")

    async def passed(self, seconds: float) -> None:
        """So much time has passed on the candidates' clock."""

    async def close(self) -> None: ...


class RedisLocks:
    """Locks in Redis, whose clock follows the fake one."""

    def __init__(self, url: str, scope: str) -> None:
        self.redis: Redis = Redis.from_url(url)
        self.scope = scope
        self.busy = Busy()
        self._ids = itertools.count()

    def of(self, client: Client, namespace: str) -> RedisLock:
        self.key = f"shoal:lock:{{{self.scope}/{namespace}/leader}}"
        return RedisLock(
            self.redis, client, namespace, "leader", scope=self.scope, new_id=lambda: f"v{next(self._ids)}"
        )

    async def passed(self, seconds: float) -> None:
        left_ms = await self.redis.pttl(self.key)
        if left_ms > 0:
            await self.redis.pexpire(self.key, max(1, left_ms - int(seconds * 1000)))

    async def expire(self) -> None:
        """All of the holder's time has passed."""
        await self.redis.delete(self.key)

    async def close(self) -> None:
        await self.redis.aclose()


Locks = Leases | RedisLocks


@pytest.fixture(params=["lease", "redis"])
def locks(request: pytest.FixtureRequest) -> Callable[[], Locks]:
    """Every kind of lock."""
    if request.param == "lease":
        return Leases
    return lambda: RedisLocks(shared_redis().url, f"test-{next(_scopes)}")


@asynccontextmanager
async def opened(locks: Callable[[], Locks]) -> AsyncIterator[Locks]:
    found = locks()
    try:
        yield found
    finally:
        await found.close()


async def _pass(method: str) -> None:
    """Let a request through."""


class InterruptedTransport:
    """A transport that waits for ``before`` with each request."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.before: Callable[[str], Awaitable[None]] = _pass

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        await self.before(method)
        return await self._inner.request(method, target, headers=headers, body=body)

    async def stream(
        self, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> StreamReply:
        return await self._inner.stream(method, target, headers=headers, body=body)

    async def close(self) -> None:
        await self._inner.close()


class Candidate:
    def __init__(self, cluster: Any, locks: Locks, identity: str, clock: FakeClock) -> None:
        self.transport = InterruptedTransport(cluster.transport)
        self.client: Client = cluster.client(self.transport)
        self.lock = locks.of(self.client, cluster.namespace)
        for call in ("get", "create", "update"):
            setattr(self.lock, call, locks.busy.counted(getattr(self.lock, call)))
        self.elector = Elector(self.lock, identity, clock=clock, random=lambda: 0.0)
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


async def until(clock: FakeClock, locks: Locks, true: Callable[[], bool], *, step_s: float = 1.0) -> None:
    """Let time pass on all clocks until something is true."""
    async with asyncio.timeout(20):
        while not true():
            await clock.advance(step_s)
            await locks.busy.over()  # first: a renewal meanwhile would be taken back
            await locks.passed(step_s)


async def pass_time(clock: FakeClock, locks: Locks, seconds: int) -> None:
    """In steps that let the renewals through."""
    for _ in range(seconds):
        await clock.advance(1)
        await locks.busy.over()
        await locks.passed(1)


async def lease_of(cluster: Any) -> Obj:
    return (await cluster.client().of(LEASES).get("leader", cluster.namespace))["spec"]


async def record_of(cluster: Any, locks: Locks) -> LockRecord:
    record = await locks.of(cluster.client(), cluster.namespace).get()
    assert record is not None
    return record


async def test_one_leads_and_the_other_follows_when_it_stops(
    api: Any, clock: FakeClock, locks: Callable[[], Locks]
) -> None:
    async with api.opened(clock=clock) as cluster:
        async with opened(locks) as used:
            one = Candidate(cluster, used, "one", clock).start()
            await until(clock, used, one.elector.leading.is_set)
            two = Candidate(cluster, used, "two", clock).start()
            await until(clock, used, lambda: two.elector.leader == "one")
            spec, record = await lease_of(cluster), await record_of(cluster, used)
            assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("one", 15)
            assert MICRO_TIME.fullmatch(spec["renewTime"]) and MICRO_TIME.fullmatch(spec["acquireTime"])
            assert spec["leaseTransitions"] == record.transitions

            await pass_time(clock, used, 60)  # many leases long
            assert one.elector.fence.held and not two.elector.leading.is_set()
            assert (await record_of(cluster, used)).renewed_at > record.renewed_at

            one.stop.set()
            await until(clock, used, two.elector.leading.is_set)
            assert (await lease_of(cluster))["leaseTransitions"] == record.transitions + 1
            await two.end()
            await one.end()
            assert (await lease_of(cluster)).get("holderIdentity", "") == ""


async def test_a_leader_cut_off_from_the_server_stops_before_the_next_one_starts(
    api: Any, clock: FakeClock, locks: Callable[[], Locks]
) -> None:
    async with api.opened(clock=clock) as cluster:
        async with opened(locks) as used:
            one = Candidate(cluster, used, "one", clock).start()
            await until(clock, used, one.elector.leading.is_set)
            maps = cluster.client().fenced(one.elector.fence).of(builtin("configmaps"))
            await maps.create({"metadata": {"name": "mine", "namespace": cluster.namespace}})
            two = Candidate(cluster, used, "two", clock).start()
            await until(clock, used, lambda: two.elector.leader == "one")

            async def away(method: str) -> None:
                used.busy.forget()
                try:
                    await asyncio.Event().wait()
                finally:
                    used.busy.calls += 1

            one.transport.before = away
            both = []

            def taken_over() -> bool:
                both.append(one.elector.fence.held and two.elector.fence.held)
                return two.elector.leading.is_set()

            await until(clock, used, taken_over, step_s=0.5)
            assert not any(both)
            with pytest.raises(LostLease):
                await maps.delete("mine", cluster.namespace)
            assert one.task is not None
            with pytest.raises(LostLease):
                await one.task
            await two.end()


async def test_fields_of_other_writers_on_the_lease_are_kept(
    api: Any, clock: FakeClock, locks: Callable[[], Locks]
) -> None:
    async with api.opened(clock=clock) as cluster:
        async with opened(locks) as used:
            one = Candidate(cluster, used, "one", clock).start()
            await until(clock, used, one.elector.leading.is_set)
            leases = cluster.client().of(LEASES)
            await leases.patch("leader", {"metadata": {"labels": {"team": "a"}}}, cluster.namespace)
            before = (await record_of(cluster, used)).renewed_at
            await pass_time(clock, used, 12)
            assert (await record_of(cluster, used)).renewed_at > before
            assert one.elector.fence.held
            await one.end()
            lease = await leases.get("leader", cluster.namespace)
            assert lease["metadata"]["labels"] == {"team": "a"}
            assert not lease["spec"].get("holderIdentity")


async def test_a_paused_leader_cannot_write_once_another_leads(
    api: Any, clock: FakeClock, locks: Callable[[], Locks]
) -> None:
    """Its own clock stands still while it is paused, so its client would let the write pass: the server does not."""

    async with api.opened(clock=clock) as cluster:
        async with opened(locks) as used:
            standing = FakeClock()
            one = Candidate(cluster, used, "one", standing)
            await one.elector.acquire()
            maps = one.client.fenced(one.elector.fence).of(builtin("configmaps"))
            await maps.create({"metadata": {"name": "before", "namespace": cluster.namespace}})
            two = Candidate(cluster, used, "two", clock).start()
            await until(clock, used, two.elector.leading.is_set)

            assert one.elector.fence.held, "as far as the paused one knows"
            with pytest.raises(Conflict, match="fenced off"):
                await maps.create({"metadata": {"name": "after", "namespace": cluster.namespace}})
            with pytest.raises(Conflict, match="fenced off"):
                await maps.delete("before", cluster.namespace)
            theirs = two.client.fenced(two.elector.fence).of(builtin("configmaps"))
            await theirs.delete("before", cluster.namespace)
            await two.end()


# What only the lock in Redis has to prove.


@pytest.fixture
def redis_locks() -> Callable[[], RedisLocks]:
    return lambda: RedisLocks(shared_redis().url, f"test-{next(_scopes)}")


async def test_numbers_go_on_rising_when_redis_has_lost_its_memory(
    api: Any, clock: FakeClock, redis_locks: Callable[[], RedisLocks]
) -> None:
    async with api.opened(clock=clock) as cluster:
        async with opened(redis_locks) as used:
            numbers = []
            for _ in range(3):
                one = Candidate(cluster, used, "one", clock)
                await one.elector.acquire()
                numbers.append((await lease_of(cluster))["leaseTransitions"])
                await one.elector.release()
            old = Candidate(cluster, used, "old", clock)
            await old.elector.acquire()
            maps = old.client.fenced(old.elector.fence).of(builtin("configmaps"))
            await used.redis.delete(used.key, f"{used.key}:number")
            new = Candidate(cluster, used, "new", clock)
            await new.elector.acquire()
            numbers.append((await lease_of(cluster))["leaseTransitions"])
            assert numbers == sorted(set(numbers))
            with pytest.raises(Conflict, match="fenced off"):
                await maps.create({"metadata": {"name": "late", "namespace": cluster.namespace}})
            holding = asyncio.create_task(old.elector.hold(), name="hold")
            await until(clock, used, old.elector.lost.is_set)
            with pytest.raises(LostLease):  # and it learns of it at its next renewal
                await holding
            assert new.elector.leader == "new"


async def test_a_candidate_that_was_paused_before_it_led_does_not_lead(
    api: Any, clock: FakeClock, redis_locks: Callable[[], RedisLocks]
) -> None:
    """It has won in Redis, and its time runs out before it has written the Lease."""

    async with api.opened(clock=clock) as cluster:
        async with opened(redis_locks) as used:
            first = Candidate(cluster, used, "first", clock)
            await first.elector.acquire()
            await first.elector.release()
            one, two = Candidate(cluster, used, "one", clock), Candidate(cluster, used, "two", clock)
            paused, go_on = asyncio.Event(), asyncio.Event()

            async def pause_writes(method: str) -> None:
                if method == "PUT":
                    paused.set()
                    await go_on.wait()

            one.transport.before = pause_writes
            now = "2026-01-02T03:04:05.000006Z"
            wanted = LockRecord(holder="one", lease_s=15, acquired_at=now, renewed_at=now)
            taking = asyncio.create_task(one.lock.create(wanted), name="one")
            await paused.wait()
            await used.expire()
            await two.elector.acquire()
            go_on.set()
            with pytest.raises(Conflict):
                await taking
            assert (await lease_of(cluster))["holderIdentity"] == "two"
            assert (await record_of(cluster, used)).holder == "two"


async def test_only_redis_decides_when_the_lock_expires(
    api: Any, clock: FakeClock, redis_locks: Callable[[], RedisLocks]
) -> None:
    async with api.opened(clock=clock) as cluster:
        async with opened(redis_locks) as used:
            one = Candidate(cluster, used, "one", clock)
            await one.elector.acquire()
            left_ms = await used.redis.pttl(used.key)
            assert 14_000 < left_ms <= 15_000
            record = await record_of(cluster, used)
            other = used.of(cluster.client(), cluster.namespace)
            with pytest.raises(Conflict):
                await other.update(replace(record, holder="two", transitions=record.transitions + 1))
            with pytest.raises(AlreadyExists):
                await one.lock.create(record)
            await used.expire()
            with pytest.raises(Conflict):  # what has run out is begun anew, not gone on with
                await one.lock.update(replace(record, transitions=record.transitions + 1))
            taken = await other.create(replace(record, holder="two"))
            assert taken.transitions == record.transitions + 1
            with pytest.raises(Conflict):
                await one.lock.update(record)


async def test_a_leader_whose_name_is_no_longer_in_the_lease_gives_up(
    api: Any, clock: FakeClock, redis_locks: Callable[[], RedisLocks]
) -> None:
    async with api.opened(clock=clock) as cluster:
        async with opened(redis_locks) as used:
            one = Candidate(cluster, used, "one", clock).start()
            await until(clock, used, one.elector.leading.is_set)
            leases = cluster.client().of(LEASES)
            await leases.patch("leader", {"spec": {"holderIdentity": "a person"}}, cluster.namespace)
            await until(clock, used, one.elector.lost.is_set)
            assert one.task is not None
            with pytest.raises(LostLease):
                await one.task


async def test_an_unavailable_redis_is_a_transport_error(api: Any, clock: FakeClock) -> None:
    @asynccontextmanager
    async def away() -> AsyncIterator[RedisLocks]:
        server = redis_server()
        with server as started:
            locks = RedisLocks(started.url, "away")
            started.stop()
            yield locks
            await locks.close()

    async with api.opened(clock=clock) as cluster:
        async with away() as used:
            lock = used.of(cluster.client(), cluster.namespace)
            for asking in (lock.get(), lock.create(LockRecord(holder="one", lease_s=15))):
                with pytest.raises(TransportError, match="Redis did not respond"):
                    await asking
