"""The proxy under a manager: it follows the API and closes its listeners when it stops."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from shoal.apiserver.context import ServerConfig
from shoal.controllers.context import ControllerContext
from shoal.node.proxy import wiring
from shoal.node.proxy.reconcile import ServiceProxy
from shoal.node.runtime.process.addresses import claim_network
from shoal.testing.controllers import running
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually

_PIECE: dict[str, Any] = {
    "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["192.0.2.99"]}],
    "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
}


async def test_services_are_served_while_they_have_endpoints(tmp_path: Path) -> None:
    network = claim_network(tmp_path / "cluster", registry=tmp_path / "networks")

    found: list[ServiceProxy] = []

    def add(context: ControllerContext) -> None:
        found.append(
            wiring.add(
                context.manager,
                context.events,
                clock=context.clock,
                random=context.random,
                new_id=context.new_id,
                metrics=context.metrics,
            )
        )

    async with local_server(config=ServerConfig(ca_certificate="x", service_cidr=network.service_cidr)) as server:
        services, slices = (
            "/api/v1/namespaces/default/services",
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        )
        async with running(server, [add]):
            (proxy,) = found
            before = proxy.listeners  # the API server itself has a service
            made = await server.post(services, {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 18080}]}})
            place = (made["spec"]["clusterIP"], 18080)
            assert place[0].startswith(f"127.{network.number}.")
            await server.post(slices, _PIECE)
            await eventually(lambda: _listens(place))
            await server.delete(f"{slices}/web-1")
            await eventually(lambda: not _listens(place))
            await server.post(slices, _PIECE)
            await eventually(lambda: _listens(place))
            await server.delete(f"{services}/web")
            await eventually(lambda: not _listens(place))
            await server.post(services, {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 18080}]}})
            await eventually(lambda: proxy.listeners > before)
        assert proxy.listeners == 0


def _listens(place: tuple[str, int]) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind(place)
        except OSError:
            return True
        return False
