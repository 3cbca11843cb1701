"""The node agent on a simulated runtime, against an API server in this process, on a fake clock."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from shoal.base.clock import FakeClock
from shoal.base.ids import Ids
from shoal.client import Client, Unreachable, builtin
from shoal.node.agent import NodeAgent, NodeAgentDeps
from shoal.node.config import EvictionConfig, NodeConfig
from shoal.node.node_object import MachineInfo as Identity
from shoal.node.runtime.model import ContainerPhase
from shoal.reconcile import EventRecorder, Manager, ObjectKey
from shoal.testing.seeded import seeded_bytes
from shoal.testing.servers import LocalServer, local_server
from shoal.testing.simulated_runtime import Machine, Program, SimulatedConfig, SimulatedRuntime
from shoal.testing.waiting import eventually

PODS = "/api/v1/namespaces/default/pods"
KEY = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


class Node:
    """A running agent, and short ways to look at its pods."""

    def __init__(self, server: LocalServer, clock: FakeClock, folder: Path, machine: Machine, **runtime: Any) -> None:
        self.server, self.clock, self.folder, self.machine = server, clock, folder, machine
        self.transport: Any = server.transport
        self._runtime_config = SimulatedConfig(**runtime)
        self.manager: Manager
        self.agent: NodeAgent
        self.runtime: SimulatedRuntime

    @asynccontextmanager
    async def running(self, **config: Any) -> AsyncIterator[Node]:
        client = Client(self.transport, clock=self.clock, field_manager="kubelet")
        random, ids = Random(1), Ids(seeded_bytes(1))
        manager = self.manager = Manager(client, clock=self.clock, random=random.random)
        recorder = EventRecorder(client, "kubelet", "node-1", clock=self.clock, new_suffix=ids.new_suffix)
        self.runtime = SimulatedRuntime(self._runtime_config, clock=self.clock, machine=self.machine)
        parts = NodeAgentDeps(
            manager=manager, runtime=self.runtime, recorder=recorder, clock=self.clock, random=random.random,
            machine=Identity(machine_id="m", boot_id="b"),
        )  # fmt: skip
        settings: dict[str, Any] = {"eviction": EvictionConfig(disk_available_part=0.0), **config}
        self.agent = NodeAgent(NodeConfig(name="node-1", root=self.folder, **settings), parts)
        manager.add(recorder)
        manager.add(self.agent)
        task = asyncio.create_task(manager.run(), name="node")
        ready = asyncio.create_task(self.agent.ready.wait(), name="ready")
        try:
            await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            yield self
        finally:
            ready.cancel()
            manager.stop()
            await task

    async def create(self, name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
        made = {"nodeName": "node-1", "automountServiceAccountToken": False, **spec}
        made["containers"] = list(containers) or [a_container()]
        body = {"metadata": {"name": name, "labels": {"app": name}}, "spec": made}
        found: dict[str, Any] = await self.server.post(PODS, body)
        return found

    async def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.server.get(f"{PODS}/{name}")
        return found

    async def status(self, name: str, container: str = "c", group: str = "containerStatuses") -> dict[str, Any]:
        statuses = (await self.pod(name))["status"].get(group) or ()
        return next((each for each in statuses if each["name"] == container), {"state": {}, "lastState": {}})

    async def phase(self, name: str, phase: str) -> dict[str, Any]:
        async def check() -> dict[str, Any]:
            found = await self.pod(name)
            assert found["status"].get("phase") == phase, found["status"]
            return found

        found: dict[str, Any] = await eventually(check)
        return found

    async def ready(self, name: str, value: str = "True") -> dict[str, Any]:
        async def check() -> dict[str, Any]:
            found = await self.pod(name)
            assert condition(found, "Ready")["status"] == value, found["status"]
            return found

        found: dict[str, Any] = await eventually(check)
        return found

    async def waits(self, name: str, reason: str, container: str = "c", group: str = "containerStatuses") -> str:
        async def check() -> str:
            state = (await self.status(name, container, group))["state"]
            assert state.get("waiting", {}).get("reason") == reason, state
            return str(state["waiting"].get("message") or reason)

        found: str = await eventually(check)
        return found

    async def events(self, name: str) -> list[tuple[str, str]]:
        listed = (await self.server.get("/api/v1/namespaces/default/events"))["items"]
        listed.sort(key=lambda each: int(each["metadata"]["resourceVersion"]))
        return [(each["reason"], each["message"]) for each in listed if each["involvedObject"]["name"] == name]

    async def event(self, name: str, reason: str) -> str:
        async def check() -> str:
            found = [message for kind, message in await self.events(name) if kind == reason]
            assert found, f"no event {reason}"
            return found[0]

        found: str = await eventually(check)
        return found

    async def gone(self, name: str) -> None:
        async def check() -> bool:
            return (await self.server.call("GET", f"{PODS}/{name}")).status == 404

        await eventually(check)

    def containers(self, name: str = "c") -> list[Any]:
        return [box.container for box in self.machine.boxes.values() if box.container.name == name]

    def env(self, name: str = "c") -> dict[str, str]:
        return next(dict(box.spec.env) for box in self.machine.boxes.values() if box.container.name == name)


def condition(pod: dict[str, Any], kind: str) -> dict[str, Any]:
    found = [each for each in pod["status"].get("conditions") or () if each["type"] == kind]
    return found[0] if found else {"status": ""}


def a_container(script: str = "sleep inf", name: str = "c", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "busybox:1", "command": ["sh", "-c", script], **more}


@asynccontextmanager
async def running_node(tmp_path: Path, *, config: dict[str, Any] | None = None, **runtime: Any) -> AsyncIterator[Node]:
    clock = FakeClock()
    async with local_server(clock=clock, signing_key=KEY) as server:
        node = Node(server, clock, tmp_path, Machine(), **runtime)
        async with node.running(**(config or {})):
            yield node
        await node.runtime.halt()


# the node itself


async def test_the_node_registers_and_stays_alive(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        found = await node.server.get("/api/v1/nodes/node-1")
        assert condition(found, "Ready")["status"] == "True"
        assert found["status"]["capacity"]["cpu"] == "8"
        assert found["status"]["nodeInfo"]["containerRuntimeVersion"] == "simulated://1"
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-1"
        await eventually(lambda: node.server.get(path))
        before = (await node.server.get(path))["spec"]["renewTime"]
        await node.clock.advance(11)

        async def renewed() -> bool:
            return bool((await node.server.get(path))["spec"]["renewTime"] > before)

        await eventually(renewed)
        version = found["metadata"]["resourceVersion"]
        await node.clock.advance(100)
        assert (await node.server.get("/api/v1/nodes/node-1"))["metadata"]["resourceVersion"] == version
        await node.clock.advance(250)

        async def reported() -> bool:
            return bool((await node.server.get("/api/v1/nodes/node-1"))["metadata"]["resourceVersion"] != version)

        await eventually(reported)


# the life of a pod


async def test_a_pod_runs_is_ready_and_goes_when_deleted(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.create("a")
        pod = await node.ready("a")
        status = pod["status"]
        assert status["phase"] == "Running"
        assert status["podIP"] and status["hostIP"] == "127.0.0.1"
        assert status["containerStatuses"][0]["containerID"].startswith("simulated://")
        assert status["containerStatuses"][0]["started"] is True
        await node.event("a", "Started")
        assert [reason for reason, _ in await node.events("a")] == ["Pulling", "Pulled", "Created", "Started"]
        await node.server.delete(f"{PODS}/a")
        await node.gone("a")
        assert not node.machine.boxes and not node.machine.sandboxes
        assert not list((node.folder / "pods").iterdir())


async def test_a_pod_that_was_marked_not_ready_while_its_node_was_away_is_ready_again(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.create("a")
        lost = {**condition(await node.ready("a"), "Ready"), "status": "False"}  # as the controllers write it
        await node.server.patch(f"{PODS}/a/status", {"status": {"conditions": [lost]}})
        before = await node.ready("a")
        assert condition(before, "Ready")["status"] == "True"
        await node.clock.advance(30)
        after = await node.pod("a")
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"], "written once"


async def test_restart_policies(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.create("done", a_container("exit 0"), restartPolicy="Never")
        await node.create("failed", a_container("exit 3"), restartPolicy="Never")
        await node.create("retried", a_container("exit 3"), restartPolicy="OnFailure")
        assert condition(await node.phase("done", "Succeeded"), "Ready")["reason"] == "PodCompleted"
        failed = await node.phase("failed", "Failed")
        assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
        await node.waits("retried", "CrashLoopBackOff")


async def test_a_crash_loop_backs_off_and_shows_why(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.create("a", a_container("echo broken; exit 7"))
        message = await node.waits("a", "CrashLoopBackOff")
        assert message.startswith("back-off 10s restarting failed container=c pod=a_default(")
        status = await node.status("a")
        assert status["restartCount"] == 1
        assert status["lastState"]["terminated"]["exitCode"] == 7
        assert (await node.pod("a"))["status"]["phase"] == "Running"
        assert "Back-off restarting failed container c in pod a_default(" in await node.event("a", "BackOff")
        await node.clock.advance(10)
        assert (await node.waits("a", "CrashLoopBackOff")).startswith("back-off 20s")
        for _ in range(40):
            await node.clock.advance(60)
        assert (await node.waits("a", "CrashLoopBackOff")).startswith("back-off 5m0s")
        assert 10 <= (await node.status("a"))["restartCount"] <= 15


async def test_init_containers_run_in_order_and_sidecars_stay(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        inits = [
            a_container("sleep 5", name="first"),
            a_container("sleep inf", name="side", restartPolicy="Always"),
            a_container("sleep 5", name="second"),
        ]
        await node.create("a", a_container("sleep 20; exit 0"), initContainers=inits, restartPolicy="Never")
        await node.waits("a", "PodInitializing")
        assert node.containers("side") == []
        await node.clock.advance(5)
        await eventually(lambda: node.containers("second"))
        pod = await node.pod("a")
        assert pod["status"]["phase"] == "Pending"
        assert condition(pod, "Initialized")["message"] == "containers with incomplete status: [second]"
        await node.clock.advance(5)
        pod = await node.ready("a")
        assert condition(pod, "Initialized")["status"] == "True"
        assert [each["name"] for each in pod["status"]["initContainerStatuses"]] == ["first", "side", "second"]
        await node.clock.advance(20)
        pod = await node.phase("a", "Succeeded")
        assert node.containers("side")[0].phase is ContainerPhase.EXITED


async def test_an_init_container_that_fails_fails_the_pod_or_is_tried_again(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.create("a", initContainers=[a_container("exit 1", name="init")], restartPolicy="Never")
        await node.phase("a", "Failed")
        await node.create("b", initContainers=[a_container("exit 1", name="init")])
        await node.waits("b", "CrashLoopBackOff", "init", "initContainerStatuses")
        assert (await node.pod("b"))["status"]["phase"] == "Pending"


async def test_a_pod_that_is_deleted_gets_its_grace_and_hooks(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        hook = {"preStop": {"sleep": {"seconds": 5}}}
        container = a_container("trap '' TERM; sleep inf", lifecycle=hook)
        await node.create("a", container, terminationGracePeriodSeconds=20)
        await node.ready("a")
        await node.server.delete(f"{PODS}/a")
        assert await node.event("a", "Killing") == "Stopping container c"
        await node.clock.advance(19)
        assert (await node.pod("a"))["metadata"]["deletionTimestamp"]
        await node.clock.advance(1)
        await node.gone("a")


async def test_a_shorter_grace_counts_while_a_pod_is_ending(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.create("a", a_container("trap '' TERM; sleep inf"), terminationGracePeriodSeconds=1000)
        await node.ready("a")
        await node.server.delete(f"{PODS}/a")
        await node.event("a", "Killing")
        await node.server.delete(f"{PODS}/a", {"gracePeriodSeconds": 1})
        await node.clock.advance(2)
        await node.gone("a")


async def test_a_pod_removed_by_force_is_ended_on_the_node(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.create("a")
        await node.ready("a")
        await node.server.delete(f"{PODS}/a", {"gracePeriodSeconds": 0})
        await eventually(lambda: not node.machine.sandboxes)


async def test_a_deletion_interrupts_a_pull(tmp_path: Path) -> None:
    async with running_node(tmp_path, pull_s=1000.0) as node:
        await node.create("a")
        await node.event("a", "Pulling")
        await node.server.delete(f"{PODS}/a")
        await node.gone("a")


async def test_the_deadline_of_a_pod_ends_it(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.create("a", activeDeadlineSeconds=30)
        await node.ready("a")
        await node.clock.advance(30)
        pod = await node.phase("a", "Failed")
        assert pod["status"]["reason"] == "DeadlineExceeded"
        await eventually(lambda: node.containers()[0].phase is ContainerPhase.EXITED)


async def test_a_changed_image_restarts_the_container(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.create("a")
        await node.ready("a")
        patch = {"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}
        await node.server.patch(f"{PODS}/a", patch, "strategic")

        async def restarted() -> bool:
            status = await node.status("a")
            return bool(status.get("restartCount") == 1 and "running" in status["state"])

        await eventually(restarted)
        assert await node.event("a", "Killing") == "Container c definition changed, will be restarted"


async def test_ephemeral_containers_are_started_in_a_running_pod(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.create("a")
        await node.ready("a")
        debugger = a_container("exit 0", name="debug") | {"targetContainerName": "c"}
        patch = {"spec": {"ephemeralContainers": [debugger]}}
        await node.server.patch(f"{PODS}/a/ephemeralcontainers", patch, "strategic")

        async def ended() -> bool:
            return "terminated" in (await node.status("a", "debug", "ephemeralContainerStatuses"))["state"]

        await eventually(ended)
        assert (await node.ready("a"))["status"]["phase"] == "Running"


# what keeps a pod from starting


async def test_a_bad_image_is_shown_and_backed_off(tmp_path: Path) -> None:
    async with running_node(tmp_path, missing=frozenset({"missing:1"})) as node:
        await node.create("a", {"name": "c", "image": "missing:1"})
        assert "missing:1" in await node.waits("a", "ErrImagePull")
        await node.clock.advance(6)
        message = await node.waits("a", "ImagePullBackOff")
        assert message.startswith('Back-off pulling image "missing:1": ErrImagePull')
        assert (await node.pod("a"))["status"]["phase"] == "Pending"
        await node.event("a", "BackOff")
        reasons = [reason for reason, _ in await node.events("a")]
        assert "Failed" in reasons and "BackOff" in reasons
        await node.create("b", {"name": "c", "image": "Not An Image"})
        await node.waits("b", "InvalidImageName")
        await node.create("n", {"name": "c", "image": "other:1", "imagePullPolicy": "Never"})
        await node.waits("n", "ErrImageNeverPull")


async def test_a_missing_config_map_is_shown_and_the_pod_starts_when_it_comes(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        source = {"configMapKeyRef": {"name": "settings", "key": "colour"}}
        await node.create("a", a_container(env=[{"name": "COLOUR", "valueFrom": source}]))
        assert await node.waits("a", "CreateContainerConfigError") == 'configmap "settings" not found'
        assert await node.event("a", "Failed") == 'Error: configmap "settings" not found'
        settings = {"metadata": {"name": "settings"}, "data": {"colour": "red"}}
        await node.server.post("/api/v1/namespaces/default/configmaps", settings)
        await node.ready("a")
        assert node.env()["COLOUR"] == "red"


async def test_a_volume_that_is_missing_holds_the_pod_back_with_an_event(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        volumes = [{"name": "v", "secret": {"secretName": "password"}}]
        mounts = [{"name": "v", "mountPath": "/secret"}]
        await node.create("a", a_container(volumeMounts=mounts), volumes=volumes)
        message = 'MountVolume.SetUp failed for volume "v" : secret "password" not found'
        assert await node.event("a", "FailedMount") == message
        await node.waits("a", "ContainerCreating")
        secret = {"metadata": {"name": "password"}, "stringData": {"key": "value"}}
        await node.server.post("/api/v1/namespaces/default/secrets", secret)
        pod = await node.ready("a")
        assert (node.folder / "pods" / pod["metadata"]["uid"] / "volumes/v/key").read_text() == "value"


async def test_a_program_that_does_not_exist_is_shown(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.create("a", {"name": "c", "image": "busybox:1", "command": ["/no/such/program"]})
        await node.waits("a", "CrashLoopBackOff")
        last = (await node.status("a"))["lastState"]["terminated"]
        assert (last["reason"], last["exitCode"]) == ("StartError", 127)
        assert "/no/such/program" in await node.event("a", "Failed")


async def test_a_pod_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.create("a", a_container(resources={"requests": {"cpu": "9"}}))
        status = (await node.phase("a", "Failed"))["status"]
        assert status["reason"] == "OutOfcpu"
        assert status["message"] == (
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 9000, used: 0, capacity: 8000"
        )
        await node.event("a", "OutOfcpu")
        await node.create("b", nodeSelector={"disk": "ssd"})
        assert (await node.phase("b", "Failed"))["status"]["reason"] == "NodeAffinity"
        await node.server.delete(f"{PODS}/a")
        await node.gone("a")


async def test_admission_uses_the_current_node_object(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.server.patch("/api/v1/nodes/node-1", {"metadata": {"labels": {"disk": "ssd"}}})
        await node.create("a", nodeSelector={"disk": "ssd"})
        await node.ready("a")
        room = {"capacity": {"example.com/seat": "2"}, "allocatable": {"example.com/seat": "2"}}
        await node.server.patch("/api/v1/nodes/node-1/status", {"status": room})
        seat = {"example.com/seat": "1"}
        await node.create("b", a_container(resources={"requests": seat, "limits": seat}))
        await node.ready("b")
        await node.create("c", nodeSelector={"disk": "tape"})
        assert (await node.phase("c", "Failed"))["status"]["reason"] == "NodeAffinity"


# probes and hooks


async def test_a_readiness_probe_decides_readiness(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        probe = {"httpGet": {"path": "/health", "port": 8080}, "initialDelaySeconds": 5, "periodSeconds": 2}
        await node.create("a", a_container("sleep 20; serve 8080", readinessProbe=probe))
        await node.phase("a", "Running")
        await node.clock.advance(10)
        pod = await node.ready("a", "False")
        assert condition(pod, "Ready")["message"] == "containers with unready status: [c]"
        assert (await node.event("a", "Unhealthy")).startswith("Readiness probe failed: ")
        await node.clock.advance(14)
        await node.ready("a")


async def test_a_liveness_probe_that_fails_restarts_the_container(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        probe = {"exec": {"command": ["sh", "-c", "echo sick; exit 1"]}, "periodSeconds": 5, "failureThreshold": 3}
        await node.create("a", a_container(livenessProbe=probe))
        await node.ready("a")
        await node.clock.advance(11)

        async def restarted() -> bool:
            return bool((await node.status("a")).get("restartCount") == 1)

        await eventually(restarted)
        assert await node.event("a", "Killing") == "Container c failed liveness probe, will be restarted"
        assert await node.event("a", "Unhealthy") == "Liveness probe failed: sick\n"


async def test_a_startup_probe_holds_the_others_back(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        startup = {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 100}
        liveness = {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 1}
        container = a_container("sleep 30; serve 8080", startupProbe=startup, livenessProbe=liveness)
        await node.create("a", container)
        await node.phase("a", "Running")
        await node.clock.advance(20)
        status = await node.status("a")
        assert (status["started"], status["ready"], status["restartCount"]) == (False, False, 0)
        await node.clock.advance(12)
        await node.ready("a")
        assert (await node.status("a"))["restartCount"] == 0


async def test_a_post_start_hook_that_fails_kills_the_container(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        hook = {"postStart": {"exec": {"command": ["sh", "-c", "exit 4"]}}}
        await node.create("a", a_container(lifecycle=hook))
        await node.event("a", "FailedPostStartHook")
        await node.waits("a", "CrashLoopBackOff")


# environment and volumes


async def test_the_environment_has_variables_of_all_sources(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        server = node.server
        await server.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "m"}, "data": {"A": "1"}})
        await server.post("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}, "stringData": {"B": "2"}})
        service = {"metadata": {"name": "my-db"}, "spec": {"ports": [{"port": 5432}], "selector": {"a": "b"}}}
        await server.post("/api/v1/namespaces/default/services", service)
        variables = [
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "LIMIT", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            {"name": "URL", "value": "db://$(MY_DB_SERVICE_HOST):$(MY_DB_SERVICE_PORT)/$(P_A)/$$(X)/$(UNKNOWN)"},
        ]
        sources = [{"prefix": "P_", "configMapRef": {"name": "m"}}, {"secretRef": {"name": "s"}}]
        container = a_container(env=variables, envFrom=sources, resources={"limits": {"memory": "64Mi"}})
        services = node.manager.informer(builtin("services")).cache  # the one that the agent uses
        await eventually(lambda: services.get(ObjectKey("default", "my-db")))
        await node.create("a", container)
        pod = await node.ready("a")
        env = node.env()
        assert (env["P_A"], env["B"], env["NAME"], env["LIMIT"]) == ("1", "2", "a", "64")
        assert env["IP"] == pod["status"]["podIP"]
        host = env["MY_DB_SERVICE_HOST"]
        assert env["URL"] == f"db://{host}:5432/1/$(X)/$(UNKNOWN)"
        assert env["KUBERNETES_SERVICE_PORT"] == "443"


async def test_volumes_contain_their_objects_and_follow_changes(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        server = node.server
        data = {"metadata": {"name": "m"}, "data": {"a.txt": "one"}}
        await server.post("/api/v1/namespaces/default/configmaps", data)
        items = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
        volumes = [
            {"name": "config", "configMap": {"name": "m"}}, {"name": "empty", "emptyDir": {}},
            {"name": "info", "downwardAPI": {"items": items}},
        ]  # fmt: skip
        mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in volumes]
        await node.create("a", a_container("write /empty/file hello; sleep inf", volumeMounts=mounts), volumes=volumes)
        pod = await node.ready("a")
        folder = node.folder / "pods" / pod["metadata"]["uid"] / "volumes"
        assert (folder / "config/a.txt").read_text() == "one"
        assert (folder / "empty/file").read_text() == "hello"
        assert (folder / "info/labels").read_text() == 'app="a"'
        await server.patch("/api/v1/namespaces/default/configmaps/m", {"data": {"a.txt": None, "b.txt": "two"}})
        await eventually(lambda: (folder / "config/b.txt").exists() and not (folder / "config/a.txt").exists())
        await server.patch(f"{PODS}/a", {"metadata": {"labels": {"app": "z"}}})
        await eventually(lambda: (folder / "info/labels").read_text() == 'app="z"')


async def test_service_account_tokens_are_projected_and_renewed(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 1000}}
        volumes = [{"name": "t", "projected": {"sources": [source, {"configMap": {"name": "kube-root-ca.crt"}}]}}]
        container = a_container(volumeMounts=[{"name": "t", "mountPath": "/t"}])
        await node.create("a", container, volumes=volumes)
        pod = await node.ready("a")
        folder = node.folder / "pods" / pod["metadata"]["uid"] / "volumes/t"
        first = (folder / "token").read_text()
        assert first.count(".") == 2
        assert (folder / "ca.crt").read_text() == "test CA"
        await node.clock.advance(700)
        assert (folder / "token").read_text() == first
        await node.clock.advance(150)
        await eventually(lambda: (folder / "token").read_text() != first)


async def test_the_termination_message_is_read(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.create("a", a_container("write /dev/termination-log all is lost; exit 1"), restartPolicy="Never")
        await node.phase("a", "Failed")
        assert (await node.status("a"))["state"]["terminated"]["message"] == "all is lost"
        fallback = a_container("echo last words; exit 1", terminationMessagePolicy="FallbackToLogsOnError")
        await node.create("b", fallback, restartPolicy="Never")
        await node.phase("b", "Failed")
        assert (await node.status("b"))["state"]["terminated"]["message"] == "last words\n"


# the agent


async def test_a_restarted_agent_adopts_running_containers(tmp_path: Path) -> None:
    clock = FakeClock()
    async with local_server(clock=clock) as server:
        node = Node(server, clock, tmp_path, Machine())
        probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 5}
        async with node.running():
            await node.create("a", a_container("serve 8080", readinessProbe=probe))
            await node.create("b", a_container("sleep 50; exit 3"), restartPolicy="Never")
            await node.create("c")
            before = await node.ready("a")
            await node.ready("b")
            await node.ready("c")
        await server.delete(f"{PODS}/c", {"gracePeriodSeconds": 0})
        await clock.advance(100)
        async with node.running():
            await node.phase("b", "Failed")
            assert (await node.status("b"))["state"]["terminated"]["exitCode"] == 3
            await eventually(lambda: len(node.machine.sandboxes) == 2)
            await clock.advance(30)
            after = await node.ready("a")
            assert after["status"] == before["status"]
        await node.runtime.halt()


async def test_a_lost_api_server_does_not_stop_containers_from_being_looked_after(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.create("a", a_container("sleep 20; exit 1"))
        await node.ready("a")
        transport = node.server.transport
        real = transport.request

        async def unreachable(*args: Any, **more: Any) -> Any:
            raise Unreachable("away")

        transport.request = unreachable  # type: ignore[method-assign]
        await node.clock.advance(21)
        await eventually(lambda: len(node.containers()) == 2)
        transport.request = real  # type: ignore[method-assign]
        await node.clock.advance(5)

        async def shown() -> bool:
            return bool((await node.status("a")).get("restartCount") == 1)

        await eventually(shown)


async def test_a_node_that_runs_short_of_memory_evicts_the_greediest_pod(tmp_path: Path) -> None:
    async with running_node(tmp_path, programs={"greedy:1": Program(memory_bytes=16 << 30)}) as node:
        greedy = {"name": "c", "image": "greedy:1"}
        await node.create("modest", a_container(resources={"requests": {"memory": "1Gi"}}))
        await node.create("greedy", greedy)
        await node.ready("modest")
        await node.ready("greedy")
        await node.clock.advance(10)
        status = (await node.phase("greedy", "Failed"))["status"]
        assert status["reason"] == "Evicted"
        assert status["message"].startswith("The node was low on resource: memory. Threshold quantity: 100Mi")
        assert condition({"status": status}, "DisruptionTarget")["reason"] == "TerminationByKubelet"
        assert (await node.pod("modest"))["status"]["phase"] == "Running"
        await node.clock.advance(10)
        found = await node.server.get("/api/v1/nodes/node-1")
        assert condition(found, "MemoryPressure")["status"] == "True"


def test_pull_secrets_are_read() -> None:
    from shoal.node.images import credentials_of

    text = base64.b64encode(b'{"auths":{"registry.example":{"auth":"dTpw"}}}').decode()
    found = credentials_of([{"data": {".dockerconfigjson": text}}, {"data": {".dockerconfigjson": "!!"}}])
    assert [(each.server, each.username, each.password) for each in found] == [("registry.example", "u", "p")]


class _AsNode:
    """A transport whose requests are those of the node."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.refused: list[str] = []

    def _headers(self, headers: Any) -> dict[str, str]:
        return {**(headers or {}), "impersonate-user": "system:node:node-1", "impersonate-group": "system:nodes"}

    async def request(self, method: str, target: str, *, headers: Any = None, body: bytes = b"") -> Any:
        reply = await self._inner.request(method, target, headers=self._headers(headers), body=body)
        if reply.status == 403:
            self.refused.append(f"{method} {target}: {reply.body.decode()}")
        return reply

    async def stream(self, method: str, target: str, *, headers: Any = None, body: bytes = b"") -> Any:
        reply = await self._inner.stream(method, target, headers=self._headers(headers), body=body)
        if reply.status == 403:
            self.refused.append(f"{method} {target}")
        return reply

    async def close(self) -> None:
        return


