"""Over the network: a controller against a real cluster service, errors as ours, a dead peer noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
from tests.unit.krane.krane_doubles import FakeCluster

from shoal.base.clock import RealClock
from shoal.base.connect import ConnectClient
from shoal.base.http2 import Http2Link, Peer
from shoal.base.metrics import Metrics
from shoal.errors import BadRequest, Forbidden, NotFound, ServiceUnavailable, Timeout, Unauthorized
from shoal.krane import stream as stream_module
from shoal.krane.cache import Cache, CacheOwner
from shoal.krane.config import JoinFile, Limits
from shoal.krane.controller import ControllerDeps, DeploymentController
from shoal.krane.metrics import KraneMetrics
from shoal.krane.model import Fenced, StreamHandlers
from shoal.krane.session import AgentSession
from shoal.krane.stream import Connection, Times
from shoal.sync.keys import StreamKind
from shoal.testing.fleet import ControlPlane, control_plane
from shoal.testing.proxy import TcpProxy
from shoal.testing.waiting import eventually
from shoal.wire.fleet.v1 import cluster_pb as pb

CLOCK = RealClock()
T = TypeVar("T")


@asynccontextmanager
async def connection(
    control: ControlPlane,
    *,
    cluster: str = "c1",
    token: str = "",
    url: str = "",
    urls: tuple[str, ...] = (),
    times: Times | None = None,
    max_calls: int = 3000,
) -> AsyncIterator[Connection]:
    join = JoinFile(
        url=url or ("" if urls else control.url),
        urls=urls,
        ca=control.ca.decode(),
        token=token or await control.agent_token("c1", "eu"),
        cluster=cluster,
        region="eu",
        shard="default",
    )
    made = Connection(lambda: join, clock=CLOCK, correlation="test", times=times, max_calls=max_calls)
    try:
        yield made
    finally:
        await made.close()


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Until it is answered: a short time limit may be too short for a busy machine."""
    async with asyncio.timeout(60):
        while True:
            with suppress(Timeout, ServiceUnavailable):
                return await call()


async def _joined(plane: Connection, cluster: str = "c1") -> AgentSession:
    session = AgentSession(cluster=cluster, region="eu", shard="default", agent="a1")
    answer = await plane.join(pb.JoinRequest(identity=session.identity, public_key=b"k" * 32))
    session.begin(answer.epoch)
    return session


def _controller(path: Path, plane: Connection, session: AgentSession, cluster: FakeCluster) -> DeploymentController:
    owner = CacheOwner(fleet="f", cluster="c1", shard="default", stream="deployments", public_key="00")
    return DeploymentController(
        ControllerDeps(
            plane=plane,
            session=session,
            handlers=StreamHandlers(cluster, cluster),
            cache=Cache.open(path / "deployments.cache", owner),
            metrics=KraneMetrics(Metrics()),
            clock=CLOCK,
            random=lambda: 0.5,
            limits=Limits(reconnect_base_s=0.1, reconnect_cap_s=0.5),
        )
    )


async def _hello(session: AgentSession, cursor: str = "") -> AsyncIterator[pb.WatchRequest]:
    from protobuf import Oneof

    yield pb.WatchRequest(request=Oneof("hello", pb.Hello(identity=session.identity, cursor=cursor)))
    await asyncio.Event().wait()


async def test_a_controller_follows_a_real_control_plane_through_a_restart(tmp_path: Path) -> None:
    async with control_plane(tmp_path / "control") as control:
        await control.add_cluster("c1", region="eu")
        key = await control.deploy("c1", "web", replicas=2)
        async with connection(control) as plane:
            cluster = FakeCluster()
            controller = _controller(tmp_path, plane, await _joined(plane), cluster)
            await controller.start()
            await eventually(lambda: key in cluster.objects, timeout_s=60)
            await eventually(lambda: controller.version_last_seen != "", timeout_s=60)
            other = await control.deploy("c1", "api")
            await eventually(lambda: other in cluster.objects, timeout_s=60)
            await control.restart()
            third = await control.deploy("c1", "late")
            await eventually(lambda: third in cluster.objects, timeout_s=60)
            await control.remove("c1", key, by_user=True)
            await eventually(lambda: cluster.deleted == [key], timeout_s=60)
            await eventually(lambda: controller.status()["unreported"] == 0, timeout_s=60)
            await controller.stop()
            assert set(cluster.objects) == {other, third}


