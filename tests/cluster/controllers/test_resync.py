"""Watch events are lost on purpose: after a resync every controller and the scheduler have done their work all the
same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from shoal.apiserver.context import ServerConfig
from shoal.base.clock import FakeClock
from shoal.base.metrics import Metrics
from shoal.client import ResourceClient, Scope
from shoal.client.transport import Transport
from shoal.controllers.context import ControllerContext
from shoal.controllers.nodelifecycle.config import NodeLifecycleConfig
from shoal.controllers.persistentvolume.config import VolumeConfig
from shoal.controllers.wiring import add_all
from shoal.errors import NotFound
from shoal.kube.objects import Obj
from shoal.kube.times import format_time
from shoal.reconcile import ResyncConfig, ResyncMetrics
from shoal.reconcile.resync import Difference
from shoal.scheduler.wiring import build as build_scheduler
from shoal.testing.controllers import running
from shoal.testing.losses import LossyTransport
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually

PERIOD_S = 20.0
GROUPS = {
    "deployments": "apps", "replicasets": "apps", "statefulsets": "apps", "daemonsets": "apps", "jobs": "batch",
    "cronjobs": "batch", "endpointslices": "discovery.k8s.io", "servicecidrs": "networking.k8s.io",
    "poddisruptionbudgets": "policy", "horizontalpodautoscalers": "autoscaling",
}  # fmt: skip
READY = {
    "conditions": [{"type": "Ready", "status": "True"}],
    "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"},
}
FAR_NODE = {"nodeSelector": {"no": "node"}}


class World:
    """A server, all controllers and the scheduler, whose watches can lose events."""

    def __init__(self, context: ControllerContext, lossy: LossyTransport, clock: FakeClock, metrics: ResyncMetrics):
        self.context, self.lossy, self.clock, self.metrics = context, lossy, clock, metrics
        self.writes = 0  # of objects, while events get lost

    def of(self, plural: str) -> ResourceClient:
        return self.context.resource(plural, GROUPS.get(plural, ""))

    async def create(self, plural: str, name: str, about: Obj | None = None, **fields: Any) -> Obj:
        made = {"metadata": {"name": name, **(about or {})}, **fields}
        self.writes += self.lossy.losing
        return await self.of(plural).create(made, "default" if self.of(plural).type.namespaced else "")

    async def get(self, plural: str, name: str) -> Obj | None:
        try:
            return await self.of(plural).get(name, "default" if self.of(plural).type.namespaced else "")
        except NotFound:
            return None

    async def owned(self, plural: str, owner: str) -> list[Obj]:
        listed = await self.of(plural).list(Scope(namespace="default"))
        return [
            each
            for each in listed.items
            if any(reference["name"] == owner for reference in each["metadata"].get("ownerReferences") or ())
        ]

    async def until(self, check: Callable[[], Awaitable[Any]], timeout_s: float = 30.0) -> None:
        """Let fake time pass until something is true."""

        async def step() -> Any:
            await self.clock.advance(1.0)
            return await check()

        await eventually(step, timeout_s=timeout_s, every_s=0.001)


@asynccontextmanager
async def world(folder: Path, *, period_s: float = PERIOD_S) -> AsyncIterator[World]:
    clock, metrics = FakeClock(), ResyncMetrics(Metrics())
    lifecycle = NodeLifecycleConfig(grace_s=1e6, startup_grace_s=1e6)  # the nodes of these tests send no heartbeats
    volumes = VolumeConfig(directory=folder)

    def scheduler(context: ControllerContext) -> None:
        build_scheduler(
            context.manager, clock=clock, random=context.random, metrics=Metrics(), events=context.events
        )  # fmt: skip

    def controllers(context: ControllerContext) -> None:
        add_all(lambda account: context, volumes, lifecycle)

    config = ResyncConfig(metrics=metrics, period_s=period_s, settle_s=1.0)
    async with local_server(clock=clock, config=ServerConfig(empties_namespaces=False)) as server:
        lossy = LossyTransport(cast(Transport, server.transport))
        async with running(lossy, [controllers, scheduler], clock=clock, resync=config) as context:
            yield World(context, lossy, clock, metrics)


def template(labels: Obj, **spec: Any) -> Obj:
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def workload(name: str, **spec: Any) -> Obj:
    labels = {"app": name}
    return {"selector": {"matchLabels": labels}, "template": template(labels, **FAR_NODE), **spec}


async def before(w: World) -> None:
    """What is there before events get lost."""
    await w.create("nodes", "n1", status=READY)
    await w.create("nodes", "n2", status=READY)
    pod = template({})["spec"]
    await w.create("pods", "evicted", spec={**pod, "nodeName": "n2"})
    await w.create("pods", "behind", {"labels": {"app": "svc"}}, spec={**pod, "nodeName": "n1"})
    status = {"phase": "Running", "podIP": "10.0.0.9", "conditions": [{"type": "Ready", "status": "True"}]}
    await w.of("pods").patch(
        "behind", {"status": {**status, "podIPs": [{"ip": "10.0.0.9"}]}}, "default", subresource="status"
    )
    await w.create("namespaces", "leaving")
    owner = await w.create("configmaps", "owner")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    await w.create("configmaps", "dependent", {"ownerReferences": [reference]})
    await w.create(
        "jobs",
        "finished",
        spec={"suspend": True, "ttlSecondsAfterFinished": 1, "template": template({}, restartPolicy="Never")},
    )
    await eventually(lambda: len(w.context.informer("pods").cache) == 2)
    await w.clock.advance(1.0)


async def unseen(w: World) -> None:
    """What happens while events get lost."""
    await w.create("deployments", "d", spec=workload("d", replicas=1))
    await w.create("replicasets", "rs", spec=workload("rs", replicas=2))
    await w.create("replicationcontrollers", "rc", spec={
        "replicas": 1, "selector": {"app": "rc"}, "template": template({"app": "rc"}, **FAR_NODE),
    })  # fmt: skip
    await w.create("statefulsets", "ss", spec=workload("ss", replicas=1, serviceName="ss"))
    await w.create(
        "daemonsets", "ds", spec={"selector": {"matchLabels": {"app": "ds"}}, "template": template({"app": "ds"})}
    )
    await w.create("jobs", "j", spec={"template": template({}, restartPolicy="Never", **FAR_NODE)})
    await w.create("cronjobs", "cj", spec={
        "schedule": "* * * * *", "jobTemplate": {"spec": {"template": template({}, restartPolicy="Never", **FAR_NODE)}},
    })  # fmt: skip
    now = format_time(w.clock.wall_s())
    done = {"type": "Complete", "status": "True", "lastTransitionTime": now}
    criteria = {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": now}
    finished = {"status": {"startTime": now, "completionTime": now, "conditions": [criteria, done]}}
    await w.of("jobs").patch("finished", finished, "default", subresource="status")
    await w.create("services", "svc", spec={"selector": {"app": "svc"}, "ports": [{"port": 80}]})
    await w.create("services", "manual", spec={"ports": [{"port": 80}]})
    subsets = [{"addresses": [{"ip": "10.9.9.9"}], "ports": [{"port": 80}]}]
    await w.create("endpoints", "manual", subsets=subsets)
    await w.create("servicecidrs", "more", spec={"cidrs": ["10.77.0.0/24"]})
    await w.of("namespaces").delete("leaving")
    ill = {**READY, "conditions": [{"type": "Ready", "status": "False"}]}
    await w.create("nodes", "ill", status=ill)
    taint = {"key": "maintenance", "effect": "NoExecute"}
    await w.of("nodes").patch("n2", {"spec": {"taints": [taint]}})
    pod = template({})["spec"]
    await w.create("pods", "stray", spec={**pod, "nodeName": "never-was"})
    await w.create("pods", "waiting", spec=pod)
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""}
    await w.create("pods", "ephemeral", spec={
        **pod, **FAR_NODE, "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}],
    })  # fmt: skip
    await w.create("poddisruptionbudgets", "pdb", spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "svc"}}})
    await w.create("persistentvolumes", "pv", spec={
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp/pv"},
        "claimRef": {"namespace": "default", "name": "pvc"},
    })  # fmt: skip
    await w.create("persistentvolumeclaims", "pvc", spec={**claim, "volumeName": "pv"})
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "absent"}
    await w.create("horizontalpodautoscalers", "hpa", spec={"maxReplicas": 2, "scaleTargetRef": target})
    await w.of("configmaps").delete("owner", "default")


async def taints(w: World, node: str) -> set[str]:
    found = await w.get("nodes", node)
    return {taint["effect"] for taint in ((found or {}).get("spec") or {}).get("taints") or ()}


async def status(w: World, plural: str, name: str) -> Obj:
    return ((await w.get(plural, name)) or {}).get("status") or {}


async def ending(w: World, plural: str, name: str) -> bool:
    found = await w.get(plural, name)
    return found is None or "deletionTimestamp" in found["metadata"]


async def mirrored(w: World) -> bool:
    listed = await w.of("endpointslices").list(
        Scope(namespace="default", label_selector="kubernetes.io/service-name=manual")
    )
    return bool(listed.items)


async def node_of(w: World, name: str) -> str:
    return str(((await w.get("pods", name)) or {"spec": {}})["spec"].get("nodeName") or "")


DONE: dict[str, Callable[[World], Awaitable[Any]]] = {
    "deployment": lambda w: w.owned("replicasets", "d"),
    "replicaset": lambda w: w.owned("pods", "rs"),
    "replicationcontroller": lambda w: w.owned("pods", "rc"),
    "statefulset": lambda w: w.get("pods", "ss-0"),
    "daemonset": lambda w: w.owned("pods", "ds"),
    "job": lambda w: w.owned("pods", "j"),
    "cronjob": lambda w: w.owned("jobs", "cj"),
    "ttl": lambda w: ending(w, "jobs", "finished"),
    "endpoints": lambda w: w.get("endpoints", "svc"),
    "endpointslice": lambda w: w.owned("endpointslices", "svc"),
    "mirroring": mirrored,
    "servicecidr": lambda w: _finalized(w, "servicecidrs", "more"),
    "namespace": lambda w: _gone(w, "namespaces", "leaving"),
    "nodelifecycle": lambda w: _tainted(w, "ill"),
    "taints": lambda w: ending(w, "pods", "evicted"),
    "podgc": lambda w: ending(w, "pods", "stray"),
    "disruption": lambda w: _observed(w, "poddisruptionbudgets", "pdb"),
    "persistentvolume": lambda w: _bound(w, "pvc"),
    "ephemeral volume": lambda w: w.get("persistentvolumeclaims", "ephemeral-v"),
    "autoscaling": lambda w: _conditions(w, "horizontalpodautoscalers", "hpa"),
    "garbagecollector": lambda w: ending(w, "configmaps", "dependent"),
    "scheduler": lambda w: node_of(w, "waiting"),
}


async def _finalized(w: World, plural: str, name: str) -> Any:
    return ((await w.get(plural, name)) or {"metadata": {}})["metadata"].get("finalizers")


async def _gone(w: World, plural: str, name: str) -> bool:
    return await w.get(plural, name) is None


async def _tainted(w: World, node: str) -> bool:
    return "NoExecute" in await taints(w, node)


async def _observed(w: World, plural: str, name: str) -> Any:
    return (await status(w, plural, name)).get("observedGeneration")


async def _bound(w: World, claim: str) -> bool:
    return (await status(w, "persistentvolumeclaims", claim)).get("phase") == "Bound"


async def _conditions(w: World, plural: str, name: str) -> Any:
    return (await status(w, plural, name)).get("conditions")


async def undone(w: World) -> set[str]:
    return {name for name, check in DONE.items() if not await check(w)}


async def lose(w: World) -> None:
    await before(w)
    w.lossy.losing = True
    await unseen(w)
    await eventually(lambda: w.lossy.lost >= w.writes)  # an event comes after the answer to the write
    await w.clock.advance(0.5)
    w.lossy.losing = False


async def test_every_controller_and_the_scheduler_do_their_work_although_its_events_were_lost(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await lose(w)
        assert await undone(w) == set(DONE), "these have seen an event"

        async def converged() -> bool:
            left = await undone(w)
            assert not left, left
            return True

        await w.until(converged)
        assert sum(w.metrics.corrections.labels("pods", each.value).value for each in Difference) > 0


async def test_a_round_over_5000_pods_takes_less_than_a_hundredth_of_a_core(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The time of the server, which is in the same process, is included."""
    count, period_s = 5000, 600.0
    async with world(tmp_path, period_s=period_s) as w:
        labels = {"app": "many", "team": "a"}
        for number in range(50):
            await w.create("nodes", f"n{number}", status=READY)
        spec = template(labels)["spec"]
        for first in range(0, count, 100):
            await asyncio.gather(
                *(
                    w.create("pods", f"p{first + at}", {"labels": labels}, spec={**spec, "nodeName": f"n{at % 50}"})
                    for at in range(100)
                )
            )
        pods = w.context.informer("pods")
        await eventually(lambda: len(pods.cache) == count)
        rounds = w.metrics.rounds.labels("pods")  # the scheduler and all controllers share this informer
        started_s, began_s = time.process_time(), w.clock.monotonic()
        while rounds.value < 2:
            await w.clock.advance(period_s / 20)
        await w.clock.advance(period_s / 2)
        used_s, passed_s = time.process_time() - started_s, w.clock.monotonic() - began_s
        record_property("share", used_s / passed_s)
        assert sum(w.metrics.corrections.labels("pods", each.value).value for each in Difference) == 0
        assert used_s < 0.01 * passed_s, f"{used_s:.2f} s of a core in {passed_s:.0f} s"