async def test_the_agent_needs_no_more_rights_than_a_node_has(tmp_path: Path) -> None:
    clock = FakeClock()
    async with local_server(clock=clock, signing_key=KEY) as server:
        node = Node(server, clock, tmp_path, Machine())
        node.transport = _AsNode(server.transport)
        async with node.running():
            settings = {"metadata": {"name": "m"}, "data": {"k": "v"}}
            await server.post("/api/v1/namespaces/default/configmaps", settings)
            source = [{"configMapRef": {"name": "m"}}]
            await node.create("a", a_container(envFrom=source), automountServiceAccountToken=True)
            await node.ready("a")
            assert node.env()["k"] == "v"
            await node.event("a", "Started")
            await clock.advance(400)
            await node.server.delete(f"{PODS}/a")
            await node.gone("a")
        await node.runtime.halt()
        assert node.transport.refused == []


class _Without(_AsNode):
    """A transport that does not get through to some paths."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.lost = ""

    async def request(self, method: str, target: str, *, headers: Any = None, body: bytes = b"") -> Any:
        if self.lost and self.lost in target:
            raise Unreachable("away")
        return await self._inner.request(method, target, headers=headers, body=body)


async def test_a_token_whose_renewal_fails_stays_and_is_retried(tmp_path: Path) -> None:
    clock = FakeClock()
    async with local_server(clock=clock, signing_key=KEY) as server:
        node = Node(server, clock, tmp_path, Machine())
        node.transport = _Without(server.transport)
        async with node.running():
            source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 1000}}
            volumes = [{"name": "t", "projected": {"sources": [source]}}]
            await node.create("a", a_container(volumeMounts=[{"name": "t", "mountPath": "/t"}]), volumes=volumes)
            pod = await node.ready("a")
            token = node.folder / "pods" / pod["metadata"]["uid"] / "volumes/t/token"
            first = token.read_text()
            node.transport.lost = "/token"
            await clock.advance(830)
            assert token.read_text() == first
            await node.event("a", "FailedMount")
            node.transport.lost = ""
            await clock.advance(30)
            await eventually(lambda: token.read_text() != first)
        await node.runtime.halt()
