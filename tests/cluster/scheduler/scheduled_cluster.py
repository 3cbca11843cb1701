"""An API server in this process with a scheduler, and waits for their results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from shoal.base.clock import Clock, RealClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.client import Client
from shoal.client.transport import Reply, StreamReply, Transport
from shoal.kube.objects import Obj
from shoal.reconcile import EventRecorder, Manager
from shoal.scheduler.config import SchedulerConfig
from shoal.scheduler.service import Scheduler
from shoal.scheduler.wiring import build
from shoal.testing.servers import LocalServer, local_server
from shoal.testing.waiting import eventually

PODS = "/api/v1/namespaces/default/pods"


class FailingTransport:
    """Passes requests on, but for those that ``fails`` has an error for."""

    def __init__(self, inner: Transport, fails: Callable[[str, str], Exception | None]) -> None:
        self._inner = inner
        self._fails = fails

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        error = self._fails(method, target)
        if error is not None:
            raise error
        return await self._inner.request(method, target, headers=headers, body=body)

    async def stream(
        self, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> StreamReply:
        return await self._inner.stream(method, target, headers=headers, body=body)

    async def close(self) -> None:
        await self._inner.close()


class Cluster:
    """What tests do with a cluster."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server

    async def node(self, name: str, *, cpu: str = "4", zone: str = "", **spec: Any) -> None:
        labels = {"kubernetes.io/hostname": name} | ({"topology.kubernetes.io/zone": zone} if zone else {})
        size = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
        await self.server.post(
            "/api/v1/nodes",
            {
                "metadata": {"name": name, "labels": labels},
                "spec": spec,
                "status": {"capacity": size, "allocatable": size},
            },
        )
        # no node lifecycle controller runs here that would take away the taint of a new node
        await self.server.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": spec.get("taints")}})

    async def pod(self, name: str, *, cpu: str = "", ports: list[Obj] | None = None, **spec: Any) -> Obj:
        container: Obj = {"name": "c", "image": "example.com/app:1"}
        if cpu:
            container["resources"] = {"requests": {"cpu": cpu}}
        if ports:
            container["ports"] = ports
        labels = spec.pop("labels", {})
        body = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container], **spec}}
        created: Obj = await self.server.post(PODS, body)
        return created

    async def get(self, name: str) -> Obj:
        found: Obj = await self.server.get(f"{PODS}/{name}")
        return found

    async def node_of(self, name: str) -> str:
        """Waits until the pod has a node."""

        async def ask() -> str | None:
            return (await self.get(name))["spec"].get("nodeName")

        node: str = await eventually(ask)
        return node

    async def condition(self, name: str, kind: str = "PodScheduled", status: str = "False") -> Obj:
        """Waits for the condition."""

        async def ask() -> Obj | None:
            conditions = (await self.get(name))["status"].get("conditions") or ()
            return next((each for each in conditions if each["type"] == kind and each["status"] == status), None)

        condition: Obj = await eventually(ask)
        return condition

    async def event(self, name: str, reason: str) -> Obj:
        """Waits for an event about a pod."""

        async def ask() -> Obj | None:
            events = (await self.server.get("/api/v1/namespaces/default/events"))["items"]
            return next((e for e in events if e["reason"] == reason and e["involvedObject"]["name"] == name), None)

        event: Obj = await eventually(ask)
        return event


@asynccontextmanager
async def a_cluster(clock: Clock | None = None) -> AsyncIterator[Cluster]:
    async with local_server(clock=clock) as server:
        yield Cluster(server)


@asynccontextmanager
async def a_scheduler(
    cluster: Cluster,
    *,
    clock: Clock | None = None,
    config: SchedulerConfig | None = None,
    fails: Callable[[str, str], Exception | None] = lambda method, target: None,
) -> AsyncIterator[Scheduler]:
    """A scheduler on the cluster, running."""
    clock = clock or RealClock()
    random = Random(1).random
    client = Client(FailingTransport(cluster.server.transport, fails), clock=clock, field_manager="kube-scheduler")
    events = EventRecorder(client, "default-scheduler", "test", clock=clock, new_suffix=Ids().new_suffix)
    manager = Manager(client, clock=clock, random=random)
    scheduler = build(manager, clock=clock, random=random, metrics=Metrics(), events=events, config=config)
    async with asyncio.TaskGroup() as group:
        group.create_task(events.run(), name="events")
        running = group.create_task(manager.run(), name="manager")
        await manager.ready.wait()
        try:
            yield scheduler
        finally:
            manager.stop()
            await asyncio.wait({running})
            events.stop()
