"""The cluster service on both databases: everything that is sent and stored, and several control planes on one."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from connectrpc.errors import ConnectError
from sqlalchemy import select

from shoal.control.database.tables import (
    Agent,
    ApiKey,
    Desired,
    Environment,
    Event,
    GatewayCertificate,
    Instance,
    Policy,
    Project,
    Route,
    Secret,
    Sentinel,
)
from shoal.sync.keys import Place
from shoal.testing.databases import shared_postgres
from shoal.testing.fleet import QUICK, AgentClient, ControlPlane, control_plane
from shoal.testing.waiting import eventually
from shoal.testing.watching import full_sync, watching
from shoal.wire.fleet.v1 import cluster_pb as pb


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'control.db'}" if request.param == "sqlite" else shared_postgres().create_database()


def named(id_: str, name: str, **spec: Any) -> dict[str, Any]:
    return {
        "id": id_, "workspace_id": "ws_1", "name": name, "labels": {}, "annotations": {}, "spec": spec, "generation": 1,
        "version": 1, "created_at": 1, "updated_at": 1,
    }  # fmt: skip


async def add_gateways(control: ControlPlane) -> None:
    """An environment with gateways in two regions, a route, a policy and a key."""
    await control.add_cluster("c1", region="eu")
    await control.add_cluster("c2", region="us")
    within = {"project_id": "prj_1", "environment_id": "env_1"}
    async with control.database.transaction() as tx:
        tx.session.add(Project(**named("prj_1", "shop")))
        await tx.session.flush()
        tx.session.add(Environment(**named("env_1", "live"), project_id="prj_1", namespace="shop-live"))
        await tx.session.flush()
        certificate = {"revision": 3, "ciphertext": b"c", "data_key": b"d", "master_key": "plain"}
        tx.session.add(Secret(**named("sec_1", "cert", variables=["TLS_KEY", "TLS_CRT"]), **within, **certificate))
        route = named("rou_1", "front", host="a.example", tls={"secret": "cert"})
        tx.session.add(Route(**route, **within, host="a.example"))
        tx.session.add(Policy(**named("pol_1", "limit", rate=5), **within))
        tx.session.add(
            ApiKey(
                **named("key_1", "k", roles=["r"]), **within, digest="d" * 64, prefix="sk_", expires_at=0, revoked_at=0
            )
        )
        for cluster, region, entries in (("c1", "eu", []), ("c2", "us", ["10.1.1.1:8043"])):
            tx.session.add(
                Sentinel(
                    **named(f"sen_{cluster}", region, resources={"cpu": "100m", "memory": "64Mi"}), **within,
                    region_id=f"reg_{region}", cluster_id=f"clu_{cluster}", shard="default", k8s_name=f"sentinel-{cluster}",
                    image="envoy:1", desired_state="running", desired_replicas=2, entries=entries, health="healthy",
                    deploy_status="progressing",
                )
            )  # fmt: skip
        await tx.session.flush()
        place = Place("clu_c1", "default")
        for key, name in (
            ("sentinel/sen_c1", "sentinel-c1"),
            ("route/rou_1", "front-x"),
            ("policy/pol_1", "limit-x"),
            ("keys/env_1", "keys-x"),
        ):
            await tx.want(place, key, workspace_id="ws_1", namespace="sentinel", name=name)
        await tx.want(
            Place("clu_c2", "default"), "sentinel/sen_c2", workspace_id="ws_1", namespace="sentinel", name="s2"
        )


async def test_gateways_routes_policies_and_keys_travel_on_their_own_stream(url: str, tmp_path: Path) -> None:
    import orjson

    async with asyncio.timeout(60):
        async with control_plane(tmp_path, url=url) as control:
            await add_gateways(control)
            async with control.agent("c1", "eu") as agent:
                async with watching(agent, sentinels=True) as watch:
                    _, items, keys, _ = await full_sync(watch)
                    assert keys == {"sentinel/sen_c1", "route/rou_1", "policy/pol_1", "keys/env_1"} == items.keys()
                    gateway = items["sentinel/sen_c1"].action.value
                    assert [(peer.region, list(peer.addresses), peer.healthy) for peer in gateway.peers] == [
                        ("us", ["10.1.1.1:8043"], True)
                    ]
                    assert gateway.service == "ClusterIP" and gateway.entry is None  # it has no certificate yet
                    assert (gateway.region, gateway.replicas, gateway.resources.memory_mib) == ("eu", 2, 64)
                    custom = {key: items[key].action.value for key in keys if not key.startswith("sentinel")}
                    assert {state.name for state in custom.values()} == {"front-x", "limit-x", "keys-x"}
                    sealed = custom["route/rou_1"].tls  # its certificate comes with it, for this agent
                    assert (sealed.secret, sealed.version, sealed.ciphertext) == ("sec_1", 3, b"c")
                    assert sealed.wrapped_key.startswith(b"for ") and list(sealed.variables) == ["TLS_CRT", "TLS_KEY"]
                    assert orjson.loads(custom["keys/env_1"].spec)["keys"][0]["digest"] == "d" * 64
                async with watching(agent) as watch:
                    assert (await full_sync(watch))[2] == set(), "deployments have a stream of their own"


async def report_gateway(agent: AgentClient, sequence: int, item: pb.Item, **fields: Any) -> None:
    report = pb.SentinelReport(key=item.key, applied=item.version, desired_replicas=2, **fields)
    await agent.client.report_sentinel_status(
        pb.ReportSentinelStatusRequest(identity=agent.identity, sequence=sequence, reports=[report]),
        headers=agent.headers,
    )


def test_a_gateway_is_ready_only_when_every_dimension_is_as_desired(url: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with control_plane(tmp_path, url=url) as control:
            await add_gateways(control)

            async def status() -> tuple[str, str]:
                async with control.database.reading() as session:
                    row = (await session.execute(select(Sentinel).where(Sentinel.id == "sen_c1"))).scalar_one()
                    return row.deploy_status, row.address

            async with control.agent("c1", "eu") as agent, control.agent("c2", "us") as other:
                asked = pb.GetDesiredRequest(identity=agent.identity, key="sentinel/sen_c1")
                item = await agent.client.get_desired_sentinel(asked, headers=agent.headers)
                good = {
                    "health": pb.SentinelHealth.HEALTHY, "running_image": "envoy:1", "available_replicas": 2,
                    "address": "10.0.0.9:8040", "entries": ["10.0.0.9:8043"],
                }  # fmt: skip
                for n, wrong in enumerate(
                    [
                        {"health": pb.SentinelHealth.UNHEALTHY},
                        {"running_image": "envoy:0"},
                        {"running_image": ""},
                        {"available_replicas": 1},
                    ]
                ):
                    await report_gateway(agent, n + 1, item, **good | wrong)
                    assert (await status())[0] == "progressing", wrong
                async with watching(other, sentinels=True) as watch:
                    await full_sync(watch)
                    moved = {"address": "10.0.0.10:8040", "entries": ["10.0.0.10:8043", "10.0.0.11:8043"]}
                    await report_gateway(agent, 9, item, **good | moved)
                    assert await status() == ("ready", "10.0.0.10:8040")
                    told = await watch.until("item")
                    assert told.key == "sentinel/sen_c2"
                    assert list(told.action.value.peers[0].addresses) == moved["entries"]


async def test_gateways_are_sent_the_certificate_of_their_workspace_wrapped_for_their_agent(
    url: str, tmp_path: Path
) -> None:
    from shoal.base.ids import Ids
    from shoal.control.domain import entry
    from shoal.testing.fleet import PlainSealer

    async with asyncio.timeout(60):
        async with control_plane(tmp_path, url=url) as control:
            await add_gateways(control)
            now_ms = round(control.clock.wall_s() * 1000)
            async with control.agent("c1", "eu") as agent, watching(agent, sentinels=True) as watch:
                await full_sync(watch)
                for _ in range(2):  # the second time there is nothing to do
                    await entry.keep(control.database, PlainSealer(), now_ms, lambda: Ids().new_suffix(10))
                told = await watch.until("item")
                state = told.action.value
                assert told.key == "sentinel/sen_c1" and state.entry.wrapped_key.startswith(b"for ")
                assert list(state.entry.variables) == ["tls.crt", "tls.key"]
                assert state.entry_authority.startswith(b"-----BEGIN CERTIFICATE-----")
                async with control.database.reading() as session:
                    found = list(await session.scalars(select(GatewayCertificate)))
                assert len(found) == 1 and found[0].shown and found[0].workspace_id == "ws_1"


async def test_reports_heartbeats_and_loss_are_stored(url: str, tmp_path: Path) -> None:
    from dataclasses import replace

    from shoal.testing.fleet import QUICK

    config = replace(QUICK, heartbeat_s=0.3, missed_heartbeats=2, heartbeat_flush_s=0.1)

    async with asyncio.timeout(60):
        async with control_plane(tmp_path, url=url, config=config) as control:
            await control.add_cluster("c1", region="eu")
            async with control.agent("c1", "eu") as agent:
                key = await control.deploy("c1", "web", image="nginx:2")
                error = pb.ApplyError(reason="Quota", message="no\0 room", attempts=2)
                instances = [
                    pb.Instance(name=f"p{n}", uid=f"u{n}", status=pb.InstanceStatus.RUNNING, ready=n > 0)
                    for n in range(3)
                ]
                for sequence, report in enumerate(
                    [
                        pb.DeploymentReport(key=key, instances=instances, drift=["spec.replicas"], error=error),
                        pb.DeploymentReport(key=key, instances=instances[:2]),
                    ],
                    1,
                ):
                    await agent.client.report_deployment_status(
                        pb.ReportDeploymentStatusRequest(identity=agent.identity, sequence=sequence, reports=[report]),
                        headers=agent.headers,
                    )
                state = pb.ControllerState(cursor="x", connection="watching", lag_seconds=0.5)
                beat = pb.HeartbeatRequest(identity=agent.identity, deployments=state)
                await agent.client.heartbeat(beat, headers=agent.headers)

                async def lost() -> Agent | None:
                    async with control.database.reading() as session:
                        row = (await session.execute(select(Agent))).scalar_one()
                        return row if row.lost and row.state is not None else None

                found = await eventually(lost)
                assert found.state["deployments"]["lagSeconds"] == 0.5
                async with control.database.reading() as session:
                    rows = {row.uid: row for row in (await session.execute(select(Instance))).scalars()}
                    desired = (await session.execute(select(Desired))).scalar_one()
                    reasons = set((await session.execute(select(Event.reason))).scalars())
                assert {uid: (row.status, row.ready) for uid, row in rows.items()} == {
                    "u0": ("unknown", False),
                    "u1": ("unknown", True),
                }
                assert desired.error is None and desired.report_sequence == 2 and desired.fingerprint == 0
                assert {"ApplyFailed", "Drifted", "AgentLost"} <= reasons


async def test_two_control_planes_on_one_database_are_one_to_the_agents(tmp_path: Path) -> None:
    url = shared_postgres().create_database()

    async with asyncio.timeout(60):
        async with control_plane(tmp_path / "b", url=url) as second:
            async with control_plane(tmp_path / "a", url=url) as first:
                await first.add_cluster("c1", region="eu")
                token = await first.agent_token("c1", "eu")
                async with first.agent("c1", "eu", token=token) as agent, watching(agent) as watch:
                    await full_sync(watch)
                    await second.deploy("c1", "web")
                    assert (await watch.until("item")).key == "deployment/dep_web"
                    await watch.until("progress")
                    cursor, identity = watch.cursor, agent.identity
                    await first.stop()
                    with pytest.raises(ConnectError):
                        await watch.until("never")
                    await second.deploy("c1", "web2")
                    async with second.agent("c1", "eu", token=token, join=False) as same:
                        same.identity = identity
                        async with watching(same, cursor) as again:
                            assert (await again.until("welcome")).resumed
                            assert (await again.until("item")).key == "deployment/dep_web2"
                        async with first_again(first), first.agent("c1", "eu", name="standby"):
                            request = pb.HeartbeatRequest(identity=identity)

                            async def is_fenced() -> bool:
                                try:
                                    await same.client.heartbeat(request, headers=same.headers)
                                except ConnectError as error:
                                    assert "fenced" in str(error)
                                    return True
                                return False

                            await eventually(is_fenced, timeout_s=2)


async def test_a_lost_agent_and_its_return_and_restart_are_told_once_by_all_control_planes(tmp_path: Path) -> None:
    url = shared_postgres().create_database()
    config = replace(QUICK, heartbeat_s=1.0, missed_heartbeats=3, heartbeat_flush_s=0.1)

    async with (
        asyncio.timeout(120),
        control_plane(tmp_path / "a", url=url, config=config) as first,
        control_plane(tmp_path / "b", url=url, config=config) as second,
    ):
        await first.add_cluster("c1", region="eu")
        token = await first.agent_token("c1", "eu")

        async def reasons() -> Counter[str]:
            async with first.database.reading() as session:
                return Counter((await session.execute(select(Event.reason))).scalars())

        async def told(reason: str, times: int) -> None:
            await eventually(reasons, until=lambda found: found[reason] >= times, timeout_s=30)
            await first.server.agents.flush()
            await second.server.agents.flush()
            assert (await reasons())[reason] == times

        async with (
            first.agent("c1", "eu", token=token) as agent,
            second.agent("c1", "eu", token=token, join=False) as same,
        ):
            same.identity = agent.identity
            for times in (1, 2):
                await told("AgentLost", times)
                beat = pb.HeartbeatRequest(identity=agent.identity)
                for _ in range(3):
                    for client in (agent, same):
                        await client.client.heartbeat(beat, headers=client.headers)
                    await asyncio.gather(first.server.agents.flush(), second.server.agents.flush())
                await told("AgentReturned", times)
            assert (await reasons())["AgentJoined"] == 1 and not (await reasons())["ClusterRestarted"]
        async with second.agent("c1", "eu", token=token, name="a2"):
            await told("ClusterRestarted", 1)


class first_again:
    """Starts a control plane that was stopped; the block that made it stops it."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def __aenter__(self) -> None:
        await self._control.start_again()

    async def __aexit__(self, *_: object) -> None:
        return None