async def test_after_many_calls_there_is_another_connection_and_streams_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_links: set[Http2Link] = set()

    class CountedLink(Http2Link):
        def __init__(self, peer: Peer) -> None:
            super().__init__(peer)
            open_links.add(self)

        async def close(self) -> None:
            await super().close()
            open_links.discard(self)

    monkeypatch.setattr(stream_module, "Http2Link", CountedLink)
    async with control_plane(tmp_path) as control:
        await control.add_cluster("c1", region="eu")
        async with connection(control, max_calls=5) as plane:
            session = await _joined(plane)
            async with aclosing(plane.watch(StreamKind.DEPLOYMENTS, _hello(session))) as events:
                while (await anext(events)).event.field != "sync_end":  # type: ignore[union-attr]
                    pass
                for _ in range(23):
                    await plane.heartbeat(pb.HeartbeatRequest(identity=session.identity))
                assert 1 < len(open_links) <= 3, "connections without streams are closed"
                key = await control.deploy("c1", "web")
                async with asyncio.timeout(30):
                    while (said := (await anext(events)).event) is None or said.field != "item":
                        pass
                assert said.value.key == key


async def test_errors_of_the_control_plane_become_errors_of_ours(tmp_path: Path) -> None:
    async with control_plane(tmp_path) as control:
        await control.add_cluster("c1", region="eu")
        await control.add_cluster("c2", region="eu")
        async with connection(control, token="nonsense") as plane:
            with pytest.raises(Unauthorized):
                await _joined(plane)
        async with connection(control) as plane:
            with pytest.raises(Forbidden):
                await _joined(plane, cluster="c2")
            old = await _joined(plane)
            session = await _joined(plane)
            request = pb.GetDesiredRequest(identity=session.identity, key="deployment/unknown")
            with pytest.raises(NotFound, match="deployment/unknown"):
                await plane.get_desired(StreamKind.DEPLOYMENTS, request)
            with pytest.raises(Fenced):
                await plane.heartbeat(pb.HeartbeatRequest(identity=old.identity))
            with pytest.raises(BadRequest, match="cursor"):
                await anext(plane.watch(StreamKind.DEPLOYMENTS, _hello(session, "nonsense")))
        async with connection(control, url="https://127.0.0.1:9") as plane:
            with pytest.raises(ServiceUnavailable):
                await _joined(plane)


async def test_a_cancelled_call_or_stream_is_cancelled_and_not_an_error(tmp_path: Path) -> None:
    async with control_plane(tmp_path) as control, TcpProxy(control.port) as proxy:
        await control.add_cluster("c1", region="eu")
        async with connection(control, url=f"https://127.0.0.1:{proxy.port}") as plane:
            session = await _joined(plane)
            welcomed = asyncio.Event()

            async def read() -> None:
                async for _ in plane.watch(StreamKind.DEPLOYMENTS, _hello(session)):
                    welcomed.set()

            stream = asyncio.create_task(read())
            await asyncio.wait_for(welcomed.wait(), 60)
            proxy.mute()
            call = asyncio.create_task(plane.heartbeat(pb.HeartbeatRequest(identity=session.identity)))
            await eventually(lambda: proxy.held > 0, timeout_s=60)
            for task in (stream, call):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            proxy.heal()


