"""Requests of the manager to an edge, on a cluster whose pods are processes, one of them a real Envoy."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson
import pytest
from protobuf import Oneof

from shoal.app.connect import acting_as
from shoal.app.ports import any_free
from shoal.base.clock import RealClock
from shoal.client import AccessConfig, Client, builtin, connect, load
from shoal.errors import ApiError
from shoal.kube.objects import Obj
from shoal.navigator.connections import CallEndpoint, ServiceConnection, read_connections
from shoal.navigator.edge import rbac
from shoal.navigator.edge.config import CallsConfig
from shoal.navigator.edge.requests.forwarding import PortForward
from shoal.navigator.edge.requests.proxies import ProxiedPorts
from shoal.sentinel.supervisor import find_envoy
from shoal.testing import istio
from shoal.testing.navigator import RecordingManager, recording_manager, running_edge
from shoal.testing.servers import server_process
from shoal.testing.waiting import eventually
from shoal.wire.navigator.v1 import navigator_pb as pb

ACCOUNT = f"system:serviceaccount:{rbac.NAMESPACE}:{rbac.SERVICE_ACCOUNT}"
TALK = "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.1; done"


def bootstrap(admin: int, address: str) -> Obj:
    """Static configuration with two priorities in two zones."""

    def group(zone: str, priority: int, *hosts: str) -> Obj:
        endpoints = [
            {"endpoint": {"address": {"socket_address": {"address": host, "port_value": 9080}}}} for host in hosts
        ]
        return {"locality": {"region": "eu", "zone": zone}, "priority": priority, "lb_endpoints": endpoints}

    cluster = {
        "name": "outbound|9080|v1|ratings.shop.svc.cluster.local",
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": "outbound|9080|v1|ratings.shop.svc.cluster.local",
            "endpoints": [group("a", 0, "127.0.0.8", "127.0.0.9"), group("b", 1, "127.0.0.10")],
        },
    }
    route = {"match": {"prefix": "/"}, "route": {"cluster": cluster["name"], "timeout": "3s"}}
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {
            "name": "ratings", "virtual_hosts": [{"name": "ratings", "domains": ["ratings"], "routes": [route]}]
        },
        "http_filters": [
            {
                "name": "router",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
            }
        ],
    }  # fmt: skip
    listener = {
        "name": "0.0.0.0_9080",
        "traffic_direction": "OUTBOUND",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    return {
        "node": {"id": "sidecar~ratings", "cluster": "ratings.shop"},
        "admin": {"address": {"socket_address": {"address": address, "port_value": admin}}},
        "static_resources": {"listeners": [listener], "clusters": [cluster]},
    }


@dataclass(frozen=True, slots=True)
class World:
    kubeconfig: str
    admin_port: int

    @property
    def access(self) -> AccessConfig:
        """As the edge's account, so that its rights decide."""
        return acting_as(load(self.kubeconfig), ACCOUNT)


def pod(name: str, *command: str, ports: list[Obj] | None = None) -> Obj:
    container = {"name": "main", "image": "busybox", "command": list(command), "ports": ports or []}
    spec = {"nodeName": "node-1", "containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"}, "spec": spec}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    flags = ("--port", "0", "--components", "apiserver,nodes", "--nodes", "1")
    with tempfile.TemporaryDirectory(prefix="shoal-edge-") as folder, server_process(Path(folder), *flags) as server:
        made = World(server.kubeconfig, any_free("127.0.0.1"))
        asyncio.run(_start(made))
        yield made


async def _start(world: World) -> None:
    envoy = str(find_envoy())
    options = ("--use-dynamic-base-id", "--concurrency", "1", "--log-level", "error")
    own = orjson.dumps(bootstrap(world.admin_port, "127.0.0.1")).decode()
    async with connect(load(world.kubeconfig), clock=RealClock()) as client:
        await istio.create(
            client,
            istio.namespace("shop"),
            *rbac.manifests(),
            pod("talker", "sh", "-c", TALK),
            pod("envoy", envoy, *options, "--config-yaml", own,
                ports=[{"name": "admin", "containerPort": world.admin_port}]),
        )  # fmt: skip
        pods = client.of(builtin("pods"))
        for name in ("talker", "envoy"):
            await _running(pods, name)
        forward = PortForward(load(world.kubeconfig), clock=RealClock(), random_bytes=secrets.token_bytes)

        async def answers() -> bool:
            try:
                return bool(await forward.get("shop", "envoy", world.admin_port, "/ready"))
            except ApiError:
                return False

        await eventually(answers, timeout_s=30)


