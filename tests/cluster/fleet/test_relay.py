"""A relay between a real control plane and agents, over TLS: what agents see through it, and while it is cut off."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pyqwest
import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from sqlalchemy import select

from shoal.app.pki import Pki
from shoal.base.asgi import AsgiListener, Tls, bind
from shoal.base.metrics import Metrics
from shoal.base.tasks import cancel_all
from shoal.control.database.tables import Agent, Desired
from shoal.control.relay.config import RelayConfig
from shoal.control.relay.wiring import RelayServer
from shoal.testing.fleet import AgentClient, ControlPlane, control_plane
from shoal.testing.waiting import eventually, eventually_blocking
from shoal.testing.watching import full_sync, watching
from shoal.wire.fleet.v1 import cluster_pb as pb
from shoal.wire.fleet.v1.cluster_connect import ClusterServiceClient

STOP_S = 30.0
QUICK = RelayConfig(reconnect_base_s=0.05, reconnect_cap_s=0.2, progress_every_s=0.1, call_s=5.0)


@dataclass(slots=True)
class Relay:
    server: RelayServer
    url: str
    ca: bytes
    control: ControlPlane

    @asynccontextmanager
    async def agent(
        self, cluster: str, region: str, *, token: str = "", name: str = "a1", join: bool = True, key: bytes = b"k" * 32
    ) -> AsyncIterator[AgentClient]:
        token = token or await self.control.agent_token(cluster, region)
        async with pyqwest.HTTPTransport(tls_ca_cert=self.ca, http_version=pyqwest.HTTPVersion.HTTP2) as transport:
            agent = AgentClient(
                ClusterServiceClient(self.url, http_client=pyqwest.Client(transport)),
                pb.Identity(cluster=cluster, region=region, shard="default", agent=name),
                {"authorization": f"Bearer {token}"},
            )
            if join:
                await agent.join(key)
            yield agent

    @property
    def connected(self) -> bool:
        return all(upstream.connected for upstream in self.server.upstreams.values())


@asynccontextmanager
async def relay_of(
    control: ControlPlane, folder: Path, region: str = "eu", token: str = "", config: RelayConfig = QUICK
) -> AsyncIterator[Relay]:
    pki = Pki(folder / "relay-pki", now=datetime.now(UTC))
    pair = pki.ensure_server(["127.0.0.1"])
    if not token:
        token, _ = await control.tokens.create(kind="relay", name=f"relay-{region}", region=region)
    server = RelayServer(
        url=control.url, ca=control.ca.decode(), token=lambda: token, name="r1", clock=control.clock,
        random=random.Random(3).random, config=config, metrics=Metrics(),
    )  # fmt: skip
    listening = bind("127.0.0.1", 0)
    listener = AsgiListener(server.app, listening, Tls(pair.cert, pair.key), clock=control.clock)
    running = asyncio.create_task(server.run(), name="relay")
    serving = asyncio.create_task(listener.run(), name="relay-listener")
    try:
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        yield Relay(server, url, pki.ca_cert.read_bytes(), control)
    finally:
        await cancel_all(running)
        listener.stop()
        await asyncio.wait_for(serving, STOP_S)


@asynccontextmanager
async def a_region(folder: Path, *clusters: str) -> AsyncIterator[tuple[ControlPlane, Relay]]:
    async with control_plane(folder) as control:
        for name in clusters or ("c1",):
            await control.add_cluster(name, region="eu")
        async with relay_of(control, folder) as relay:
            await eventually(lambda: relay.connected)
            yield control, relay


def report(key: str, item: pb.Item, replicas: int) -> pb.DeploymentReport:
    return pb.DeploymentReport(key=key, applied=item.version, available_replicas=replicas, desired_replicas=replicas)


async def send(agent: AgentClient, sequence: int, *reports: pb.DeploymentReport) -> list[str]:
    request = pb.ReportDeploymentStatusRequest(identity=agent.identity, sequence=sequence, reports=list(reports))
    return list((await agent.client.report_deployment_status(request, headers=agent.headers)).unknown)


async def stored(control: ControlPlane, key: str) -> tuple[int, int]:
    """Sequence and number of replicas of the last report."""
    async with control.database.reading() as session:
        asked = select(Desired.report_sequence, Desired.observed).where(Desired.key == key)
        row = (await session.execute(asked)).one()
        return row[0], row[1]["available"]


async def beat(agent: AgentClient) -> pb.HeartbeatResponse:
    return await agent.client.heartbeat(pb.HeartbeatRequest(identity=agent.identity), headers=agent.headers)


async def test_agents_of_a_region_are_served_over_one_stream_per_kind(tmp_path: Path) -> None:
    async with asyncio.timeout(90):
        async with (
            a_region(tmp_path, "c1", "c2") as (control, relay),
            relay.agent("c1", "eu") as one,
            relay.agent("c2", "eu") as two,
        ):
            key = await control.deploy("c1", "web")
            async with watching(one) as first, watching(two) as second, watching(two, sentinels=True) as third:
                _, items, keys, end = await full_sync(first)
                assert keys == {key} and items[key].action.value.image == "nginx:1" and end.cursor
                assert (await full_sync(second))[2] == set()
                assert (await full_sync(third))[2] == set()
                other = await control.deploy("c2", "shop", by_user=True)
                item = await second.until("item")
                assert item.key == other and item.by_user and item.trace == "00-trace-span-01"
                await control.remove("c1", key)
                assert (await first.until("item")).action.field == "delete"
                cursor = (await first.until("progress")).cursor
                relays = [one for one in control.server.hub.streams if one.place.cluster == "relay"]
                assert len(relays) == 2, "one stream per kind, however many agents"
                assert relay.server.status()["streams"]["deployments"]["agents"] == 2
            async with watching(one, cursor) as first:
                assert (await first.until("welcome")).resumed
                again = await control.deploy("c1", "web2")
                field, item = await first.next()
                assert (field, item.key) == ("item", again), "resuming sends nothing that did not change"


async def test_reports_heartbeats_and_questions_reach_the_control_plane(tmp_path: Path) -> None:
    async with asyncio.timeout(90):
        async with a_region(tmp_path) as (control, relay), relay.agent("c1", "eu") as agent:
            key = await control.deploy("c1", "web")
            item = await agent.client.get_desired_deployment(
                pb.GetDesiredRequest(identity=agent.identity, key=key), headers=agent.headers
            )
            assert await send(agent, 1, report(key, item, 2)) == []
            assert await stored(control, key) == (1, 2)
            assert await send(agent, 2, report("deployment/none", item, 1)) == ["deployment/none"]
            with pytest.raises(ConnectError) as caught:
                await agent.client.get_desired_deployment(
                    pb.GetDesiredRequest(identity=agent.identity, key="deployment/none"), headers=agent.headers
                )
            assert caught.value.code is Code.NOT_FOUND
            assert agent.joined is not None and agent.joined.control_plane == control.database.fleet
            before = control.clock.wall_s() * 1000
            await beat(agent)

            async def heard() -> bool:
                async with control.database.reading() as session:
                    return (await session.scalars(select(Agent.last_heartbeat_at))).one() >= before - 1

            await eventually(heard)


async def test_agents_do_not_notice_an_outage_of_the_control_plane_and_reports_follow_in_order(tmp_path: Path) -> None:
    async with asyncio.timeout(90):
        async with a_region(tmp_path) as (control, relay), relay.agent("c1", "eu") as agent:
            keys = [await control.deploy("c1", f"web{n}") for n in range(2)]
            async with watching(agent) as open_stream:
                _, items, _, end = await full_sync(open_stream)
                await send(agent, 1, *(report(key, items[key], 1) for key in keys))
                await control.stop()
                await eventually(lambda: not relay.server.connected)
                async with watching(agent, end.cursor) as again:
                    assert (await again.until("welcome")).resumed, "a known agent may even come back"
                async with watching(agent) as anew:
                    assert (await full_sync(anew))[2] == set(keys)
                await beat(agent)
                assert await send(agent, 2, report(keys[0], items[keys[0]], 5)) == []
                assert await send(agent, 3, *(report(key, items[key], 7) for key in keys)) == []
                assert await send(agent, 2, report(keys[0], items[keys[0]], 5)) == [], "repeated, and older: no news"
                assert relay.server.status()["reportsWaiting"] == 2, "of each object only the newest"
                async with relay.agent("c1", "eu", name="new", join=False) as stranger:
                    with pytest.raises(ConnectError) as caught:
                        await stranger.join()
                    assert caught.value.code is Code.UNAVAILABLE, "epochs come from the control plane only"
                await control.start()
                await eventually(lambda: relay.connected and relay.server.status()["reportsWaiting"] == 0)
                assert [await stored(control, key) for key in keys] == [(3, 7), (3, 7)]
                changed = await control.deploy("c1", "web0", image="nginx:2")
                item = await open_stream.until("item")
                assert item.key == changed and item.action.value.image == "nginx:2", "the stream was never cut"


async def test_a_newer_epoch_fences_through_the_relay_and_beside_it(tmp_path: Path) -> None:
    async with asyncio.timeout(90):
        async with a_region(tmp_path) as (control, relay), relay.agent("c1", "eu") as old, watching(old) as first:
            await full_sync(first)
            async with relay.agent("c1", "eu", name="standby", key=b"n" * 32) as new, watching(new) as second:
                assert new.identity.epoch == old.identity.epoch + 1
                assert (await first.error()).message.startswith("fenced")
                with pytest.raises(ConnectError, match="fenced"):
                    await beat(old)
                await full_sync(second)
                async with control.agent("c1", "eu", name="elsewhere"):
                    assert (await second.error()).message.startswith("fenced"), "a join that the relay did not see"
                async with watching(new) as late:
                    assert (await late.error()).code is Code.FAILED_PRECONDITION


async def test_secrets_are_wrapped_for_the_agent_that_asks_not_for_the_one_before(tmp_path: Path) -> None:
    from shoal.control.database.tables import Secret

    async with asyncio.timeout(90):
        async with a_region(tmp_path) as (control, relay), relay.agent("c1", "eu") as old:
            await control.deploy("c1", "seed")
            async with control.database.transaction() as tx:
                tx.session.add(
                    Secret(
                        id="sec_db", workspace_id="ws_1", name="db", labels={}, annotations={}, generation=1, version=1,
                        spec={"variables": ["P"]}, created_at=tx.now, updated_at=tx.now, project_id="prj_1",
                        environment_id="env_1", revision=1, ciphertext=b"sealed", data_key=b"data-key",
                        master_key="plain",
                    )
                )  # fmt: skip
            key = await control.deploy("c1", "web", template={"secrets": ["db"]})
            async with watching(old) as watch:
                items = (await full_sync(watch))[1]
                assert items[key].action.value.secrets[0].wrapped_key == b"for kkkk: data-key"
            async with relay.agent("c1", "eu", name="standby", key=b"n" * 32) as new, watching(new) as watch:
                items = (await full_sync(watch))[1]
                assert items[key].action.value.secrets[0].wrapped_key == b"for nnnn: data-key"


async def test_a_revoked_or_replaced_token_ends_the_agents_stream_within_a_second(tmp_path: Path) -> None:
    async with asyncio.timeout(90):
        async with a_region(tmp_path) as (control, relay):
            text, row = await control.tokens.create(kind="agent", name="a", cluster="c1", region="eu")
            async with relay.agent("c1", "eu", token=text) as agent, watching(agent) as watch:
                await full_sync(watch)
                new, _ = await control.tokens.rotate(row.id, grace_s=0.0)
                async with asyncio.timeout(5.0):
                    assert (await watch.error()).code is Code.UNAUTHENTICATED
                agent.headers["authorization"] = f"Bearer {new}"
                async with watching(agent) as again:
                    await full_sync(again)
                    await control.tokens.revoke(row.id)
                    async with asyncio.timeout(5.0):
                        assert (await again.error()).code is Code.UNAUTHENTICATED
                with pytest.raises(ConnectError) as caught:
                    await beat(agent)
                assert caught.value.code is Code.UNAUTHENTICATED


async def test_what_was_revoked_while_the_relay_was_cut_off_ends_when_it_is_back(tmp_path: Path) -> None:
    async with asyncio.timeout(90):
        async with a_region(tmp_path) as (control, relay):
            text, row = await control.tokens.create(kind="agent", name="a", cluster="c1", region="eu")
            async with relay.agent("c1", "eu", token=text) as agent, watching(agent) as watch:
                await full_sync(watch)
                await control.stop()
                await control.tokens.revoke(row.id)
                await control.start()
                assert (await watch.error()).code is Code.UNAUTHENTICATED


async def test_a_relay_that_was_alone_for_too_long_begins_no_more_streams_until_the_control_plane_is_back(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(90):
        async with control_plane(tmp_path) as control:
            await control.add_cluster("c1", region="eu")
            config = replace(QUICK, alone_s=0.2)
            async with relay_of(control, tmp_path, config=config) as relay, AsyncExitStack() as stack:
                await eventually(lambda: relay.connected)
                agent = await stack.enter_async_context(relay.agent("c1", "eu"))
                open_stream = await stack.enter_async_context(watching(agent))
                await full_sync(open_stream)
                await control.stop()

                async def refused() -> bool:
                    async with watching(agent) as again:
                        try:
                            await again.until("welcome")
                            return False
                        except ConnectError as error:
                            assert error.code is Code.UNAVAILABLE
                            return "can no longer check tokens" in error.message

                await eventually(refused)
                await control.start()
                await eventually(lambda: relay.connected)
                async with watching(agent) as again:
                    await again.until("welcome")
                key = await control.deploy("c1", "web")
                assert (await open_stream.until("item")).key == key, "the one that was open has gone on"


async def test_a_relay_acts_for_agents_of_its_region_only_and_only_with_their_tokens(tmp_path: Path) -> None:
    from shoal.control.service.agents.auth import AGENT_HEADER

    async with asyncio.timeout(90):
        async with a_region(tmp_path) as (control, relay):
            await control.add_cluster("far", region="us")
            async with relay.agent("far", "us", join=False) as foreign:
                with pytest.raises(ConnectError) as caught:
                    await foreign.join()
                assert caught.value.code is Code.PERMISSION_DENIED
                async with watching(foreign) as watch:
                    assert (await watch.error()).code is Code.PERMISSION_DENIED
            async with relay.agent("c1", "eu", token="wrong", join=False) as thief:
                with pytest.raises(ConnectError) as caught:
                    await thief.join()
                assert caught.value.code is Code.UNAUTHENTICATED
            own, row = await control.tokens.create(kind="relay", name="other", region="eu")
            async with control.agent("c1", "eu") as agent:
                request = pb.HeartbeatRequest(identity=agent.identity)
                bare = {"authorization": f"Bearer {own}"}
                for headers, code in (
                    (bare, Code.UNAUTHENTICATED),
                    (bare | {AGENT_HEADER: bare["authorization"]}, Code.PERMISSION_DENIED),
                ):
                    with pytest.raises(ConnectError) as caught:
                        await agent.client.heartbeat(request, headers=headers)
                    assert caught.value.code is code
                good = bare | {AGENT_HEADER: agent.headers["authorization"]}
                await agent.client.heartbeat(request, headers=good)
                async with watching(AgentClient(agent.client, agent.identity, good)) as watch:
                    assert (await watch.error()).code is Code.PERMISSION_DENIED, "streams are followed, not passed on"
                await control.tokens.revoke(row.id)

                async def refused() -> bool:
                    try:
                        await agent.client.heartbeat(request, headers=good)
                    except ConnectError as error:
                        return error.code is Code.UNAUTHENTICATED
                    return False

                await eventually(refused)


async def test_a_database_that_went_back_is_noticed_through_the_relay(tmp_path: Path) -> None:
    from shoal.sync.versions import Cursor, encode_cursor

    async with asyncio.timeout(90):
        async with a_region(tmp_path) as (control, relay), relay.agent("c1", "eu") as agent:
            key = await control.deploy("c1", "web")
            async with watching(agent) as watch:
                await full_sync(watch)
                at = await control.database.position()
                keys = {"main": control.database.signing_key}
                ahead = encode_cursor(Cursor({"main": (at.incarnation, at.number + 50)}), keys)

                async def judged() -> bool:
                    async with watching(agent, ahead) as returned:
                        try:
                            welcome = await returned.until("welcome")
                        except ConnectError:
                            return False
                        assert welcome.observe_only and not welcome.resumed
                        _, items, _, _ = await full_sync(returned)
                        return items[key].version.incarnation == at.incarnation + 1

                await eventually(judged)
                assert (await watch.error()).code is Code.ABORTED, "an agent of the old history begins again"
                async with watching(agent, "nonsense") as bad:
                    assert (await bad.error()).code is Code.INVALID_ARGUMENT


def test_a_relay_as_a_process_serves_a_real_agent_while_the_control_plane_is_killed(tmp_path: Path) -> None:
    from shoal.app.ports import any_free
    from shoal.base.files import write_private
    from shoal.testing.fleets import HOST, LocalFleet, app, app_path

    def wait_for(condition: Callable[[], bool], what: str) -> None:
        eventually_blocking(condition, timeout_s=60, every_s=0.1, what=what, explain=fleet.logs)

    def applied() -> bool:
        places = fleet.api.app_status("web")["regions"]
        return all(place["applied"]["version"] == place["desired"]["version"] for place in places)

    with LocalFleet(tmp_path) as fleet:
        fleet.start({"eu-1": "eu"})
        port, settings = any_free(HOST), tmp_path / "relay.yaml"
        settings.write_text("log_level: info\n")
        relay = fleet.new_relay("eu", port, "--config", str(settings))
        assert relay.start() == f"https://{HOST}:{port}"
        join = fleet.join_file("eu-1", port=port)
        write_private(join, orjson.dumps(orjson.loads(join.read_bytes()) | {"ca": fleet.relay_ca()}))
        fleet.start_agents([("eu-1", "default")])
        fleet.api.put(app("web", {"eu": 1}, marker="1"))
        wait_for(applied, "the app applied")

        def status() -> Any:
            return fleet.agent_status("eu-1-default")["controllers"]["deployments"]

        fleet.control.kill()
        wait_for(lambda: "not connected to the control plane" in relay.tail(), "the relay's log line")
        assert status()["connection"] == "watching", "the agent has noticed"
        fleet.control.start()
        fleet.api.until_acknowledged("PUT", app_path("web"), app("web", {"eu": 1}, marker="2"))
        wait_for(applied, "the change applied")
        assert fleet.agent_metric("eu-1-default", "shoal_krane_connections_total", result="unavailable") == 0

        settings.write_text("log_level: debug\nport: 1\n")
        os.kill(relay.pid, signal.SIGHUP)
        wait_for(lambda: '"settings reloaded","changed":["log_level"]' in relay.tail(), "SIGHUP handled")
        assert '"some settings need a restart","settings":["port"]' not in relay.tail(), "a flag wins"
        settings.write_text("log_level: loud\n")
        os.kill(relay.pid, signal.SIGHUP)
        wait_for(lambda: "log_level is 'loud': choose from" in relay.tail(), "an error with key, value and fix")


async def test_a_change_for_more_places_than_are_loaded_at_once_reaches_all_of_them(tmp_path: Path) -> None:
    from dataclasses import replace

    from shoal.testing.fleet import QUICK as SERVICE
    from shoal.testing.fleet import want_deployment

    shards = tuple(f"s{number}" for number in range(80))  # a control plane loads 64 places of a region at once
    calm = replace(SERVICE, progress_every_s=1000.0, digest_every_s=1000.0)  # nothing else wakes the stream

    async with asyncio.timeout(90):
        async with control_plane(tmp_path, config=calm) as control:
            await control.add_cluster("c1", region="eu", shards=shards)
            async with relay_of(control, tmp_path) as relay, AsyncExitStack() as stack:
                await eventually(lambda: relay.connected)
                agent = await stack.enter_async_context(relay.agent("c1", "eu", join=False))
                identities = [pb.Identity(cluster="c1", region="eu", shard=shard, agent="a1") for shard in shards]
                agents = [AgentClient(agent.client, identity, agent.headers) for identity in identities]
                await asyncio.gather(*(one.join() for one in agents))
                watches = [await stack.enter_async_context(watching(one)) for one in agents]
                for watch in watches:
                    await watch.until("sync_end")
                async with control.database.transaction(by_user=True) as tx:
                    for shard in shards:
                        await want_deployment(tx, "c1", "web", shard=shard, image="i", template={}, replicas=1)
                for watch in watches:
                    assert (await watch.until("item")).key == "deployment/dep_web"
