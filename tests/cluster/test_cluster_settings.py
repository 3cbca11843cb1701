"""Settings of a cluster reach the parts that they are for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

from shoal.apiserver.inprocess import InProcessTransport
from shoal.apiserver.user import User
from shoal.app import components
from shoal.app.cluster import serving
from shoal.app.config import ClusterOptions, opened_config
from shoal.app.simulated import simulated_nodes
from shoal.base.clock import FakeClock, RealClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.client import Client, builtin
from shoal.client.transport import Transport
from shoal.controllers.nodelifecycle.config import NodeLifecycleConfig
from shoal.errors import NotFound
from shoal.node.config import NodeSettings
from shoal.scheduler.config import profiles_of
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually

ADMIN = "system:kube-controller-manager"


@asynccontextmanager
async def cluster(folder: Path, clock: FakeClock, **settings: Any) -> AsyncIterator[Client]:
    options = ClusterOptions(dir=folder, port=0, store="memory://", nodes=0, components="apiserver", **settings)
    with opened_config(options) as config:
        async with serving(config, clock, Ids(), Metrics()) as server:
            transport = InProcessTransport(server.handler, User("admin", ("system:masters",)), user_agent="test/1")
            yield Client(cast(Transport, transport), clock=clock, field_manager="test")


async def test_services_get_addresses_of_the_range_that_is_set(tmp_path: Path) -> None:
    async with cluster(tmp_path, FakeClock(), service_cidr="10.50.0.0/24") as client:
        made = await client.of(builtin("services")).get("kubernetes", "default")
        assert made["spec"]["clusterIP"] == "10.50.0.1"


async def test_events_are_kept_for_the_time_that_is_set(tmp_path: Path) -> None:
    clock = FakeClock()
    async with cluster(tmp_path, clock, event_ttl_s=300.0) as client:
        events = client.of(builtin("events"))
        about = {"kind": "Pod", "name": "a", "namespace": "default"}
        await events.create({"metadata": {"name": "e"}, "involvedObject": about, "reason": "r"}, "default")
        await clock.advance(240.0)
        await events.get("e", "default")
        await clock.advance(240.0)

        async def gone() -> bool:
            try:
                await events.get("e", "default")
            except NotFound:
                return True
            return False

        await eventually(gone)


async def test_a_silent_node_is_lost_after_the_time_that_is_set(tmp_path: Path) -> None:
    clock = RealClock()
    async with local_server() as server:

        def connect(user: str) -> Client:
            return Client(cast(Transport, server.transport), clock=clock, field_manager=user)

        nodes = connect(ADMIN).of(builtin("nodes"))
        await nodes.create({"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
        deps = components.ComponentDeps(
            connect=connect, clock=clock, ids=Ids(), random=Random(1), metrics=Metrics(), identity="test",
            volumes=tmp_path, lifecycle=NodeLifecycleConfig(period_s=0.1, grace_s=0.3, startup_grace_s=0.3),
        )  # fmt: skip

        async def lost() -> bool:
            status = (await nodes.get("n"))["status"]
            return any(each["type"] == "Ready" and each["status"] == "Unknown" for each in status["conditions"])

        async def until_lost() -> None:
            await eventually(lost, timeout_s=30.0)

        await components.run_all([components.controllers(deps)], until_lost())


async def test_profiles_of_the_scheduler_and_settings_of_nodes(tmp_path: Path) -> None:
    clock = RealClock()
    settings = NodeSettings(
        labels=("disk=ssd",), taints=("gpu=yes:NoSchedule",), cpu="3", memory="2Gi", disk="9Gi", pods=7
    )
    async with local_server() as server:

        def connect(user: str) -> Client:
            return Client(cast(Transport, server.transport), clock=clock, field_manager=user)

        deps = components.ComponentDeps(
            connect=connect, clock=clock, ids=Ids(), random=Random(1), metrics=Metrics(), identity="test",
            volumes=tmp_path, profiles=profiles_of(["batch -TaintToleration NodeResourcesFit=9"]),
        )  # fmt: skip
        pods, nodes = (connect(ADMIN).of(builtin(plural)) for plural in ("pods", "nodes"))
        for name, scheduler in (("by-default", "default-scheduler"), ("by-batch", "batch"), ("by-none", "none")):
            spec = {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i"}]}
            await pods.create({"metadata": {"name": name}, "spec": spec}, "default")

        async def placed() -> bool:
            return bool((await pods.get("by-batch", "default"))["spec"].get("nodeName"))

        async def refused() -> bool:
            status = (await pods.get("by-default", "default"))["status"]
            return any("untolerated taint" in each.get("message", "") for each in status.get("conditions") or ())

        async def told() -> bool:
            found = (await server.get("/api/v1/namespaces/default/events"))["items"]
            return ("Scheduled", "batch") in {(each["reason"], each.get("reportingComponent")) for each in found}

        async def until_decided() -> None:
            for question in (placed, refused, told):
                await eventually(question, timeout_s=30.0)

        await components.run_all(
            [components.scheduler(deps), simulated_nodes(deps, 1, None, settings)], until_decided()
        )
        node = await nodes.get("node-1")
        assert node["metadata"]["labels"]["disk"] == "ssd"
        assert {"key": "gpu", "value": "yes", "effect": "NoSchedule"} in node["spec"]["taints"]
        wanted = {"cpu": "3", "memory": "2Gi", "ephemeral-storage": "9Gi", "pods": "7"}
        assert node["status"]["capacity"] == node["status"]["allocatable"] == wanted
        assert not (await pods.get("by-none", "default"))["status"].get("conditions")
