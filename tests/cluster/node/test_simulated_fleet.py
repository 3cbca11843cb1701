"""A simulated fleet against an API server in this process, on a fake clock."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from shoal.app import simulated
from shoal.app.certificates import CertificateKeeper
from shoal.app.pki import Pki
from shoal.app.simulated import SimulatedNodeKeys
from shoal.base.clock import FakeClock, RealClock
from shoal.base.metrics import Metrics
from shoal.client import Client, builtin
from shoal.errors import BadRequest
from shoal.node.simulated import Behaviour, FleetConfig, SimulatedFleet, Usage
from shoal.node.simulated.server import FleetEndpoints, FleetServer
from shoal.reconcile import Manager, ObjectKey
from shoal.testing.servers import LocalServer, local_server
from shoal.testing.waiting import eventually

PODS = "/api/v1/namespaces/default/pods"


class World:
    def __init__(self, server: LocalServer, manager: Manager, fleet: SimulatedFleet, clock: FakeClock) -> None:
        self.server, self.manager, self.fleet, self.clock = server, manager, fleet, clock

    async def create(self, name: str, *, annotations: dict[str, str] | None = None, **spec: Any) -> None:
        about = {"name": name, "annotations": {f"simulated.shoal.dev/{k}": v for k, v in (annotations or {}).items()}}
        spec = {"nodeName": "node-1", "containers": [{"name": "c", "image": "i:1"}], **spec}
        await self.server.post(PODS, {"metadata": about, "spec": spec})

    async def phase(self, name: str) -> str:
        found: str = (await self.server.get(f"{PODS}/{name}"))["status"]["phase"]
        return found

    async def reaches(self, name: str, phase: str) -> None:
        async def check() -> bool:
            assert await self.phase(name) == phase
            return True

        await eventually(check)

    async def gone(self, name: str) -> None:
        async def check() -> bool:
            return (await self.server.call("GET", f"{PODS}/{name}")).status == 404

        await eventually(check)


@asynccontextmanager
async def a_fleet(server: LocalServer, clock: FakeClock, config: FleetConfig) -> AsyncIterator[World]:
    client = Client(server.transport, clock=clock)
    manager = Manager(client, clock=clock, random=Random(1).random)
    fleet = SimulatedFleet(manager, config, clock=clock)
    manager.add(fleet)
    task = asyncio.create_task(manager.run(), name="fleet")
    try:
        await eventually(lambda: len(fleet.nodes) >= config.nodes)
        yield World(server, manager, fleet, clock)
    finally:
        manager.stop()
        await task


@asynccontextmanager
async def fleet_alone(**config: Any) -> AsyncIterator[World]:
    clock = FakeClock()
    async with local_server(clock=clock) as server:
        async with a_fleet(server, clock, FleetConfig(**{"nodes": 2, **config})) as world:
            yield world


async def test_nodes_register_ready_and_their_leases_are_renewed() -> None:
    async with fleet_alone() as world:
        node = await world.server.get("/api/v1/nodes/node-2")
        assert {each["type"]: each["status"] for each in node["status"]["conditions"]}["Ready"] == "True"
        assert node["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.")
        await world.clock.advance(15)
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-2"
        before = (await world.server.get(path))["spec"]["renewTime"]
        await world.clock.advance(10)

        async def renewed() -> bool:
            return bool((await world.server.get(path))["spec"]["renewTime"] > before)

        await eventually(renewed)


async def test_a_pod_on_a_simulated_node_runs_and_goes_when_deleted() -> None:
    async with fleet_alone() as world:
        await world.create("a")
        await world.reaches("a", "Running")
        await world.server.delete(f"{PODS}/a")
        await world.gone("a")


async def test_time_decides_when_a_pod_starts_becomes_ready_and_ends() -> None:
    async with fleet_alone() as world:
        delays = {"start-seconds": "5", "ready-seconds": "5", "run-seconds": "20", "stop-seconds": "3"}
        await world.create("a", annotations=delays, restartPolicy="Never")
        await eventually(lambda: world.fleet.writes == 1)
        assert await world.phase("a") == "Pending"
        await world.clock.advance(5)
        await world.reaches("a", "Running")
        await world.clock.advance(5)

        async def ready() -> bool:
            conditions = (await world.server.get(f"{PODS}/a"))["status"]["conditions"]
            return {each["type"]: each["status"] for each in conditions}["Ready"] == "True"

        await eventually(ready)
        await world.clock.advance(15)
        await world.reaches("a", "Succeeded")


async def test_a_pod_takes_its_time_to_stop() -> None:
    async with fleet_alone() as world:
        await world.create("a", annotations={"stop-seconds": "20"})
        await world.reaches("a", "Running")
        await world.server.delete(f"{PODS}/a")
        await world.clock.advance(19)
        assert (await world.server.get(f"{PODS}/a"))["metadata"]["deletionTimestamp"]
        await world.clock.advance(1)
        await world.gone("a")


async def test_a_node_that_is_down_runs_no_pods_until_it_is_up() -> None:
    async with fleet_alone() as world:
        await world.server.patch(
            "/api/v1/nodes/node-1", {"metadata": {"annotations": {"simulated.shoal.dev/down": "true"}}}
        )
        await eventually(lambda: world.fleet.nodes.get("node-1").down)  # type: ignore[union-attr]
        await world.create("a")
        await world.create("b", nodeName="node-2")
        await world.reaches("b", "Running")
        assert await world.phase("a") == "Pending"
        await world.server.patch(
            "/api/v1/nodes/node-1", {"metadata": {"annotations": {"simulated.shoal.dev/down": None}}}
        )
        await world.reaches("a", "Running")


async def test_nodes_that_others_make_with_the_label_are_simulated_too() -> None:
    async with fleet_alone() as world:
        about = {"name": "theirs", "labels": {"node.shoal.dev/runtime": "simulated"}}
        await world.server.post("/api/v1/nodes", {"metadata": about})
        await world.create("a", nodeName="theirs")
        await world.reaches("a", "Running")
        await world.clock.advance(10)

        async def ready() -> bool:
            conditions = (await world.server.get("/api/v1/nodes/theirs"))["status"].get("conditions") or ()
            return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

        await eventually(ready)


async def test_pods_of_other_nodes_are_left_alone() -> None:
    async with fleet_alone() as world:
        await world.create("other", nodeName="elsewhere")
        await world.create("a")
        await world.reaches("a", "Running")
        assert await world.phase("other") == "Pending"


async def test_a_crash_loop_over_a_day_costs_few_writes_and_counts_its_restarts() -> None:
    async with fleet_alone(nodes=1, renew_s=2000.0, lease_s=4000, slices=1) as world:
        await world.create("a", annotations={"run-seconds": "1", "exit-code": "1"})
        for _ in range(24 * 12):
            await world.clock.advance(300)
        found = (await world.server.get(f"{PODS}/a"))["status"]["containerStatuses"][0]
        assert 280 <= found["restartCount"] <= 300
        assert world.fleet.writes < 3 * found["restartCount"]


async def test_a_fleet_that_starts_again_carries_on_with_its_pods() -> None:
    clock = FakeClock()
    config = FleetConfig(nodes=1, behaviour=Behaviour(run_s=100))
    async with local_server(clock=clock) as server:
        async with a_fleet(server, clock, config) as world:
            await world.create("a", restartPolicy="Never")
            await world.reaches("a", "Running")
            address = (await server.get(f"{PODS}/a"))["status"]["podIP"]
        await clock.advance(60)
        async with a_fleet(server, clock, config) as world:
            await eventually(lambda: world.fleet.usage(ObjectKey("default", "a")) is not None)
            assert world.fleet.writes == 0
            await world.create("b", restartPolicy="Never")
            await world.reaches("b", "Running")
            assert (await server.get(f"{PODS}/b"))["status"]["podIP"] != address
            await clock.advance(40)
            await world.reaches("a", "Succeeded")
            assert await world.phase("b") == "Running"


async def test_annotations_set_the_resource_usage() -> None:
    async with fleet_alone() as world:
        await world.create("a", annotations={"cpu": "300m", "memory": "64Mi"})
        await world.reaches("a", "Running")
        assert world.fleet.usage(ObjectKey("default", "a")) == Usage(300, 64 * 2**20)


async def test_each_pod_costs_one_status_write() -> None:
    async with fleet_alone() as world:
        client = world.manager.client.of(builtin("pods"))
        spec = {"nodeName": "node-1", "containers": [{"name": "c", "image": "i:1"}]}
        await asyncio.gather(
            *(client.create({"metadata": {"name": f"p{n}", "namespace": "default"}, "spec": spec}) for n in range(100))
        )

        def all_run() -> bool:
            pods = world.fleet.pods_of("node-1")
            return len(pods) == 100 and all(pod["status"]["phase"] == "Running" for pod in pods)

        await eventually(all_run)
        assert (world.fleet.writes, world.fleet.conflicts) == (100, 0)


class _Answers:
    """A request that was never sent: keeps its answer."""

    def __init__(self, path: str, address: str) -> None:
        self.path, self._address = tuple(path.strip("/").split("/")), address
        self.headers = {"host": f"{address}:10250"}
        self.writer = self
        self.status, self.body = 0, b""

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return (self._address, 10250)

    async def answer(self, status: int, body: bytes, content_type: str = "") -> None:
        self.status, self.body = status, body


async def test_the_fleet_answers_for_each_of_its_nodes() -> None:
    async with fleet_alone() as world:
        await world.create("a", annotations={"cpu": "300m", "memory": "64Mi"})
        await world.create("b", nodeName="node-2")
        await world.reaches("a", "Running")
        await world.reaches("b", "Running")
        server = FleetServer(world.fleet, clock=world.clock)

        async def get(path: str, address: str = "172.16.0.1") -> bytes:
            request: Any = _Answers(path, address)
            await server.handle(request)
            assert request.status == 200
            return bytes(request.body)

        await get("/stats/summary")
        await world.clock.advance(10)
        summary = orjson.loads(await get("/stats/summary"))
        assert summary["node"]["nodeName"] == "node-1"
        assert summary["node"]["cpu"]["usageNanoCores"] == 300_000_000
        assert [each["podRef"]["name"] for each in summary["pods"]] == ["a"]
        assert b'pod="b"' in await get("/metrics/resource", "172.16.0.2")
        assert b"kubelet_running_pods 1.0" in await get("/metrics")
        assert await get("/containerLogs/default/a/c")


async def test_one_socket_serves_every_node_with_a_certificate_for_its_address(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "pki", now=datetime.now(UTC))
    pki.ensure_ca()
    keeper = CertificateKeeper(tmp_path / "pki", clock=RealClock(), metrics=Metrics())

    def client(name: str) -> ssl.SSLContext:
        pair = pki.ensure_client(name, name, ["shoal:kubelet-api-admins"])
        context = ssl.create_default_context(cafile=pki.ca_cert)
        context.load_cert_chain(pair.cert, pair.key)
        return context

    async def asked(address: str, port: int, who: str, path: str) -> bytes:
        reader, writer = await asyncio.open_connection(address, port, ssl=client(who))
        writer.write(f"GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n".encode())
        try:
            return await reader.read()
        finally:
            writer.close()

    async with fleet_alone(nodes=300, node_network=simulated.NODE_NETWORK) as world:
        listening = simulated.listening(tmp_path / "port")
        assert listening is not None
        port = listening.getsockname()[1]
        endpoints = FleetEndpoints(
            FleetServer(world.fleet, clock=world.clock),
            listening,
            simulated.contexts(SimulatedNodeKeys(tmp_path, keeper)),
        )
        serving = asyncio.create_task(endpoints.run(), name="endpoints")
        try:
            for address, name in (("127.64.0.1", b"node-1"), ("127.64.1.44", b"node-300")):
                answer = await asked(address, port, "kube-apiserver-kubelet-client", "/stats/summary")
                assert answer.startswith(b"HTTP/1.1 200") and b'"nodeName":"%b"' % name in answer
            assert (await asked("127.64.0.1", port, "mallory", "/pods")).startswith(b"HTTP/1.1 403")
            nobody = await asked("127.64.2.2", port, "kube-apiserver-kubelet-client", "/pods")
            assert nobody.startswith(b"HTTP/1.1 404")
        finally:
            endpoints.stop()
            await serving


async def test_a_fleet_that_comes_back_at_another_port_says_so() -> None:
    clock = FakeClock()
    async with local_server(clock=clock) as server:
        for port in (10250, 40001):
            async with a_fleet(server, clock, FleetConfig(nodes=1, kubelet_port=port)):

                async def told(port: int = port) -> bool:
                    status = (await server.get("/api/v1/nodes/node-1"))["status"]
                    return bool(status["daemonEndpoints"]["kubeletEndpoint"]["Port"] == port)

                await eventually(told)


async def test_the_log_of_a_pod_that_has_ended_can_still_be_read() -> None:
    async with fleet_alone() as world:
        await world.create("a", annotations={"run-seconds": "0"}, restartPolicy="Never")
        await world.reaches("a", "Succeeded")
        await world.create("b", annotations={"start-seconds": "60"})
        request: Any = _Answers("/containerLogs/default/a/c", "172.16.0.1")
        server = FleetServer(world.fleet, clock=world.clock)
        await server.handle(request)
        assert request.status == 200
        waiting: Any = _Answers("/containerLogs/default/b/c", "172.16.0.1")
        with pytest.raises(BadRequest, match="is waiting to start"):
            await server.handle(waiting)


async def test_a_pod_that_others_have_ended_stays_ended() -> None:
    async with fleet_alone() as world:
        await world.create("a")
        await world.reaches("a", "Running")
        await world.server.patch(f"{PODS}/a/status", {"status": {"phase": "Failed"}})
        await world.create("b")
        await world.reaches("b", "Running")
        assert await world.phase("a") == "Failed"


async def test_a_failed_pod_is_still_failed_after_a_restart() -> None:
    clock, config = FakeClock(), FleetConfig(nodes=1)
    async with local_server(clock=clock) as server:
        async with a_fleet(server, clock, config) as world:
            await world.create("a", annotations={"run-seconds": "0", "exit-code": "2"}, restartPolicy="Never")
            await world.reaches("a", "Failed")
        async with a_fleet(server, clock, config) as world:
            await world.create("b")
            await world.reaches("b", "Running")
            assert await world.phase("a") == "Failed"


async def test_a_host_port_is_given_once() -> None:
    async with fleet_alone() as world:
        ports = [{"containerPort": 80, "hostPort": 8080}]
        taken = {"containers": [{"name": "c", "image": "i:1", "ports": ports}]}
        await world.create("a", **taken)
        await world.reaches("a", "Running")
        await world.create("b", **taken)
        await world.reaches("b", "Failed")
        assert (await world.server.get(f"{PODS}/b"))["status"]["reason"] == "NodePorts"
        await world.server.delete(f"{PODS}/a")
        await world.gone("a")
        await world.create("c", **taken)
        await world.reaches("c", "Running")


async def test_a_deleted_pod_that_is_kept_tells_how_it_ended() -> None:
    async with fleet_alone() as world:
        await world.create("a")
        await world.reaches("a", "Running")
        await world.server.patch(f"{PODS}/a", {"metadata": {"finalizers": ["example.com/keep"]}})
        await world.server.delete(f"{PODS}/a")
        await world.reaches("a", "Failed")
        state = (await world.server.get(f"{PODS}/a"))["status"]["containerStatuses"][0]["state"]
        assert state["terminated"]["exitCode"] == 143
