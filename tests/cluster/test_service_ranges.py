"""Which ranges give out cluster IPs, and in which order."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from shoal.apiserver.context import ServerConfig
from shoal.apiserver.node_access import NodesConfig
from shoal.testing.servers import LocalServer, local_server

SERVICES = "/api/v1/namespaces/default/services"
RANGES = "/apis/networking.k8s.io/v1/servicecidrs"


@asynccontextmanager
async def serving(**config: Any) -> AsyncIterator[LocalServer]:
    async with local_server(config=ServerConfig(ca_certificate="test CA", **config)) as server:
        yield server


async def add_range(server: LocalServer, name: str, cidr: str) -> None:
    await server.post(RANGES, {"metadata": {"name": name}, "spec": {"cidrs": [cidr]}})


async def addresses(server: LocalServer, count: int, name: str = "s") -> list[str]:
    """What services without a wish are given."""
    found = []
    for number in range(count):
        body = {"metadata": {"name": f"{name}{number}"}, "spec": {"ports": [{"port": 80}]}}
        found.append((await server.post(SERVICES, body))["spec"]["clusterIP"])
    return found


async def refusal(server: LocalServer, **spec: Any) -> str:
    body = {"metadata": {"name": "refused"}, "spec": {"ports": [{"port": 80}], **spec}}
    answer = await server.call("POST", SERVICES, body)
    assert answer.status == 422, answer.json
    return str(answer.json["message"])


def inside(found: list[str], cidr: str) -> int:
    return sum(ipaddress.ip_address(each) in ipaddress.ip_network(cidr) for each in found)


async def test_a_second_range_gives_out_addresses_when_the_first_is_full() -> None:
    async with serving(service_cidr="10.96.0.0/29") as server:
        assert inside(await addresses(server, 5), "10.96.0.0/29") == 5  # the sixth is the API server's
        assert "range is full" in await refusal(server)
        await add_range(server, "more", "10.97.0.0/29")
        found = await addresses(server, 6, "t")
        assert inside(found, "10.97.0.0/29") == len(set(found)) == 6
        record = await server.get(f"/apis/networking.k8s.io/v1/ipaddresses/{found[0]}")
        assert record["spec"]["parentRef"]["name"] == "t0"
        assert "10.97.0.0/29" in await refusal(server)
        await server.delete(f"{SERVICES}/s0")
        assert inside(await addresses(server, 1, "u"), "10.96.0.0/29") == 1


async def test_an_address_may_be_asked_for_in_any_range() -> None:
    async with serving(service_cidr="10.96.0.0/29") as server:
        wanted = {"clusterIP": "10.97.0.3"}
        assert "does not match the current range" in await refusal(server, **wanted)
        await add_range(server, "more", "10.97.0.0/29")
        body = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}], **wanted}}
        assert (await server.post(SERVICES, body))["spec"]["clusterIP"] == "10.97.0.3"
        assert "already allocated" in await refusal(server, **wanted)
        assert "does not match" in await refusal(server, clusterIP="10.97.0.7")  # the range's last


async def test_a_range_that_is_not_ready_or_going_gives_out_nothing() -> None:
    async with serving(service_cidr="10.96.0.0/29") as server:
        await addresses(server, 5)
        kept = {"metadata": {"name": "going", "finalizers": ["example.com/kept"]}, "spec": {"cidrs": ["10.97.0.0/29"]}}
        await server.post(RANGES, kept)
        await server.delete(f"{RANGES}/going")
        await add_range(server, "unready", "10.98.0.0/29")
        condition = {
            "type": "Ready", "status": "False", "reason": "Terminating", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        await server.patch(f"{RANGES}/unready/status", {"status": {"conditions": [condition]}})
        assert "range is full" in await refusal(server)
        await server.patch(f"{RANGES}/unready/status", {"status": {"conditions": [{**condition, "status": "True"}]}})
        assert inside(await addresses(server, 1, "t"), "10.98.0.0/29") == 1


async def test_services_on_the_loopback_interface_stay_there() -> None:
    """Only there can the node listen for them; the addresses of pods and nodes are excluded."""

    async with serving(service_cidr="127.5.128.0/29", nodes=NodesConfig(loopback=("127.5.0.0/16",))) as server:
        await addresses(server, 5)
        await add_range(server, "elsewhere", "10.97.0.0/28")
        await add_range(server, "of-the-pods", "127.5.1.0/28")
        assert "range is full" in await refusal(server)
        await add_range(server, "loopback", "127.200.0.0/28")
        assert inside(await addresses(server, 3, "t"), "127.200.0.0/28") == 3


async def test_services_of_a_network_that_is_local_for_containers_stay_there() -> None:
    nodes = NodesConfig(loopback=("10.60.0.0/16",))
    async with serving(service_cidr="10.60.128.0/29", nodes=nodes) as server:
        await addresses(server, 5)
        await add_range(server, "elsewhere", "10.97.0.0/28")
        await add_range(server, "of-the-machine-alone", "127.200.0.0/28")
        assert "range is full" in await refusal(server)
