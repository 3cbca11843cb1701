"""The resync's promise: whatever the watch has missed, the cache equals the server again after a period."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from tests.contract.test_client_watch import forget

from shoal.base.clock import FakeClock
from shoal.base.metrics import Metrics
from shoal.client import ResourceClient, Scope, builtin
from shoal.errors import ConfigError
from shoal.reconcile import Change, ChangeType, Informer, ObjectKey, ResyncConfig, ResyncMetrics, key_of
from shoal.reconcile.keys import version_of
from shoal.reconcile.resync import Difference
from shoal.testing.losses import LossyTransport
from shoal.testing.waiting import eventually

CONFIG_MAPS = builtin("configmaps")
PERIOD_S = 600.0


class Setup:
    """An informer over a lossy transport; writes and lists of the test use a good one."""

    def __init__(
        self, cluster: Any, clock: FakeClock, *, labels: str = "", transport: Any = None, **config: Any
    ) -> None:
        self.clock = clock
        self.namespace: str = cluster.namespace
        self.lossy = LossyTransport(transport or cluster.transport)
        self.scope = Scope(namespace=self.namespace, label_selector=labels)
        self.maps: ResourceClient = cluster.client().of(CONFIG_MAPS)
        self.metrics = ResyncMetrics(Metrics())
        self.informer = Informer(
            cluster.client(self.lossy).of(CONFIG_MAPS), clock=clock, random=Random(1).random, scope=self.scope,
            resync=ResyncConfig(metrics=self.metrics, period_s=PERIOD_S, **config),
        )  # fmt: skip
        self.cache = self.informer.cache
        self.seen: list[Change] = []
        self.cache.add_handler(self.seen.append)
        self.resyncs = 0
        self.informer.on_resync.append(self._count)

    def _count(self) -> None:
        self.resyncs += 1

    async def write(self, name: str, value: str = "1", **labels: str) -> None:
        about = {"name": name, "namespace": self.namespace, "labels": labels}
        await self.maps.apply({"metadata": about, "data": {"value": value}}, force=True)

    async def missed(self, *writes: Any) -> None:
        """The writes happen, and the watch misses the event of each."""
        before = self.lossy.lost
        self.lossy.losing = True
        for write in writes:
            await write
        await eventually(lambda: self.lossy.lost == before + len(writes))
        self.lossy.losing = False

    async def resynced(self) -> None:
        wanted = self.resyncs + 1

        async def check() -> bool:
            await self.clock.advance(PERIOD_S / 20)
            return self.resyncs >= wanted

        await eventually(check)

    async def equal(self) -> bool:
        listed = await self.maps.list(self.scope)
        return {key_of(each): version_of(each) for each in listed.items} == {
            key_of(each): version_of(each) for each in self.cache
        }

    def corrections(self) -> dict[str, int]:
        counts = {
            each.value: int(self.metrics.corrections.labels("configmaps", each.value).value) for each in Difference
        }
        return {difference: count for difference, count in counts.items() if count}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.informer.run(), name="informer")
        try:
            await eventually(lambda: self.informer.synced and self.informer.reflector.watching)
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_a_resync_corrects_whatever_the_watch_has_missed_and_counts_it(api: Any, clock: FakeClock) -> None:
    async with api.opened(clock=clock) as cluster:
        setup = Setup(cluster, clock)
        for name in ("stays", "changes", "goes"):
            await setup.write(name)
        async with setup.running():
            await setup.missed(
                setup.write("new"), setup.write("changes", "2"), setup.maps.delete("goes", setup.namespace)
            )
            assert not await setup.equal()
            setup.seen.clear()
            await setup.resynced()
            assert await setup.equal()
            assert setup.corrections() == {"missing": 1, "outdated": 1, "deleted": 1}
            told = {change.key.name: change.type for change in setup.seen}
            assert told == {"new": ChangeType.ADDED, "changes": ChangeType.UPDATED, "goes": ChangeType.DELETED}
            # the watch goes on as before
            await setup.write("new", "2")
            await eventually(setup.equal)
            await setup.resynced()
            assert setup.corrections() == {"missing": 1, "outdated": 1, "deleted": 1}


async def test_many_missed_events_cost_one_list_instead_of_a_request_each(api: Any, clock: FakeClock) -> None:
    async with api.opened(clock=clock) as cluster:
        setup = Setup(cluster, clock, page=20)
        async with setup.running():
            await setup.missed(*(setup.write(f"m{number}") for number in range(70)))
            await setup.resynced()
            assert await setup.equal()
            assert setup.corrections() == {"missing": 70}


async def test_an_object_that_was_made_anew_unseen_is_told_as_deleted_and_added(api: Any, clock: FakeClock) -> None:
    async with api.opened(clock=clock) as cluster:
        setup = Setup(cluster, clock)
        await setup.write("a")
        async with setup.running():
            await setup.missed(setup.maps.delete("a", setup.namespace), setup.write("a"))
            setup.seen.clear()
            await setup.resynced()
            assert await setup.equal()
            assert [change.type for change in setup.seen if change.key.name == "a"] == [
                ChangeType.DELETED,
                ChangeType.ADDED,
            ]


async def test_an_object_that_left_the_selector_unseen_leaves_the_cache(api: Any, clock: FakeClock) -> None:
    async with api.opened(clock=clock) as cluster:
        setup = Setup(cluster, clock, labels="team=a")
        await setup.write("leaves", team="a")
        await setup.write("enters", team="b")
        async with setup.running():
            await setup.missed(setup.write("leaves", team="b"), setup.write("enters", team="a"))
            await setup.resynced()
            assert {each.name for each in setup.cache.keys()} == {"enters"}
            assert setup.corrections() == {"missing": 1, "deleted": 1}


class NotingTransport:
    """Keeps the targets of requests, and calls ``between`` before the first one for a further part of a list."""

    def __init__(self, inner: Any, between: Callable[[], Awaitable[None]]) -> None:
        self._inner = inner
        self._between = between
        self.stream, self.close = inner.stream, inner.close
        self.targets: list[str] = []

    async def request(self, method: str, target: str, **options: Any) -> Any:
        if "continue=" in target and not any("continue=" in known for known in self.targets):
            await self._between()
        self.targets.append(target)
        return await self._inner.request(method, target, **options)


async def test_a_resync_whose_parts_expire_goes_on_in_parts(api: Any, clock: FakeClock) -> None:
    """One answer with all objects would hold up the server and this process."""
    async with api.opened(clock=clock) as cluster:
        leases, ns = cluster.client().of(builtin("leases", "coordination.k8s.io")), cluster.namespace
        for name in ("a", "b", "c"):
            await leases.create({"metadata": {"name": name, "namespace": ns}})
        noting = NotingTransport(cluster.transport, lambda: forget(leases, ns))
        metrics = ResyncMetrics(Metrics())
        informer = Informer(
            cluster.client(noting).of(leases.type), clock=clock, random=Random(1).random, scope=Scope(namespace=ns),
            resync=ResyncConfig(metrics=metrics, period_s=PERIOD_S, page=2),
        )  # fmt: skip
        done = asyncio.Event()
        informer.on_resync.append(done.set)
        task = asyncio.create_task(informer.run(), name="informer")
        try:
            await eventually(lambda: informer.synced and informer.reflector.watching)
            noting.targets.clear()

            async def resynced() -> bool:
                await clock.advance(PERIOD_S / 20)
                return done.is_set()

            await eventually(resynced, timeout_s=30)
            parts = [target for target in noting.targets if "limit=" in target or "continue=" in target]
            assert len(parts) > 2 and all("limit=2" in target for target in parts)
            assert {key.name for key in informer.cache.keys()} == {"a", "b", "c", *(f"busy-{n}" for n in range(8))}
        finally:
            task.cancel()
            await asyncio.wait([task])


class LateTransport:
    """A transport whose watches deliver only while ``open`` is set."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.request = inner.request
        self.close = inner.close
        self.open = asyncio.Event()
        self.open.set()

    async def stream(self, method: str, target: str, **options: Any) -> LateStream:
        return LateStream(await self._inner.stream(method, target, **options), self.open)


