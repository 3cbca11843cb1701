"""The reflector's promise: the cache equals the server, through cuts, refusals, 410s and random writes."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Mapping
from random import Random
from typing import Any

import orjson
import pytest

from shoal.base import logs
from shoal.base.clock import FakeClock
from shoal.client import ResourceClient, Scope, builtin
from shoal.client.errors import Disconnected
from shoal.client.transport import Reply, StreamReply, Transport
from shoal.errors import BadRequest, Expired, InternalError, NotFound
from shoal.reconcile import Cache, Change, ChangeType, ObjectKey, Reflector, ReflectorConfig, key_of
from shoal.reconcile.keys import version_of
from shoal.testing.waiting import eventually

CONFIG_MAPS = builtin("configmaps")
ERROR_410 = b'{"type":"ERROR","object":%b}\n' % orjson.dumps(Expired("too old resource version").status())


class FaultyStream:
    """A stream that can be cut, between pieces or in the middle of one."""

    def __init__(self, inner: StreamReply, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults
        self.status = inner.status
        self.headers = inner.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        async for piece in self._inner.chunks():
            fault = self._faults.pick()
            if fault == "cut":
                raise Disconnected("cut by the test")
            if fault == "half":
                yield piece[: len(piece) // 2]
                raise Disconnected("cut by the test")
            if fault == "late":  # the server had sent it, we had not read it: the stream just ends
                return
            if fault == "gone":
                yield ERROR_410
                return
            yield piece

    async def close(self) -> None:
        await self._inner.close()


class Faults:
    """A transport with faults; ``odds`` of 0 is a faultless one."""

    def __init__(self, inner: Transport, seed: int = 0, *, odds: float = 0.0, refuse_lists: bool = False) -> None:
        self._inner = inner
        self._random = Random(seed)
        self.kinds = ["cut", "half", "late", "gone"]
        self.odds = odds
        self.refuse_watch_lists = refuse_lists
        self.fail_streams = 0
        self.told = False  # their errors are in the log already
        self.cannot_watch_list = False
        self.targets: list[str] = []

    def pick(self) -> str:
        if self._random.random() >= self.odds:
            return ""
        return self._random.choice(self.kinds)

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        self.targets.append(target)
        return await self._inner.request(method, target, headers=headers, body=body)

    async def stream(
        self, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> StreamReply:
        self.targets.append(target)
        if self.fail_streams:
            self.fail_streams -= 1
            refused = Disconnected("refused by the test")
            refused.told = self.told  # as by a client that knows of the outage
            raise refused
        if self.cannot_watch_list and "sendInitialEvents" in target:
            return Unable()
        if self.refuse_watch_lists and "sendInitialEvents" in target:
            return Refusal()
        return FaultyStream(await self._inner.stream(method, target, headers=headers, body=body), self)

    async def close(self) -> None:
        await self._inner.close()


class Unable:
    """As of a server whose storage cannot tell how far a watch has come."""

    status = 200
    headers: Mapping[str, str] = {}

    async def chunks(self) -> AsyncIterator[bytes]:
        error = InternalError("the required storage feature RequestWatchProgress is disabled").status()
        yield b'{"type":"ERROR","object":%b}\n' % orjson.dumps(error)

    async def close(self) -> None:
        pass


class Refusal:
    status = 400
    headers: Mapping[str, str] = {}

    async def chunks(self) -> AsyncIterator[bytes]:
        yield orjson.dumps(BadRequest("sendInitialEvents is not known here").status())

    async def close(self) -> None:
        pass


class Mirror:
    """Builds a copy from changes alone: equal to the cache only if handlers received each change once."""

    def __init__(self, cache: Cache) -> None:
        self.objects: dict[ObjectKey, dict[str, Any]] = {}
        self.faults: list[str] = []  # exceptions of handlers are only logged
        cache.add_handler(self.see)

    def see(self, change: Change) -> None:
        known = self.objects.get(change.key)
        if known is not change.old and change.type is not ChangeType.DELETED:
            self.faults.append(f"{change.key} {change.type}: what was there is not what was told before")
        if change.type is ChangeType.UPDATED and version_of(change.object) == version_of(change.old or {}):
            self.faults.append(f"{change.key} was told twice")
        if change.type is ChangeType.DELETED and self.objects.pop(change.key, None) is None:
            self.faults.append(f"{change.key} was deleted and was not there")
        if change.type is not ChangeType.DELETED:
            self.objects[change.key] = change.object


class Setup:
    """A reflector on a faulty transport, writes on a good one."""

    def __init__(self, cluster, clock: FakeClock, faults: Faults, **config: Any) -> None:
        self.scope = Scope(namespace=cluster.namespace)
        self.clock = clock
        self.faults = faults
        self.maps: ResourceClient = cluster.client().of(CONFIG_MAPS)
        self.cache = Cache(guard=True)
        self.mirror = Mirror(self.cache)
        self.reflector = Reflector(
            cluster.client(faults).of(CONFIG_MAPS), self.cache, clock=clock, random=Random(1).random, scope=self.scope,
            config=ReflectorConfig(**config),
        )  # fmt: skip
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Setup:
        self.task = asyncio.create_task(self.reflector.run(), name="reflector")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.task is not None
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task

    async def until(self, true) -> None:
        """Let time pass on both clocks until something is true."""

        async def check() -> bool:
            if true():
                return True
            if self.task is None or self.task.done():
                raise RuntimeError(f"the reflector has ended: {self.task}")
            await self.clock.advance(0.5)
            return False

        await eventually(check, timeout_s=20, every_s=0.002)

    async def converged(self) -> None:
        listed = await self.maps.list(self.scope)
        expected = {key_of(obj): obj["metadata"]["resourceVersion"] for obj in listed.items}
        await self.until(lambda: {key_of(obj): obj["metadata"]["resourceVersion"] for obj in self.cache} == expected)
        assert self.mirror.objects == {key_of(obj): obj for obj in self.cache}
        assert not self.mirror.faults
        self.cache.verify()


async def write_at_random(maps: ResourceClient, namespace: str, random: Random, count: int) -> None:
    for _ in range(count):
        name = f"m{random.randrange(8)}"
        verb = random.choice(["apply", "apply", "delete"])
        if verb == "delete":
            try:
                await maps.delete(name, namespace)
            except NotFound:
                pass
        else:
            about = {"name": name, "namespace": namespace}
            await maps.apply({"metadata": about, "data": {"n": str(random.random())}}, force=True)
        if random.random() < 0.2:
            await asyncio.sleep(0)


@pytest.mark.parametrize("watch_list", [True, False], ids=["watch list", "list"])
async def test_the_cache_follows_the_server(api, clock: FakeClock, watch_list: bool) -> None:
    async with api.opened(clock=clock) as cluster:
        faults = Faults(cluster.transport)
        async with Setup(cluster, clock, faults, watch_list=watch_list) as setup:
            await setup.until(setup.cache.synced.is_set)
            await write_at_random(setup.maps, cluster.namespace, Random(5), 40)
            await setup.converged()
            assert setup.reflector.lists == 1
        assert any("sendInitialEvents" in target for target in faults.targets) is watch_list


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("watch_list", [True, False], ids=["watch list", "list"])
async def test_the_cache_converges_after_any_cuts_and_expired_versions(
    api, clock: FakeClock, seed: int, watch_list: bool
) -> None:
    async with api.opened(clock=clock) as cluster:
        faults = Faults(cluster.transport, seed, odds=0.35)
        async with Setup(cluster, clock, faults, watch_list=watch_list) as setup:
            random = Random(seed)
            for _ in range(6):
                await write_at_random(setup.maps, cluster.namespace, random, 15)
                await clock.advance(3)
            faults.odds = 0.0
            await setup.converged()


async def test_a_server_that_refuses_watch_lists_is_listed_and_not_asked_again(api, clock: FakeClock) -> None:
    async with api.opened(clock=clock) as cluster:
        faults = Faults(cluster.transport, refuse_lists=True)
        async with Setup(cluster, clock, faults) as setup:
            await setup.maps.create({"metadata": {"name": "a", "namespace": cluster.namespace}})
            await setup.converged()
            faults.odds = 1.0
            await setup.maps.patch("a", {"data": {"x": "1"}}, cluster.namespace)
            await clock.advance(60)
            faults.odds = 0.0
            await setup.converged()
        assert sum("sendInitialEvents" in target for target in faults.targets) == 1


async def test_a_server_whose_storage_has_no_watch_lists_is_listed_at_once(api, clock: FakeClock) -> None:
    async with api.opened(clock=clock) as cluster:
        faults = Faults(cluster.transport)
        faults.cannot_watch_list = True
        async with Setup(cluster, clock, faults) as setup:
            await setup.maps.create({"metadata": {"name": "a", "namespace": cluster.namespace}})
            await setup.converged()
            assert setup.reflector.failures == 0
        assert sum("sendInitialEvents" in target for target in faults.targets) == 1


class CutOnce(Faults):
    """Cuts streams until others are refused: a new one is whole."""

    async def stream(
        self, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> StreamReply:
        if self.fail_streams:
            self.odds = 0.0
        return await super().stream(method, target, headers=headers, body=body)


async def test_an_outage_is_no_line_per_watch(api, clock: FakeClock) -> None:
    stream = io.StringIO()
    async with api.opened(clock=clock) as cluster:
        faults = CutOnce(cluster.transport)
        async with Setup(cluster, clock, faults) as setup:
            await setup.maps.create({"metadata": {"name": "a", "namespace": cluster.namespace}})
            await setup.converged()
            logs.configure(stream=stream, clock=clock)
            try:
                faults.kinds, faults.told = ["cut"], True
                for number in range(2):  # also when it had failed before
                    await setup.until(lambda: setup.reflector.watching)
                    await clock.advance(5)  # established for a while
                    faults.odds, faults.fail_streams = 1.0, 4
                    await setup.maps.patch("a", {"data": {"x": str(number)}}, cluster.namespace)
                    await setup.until(lambda: faults.fail_streams < 4)  # the stream was cut
                    faults.odds = 0.0
                    await setup.converged()
            finally:
                logs.configure()
    assert "the watch failed" not in stream.getvalue()


async def test_a_server_that_ignores_watch_lists_is_detected_by_its_silence(api, clock: FakeClock) -> None:
    async with api.opened(clock=clock) as cluster:

        class Ignorant(Faults):
            async def stream(self, method, target, **options):
                return await super().stream(
                    method,
                    target.replace("&sendInitialEvents=true", "")
                    .replace("&resourceVersionMatch=NotOlderThan", "")
                    .replace("&allowWatchBookmarks=true", ""),
                    **options,
                )

        faults = Ignorant(cluster.transport)
        async with Setup(cluster, clock, faults, initial_idle_s=10.0) as setup:
            await setup.maps.create({"metadata": {"name": "a", "namespace": cluster.namespace}})
            assert not setup.cache.synced.is_set()
            await setup.converged()


async def test_a_watch_resumes_from_where_it_was(api, clock: FakeClock) -> None:
    async with api.opened(clock=clock) as cluster:
        faults = Faults(cluster.transport)
        async with Setup(cluster, clock, faults) as setup:
            await setup.until(lambda: setup.reflector.watching)
            seen = await setup.maps.create({"metadata": {"name": "seen", "namespace": cluster.namespace}})
            await setup.converged()
            faults.odds = 1.0
            faults.kinds = ["cut"]
            await setup.maps.create({"metadata": {"name": "cut", "namespace": cluster.namespace}})
            await setup.until(lambda: setup.reflector.failures > 0)
            faults.odds = 0.0
            await setup.converged()
            assert setup.reflector.lists == 1  # it did not list again
            assert f"&resourceVersion={version_of(seen)}&" in faults.targets[-1]


async def test_410_lists_again_and_reports_deletions_in_between(api, clock: FakeClock) -> None:
    async with api.opened(clock=clock) as cluster:
        faults = Faults(cluster.transport)
        async with Setup(cluster, clock, faults) as setup:
            await setup.maps.create({"metadata": {"name": "a", "namespace": cluster.namespace}})
            await setup.converged()
            gone: list[Change] = []
            setup.cache.add_handler(lambda change: gone.append(change) if change.type == "deleted" else None)
            faults.odds = 1.0
            faults.kinds = ["gone"]
            await setup.maps.delete("a", cluster.namespace)
            await setup.until(lambda: setup.reflector.failures > 0)
            faults.odds = 0.0
            await setup.converged()
            assert setup.reflector.lists == 2
            assert [(change.key.name, change.final_state_known) for change in gone] == [("a", False)]


async def test_failures_back_off_and_a_healthy_time_resets_them(api, clock: FakeClock) -> None:
    async with api.opened(clock=clock) as cluster:
        faults = Faults(cluster.transport)
        faults.fail_streams = 10**9
        async with Setup(cluster, clock, faults, healthy_s=120.0) as setup:
            await clock.advance(300)
            attempts = len(faults.targets)
            # unspaced it would be thousands; with 30 s at most and half of that on average about twenty
            assert 10 <= attempts <= 60
            assert setup.reflector.failures == attempts
            faults.fail_streams = 0
            await setup.until(lambda: setup.reflector.watching)
            assert setup.reflector.failures > 0
            await clock.advance(700)  # past the watch's own time
            await setup.until(lambda: setup.reflector.failures <= 1)


async def test_a_dead_connection_is_noticed(api, clock: FakeClock) -> None:
    class Silent(FaultyStream):
        async def chunks(self) -> AsyncIterator[bytes]:
            async for piece in self._inner.chunks():
                yield piece
                if b"initial-events-end" in piece:
                    await asyncio.Event().wait()

    async with api.opened(clock=clock) as cluster:

        class Dying(Faults):
            streams = 0

            async def stream(self, method, target, **options):
                self.streams += 1
                reply = await self._inner.stream(method, target, **options)
                return Silent(reply, self) if self.streams == 1 else reply

        faults = Dying(cluster.transport)
        async with Setup(cluster, clock, faults, watch_s=300, grace_s=30.0) as setup:
            await setup.until(lambda: setup.reflector.watching)
            await setup.maps.create({"metadata": {"name": "a", "namespace": cluster.namespace}})
            await clock.advance(299)
            assert faults.streams == 1
            await clock.advance(340)
            await setup.converged()


async def test_selectors_narrow_what_is_kept(api, clock: FakeClock) -> None:
    async with api.opened(clock=clock) as cluster:
        ns = cluster.namespace
        maps = cluster.client().of(CONFIG_MAPS)
        cache = Cache()
        came, went = asyncio.Event(), asyncio.Event()
        cache.add_handler(lambda change: (went if change.type is ChangeType.DELETED else came).set())
        scope = Scope(namespace=ns, label_selector="colour=red")
        reflector = Reflector(maps, cache, clock=clock, random=Random(1).random, scope=scope)
        task = asyncio.create_task(reflector.run(), name="reflector")
        try:
            async with asyncio.timeout(10):
                await maps.create({"metadata": {"name": "b", "namespace": ns}})
                await maps.create({"metadata": {"name": "a", "namespace": ns, "labels": {"colour": "red"}}})
                await came.wait()
                assert cache.keys() == (ObjectKey(ns, "a"),)
                await maps.patch("a", {"metadata": {"labels": {"colour": "blue"}}}, ns)
                await went.wait()
                assert len(cache) == 0
        finally:
            task.cancel()
            await asyncio.wait([task])