async def test_a_peer_that_stops_answering_is_noticed_and_replaced(tmp_path: Path) -> None:
    async with control_plane(tmp_path) as control, TcpProxy(control.port) as proxy:
        await control.add_cluster("c1", region="eu")
        times = Times(call_s=0.5, idle_s=100.0)
        async with connection(control, url=f"https://127.0.0.1:{proxy.port}", times=times) as plane:
            session = await patiently(lambda: _joined(plane))
            welcomed = asyncio.Event()

            async def read() -> None:
                async for _ in plane.watch(StreamKind.DEPLOYMENTS, _hello(session)):
                    welcomed.set()

            stream = asyncio.create_task(read())
            await asyncio.wait_for(welcomed.wait(), 60)
            proxy.mute()  # the connection stays open, and nothing comes any more
            async with asyncio.timeout(60):
                while not stream.done():
                    with pytest.raises((Timeout, ServiceUnavailable)):
                        await plane.heartbeat(pb.HeartbeatRequest(identity=session.identity))
                    await asyncio.sleep(0)
            with pytest.raises(ServiceUnavailable, match="stopped answering"):
                stream.result()
            proxy.heal()
            await patiently(lambda: plane.heartbeat(pb.HeartbeatRequest(identity=session.identity)))


async def test_an_agent_goes_on_at_the_next_url_and_comes_back_to_the_first(tmp_path: Path) -> None:
    async with (
        control_plane(tmp_path / "control") as control,
        TcpProxy(control.port) as first,
        TcpProxy(control.port) as second,
    ):
        await control.add_cluster("c1", region="eu")
        urls = (f"https://127.0.0.1:{first.port}", f"https://127.0.0.1:{second.port}")
        async with connection(control, urls=urls, times=Times(call_s=5.0, idle_s=100.0, return_s=0.5)) as plane:
            cluster = FakeCluster()
            session = await _joined(plane)
            controller = _controller(tmp_path, plane, session, cluster)
            await controller.start()
            await eventually(lambda: controller.state().connection == "watching", timeout_s=60)
            assert second.connections == 0
            first.refuse()
            key = await control.deploy("c1", "web")
            await eventually(lambda: key in cluster.objects, timeout_s=60)
            assert second.connections > 0 and controller.state().breaker == "closed"
            first.heal()

            async def back() -> bool:
                await plane.heartbeat(pb.HeartbeatRequest(identity=session.identity))
                return first.connections > 0

            await eventually(back, timeout_s=60)
            await eventually(lambda: controller.state().connection == "watching", timeout_s=60)
            second.refuse()
            other = await control.deploy("c1", "other")
            await eventually(lambda: other in cluster.objects, timeout_s=60)
            first.refuse()
            second.refuse()
            with pytest.raises(ServiceUnavailable):
                await plane.heartbeat(pb.HeartbeatRequest(identity=session.identity))
            first.heal()
            second.heal()
            await controller.stop()


async def test_a_control_plane_that_stops_answering_is_left_for_the_next(tmp_path: Path) -> None:
    async with control_plane(tmp_path / "control") as control, TcpProxy(control.port) as first:
        await control.add_cluster("c1", region="eu")
        urls = (f"https://127.0.0.1:{first.port}", control.url)
        async with connection(control, urls=urls, times=Times(call_s=2.0, idle_s=100.0)) as plane:
            session = await patiently(lambda: _joined(plane))
            first.mute()  # connections stay open, and nothing comes any more

            async def answered() -> bool:
                try:
                    await plane.heartbeat(pb.HeartbeatRequest(identity=session.identity))
                except Timeout:  # something came shortly before
                    return False
                return True

            await eventually(answered, timeout_s=60)
            assert first.held > 0
            first.heal()


async def test_a_stream_that_brings_nothing_for_too_long_is_given_up(tmp_path: Path) -> None:
    async with control_plane(tmp_path) as control:
        await control.add_cluster("c1", region="eu")
        async with connection(control, times=Times(call_s=10.0, idle_s=0.3)) as plane:
            session = await _joined(plane)
            events = plane.watch(StreamKind.SENTINELS, _hello(session))
            with pytest.raises(ServiceUnavailable, match="stopped answering"):
                async for _ in events:
                    pass


