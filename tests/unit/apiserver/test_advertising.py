"""The Service ``kubernetes`` leads to a server that answers."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from shoal.apiserver.advertising import LOOK_S
from shoal.apiserver.context import ServerConfig
from shoal.app.pki import Pki, server_context
from shoal.app.ports import any_free
from shoal.base.clock import FakeClock, RealClock
from shoal.testing.databases import shared_postgres
from shoal.testing.servers import LocalServer, local_server
from shoal.testing.waiting import eventually

SERVICE = "/api/v1/namespaces/default/services/kubernetes"
ENDPOINTS = "/api/v1/namespaces/default/endpoints/kubernetes"
SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"


def on_port(port: int) -> ServerConfig:
    return ServerConfig(ca_certificate="test CA", advertise_port=port)


async def advertised(server: LocalServer) -> set[int]:
    """The ports by which the Service, its Endpoints and its EndpointSlice lead to a server."""
    service, endpoints, piece = [await server.get(path) for path in (SERVICE, ENDPOINTS, SLICE)]
    return {
        service["spec"]["ports"][0]["targetPort"],
        endpoints["subsets"][0]["ports"][0]["port"],
        piece["ports"][0]["port"],
    }


async def test_a_server_that_starts_on_another_port_is_found_there(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    async with local_server(store, config=on_port(7001)) as server:
        assert await advertised(server) == {7001}
        address = (await server.get(SERVICE))["spec"]["clusterIP"]
    async with local_server(store, config=on_port(7002)) as server:
        assert await advertised(server) == {7002}
        assert (await server.get(SERVICE))["spec"]["clusterIP"] == address


async def test_a_start_on_the_same_port_writes_nothing(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"

    async def versions(server: LocalServer) -> list[str]:
        return [(await server.get(path))["metadata"]["resourceVersion"] for path in (SERVICE, ENDPOINTS, SLICE)]

    async with local_server(store, config=on_port(7001)) as server:
        before = await versions(server)
    async with local_server(store, config=on_port(7001)) as server:
        assert await versions(server) == before


async def test_endpoints_that_were_deleted_or_changed_come_back() -> None:
    clock = FakeClock()
    async with local_server(clock=clock, config=on_port(7001)) as server:
        await server.delete(ENDPOINTS)
        stale: dict[str, Any] = await server.get(SLICE)
        await server.put(SLICE, {**stale, "ports": [{"name": "https", "port": 9, "protocol": "TCP"}]})
        await clock.advance(LOOK_S)

        async def is_back() -> bool:
            answer = await server.call("GET", ENDPOINTS)
            return answer.status == 200 and await advertised(server) == {7001}

        await eventually(is_back)


async def test_servers_that_share_a_store_take_the_place_of_one_that_does_not_answer(tmp_path: Path) -> None:
    database = shared_postgres().create_database()
    keys = Pki(tmp_path, now=RealClock().now())
    tls = server_context(keys.ensure_server(("127.0.0.1",), "test"), keys.ca_cert)
    authority = keys.ca_cert.read_text()
    ports = [any_free("127.0.0.1"), any_free("127.0.0.1")]
    config = [ServerConfig(ca_certificate=authority, advertise_port=port) for port in ports]
    clock = FakeClock()
    async with AsyncExitStack() as second:
        async with local_server(database, config=config[0]) as first:
            await first.server.listen("127.0.0.1", ports[0], tls=tls)
            other = await second.enter_async_context(local_server(database, config=config[1], clock=clock))
            assert await advertised(other) == {ports[0]}
        await clock.advance(LOOK_S)

        async def is_taken_over() -> bool:
            return await advertised(other) == {ports[1]}

        await eventually(is_taken_over)