class LateStream:
    def __init__(self, inner: Any, open_: asyncio.Event) -> None:
        self.status, self.headers, self.close = inner.status, inner.headers, inner.close
        self._chunks, self._open = inner.chunks, open_

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._chunks():
            await self._open.wait()
            yield chunk


class NotingClock(FakeClock):
    """Remembers how long was slept."""

    def __init__(self) -> None:
        super().__init__()
        self.slept_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        await super().sleep(seconds)


async def test_a_watch_that_is_only_late_is_not_corrected(api: Any) -> None:
    """The list shows a write before the watch does; the event arrives before the time to settle is over."""
    clock, settle_s = NotingClock(), 7.0
    async with api.opened(clock=clock) as cluster:
        late = LateTransport(cluster.transport)
        setup = Setup(cluster, clock, transport=late, settle_s=settle_s)
        async with setup.running():
            late.open.clear()
            await setup.write("m")

            async def suspected() -> bool:
                for _ in range(int(PERIOD_S / 20)):  # in steps that are shorter than the time to settle
                    if settle_s in clock.slept_s or setup.corrections():
                        return True
                    await clock.advance(1.0)
                return False

            await eventually(suspected)
            assert not await setup.equal()
            late.open.set()
            await eventually(setup.equal)
            await clock.advance(settle_s)
            await eventually(lambda: setup.resyncs == 1)
            assert setup.corrections() == {}


async def test_a_resync_during_which_the_object_changes_again_does_not_set_the_cache_back(
    api: Any, clock: FakeClock
) -> None:
    async with api.opened(clock=clock) as cluster:
        setup = Setup(cluster, clock)
        async with setup.running():
            await setup.missed(setup.write("a", "1"))
            for value in range(2, 6):
                await setup.write("a", str(value))
                await clock.advance(PERIOD_S / 4)
            await setup.resynced()
            await eventually(setup.equal)
            versions = [int(version_of(change.object)) for change in setup.seen if change.key.name == "a"]
            assert versions == sorted(set(versions))
            assert setup.cache.get(ObjectKey(setup.namespace, "a")) is not None


def test_impossible_times_are_refused() -> None:
    with pytest.raises(ConfigError, match="period_s must be more than 0"):
        ResyncConfig(metrics=ResyncMetrics(Metrics()), period_s=0)
