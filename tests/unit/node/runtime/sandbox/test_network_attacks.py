"""Services, names and policies in the network of sandboxes, and what pods cannot reach there."""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import closing

import pytest
from sandbox_nodes import OnNode, SandboxNode
from sandbox_services import API, DNS, HEAR, SERVE, SPOOF, TRY, listener, service_proxy

from shoal.base.files import holder_of
from shoal.node.dns.model import NamedEndpoint, NamedPort, ServiceNames
from shoal.node.policy.model import Allow, Block, PortRange, Rules
from shoal.node.proxy.model import ListenAddress, ProxyBackend, ProxyListener
from shoal.node.runtime.model import Sandbox
from shoal.reconcile.keys import ObjectKey
from shoal.testing.waiting import eventually

SERVICE = "10.96.7.7"


async def serving(node: SandboxNode, *ports: str) -> Sandbox:
    pod = await node.pod()
    for port in ports:
        await node.says(await node.run(pod, sys.executable, "-I", "-c", SERVE, port, name=f"serve-{port}"), "ready")
    return pod


async def tried(node: SandboxNode, pod: Sandbox, *words: str) -> list[str]:
    return (await node.python(pod, TRY, *words)).split()


async def test_a_pod_reaches_services_by_any_port_and_nothing_else_of_the_machine(on_node: OnNode) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as api, closing(socket.create_server(("127.0.0.1", 0))) as own:
        port, other = api.getsockname()[1], own.getsockname()[1]
        async with on_node() as node, service_proxy(node) as proxy:
            server, client = await serving(node, "80"), await node.pod()
            (address,) = server.addresses
            for protocol in ("TCP", "UDP"):
                assert await proxy.open(listener(protocol, SERVICE, 53, (address, 80))) == 53
            place = ListenAddress("TCP", API, port)
            await proxy.open(ProxyListener(place=place, backends=(ProxyBackend("127.0.0.1", port, outside=True),)))
            # what a user could write into an EndpointSlice
            await proxy.open(listener("TCP", SERVICE, 6000, ("127.0.0.1", other)))
            said = await tried(
                node, client, f"tcp:{SERVICE}:53", f"udp:{SERVICE}:53", f"tcp:{SERVICE}:54", f"tcp:{API}:{other}",
                f"tcp:169.254.1.1:{other}", f"tcp:{SERVICE}:6000",
            )  # fmt: skip
            assert said[:2] == ["reached", "reached"] and "reached" not in said[2:]
            assert await tried(node, client, f"tcp:{API}:{port}") == ["silent"]  # it accepts, and says nothing
            own.setblocking(False)
            with pytest.raises(BlockingIOError):
                own.accept()


async def test_the_machine_reaches_balancers_whose_addresses_pods_do_not_reach(on_node: OnNode) -> None:
    async with on_node() as node, service_proxy(node) as proxy:
        server, client = await serving(node, "80"), await node.pod()
        outside = f"127.3.{os.getpid() % 250}.1"
        port = await proxy.open(listener("TCP", outside, 80, (server.addresses[0], 80)))
        with socket.create_connection((outside, port), timeout=5) as made:
            assert made.recv(100).startswith(b"hello")
        assert await tried(node, client, f"tcp:{outside}:{port}") == ["refused"]


async def test_names_of_services_lead_to_them(on_node: OnNode) -> None:
    async with on_node() as node, service_proxy(node) as proxy:
        many = tuple(NamedEndpoint(f"10.244.9.{n}", f"db-{n}", (NamedPort("sql", "TCP", 5432),)) for n in range(1, 61))
        for names in (
            ServiceNames(namespace="default", name="web", addresses=(SERVICE,)),
            ServiceNames(namespace="default", name="db", endpoints=many),
        ):
            await proxy.set_names(ObjectKey(names.namespace, names.name), names)
        searches = ("default.svc.cluster.local", "svc.cluster.local", "cluster.local")
        pod = await node.pod(dns_servers=(DNS,), dns_searches=searches, dns_options=("ndots:5",))
        script = (
            "getent ahostsv4 web | head -1 | cut -d' ' -f1; getent ahostsv4 db-7.db.default | head -1 | cut -d' ' -f1; "
            f"getent hosts {SERVICE} | sed 's/  */ /'; getent ahostsv4 nosuch || echo none; "
            "getent ahostsv4 www.example.com || echo none; getent ahostsv4 db | grep -c STREAM"
        )
        name = f"{SERVICE} web.default.svc.cluster.local"
        # 60 addresses are more than a datagram has room for
        assert (await node.sh(pod, script)).splitlines() == [SERVICE, "10.244.9.7", name, "none", "none", "60"]
        await proxy.set_names(ObjectKey("default", "web"), None)
        assert await node.sh(pod, "getent ahostsv4 web || echo none") == "none\n"


