"""The scheduler's writes: bindings, volumes, conditions and events of pods that do not fit, preemption.

Every call writes through the API and decides nothing. It raises if a write fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import assert_never

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.client import Client, PatchType, builtin
from shoal.errors import NotFound, ShoalError
from shoal.kube.objects import Obj
from shoal.kube.times import format_time
from shoal.reconcile.events import EventRecorder, EventType
from shoal.reconcile.keys import ObjectKey
from shoal.scheduler import messages
from shoal.scheduler.shapes import PodInfo
from shoal.scheduler.volumes import SELECTED_NODE, SelectNode, TakeVolume, VolumeState, VolumeStep, is_bound


class VolumesFailed(ShoalError):
    """The volumes of a pod were not bound."""


class Actions:
    """The scheduler's writes."""

    def __init__(self, client: Client, volumes: VolumeState, *, clock: Clock, events: EventRecorder) -> None:
        self._pods = client.of(builtin("pods"))
        self._claims = client.of(builtin("persistentvolumeclaims"))
        self._persistent_volumes = client.of(builtin("persistentvolumes"))
        self._volumes = volumes
        self._clock = clock
        self._events = events
        self._named: dict[str, EventRecorder] = {}  # by schedulerName
        self._storage_changed = asyncio.Event()

    def _events_of(self, scheduler: str) -> EventRecorder:
        known = self._named.get(scheduler)
        if known is None:
            known = self._named[scheduler] = self._events.named(scheduler)
        return known

    async def bind(self, pod: PodInfo, node: str) -> None:
        key = pod.key
        await self._pods.bind(key.name, node, key.namespace, uid=pod.uid)
        self._events_of(pod.shape.scheduler).record(
            pod.obj, EventType.NORMAL, "Scheduled", f"Successfully assigned {key.namespace}/{key.name} to {node}",
            action="Binding", kind="Pod",
        )  # fmt: skip

    # pods that do not fit

    async def report(self, pod: PodInfo, reason: str, message: str, nominated: str | None) -> None:
        """Write why a pod has no node to an event and to its condition. ``nominated`` None leaves the nomination
        unchanged."""
        self._events_of(pod.shape.scheduler).record(
            pod.obj, EventType.WARNING, "FailedScheduling", messages.shortened(message), action="Scheduling", kind="Pod"
        )
        status: Obj = {}
        condition = self._condition(pod, "PodScheduled", "False", reason, message)
        if condition is not None:
            status["conditions"] = [condition]
        if nominated is not None and nominated != pod.nominated:
            status["nominatedNodeName"] = nominated or None
        if status:
            await self._patch_status(pod, status)

    def _condition(self, pod: PodInfo, kind: str, status: str, reason: str, message: str) -> Obj | None:
        """The condition to write; None if it is already there."""
        wanted: Obj = {"type": kind, "status": status, "reason": reason, "message": message}
        known = next(
            (each for each in (pod.obj.get("status") or {}).get("conditions") or () if each.get("type") == kind), None
        )
        if known is not None and all(known.get(name) == value for name, value in wanted.items()):
            return None
        same = known is not None and known.get("status") == status
        changed_at = known.get("lastTransitionTime") if same and known is not None else None
        wanted["lastTransitionTime"] = changed_at or format_time(self._clock.wall_s())
        wanted["lastProbeTime"] = None
        generation = pod.obj["metadata"].get("generation")
        return wanted | ({"observedGeneration": generation} if generation else {})

    async def _patch_status(self, pod: PodInfo, status: Obj) -> None:
        patch = {"metadata": {"uid": pod.uid}, "status": status}
        await self._pods.patch(
            pod.key.name, patch, pod.key.namespace, type=PatchType.STRATEGIC, subresource="status"
        )  # fmt: skip

    # preemption

    async def preempt(self, pod: PodInfo, node: str, victims: tuple[PodInfo, ...], scheduler: str) -> None:
        """Delete the victims, each with a condition that states the reason."""
        await asyncio.gather(
            *(self._evict(pod, node, victim, scheduler) for victim in victims if not victim.terminating)
        )

    async def _evict(self, pod: PodInfo, node: str, victim: PodInfo, scheduler: str) -> None:
        message = f"{scheduler}: preempting to accommodate a higher priority pod"
        condition = self._condition(victim, "DisruptionTarget", "True", "PreemptionByScheduler", message)
        try:
            if condition is not None:
                await self._patch_status(victim, {"conditions": [condition]})
            await self._pods.delete(victim.key.name, victim.key.namespace, uid=victim.uid)
        except NotFound:
            return  # already deleted
        self._events_of(scheduler).record(
            victim.obj, EventType.NORMAL, "Preempted", f"Preempted by pod {pod.uid} on node {node}",
            action="Preempting", kind="Pod",
        )  # fmt: skip

    async def clear_nomination(self, pod: PodInfo) -> None:
        await self._patch_status(pod, {"nominatedNodeName": None})

    # volumes

    def storage_changed(self) -> None:
        """Wake pods that wait for their volumes: claims or volumes have changed."""
        self._storage_changed.set()
        self._storage_changed = asyncio.Event()

    async def bind_volumes(self, pod: PodInfo, steps: tuple[VolumeStep, ...], timeout_s: float) -> None:
        """Run the steps and wait until all claims of the pod are bound."""
        for step in steps:
            await self._take(step)
        keys = [step.claim for step in steps]
        try:
            async with within(self._clock, timeout_s):
                await self._until(lambda: self._all_bound(keys, steps))
        except TimeoutError:
            raise VolumesFailed(f"the volumes of {pod.key} were not bound within {timeout_s:g} s") from None

    async def _take(self, step: VolumeStep) -> None:
        match step:
            case SelectNode(key, node):
                claim = self._volumes.claims.get(key)
                if claim is None or (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE) != node:
                    patch = {"metadata": {"annotations": {SELECTED_NODE: node}}}
                    await self._claims.patch(key.name, patch, key.namespace)
            case TakeVolume(key, volume):
                await self._give(key, volume)
            case _:
                assert_never(step)

    async def _give(self, key: ObjectKey, name: str) -> None:
        claim, volume = self._volumes.claims.get(key), self._volumes.volumes.get(name)
        if claim is None or volume is None:
            raise VolumesFailed(f"the claim {key} or the volume {name} has gone")
        reference = {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": key.namespace, "name": key.name,
            "uid": claim["metadata"].get("uid"), "resourceVersion": claim["metadata"].get("resourceVersion"),
        }  # fmt: skip
        about = {
            "resourceVersion": volume["metadata"].get("resourceVersion"),
            "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
        }
        await self._persistent_volumes.patch(name, {"metadata": about, "spec": {"claimRef": reference}})

    def _all_bound(self, keys: list[ObjectKey], steps: tuple[VolumeStep, ...]) -> bool:
        claims = [self._volumes.claims.get(key) for key in keys]
        for step, claim in zip(steps, claims, strict=True):
            if claim is None:
                raise VolumesFailed(f"the claim {step.claim} has gone")
            if isinstance(step, SelectNode) and not is_bound(claim):
                selected = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
                if selected and selected != step.node:
                    raise VolumesFailed(f"the claim {step.claim} was given to the node {selected}")
        return all(claim is not None and is_bound(claim) for claim in claims)

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            await self._storage_changed.wait()