async def _running(pods: Any, name: str) -> None:
    async def running() -> bool:
        return ((await pods.get(name, "shop")).get("status") or {}).get("phase") == "Running"

    await eventually(running, timeout_s=30)


@asynccontextmanager
async def edge(world: World, **settings: Any) -> AsyncIterator[tuple[RecordingManager, Client]]:
    async with recording_manager() as manager, connect(world.access, clock=RealClock()) as client:
        ports = PortForward(world.access, clock=RealClock(), random_bytes=secrets.token_bytes)
        async with running_edge(client, manager.join_file(), ports=ports, **settings):
            await manager.until(lambda: manager.current is not None and manager.model.verifications)
            yield manager, client


def logs(**asked: Any) -> Oneof[Literal["logs"], pb.PodLogs]:
    return Oneof("logs", pb.PodLogs(**({"namespace": "shop", "pod": "talker", "tail": -1} | asked)))


def proxy(**asked: Any) -> Oneof[Literal["proxy_config"], pb.ProxyConfig]:
    return Oneof("proxy_config", pb.ProxyConfig(**({"namespace": "shop", "pod": "envoy"} | asked)))


def whole(parts: list[pb.Reply]) -> bytes:
    assert not parts[-1].error, parts[-1].error
    return b"".join(part.part for part in parts)


async def test_logs_are_fetched_with_their_options_and_followed_until_cancelled(world: World) -> None:
    async with edge(world) as (manager, _):

        async def first_lines() -> list[str]:
            return whole(await manager.ask(secrets.token_hex(4), logs())).decode().splitlines()[:3]

        await eventually(first_lines, until=["line 0", "line 1", "line 2"].__eq__)  # the pod writes them one by one
        assert len(whole(await manager.ask("2", logs(tail=2))).splitlines()) == 2
        stamped = whole(await manager.ask("3", logs(tail=1, timestamps=True))).decode()
        assert stamped[:2] == "20" and "line" in stamped
        gone = await manager.ask("4", logs(pod="nobody"))
        assert gone[-1].reason == "NotFound" and "nobody" in gone[-1].error
        following = asyncio.create_task(manager.ask("5", logs(follow=True, tail=0), deadline_s=60), name="follow")
        session = manager.current
        assert session is not None
        await manager.until(lambda: len(b"".join(part.part for part in session.replies.get("5", ())).split()) >= 6)
        manager.cancel("5")
        seen = len(session.replies["5"])
        assert whole(await manager.ask("6", logs(tail=1)))
        assert len(session.replies["5"]) <= seen + 1, "it went on after it was cancelled"
        following.cancel()
        await asyncio.wait([following])


async def test_events_are_rows(world: World) -> None:
    async with edge(world) as (manager, _):
        found: list[Obj] = []

        async def there() -> bool:
            asked = Oneof("events", pb.ClusterEvents(namespace="shop", kind="Pod", name="talker"))
            answer = whole(await manager.ask(secrets.token_hex(4), asked))
            found[:] = [orjson.loads(line) for line in answer.splitlines()]
            return any(event["reason"] == "Started" for event in found)

        await eventually(there, timeout_s=20)
        assert {event["involvedObject"]["name"] for event in found} == {"talker"}
        none = await manager.ask("none", Oneof("events", pb.ClusterEvents(namespace="shop", name="nobody")))
        assert whole(none) == b""


async def test_the_configuration_of_a_real_envoy_keeps_priorities_and_localities(world: World) -> None:
    async with edge(world) as (manager, _):
        config = orjson.loads(whole(await manager.ask("1", proxy())))
        name = "outbound|9080|v1|ratings.shop.svc.cluster.local"
        endpoints = {each["address"]: each for each in config["endpoints"] if each["cluster"] == name}
        assert {address: each["priority"] for address, each in endpoints.items()} == {
            "127.0.0.8": 0, "127.0.0.9": 0, "127.0.0.10": 1
        }  # fmt: skip
        assert endpoints["127.0.0.10"]["locality"] == {"region": "eu", "zone": "b"}
        assert {each["health"] for each in endpoints.values()} == {"healthy"}
        (cluster,) = [each for each in config["clusters"] if each["name"] == name]
        assert (cluster["host"], cluster["subset"], cluster["port"]) == (
            "ratings.shop.svc.cluster.local",
            "v1",
            9080,
        )
        (listener,) = config["listeners"]
        assert (listener["name"], listener["direction"]) == ("0.0.0.0_9080", "outbound")
        assert listener["filterChains"][0]["routeConfig"] == "ratings"
        (route,) = config["routes"][0]["virtualHosts"][0]["routes"]
        assert route["clusters"] == [{"name": name}] and route["timeout"] == "3s"
        assert config["node"]["id"] == "sidecar~ratings" and config["version"]
        raw = orjson.loads(whole(await manager.ask("2", proxy(raw=True))))
        assert any("BootstrapConfigDump" in each["@type"] for each in raw["configs"])
        no_proxy = await manager.ask("3", proxy(pod="talker"))
        assert no_proxy[-1].reason == "BadRequest" and "no proxy" in no_proxy[-1].error
        missing = await manager.ask("4", proxy(pod="nobody"))
        assert missing[-1].reason == "NotFound"