@pytest.mark.parametrize("by_service", [False, True], ids=["kernel", "proxy"])
async def test_a_denied_pod_cannot_be_reached_by_address_nor_by_service(on_node: OnNode, by_service: bool) -> None:
    async with on_node() as node, service_proxy(node) as proxy:
        server, friend, stranger = await serving(node, "80", "81"), await node.pod(), await node.pod()
        (address,) = server.addresses
        target = SERVICE if by_service else address
        for protocol in ("TCP", "UDP"):
            for port in (80, 81):
                await proxy.open(listener(protocol, SERVICE, port, (address, port)))
        words = [f"{protocol}:{target}:{port}" for protocol in ("tcp", "udp") for port in (80, 81)]
        assert await proxy.set_rules(Rules()) == ""
        assert await tried(node, stranger, *words) == ["reached"] * 4
        ports = (PortRange("TCP", 80, 80), PortRange("UDP", 70, 80))
        only = Allow((Block("10.244.0.0/16", (f"{stranger.addresses[0]}/32",)),), ports)
        assert await proxy.set_rules(Rules(ingress={address: (only,)})) == ""
        assert "reached" not in await tried(node, stranger, *words)
        found = await tried(node, friend, *words)
        assert [each == "reached" for each in found] == [True, False, True, False]
        assert await proxy.set_rules(Rules(egress={friend.addresses[0]: ()})) == ""
        assert "reached" not in await tried(node, friend, *words)
        assert await tried(node, stranger, *words) == ["reached"] * 4
        assert await node.sh(friend, f"getent ahostsv4 {target} >/dev/null && echo literal") == "literal\n"


async def test_a_pod_that_may_not_connect_gets_no_answers_about_names(on_node: OnNode) -> None:
    async with on_node() as node, service_proxy(node) as proxy:
        await proxy.set_names(ObjectKey("a", "web"), ServiceNames(namespace="a", name="web", addresses=(SERVICE,)))
        pod = await node.pod(dns_servers=(DNS,), dns_options=("timeout:1", "attempts:1"))
        ask = "getent ahostsv4 web.a.svc.cluster.local | head -1 | cut -d' ' -f1"
        assert await node.sh(pod, ask) == f"{SERVICE}\n"
        await proxy.set_rules(Rules(egress={pod.addresses[0]: ()}))
        assert await node.sh(pod, ask) == ""
        only = Allow((Block(f"{DNS}/32"),), (PortRange("UDP", 53, 53),))
        await proxy.set_rules(Rules(egress={pod.addresses[0]: (only,)}))
        assert await node.sh(pod, ask) == f"{SERVICE}\n"


async def test_a_pod_cannot_send_with_the_address_of_another_one(on_node: OnNode) -> None:
    async with on_node() as node:
        hearing, victim, attacker = await node.pod(), await node.pod(), await node.pod()
        ears = await node.run(hearing, sys.executable, "-I", "-c", HEAR, "99")
        await node.says(ears, "ready")
        words = (attacker.addresses[0], victim.addresses[0], hearing.addresses[0], "99")
        assert await node.python(attacker, SPOOF, *words) == "sent\n"
        heard = await node.says(ears, "from")
        assert heard == f"ready\nfrom {attacker.addresses[0]}\n"


async def test_services_go_on_after_their_proxy_and_the_helper_were_killed(on_node: OnNode) -> None:
    async with on_node() as node, service_proxy(node) as proxy:
        server, client = await serving(node, "80"), await node.pod()
        await node.run(client, "sleep", "600")  # which keeps its namespaces without the helper
        (address,) = server.addresses
        await proxy.open(listener("TCP", SERVICE, 80, (address, 80)))
        await proxy.set_rules(Rules(ingress={address: (Allow((Block(f"{client.addresses[0]}/32"),), None),)}))
        for lock in (node.machine.helper / "helper.lock", node.machine.helper.parent / "proxy" / "proxy.lock"):
            pid = holder_of(lock)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)

            async def replaced(lock: object = lock, pid: int = pid) -> bool:
                await node.runtime.list()
                return holder_of(lock) not in (None, pid)  # type: ignore[arg-type]

            await eventually(replaced, timeout_s=20)

            async def reached() -> bool:
                return await tried(node, client, f"tcp:{SERVICE}:80") == ["reached"]

            await eventually(reached, timeout_s=20)


async def test_a_new_network_of_sandboxes_gets_a_new_proxy(on_node: OnNode) -> None:
    """Nothing keeps the network when the helper is killed while no container runs."""
    async with on_node() as node, service_proxy(node) as proxy:
        await proxy.open(listener("TCP", SERVICE, 80, ("10.244.0.1", 80)))
        pid = holder_of(node.machine.helper / "helper.lock")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

        async def reached() -> bool:
            try:
                server = await serving(node, "80")
                await proxy.open(listener("TCP", SERVICE, 80, (server.addresses[0], 80)))
                return await tried(node, await node.pod(), f"tcp:{SERVICE}:80") == ["reached"]
            except Exception:
                return False

        await eventually(reached, timeout_s=30)
