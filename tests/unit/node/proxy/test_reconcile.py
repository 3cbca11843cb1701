"""The proxy with real sockets: listeners, limits, and connections to pods."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from shoal.apiserver.context import ServerConfig
from shoal.app.ports import any_free
from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.client import Client, builtin
from shoal.client.transport import Transport
from shoal.kube.objects import Obj
from shoal.node.proxy import tcp
from shoal.node.proxy.config import ProxyConfig
from shoal.node.proxy.model import ListenAddress, ProxyBackend, ProxyListener
from shoal.node.proxy.reconcile import BY_SERVICE, ServiceProxy, service_of
from shoal.node.proxy.relays import LocalRelays
from shoal.node.runtime.process.addresses import Network, claim_network
from shoal.reconcile import EventRecorder, Informer, ObjectKey
from shoal.testing.servers import LocalServer, local_server
from shoal.testing.waiting import eventually


class Pods:
    """Servers that say who they are and then send back what they get."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, number: int) -> str:
        address = f"127.{self._network.number}.1.{number}"

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                writer.write(f"pod {number}\n".encode())
                while data := await reader.read(65536):
                    writer.write(data)
                    await writer.drain()
                writer.write(b"end")
            except (ConnectionError, asyncio.CancelledError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, address, self.port)
        self.port = self.port or server.sockets[0].getsockname()[1]
        self._servers.append(server)
        return address

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Fixture:
    """A proxy whose services are in a real API server; the slices behind them are put into its cache by hand."""

    def __init__(self, server: LocalServer, network: Network, config: ProxyConfig) -> None:
        clock = RealClock()
        client = Client(cast(Transport, server.transport), clock=clock)
        self.server, self.network, self.pods = server, network, Pods(network)
        self.services = Informer(client.of(builtin("services")), clock=clock, random=lambda: 0.5)
        self.slices = Informer(
            client.of(builtin("endpointslices", "discovery.k8s.io")), clock=clock, random=lambda: 0.5,
            indexes={BY_SERVICE: service_of},
        )  # fmt: skip
        self.events = EventRecorder(client, "proxy", "proxy", clock=clock, new_suffix=Ids().new_suffix)
        relays = LocalRelays(clock=clock, connections=config.connections, drain_s=config.drain_s)
        self.relays = relays
        self.proxy = ServiceProxy(client, self.services, self.slices, self.events, relays, config)
        self._version = 0

    async def service(self, name: str = "web", *, port: int = 18080, **spec: Any) -> Obj:
        body = {
            "metadata": {"name": name},
            "spec": {"ports": [{"name": "p", "port": port}], "selector": {"app": name}, **spec},
        }
        await self.server.post("/api/v1/namespaces/default/services", body)
        return await self.refresh(name)

    async def refresh(self, name: str = "web") -> Obj:
        found: Obj = await self.server.get(f"/api/v1/namespaces/default/services/{name}")
        self.services.cache.upsert({**found})
        return found

    async def behind(self, *endpoints: Obj, name: str = "web", protocol: str = "TCP", port: int = 0) -> None:
        self._version += 1
        self.slices.cache.upsert(
            {
                "metadata": {
                    "name": f"{name}-1",
                    "namespace": "default",
                    "resourceVersion": str(self._version),
                    "uid": name,
                    "labels": {"kubernetes.io/service-name": name},
                },
                "addressType": "IPv4",
                "endpoints": list(endpoints),
                "ports": [{"name": "p", "port": port or self.pods.port, "protocol": protocol}],
            }  # fmt: skip
        )
        await self.reconcile(name)

    async def reconcile(self, name: str = "web") -> float | None:
        return (await self.proxy.reconcile(ObjectKey("default", name))).after_s

    async def said(self) -> list[tuple[str, str]]:
        """The events so far."""
        self.events.stop()
        await self.events.run()
        items = (await self.server.get("/api/v1/namespaces/default/events"))["items"]
        return [(each["reason"], each["message"]) for each in items]


@asynccontextmanager
async def a_proxy(tmp_path: Path, **config: Any) -> AsyncIterator[Fixture]:
    network = claim_network(tmp_path / "cluster", registry=tmp_path / "networks")
    settings = ServerConfig(ca_certificate="test", service_cidr=network.service_cidr)
    async with local_server(config=settings) as server:
        found = Fixture(server, network, ProxyConfig(drain_s=0.2, **config))
        try:
            yield found
        finally:
            await found.proxy.close()
            await found.pods.stop()


