"""Two regions with two shards each: changes reach the clusters at once, and come back in the status."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyqwest
import pytest
from connectrpc.code import Code

from shoal.cli.contexts import Context
from shoal.cli.rest import RequestRefused, Rest
from shoal.client import Scope, builtin
from shoal.krane.labels import ENVIRONMENT, KRANE, MANAGED_BY
from shoal.kube.objects import Obj
from shoal.testing.fleet import AgentClient
from shoal.testing.fleet_recorder import FleetRecorder, marker_of
from shoal.testing.fleets import PROJECT, LocalFleet, app, app_path
from shoal.testing.waiting import eventually, eventually_blocking
from shoal.testing.watching import watching
from shoal.wire.fleet.v1 import cluster_pb as pb
from shoal.wire.fleet.v1.cluster_connect import ClusterServiceClient

pytestmark = [pytest.mark.xdist_group("fleet"), pytest.mark.timeout(300)]

WAIT_S = 60.0
CLUSTERS = {"eu-1": "eu", "us-1": "us"}
SHARDS = ("default", "b")
CHANGES = 60
BAR_S = 0.1
NOISE = 5  # machines that run tests do other things as well
ROUNDS = 3
CONNECTIONS = "shoal_krane_stream_connections_total"
REQUESTS = "shoal_control_rpc_requests_total"
APART = {"placement": {"spread": "apart"}}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    with LocalFleet(tmp_path_factory.mktemp("fleet")) as started:
        started.start(CLUSTERS, shards=SHARDS)
        started.start_agents([(cluster, shard) for cluster in CLUSTERS for shard in SHARDS])
        yield started


async def until_status(fleet: LocalFleet, name: str, state: str, ready: dict[str, int], every_s: float = 0.1) -> None:
    """Until the control plane says that this many instances are ready in each region."""

    def shown(status: dict[str, Any]) -> bool:
        counts = {row["region"]: row["reported"]["ready"] for row in status["regions"]}
        return status["state"] == state and counts == ready

    read = partial(asyncio.to_thread, fleet.api.app_status, name)
    await eventually(read, until=shown, timeout_s=WAIT_S, every_s=every_s, explain=fleet.logs)


def replicas(objects: list[Obj]) -> list[int]:
    return [obj["spec"]["replicas"] for obj in objects]


async def test_apply_change_scale_stop_and_delete_reach_the_clusters_and_come_back_in_status(fleet: LocalFleet) -> None:
    async with FleetRecorder(fleet) as witness:

        async def seen(check: object, what: str) -> None:
            await witness.until(check, what=what)  # type: ignore[arg-type]

        def everywhere(counts: dict[str, int], marker: str = "") -> bool:
            return all(
                replicas(witness.of_app("web", cluster)) == [counts[region]]
                and marker_of(witness.of_app("web", cluster)[0]) == marker
                for cluster, region in CLUSTERS.items()
            )

        put = lambda document: asyncio.to_thread(fleet.api.put, document)  # noqa: E731
        await put(app("web", {"eu": 2, "us": 1}))
        await seen(lambda: everywhere({"eu": 2, "us": 1}), "apply")
        await until_status(fleet, "web", "Ready", {"eu": 2, "us": 1})
        await put(app("web", {"eu": 2, "us": 1}, marker="changed"))
        await seen(lambda: everywhere({"eu": 2, "us": 1}, "changed"), "change")
        await asyncio.to_thread(fleet.api.request, "POST", f"{app_path('web')}/scale", {"replicas": 3})
        await seen(lambda: everywhere({"eu": 3, "us": 3}, "changed"), "scale")
        await until_status(fleet, "web", "Ready", {"eu": 3, "us": 3})
        await asyncio.to_thread(fleet.api.request, "POST", f"{app_path('web')}/stop")
        await seen(lambda: everywhere({"eu": 0, "us": 0}, "changed"), "stop")
        await until_status(fleet, "web", "Stopped", {"eu": 0, "us": 0})
        await asyncio.to_thread(fleet.api.request, "POST", f"{app_path('web')}/start")
        await until_status(fleet, "web", "Ready", {"eu": 3, "us": 3})
        await asyncio.to_thread(fleet.api.request, "DELETE", app_path("web"))
        await seen(lambda: not any(witness.of_app("web", cluster) for cluster in CLUSTERS), "delete")
        rows = await witness.settled()
        assert not [row for row in rows if row.wanted and row.key.startswith("deployment/")]


async def test_the_namespaces_of_a_deleted_environment_go_in_every_cluster(fleet: LocalFleet) -> None:
    within = {"project": PROJECT, "environment": "preview"}
    environment = {
        **app("x", {}),
        "kind": "Environment",
        "metadata": {"name": "preview", "project": PROJECT},
        "spec": {},
    }
    web = app("web", {"eu": 1, "us": 1})
    async with FleetRecorder(fleet) as witness:

        async def namespaces() -> list[str]:
            labels = Scope(label_selector=f"{MANAGED_BY}={KRANE},{ENVIRONMENT}={id_}")
            found = [await client.of(builtin("namespaces")).list(labels) for client in witness.clients.values()]
            return [obj["metadata"]["name"] for listed in found for obj in listed.items]

        await asyncio.to_thread(fleet.api.apply, environment, {**web, "metadata": {**web["metadata"], **within}})
        await witness.until(lambda: all(witness.of_app("web", cluster) for cluster in CLUSTERS), what="apply")
        id_ = witness.of_app("web", "eu-1")[0]["metadata"]["labels"][ENVIRONMENT]
        assert len(await namespaces()) == len(CLUSTERS)
        path = f"/projects/{PROJECT}/environments/preview?cascade=true"
        await asyncio.to_thread(fleet.api.request, "DELETE", path)
        await eventually(namespaces, until=lambda left: not left, timeout_s=WAIT_S, explain=fleet.logs)


async def test_an_app_moves_between_the_shards_of_a_cluster_and_back_while_it_runs(fleet: LocalFleet) -> None:
    await asyncio.to_thread(until_streams, fleet)
    async with FleetRecorder(fleet) as witness:
        await asyncio.to_thread(fleet.api.put, app("mover", {"eu": 2}))
        await until_status(fleet, "mover", "Ready", {"eu": 2})
        first = witness.of_app("mover", "eu-1")[0]["metadata"]
        home = first["labels"]["shoal.dev/shard"]
        other = next(shard for shard in SHARDS if shard != home)
        available = [2]

        def arrived(shard: str) -> bool:
            live = witness.of_app("mover", "eu-1")
            available.extend((obj.get("status") or {}).get("availableReplicas") or 0 for obj in live)
            return [obj["metadata"]["labels"]["shoal.dev/shard"] for obj in live] == [shard]

        for shard in (other, home):
            body = {"region": "eu", "cluster": "eu-1", "shard": shard}
            await asyncio.to_thread(fleet.api.request, "POST", f"{app_path('mover')}/move", body)
            await witness.until(lambda to=shard: arrived(to), what=f"the move to {shard}")

            def moved(to: str = shard) -> bool:
                rows = fleet.api.app_status("mover")["regions"]
                return [(row["shard"], row["state"], row["moving"]) for row in rows] == [(to, "Ready", False)]

            await eventually(partial(asyncio.to_thread, moved), timeout_s=WAIT_S, explain=fleet.logs)
            rows = await witness.settled()
            assert witness.of_app("mover", "eu-1")[0]["metadata"]["uid"] == first["uid"], "it was never deleted"
            witness.assert_nothing_wanted_was_deleted(rows)
        assert min(available) == 2, "pods were replaced one after the other"
        await asyncio.to_thread(fleet.api.request, "DELETE", app_path("mover"))
        await witness.until(lambda: not witness.of_app("mover", "eu-1"), what="delete")
        await witness.settled()


async def test_a_change_is_applied_in_every_region_within_the_bar_of_its_commit(fleet: LocalFleet) -> None:
    """Measured from before the request until the recorder has seen the object, which is longer than from the commit. The
    next change is made when the last one is back in the status, so that changes do not queue."""

    async def main() -> list[float]:
        names = [f"app{at}" for at in range(4)]
        await asyncio.to_thread(until_streams, fleet)  # a shard whose agent has not come yet takes nothing
        async with FleetRecorder(fleet) as witness:
            for name in names:
                await asyncio.to_thread(fleet.api.put, app(name, {"eu": 1, "us": 1}, **APART))
            for name in names:
                await until_status(fleet, name, "Ready", {"eu": 1, "us": 1})
            assert {obj["metadata"]["labels"]["shoal.dev/shard"] for obj in witness.live["eu-1"].values()} >= set(
                SHARDS
            )
            took = [await change(witness, names[at % 4], 2 - (at // 4) % 2) for at in range(CHANGES)]
            back = sorted(backs[-CHANGES:])
            print(f"\nback in status, p50 {back[len(back) // 2] * 1000:.0f} ms, p99 {p99(back) * 1000:.0f} ms")
            for name in names:
                await asyncio.to_thread(fleet.api.request, "DELETE", app_path(name))
            rows = await witness.settled()
            witness.assert_nothing_wanted_was_deleted(rows)
        return took

    async def change(witness: FleetRecorder, name: str, count: int) -> float:
        began = time.perf_counter()
        await asyncio.to_thread(fleet.api.put, app(name, {"eu": count, "us": count}, **APART))
        await witness.until(lambda: all(replicas(witness.of_app(name, cluster)) == [count] for cluster in CLUSTERS))
        seen_s = time.perf_counter() - began
        await until_status(fleet, name, "Ready", {"eu": count, "us": count}, every_s=0.05)
        backs.append(time.perf_counter() - began)
        return seen_s

    backs: list[float] = []
    took: list[float] = []
    for _ in range(ROUNDS):  # the best counts, as for every absolute figure: the machine is not ours alone
        took = min(took or [math.inf], sorted(await main()), key=p99)
        if p99(took) < BAR_S * NOISE:
            break
    hop, places = "shoal_krane_hop_seconds", [f"{cluster}-{shard}" for cluster in CLUSTERS for shard in SHARDS]
    count = sum(fleet.agent_metric(place, f"{hop}_count", hop="applied") for place in places)
    total = sum(fleet.agent_metric(place, f"{hop}_sum", hop="applied") for place in places)
    print(
        f"\n{len(took)} changes, from the request until seen in both regions: p50 {took[len(took) // 2] * 1000:.0f} ms, "
        f"p99 {p99(took) * 1000:.0f} ms (bar {BAR_S * 1000:.0f} ms from the commit); from commit until applied, mean "
        f"{total / count * 1000:.0f} ms"
    )
    assert p99(took) < BAR_S * NOISE


def p99(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.99)]


async def test_bad_input_is_refused_counted_and_does_not_disturb_the_streams_of_others(fleet: LocalFleet) -> None:
    body = {"kind": "agent", "name": "spare", "cluster": "spare", "region": "eu"}
    join = fleet.api.request("POST", "/tokens", body).body["join"]
    identity = {"cluster": "spare", "region": "eu", "shard": "default", "agent": "a"}
    until_streams(fleet)
    connections = sum(fleet.agent_metric(f"{c}-{s}", CONNECTIONS) for c in CLUSTERS for s in SHARDS)
    position = [each["id"] for each in fleet.api.get("/status")["apps"]]

    def refused(method: str, message: object, code: str, status: int, *, token: str = join["token"]) -> None:
        before = fleet.api.metric(REQUESTS, method=method, code=code)
        rest = Rest(Context("bad", join["url"], token, join["ca"]))
        try:
            with pytest.raises(RequestRefused) as error:
                rest.request("POST", f"/shoal.fleet.v1.ClusterService/{method}", message)
        finally:
            rest.close()
        assert (error.value.status, error.value.body["code"]) == (status, code) and error.value.body["message"]
        assert fleet.api.metric(REQUESTS, method=method, code=code) == before + 1

    refused("Join", {"identity": identity}, "unauthenticated", 401, token="wrong")
    refused("Join", {"identity": {**identity, "region": "us"}}, "permission_denied", 403)
    refused("Join", {"identity": {**identity, "cluster": "eu-1"}}, "permission_denied", 403)
    refused("Join", {"identity": {**identity, "colour": "red"}}, "invalid_argument", 400)
    refused("Heartbeat", {"identity": {**identity, "epoch": 7}}, "failed_precondition", 400)
    refused("Join", {"identity": identity, "software": "x" * (9 << 20)}, "resource_exhausted", 429)
    await bad_cursors(fleet, join, identity)

    until_streams(fleet)
    assert sum(fleet.agent_metric(f"{c}-{s}", CONNECTIONS) for c in CLUSTERS for s in SHARDS) == connections
    assert [each["id"] for each in fleet.api.get("/status")["apps"]] == position
    assert fleet.api.metric("shoal_control_incarnations_total") == 0


def until_streams(fleet: LocalFleet) -> None:
    """Wait until the agents have two streams each, and no other client has any."""
    expected = 2 * len(CLUSTERS) * len(SHARDS)
    eventually_blocking(
        lambda: fleet.api.metric("shoal_control_streams"),
        until=lambda streams: streams == expected, timeout_s=WAIT_S, every_s=0.1, explain=fleet.logs,
    )  # fmt: skip


async def bad_cursors(fleet: LocalFleet, join: dict[str, str], identity: dict[str, str]) -> None:
    """Malformed cursors, and an unsigned one from the future."""
    transport = pyqwest.HTTPTransport(tls_ca_cert=join["ca"].encode(), http_version=pyqwest.HTTPVersion.HTTP2)
    async with transport:
        client = ClusterServiceClient(join["url"], http_client=pyqwest.Client(transport))
        agent = AgentClient(client, pb.Identity(**identity), {"authorization": f"Bearer {join['token']}"})
        await agent.join()
        for cursor in ("nonsense", "main.1.99999999." + "0" * 20, "main.99.1." + "f" * 20, "x" * 10_000):
            async with watching(agent, cursor) as watch:
                error = await watch.error()
            assert error.code is Code.INVALID_ARGUMENT and "cursor" in error.message
    counted = await asyncio.to_thread(lambda: fleet.api.metric("shoal_control_hellos_total", result="bad_cursor"))
    assert counted == 4
