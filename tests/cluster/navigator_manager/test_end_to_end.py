"""A cluster, its edge and the manager together: the manager sees the cluster's objects, also after one of them was away."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import orjson

from shoal.base.clock import RealClock
from shoal.client import Client
from shoal.client.transport import Transport
from shoal.navigator.manager.wiring import Manager
from shoal.navigator.model import Freshness
from shoal.testing import istio
from shoal.testing.managers import running_manager
from shoal.testing.navigator import running_edge
from shoal.testing.servers import LocalServer, local_server
from shoal.testing.waiting import eventually
from shoal.wire.navigator.v1 import navigator_pb as pb


def client_of(server: LocalServer) -> Client:
    return Client(cast(Transport, server.transport), clock=RealClock())


def labels(manager: Manager, name: str) -> dict[str, str]:
    row = manager.view.row("east", "pods", f"shop/{name}")
    return dict(row.summary.labels) if row is not None else {}  # type: ignore[attr-defined]


def freshness(manager: Manager) -> Freshness | None:
    found = manager.view.cluster("east")
    return found.freshness if found is not None else None


async def test_the_manager_follows_a_cluster_also_after_a_restart(tmp_path: Path) -> None:
    async with local_server() as server:
        client = client_of(server)
        await istio.create(client, istio.namespace("shop"), *(istio.pod("shop", "web", "v1", at) for at in range(5)))
        names = {item["metadata"]["name"] for item in (await server.call("GET", "/api/v1/pods")).ok()["items"]}
        async with running_manager(tmp_path) as running:
            port, join = running.port, await running.join_file(tmp_path, region="eu")
            async with running_edge(client, join, edge="e1", discovery_s=0.2):
                manager = running.manager
                await eventually(lambda: freshness(manager) is Freshness.HEALTHY)
                assert {row.name for row in manager.view.rows("pods", cluster="east")} == names
                first = min(names)
                await change(server, first, "1")
                await eventually(lambda: labels(manager, first).get("turn") == "1")
                (answer,) = [part async for part in manager.edges.ask("east", pb.ClusterEvents(), deadline_s=20)] or [
                    b"[]"
                ]
                assert orjson.loads(answer) is not None
        # No manager runs. The cluster changes, and an edge starts.
        await change(server, first, "2")
        async with running_edge(client, join, edge="e1", discovery_s=0.2):
            await (await client.by_kind("Pod", "v1")).delete(max(names), namespace="shop")
            async with running_manager(tmp_path, port=port) as running:
                manager = running.manager
                await eventually(lambda: labels(manager, first).get("turn") == "2")
                await eventually(lambda: freshness(manager) is Freshness.HEALTHY)
                await eventually(lambda: {row.name for row in manager.view.rows("pods")} == names - {max(names)})
                cluster = manager.view.cluster("east")
                assert cluster is not None and (cluster.epoch, cluster.region) == (2, "eu")


async def test_options_of_an_edge_change_while_it_runs_and_survive_restarts_of_both(tmp_path: Path) -> None:
    async with local_server() as server:
        client = client_of(server)
        places = ("shop", "other")
        await istio.create(
            client, *(istio.namespace(each) for each in places), *(istio.service(each, "web") for each in places)
        )

        def services(manager: Manager) -> set[str]:
            return {row.key for row in manager.view.rows("services", cluster="east")}

        async with running_manager(tmp_path) as running:
            port, join, manager = running.port, await running.join_file(tmp_path), running.manager
            async with running_edge(client, join, edge="e1"):
                await eventually(lambda: services(manager) >= {"shop/web", "other/web"})
                await manager.options.change("east", {"namespaces.include": "shop", "sync.interval_s": "6"}, ())
                await eventually(lambda: services(manager) == {"shop/web"})
                await eventually(lambda: manager.options.edge("east").taken)
                assert manager.options.edge("east").settings["sync.interval_s"] == "6.0"
                assert manager.clusters.known["east"].interval_s == 6.0 and manager.clusters.known["east"].epoch == 1
        async with running_manager(tmp_path, port=port) as running, running_edge(client, join, edge="e1") as edge:
            manager = running.manager
            await eventually(lambda: "east" in manager.clusters.known and manager.options.edge("east").taken)
            await eventually(lambda: services(manager) == {"shop/web"} and freshness(manager) is Freshness.HEALTHY)
            await manager.options.change("east", {}, ["namespaces.include"])
            await eventually(lambda: services(manager) >= {"shop/web", "other/web"})
            assert edge.config.sync.interval_s == 6.0


async def change(server: LocalServer, name: str, turn: str) -> None:
    answer = await server.call(
        "PATCH", f"/api/v1/namespaces/shop/pods/{name}", {"metadata": {"labels": {"turn": turn}}},
        {"content-type": "application/merge-patch+json"},
    )  # fmt: skip
    answer.ok()