async def greeting(address: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(address, port)
    try:
        return await reader.readline()
    finally:
        writer.close()
        await writer.wait_closed()


def address_of(service: Obj) -> str:
    found: str = service["spec"]["clusterIP"]
    return found


async def test_cluster_ip_and_node_port_reach_all_pods_in_turn(tmp_path: Path) -> None:
    async with a_proxy(tmp_path) as at:
        service = await at.service(type="NodePort")
        pods = [await at.pods.start(n) for n in (1, 2)]
        await at.behind(*({"addresses": [pod]} for pod in pods))
        for place in ((address_of(service), 18080), ("127.0.0.1", service["spec"]["ports"][0]["nodePort"])):
            assert {await greeting(*place) for _ in range(4)} == {b"pod 1\n", b"pod 2\n"}


async def test_what_is_served_besides_services_is_not_relayed_twice(tmp_path: Path) -> None:
    pods = Pods(claim_network(tmp_path / "other", registry=tmp_path / "networks"))
    behind = ProxyBackend(await pods.start(1), pods.port)
    place = ListenAddress("TCP", "127.0.0.1", any_free("127.0.0.1"))
    async with a_proxy(tmp_path, fixed=(ProxyListener(place=place, backends=(behind,)),)) as at:
        await at.proxy.begin()
        service = await at.service()
        await at.behind({"addresses": [place.address]}, port=place.port)
        for count, address in enumerate([(place.address, place.port), (address_of(service), 18080)], 1):
            assert await greeting(*address) == b"pod 1\n"
            assert at.relays.counts["accepted"] == count
    await pods.stop()


async def test_bytes_arrive_whole_in_both_directions_and_the_end_of_one_is_passed_on(tmp_path: Path) -> None:
    async with a_proxy(tmp_path) as at:
        service = await at.service()
        await at.behind({"addresses": [await at.pods.start(1)]})
        reader, writer = await asyncio.open_connection(address_of(service), 18080)
        sent = os.urandom(5 << 20)

        async def send() -> None:
            writer.write(sent)
            await writer.drain()
            writer.write_eof()

        received, _ = await asyncio.gather(reader.read(-1), send())
        assert received == b"pod 1\n" + sent + b"end"
        writer.close()


async def test_a_slow_reader_blocks_the_other_side(tmp_path: Path) -> None:
    async with a_proxy(tmp_path) as at:
        service = await at.service()
        await at.behind({"addresses": [await at.pods.start(1)]})
        raw = socket.socket()
        raw.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(raw, (address_of(service), 18080))
        sent = 0
        with pytest.raises(TimeoutError):  # 200 MB would never fit into buffers
            async with asyncio.timeout(1.0):
                while sent < 200 << 20:
                    await loop.sock_sendall(raw, bytes(1 << 20))
                    sent += 1 << 20
        assert sent < 60 << 20
        raw.close()


async def test_an_open_connection_keeps_its_pod_when_the_pod_or_the_service_is_removed(tmp_path: Path) -> None:
    async with a_proxy(tmp_path) as at:
        service = await at.service()
        old, new = [await at.pods.start(n) for n in (1, 2)]
        await at.behind({"addresses": [old]})
        reader, writer = await asyncio.open_connection(address_of(service), 18080)
        assert await reader.readline() == b"pod 1\n"
        going = {"addresses": [old], "conditions": {"ready": False, "serving": True, "terminating": True}}
        await at.behind(going, {"addresses": [new]})
        assert {await greeting(address_of(service), 18080) for _ in range(3)} == {b"pod 2\n"}
        at.services.cache.remove(at.services.cache.get(ObjectKey("default", "web")) or {})
        await at.reconcile()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(address_of(service), 18080)
        writer.write(b"still here\n")
        assert await reader.readline() == b"still here\n"
        writer.close()


async def test_without_ready_pods_clients_are_refused_until_there_is_one(tmp_path: Path) -> None:
    async with a_proxy(tmp_path) as at:
        service = await at.service()
        pod = await at.pods.start(1)
        await at.behind({"addresses": [pod], "conditions": {"ready": False}})
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(address_of(service), 18080)
        await at.behind({"addresses": [pod]})
        assert await greeting(address_of(service), 18080) == b"pod 1\n"


async def test_a_pod_that_refuses_connections_is_skipped(tmp_path: Path) -> None:
    async with a_proxy(tmp_path) as at:
        service = await at.service()
        pod = await at.pods.start(2)
        await at.behind({"addresses": [f"127.{at.network.number}.1.1"]}, {"addresses": [pod]})
        assert {await greeting(address_of(service), 18080) for _ in range(4)} == {b"pod 2\n"}


async def test_a_privileged_port_is_served_at_a_higher_port_with_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = tcp.TcpRelay.open

    async def refusing(self: tcp.TcpRelay, port: int) -> None:
        if port < 1024:
            raise PermissionError(errno.EACCES, "Permission denied")
        await opened(self, port)

    monkeypatch.setattr(tcp.TcpRelay, "open", refusing)

    async with a_proxy(tmp_path) as at:
        service = await at.service(port=80)
        pod = await at.pods.start(1)
        await at.behind({"addresses": [pod]})
        assert await greeting(address_of(service), 8080) == b"pod 1\n"
        service = await at.refresh()
        assert service["metadata"]["annotations"] == {"shoal.dev/served-ports": "80:8080"}
        await at.reconcile()
        assert [reason for reason, _ in await at.said()] == ["PortMoved"]


async def test_a_port_in_use_is_retried(tmp_path: Path) -> None:
    async with a_proxy(tmp_path) as at:
        service = await at.service()
        pod = await at.pods.start(1)
        with socket.create_server((address_of(service), 18080)):
            await at.behind({"addresses": [pod]})
            assert await at.reconcile() == 5.0
        assert await at.reconcile() is None
        assert await greeting(address_of(service), 18080) == b"pod 1\n"
        assert [reason for reason, _ in await at.said()] == ["PortInUse"]


async def test_the_number_of_listeners_is_limited_and_a_free_one_is_used(tmp_path: Path) -> None:
    async with a_proxy(tmp_path, listeners=2) as at:
        pod = await at.pods.start(1)
        for name in ("a", "b", "c"):
            await at.service(name)
            await at.behind({"addresses": [pod]}, name=name)
        assert at.proxy.listeners == 2
        assert await at.reconcile("c") == 5.0
        await at.behind(name="a")
        assert await at.reconcile("c") is None
        assert await greeting(address_of(await at.refresh("c")), 18080) == b"pod 1\n"
        assert [reason for reason, _ in await at.said()] == ["TooManyListeners"]


async def test_connections_over_the_limit_are_refused_until_others_end(tmp_path: Path) -> None:
    async with a_proxy(tmp_path, connections=2) as at:
        service = await at.service()
        await at.behind({"addresses": [await at.pods.start(1)]})
        kept = [await asyncio.open_connection(address_of(service), 18080) for _ in range(2)]
        for reader, _ in kept:
            assert await reader.readline() == b"pod 1\n"

        async def works() -> bool:
            try:
                return await greeting(address_of(service), 18080) == b"pod 1\n"
            except ConnectionError:
                return False

        assert not await works()
        for _, writer in kept:
            writer.close()
        await eventually(works)


async def test_datagrams_reach_a_pod_and_answers_come_back(tmp_path: Path) -> None:
    class Echo(asyncio.DatagramProtocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, addr: Any) -> None:
            self.transport.sendto(b"echo " + data, addr)

    class Client(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.answers: asyncio.Queue[bytes] = asyncio.Queue()

        def datagram_received(self, data: bytes, addr: Any) -> None:
            self.answers.put_nowait(data)

    async with a_proxy(tmp_path) as at:
        loop = asyncio.get_running_loop()
        pod, _ = await loop.create_datagram_endpoint(Echo, local_addr=(f"127.{at.network.number}.1.1", 0))
        service = await at.service(ports=[{"name": "p", "port": 5353, "protocol": "UDP"}])
        address, port = pod.get_extra_info("sockname")
        await at.behind({"addresses": [address]}, protocol="UDP", port=port)
        transport, client = await loop.create_datagram_endpoint(Client, remote_addr=(address_of(service), 5353))
        for n in range(3):
            transport.sendto(b"%d" % n)
            assert await asyncio.wait_for(client.answers.get(), 5) == b"echo %d" % n
        transport.close()
        pod.close()


async def test_a_client_with_affinity_keeps_its_pod(tmp_path: Path) -> None:
    async with a_proxy(tmp_path) as at:
        service = await at.service(sessionAffinity="ClientIP")
        pods = [await at.pods.start(n) for n in (1, 2, 3)]
        await at.behind(*({"addresses": [pod]} for pod in pods))
        assert len({await greeting(address_of(service), 18080) for _ in range(6)}) == 1


async def test_a_service_of_type_load_balancer_has_an_address_of_its_own_and_keeps_it(tmp_path: Path) -> None:
    async with a_proxy(tmp_path, balancers="127.77.128.0/29") as here:
        await here.pods.start(1)

        async def address(name: str) -> str:
            await here.reconcile(name)
            found = (await here.refresh(name))["status"]["loadBalancer"]
            return str((found.get("ingress") or [{}])[0].get("ip", ""))

        for name in ("web", "other"):
            await here.service(name, type="LoadBalancer")
            await here.behind({"addresses": [f"127.{here.network.number}.1.1"]}, name=name)
        first, second = await address("web"), await address("other")
        assert {first, second} == {"127.77.128.1", "127.77.128.2"}
        assert (await greeting(first, 18080)) == (await greeting(second, 18080)) != b""
        clock = RealClock()
        relays = LocalRelays(clock=clock, connections=10, drain_s=0)
        config = ProxyConfig(balancers="127.77.128.0/29")
        client = Client(cast(Transport, here.server.transport), clock=clock)
        later = ServiceProxy(client, here.services, here.slices, here.events, relays, config)
        await here.proxy.close()
        await later.begin()  # the next process of the cluster
        here.proxy = later
        assert [await address("other"), await address("web")] == [second, first]
        assert (await greeting(second, 18080)) != b""
        path = "/api/v1/namespaces/default/services/web"
        await here.server.patch(path, {"spec": {"type": "ClusterIP"}})
        await here.refresh()
        assert await address("web") == ""
        with pytest.raises(OSError):
            await greeting(first, 18080)
        await here.service("third", type="LoadBalancer")
        assert await address("third") == first
