"""Run controllers against an API server in this process, with ``PodPlayer`` in the place of scheduler and kubelets.

    async with local_server() as server:
        player = PodPlayer()
        async with running(server, [replicaset_wiring.add, player.add]) as context:
            await context.resource("replicasets", "apps").create(...)
            await rolled_out(context, "replicasets", "web")

Give the server and ``running`` the same ``FakeClock`` to control time: timers then fire only when the test advances
the clock, and everything else goes on by itself. The player binds pods, reports them as running and ready, and removes
those that are being deleted. A test can give a function that decides the state of each pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from itertools import count
from random import Random
from typing import cast

from shoal.base.clock import Clock, RealClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.client import Client
from shoal.client.transport import Transport
from shoal.controllers.context import ControllerContext
from shoal.errors import Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.kube.times import format_time
from shoal.reconcile import DONE, EventRecorder, Manager, ObjectKey, ReconcileMetrics, Result, ResyncConfig
from shoal.testing.losses import LossyTransport
from shoal.testing.seeded import seeded_bytes
from shoal.testing.servers import LocalServer
from shoal.testing.waiting import eventually

Add = Callable[[ControllerContext], object]


@asynccontextmanager
async def running(
    server: LocalServer | LossyTransport,
    adds: Iterable[Add],
    *,
    clock: Clock | None = None,
    component: str = "controllers",
    resync: ResyncConfig | None = None,
) -> AsyncIterator[ControllerContext]:
    """Run the controllers that ``adds`` wire. The block begins when their caches are synced; they stop at its end."""
    clock = clock or RealClock()
    random, ids = Random(1), Ids(seeded_bytes(1))
    client = Client(cast(Transport, server.transport), clock=clock, field_manager=component)
    manager = Manager(client, clock=clock, random=random.random, resync=resync)
    events = EventRecorder(client, component, component, clock=clock, new_suffix=ids.new_suffix)
    numbers = count(1)
    context = ControllerContext(
        manager=manager, events=events, clock=clock, random=random.random, new_id=lambda: str(next(numbers)),
        metrics=ReconcileMetrics(Metrics()),
    )  # fmt: skip
    manager.add(events)
    for add in adds:
        add(context)
    task = asyncio.create_task(manager.run(), name="manager")
    ready = asyncio.create_task(manager.ready.wait(), name="manager/ready")
    try:
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield context
    finally:
        ready.cancel()
        manager.stop()
        await task


async def rolled_out(
    context: ControllerContext, plural: str, name: str, namespace: str = "default", *, timeout_s: float = 20.0
) -> Obj:
    """Wait until all pods of a workload have its current template and are ready, as ``kubectl rollout status`` does."""
    resource = context.resource(plural, "" if plural == "replicationcontrollers" else "apps")

    async def check() -> Obj:
        found = await resource.get(name, namespace)
        status = found.get("status") or {}
        assert status.get("observedGeneration", 0) >= found["metadata"]["generation"], status
        for counter in _COUNTERS[plural]:
            wanted = found["spec"]["replicas"] if plural != "daemonsets" else status.get("desiredNumberScheduled")
            assert status.get(counter, 0) == wanted, (counter, status)
        return found

    found: Obj = await eventually(check, timeout_s=timeout_s)
    return found


_COUNTERS = {
    "deployments": ("replicas", "updatedReplicas", "availableReplicas"),
    "replicasets": ("replicas", "readyReplicas"),
    "replicationcontrollers": ("replicas", "readyReplicas"),
    "statefulsets": ("replicas", "updatedReplicas", "readyReplicas"),
    "daemonsets": ("currentNumberScheduled", "updatedNumberScheduled", "numberAvailable"),
}


class Play(StrEnum):
    """The state that the player gives a pod."""

    READY = "ready"  # bound, running, ready
    RUNNING = "running"  # bound and running, but not ready
    BOUND = "bound"  # on a node, still pending
    PENDING = "pending"  # left alone
    FAILED = "failed"
    SUCCEEDED = "succeeded"


class PodPlayer:
    """Does the work of scheduler and kubelets for all pods. Pass ``add`` to ``running``.

    ``play`` returns the state of a pod. It is called whenever the pod changes, and for all pods on ``replay``.
    """

    def __init__(
        self,
        play: Callable[[Obj], Play] = lambda pod: Play.READY,
        *,
        nodes: Sequence[str] = ("node-1",),
        binds: bool = True,
        ends: bool = True,
    ) -> None:
        self.play = play
        self.nodes = nodes
        self.binds = binds  # False: a scheduler binds pods
        self.ends = ends  # False: pods that are being deleted stay as they are
        self._turns = count()
        self._context: ControllerContext | None = None

    def add(self, context: ControllerContext) -> None:
        self._context = context
        self._pods = context.informer("pods").cache
        self._resource = context.resource("pods")
        self._controller = context.controller("pod-player", self._reconcile, workers=16)
        self._controller.watches(context.informer("pods"))

    def replay(self) -> None:
        """Call ``play`` for all pods again, after its answers have changed."""
        for key in self._pods.keys():
            self._controller.queue.add(key)

    async def _reconcile(self, key: ObjectKey) -> Result:
        pod = self._pods.get(key)
        if pod is None:
            return DONE
        try:
            await self._act(key, pod)
        except (NotFound, Conflict):
            pass  # a newer state of it comes by watch
        return DONE

    async def _act(self, key: ObjectKey, pod: Obj) -> None:
        about = pod["metadata"]
        if about.get("deletionTimestamp"):
            if self.ends:
                await self._resource.delete(key.name, key.namespace, grace_period_s=0, uid=about["uid"])
            return
        play = self.play(pod)
        if play is Play.PENDING or pod.get("status", {}).get("phase") in ("Failed", "Succeeded"):
            return
        if not pod["spec"].get("nodeName"):
            if self.binds:
                await self._resource.bind(key.name, self._node_for(pod), key.namespace, uid=about["uid"])
            return
        if play is not Play.BOUND:
            await self._report(key, pod, play)

    def _node_for(self, pod: Obj) -> str:
        return _pinned_node(pod) or self.nodes[next(self._turns) % len(self.nodes)]

    async def _report(self, key: ObjectKey, pod: Obj, play: Play) -> None:
        assert self._context is not None
        status = pod.get("status") or {}
        phase = {Play.FAILED: "Failed", Play.SUCCEEDED: "Succeeded"}.get(play, "Running")
        ready = "True" if play is Play.READY else "False"
        before = {each["type"]: each["status"] for each in status.get("conditions") or ()}
        if status.get("phase") == phase and before.get("Ready") == ready:
            return
        now = format_time(self._context.clock.wall_s())
        kept = [each for each in status.get("conditions") or () if each["type"] not in ("Ready", "ContainersReady")]
        reported = {
            **status,
            "phase": phase,
            "startTime": status.get("startTime") or now,
            "podIP": status.get("podIP") or f"10.244.0.{1 + next(self._turns) % 250}",
            "conditions": [
                *kept,
                *({"type": each, "status": ready, "lastTransitionTime": now} for each in ("ContainersReady", "Ready")),
            ],
            "containerStatuses": [_container_status(each, play, now) for each in pod["spec"]["containers"]],
        }
        reported["podIPs"] = [{"ip": reported["podIP"]}]
        await self._resource.replace_status({**pod, "status": reported})


def _container_status(container: Obj, play: Play, now: str) -> Obj:
    if play in (Play.FAILED, Play.SUCCEEDED):
        code = 1 if play is Play.FAILED else 0
        reason = "Error" if code else "Completed"
        state: Obj = {"terminated": {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}}
    else:
        state = {"running": {"startedAt": now}}
    return {
        "name": container["name"], "image": container.get("image", ""), "imageID": "", "restartCount": 0,
        "ready": play is Play.READY, "started": "running" in state, "state": state,
    }  # fmt: skip


def _pinned_node(pod: Obj) -> str:
    """The node that a pod's affinity requires by name, as the pods of a DaemonSet do; empty without one."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field["key"] == "metadata.name":
                return str(field["values"][0])
    return ""