async def test_a_control_plane_on_this_machine_is_reached_past_the_proxy_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)

    async with control_plane(tmp_path) as control:
        await control.add_cluster("c1", region="eu")
        async with connection(control) as plane:
            assert (await _joined(plane)).epoch == 1


async def test_a_rotated_token_is_used_by_the_next_call(tmp_path: Path) -> None:
    async with control_plane(tmp_path) as control:
        await control.add_cluster("c1", region="eu")
        tokens = ["nonsense"]
        plane = Connection(
            lambda: JoinFile(
                url=control.url,
                ca=control.ca.decode(),
                token=tokens[-1],
                cluster="c1",
                region="eu",
                shard="default",
            ),
            clock=CLOCK,
            correlation="test",
        )
        with pytest.raises(Unauthorized):
            await _joined(plane)
        tokens.append(await control.agent_token("c1", "eu"))
        assert (await _joined(plane)).epoch == 1
        await plane.close()


async def test_connections_cut_under_change_load_lose_nothing_and_delete_nothing_wanted(tmp_path: Path) -> None:
    random = Random(5)
    async with control_plane(tmp_path / "control") as control, TcpProxy(control.port) as proxy:
        await control.add_cluster("c1", region="eu")
        async with connection(control, url=f"https://127.0.0.1:{proxy.port}") as plane:
            cluster = FakeCluster()
            controller = _controller(tmp_path, plane, await _joined(plane), cluster)
            await controller.start()
            wanted: dict[str, int] = {}
            removed: set[str] = set()
            for step in range(80):
                name = f"app{random.randrange(12)}"
                key = f"deployment/dep_{name}"
                if key in wanted and random.random() < 0.3:
                    await control.remove("c1", key, by_user=True)
                    removed.add(key)
                    del wanted[key]
                else:
                    wanted[key] = random.randrange(1, 9)
                    await control.deploy("c1", name, replicas=wanted[key])
                if step % 10 == 9:
                    proxy.cut()
            await eventually(
                lambda: _replicas(cluster) == wanted and controller.status()["unreported"] == 0, timeout_s=60
            )
            assert set(cluster.deleted) <= removed
            await controller.stop()


def _replicas(cluster: FakeCluster) -> dict[str, int]:
    found = {key: item.action.value for key, item in cluster.objects.items() if item.action is not None}
    return {key: state.replicas for key, state in found.items() if isinstance(state, pb.DeploymentState)}


async def test_heartbeats_go_along_on_an_open_stream_and_by_a_call_when_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    call = ConnectClient.call

    async def noted(self: ConnectClient, method: str, *rest: Any) -> Any:
        called.append(method)
        return await call(self, method, *rest)

    monkeypatch.setattr(ConnectClient, "call", noted)
    async with control_plane(tmp_path / "control") as control:
        await control.add_cluster("c1", region="eu")
        async with connection(control) as plane:
            session = await _joined(plane)
            beat = pb.HeartbeatRequest(identity=session.identity, software="test")
            async with aclosing(plane.watch(StreamKind.DEPLOYMENTS, _hello(session))) as events:
                first = await anext(events)
                assert first.event is not None and first.event.field == "welcome"
                called.clear()
                beating = asyncio.create_task(plane.heartbeat(beat))
                async with asyncio.timeout(60):
                    while not beating.done():  # answers are found among the events
                        reading = asyncio.ensure_future(anext(events))
                        await asyncio.wait([reading, beating], return_when=asyncio.FIRST_COMPLETED)
                        if not reading.done():
                            reading.cancel()
                            await asyncio.wait([reading])
                assert beating.result() == pb.HeartbeatResponse() and called == []
            await plane.heartbeat(beat)
            assert called == ["Heartbeat"]