async def test_a_port_without_a_listener_is_a_clear_error(world: World) -> None:
    forward = PortForward(world.access, clock=RealClock(), random_bytes=secrets.token_bytes)
    with pytest.raises(ApiError, match="port 1 "):
        await forward.get("shop", "talker", 1, "/")
    with pytest.raises(ApiError, match="nobody"):
        await forward.get("shop", "nobody", 1, "/")


async def test_the_api_servers_proxy_reaches_ports_on_the_pods_address(world: World) -> None:
    envoy, port = str(find_envoy()), any_free("127.0.0.1")
    async with connect(load(world.kubeconfig), clock=RealClock()) as client:
        script = (
            f"exec {envoy} --use-dynamic-base-id --concurrency 1 --log-level error --config-yaml "
            f"'{orjson.dumps(bootstrap(port, '0.0.0.0')).decode()}'"
        )
        await istio.create(client, pod("open", "sh", "-c", script))
        await _running(client.of(builtin("pods")), "open")
        ports = ProxiedPorts(client)

        async def answers() -> bool:
            try:
                return b"outbound|9080|v1" in await ports.get("shop", "open", port, "/config_dump?include_eds")
            except ApiError:
                return False

        await eventually(answers, timeout_s=20)


GATEWAY_PAGE = """\
shoal_sentinel_requests_total{code="2xx",deployment="dep_web"} 9
shoal_sentinel_requests_total{code="5xx",deployment="dep_web"} 1
shoal_sentinel_request_duration_seconds_bucket{deployment="dep_web",le="+Inf"} 10
"""
ISTIO_PAGE = """\
istio_requests_total{reporter="source",source_canonical_service="web",source_workload_namespace="shop",\
destination_canonical_service="cart",destination_service_namespace="shop",response_code="200"} 20
"""


def serving_page(name: str, port: int, path: str, page: str) -> Obj:
    """A pod with a page of metrics."""
    script = f"cd $(mktemp -d) && mkdir -p $(dirname {path}) && cat > {path} <<'END'\n{page}END\n"
    return pod(name, "sh", "-c", f"{script}exec python3 -m http.server {port}")


async def test_the_counters_of_proxies_are_the_service_graph_without_a_prometheus(world: World) -> None:
    calls = CallsConfig(istio_proxies=True, interval_s=1.0)
    port = any_free("127.0.0.1")
    async with edge(world, calls=calls) as (manager, _), connect(load(world.kubeconfig), clock=RealClock()) as admin:
        gateway = serving_page("gateway", port, "metrics", GATEWAY_PAGE)
        gateway["metadata"]["labels"] = {"app.kubernetes.io/component": "sentinel"}
        gateway["spec"]["containers"][0]["ports"] = [{"name": "metrics", "containerPort": port}]
        sidecar = serving_page("sidecar", 15020, "stats/prometheus", ISTIO_PAGE)
        sidecar["spec"]["containers"][0]["name"] = "istio-proxy"
        await istio.create(admin, gateway, sidecar)
        found: dict[str, ServiceConnection] = {}

        async def both() -> bool:
            now = time.time()
            asked = pb.ServiceConnections(start_ms=int((now - 60) * 1000), end_ms=int((now + 60) * 1000))
            answer = orjson.loads(whole(await manager.ask(secrets.token_hex(4), Oneof("connections", asked))))
            connections, warnings = read_connections(answer, "east")
            found.update({each.source.service: each for each in connections})
            assert {"default", "web"} <= set(found), warnings
            return True

        await eventually(both, timeout_s=30)
        to_app, to_cart = found["default"], found["web"]
        assert to_app.source == CallEndpoint("east", "shop", "default")
        assert to_app.destination == CallEndpoint("east", "", "", "dep_web")
        assert to_app.success_rate == pytest.approx(0.9)
        assert to_cart.destination == CallEndpoint("east", "shop", "cart")
        assert to_cart.requests == pytest.approx(2 * to_app.requests), "20 and 10 in the same time"
