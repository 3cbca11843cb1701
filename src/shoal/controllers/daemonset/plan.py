"""The next step of a DaemonSet: nodes that get a pod, pods to delete, and the status. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from shoal.controllers.daemonset.eligibility import Fit, fit, node_of, pinned_to, tolerations_of
from shoal.controllers.daemonset.model import DaemonSetPlan, EventNote, NodeSlot
from shoal.controllers.daemonset.rolling import allows_surge, plan_rolling
from shoal.controllers.pods.status import (
    is_available,
    is_ready,
    is_terminal,
    is_terminating,
    next_availability_s,
    phase_of,
)
from shoal.controllers.pods.template import pod_of
from shoal.controllers.revisions.plan import REVISION_LABEL
from shoal.kube.objects import Obj

_NOWHERE: Final = Fit(False, False)


def slots_of(owner: Obj, nodes: Iterable[Obj], pods: Iterable[Obj]) -> list[NodeSlot]:
    """All nodes with the pods on them or pinned to them, by node name."""
    grouped: dict[str, list[Obj]] = {}
    for pod in pods:
        if not (is_terminal(pod) and is_terminating(pod)):
            grouped.setdefault(node_of(pod), []).append(pod)
    spec = owner["spec"]["template"]["spec"]
    tolerations = tolerations_of(spec)
    slots = []
    for node in nodes:
        name = node["metadata"]["name"]
        found = sorted(grouped.pop(name, ()), key=_seniority)
        slots.append(NodeSlot(name, True, fit(spec, tolerations, node), tuple(found)))
    slots += [NodeSlot(name, False, _NOWHERE, tuple(sorted(pods, key=_seniority))) for name, pods in grouped.items()]
    return sorted(slots, key=lambda slot: slot.name)


def _seniority(pod: Obj) -> tuple[bool, str, str]:
    about = pod["metadata"]
    return not pod["spec"].get("nodeName"), about.get("creationTimestamp") or "", about["name"]


def plan(
    owner: Obj, slots: Sequence[NodeSlot], mark: str, *, waits_s: Callable[[str], float], now: float
) -> DaemonSetPlan:
    """``mark`` is the hash of the template; ``waits_s`` returns the remaining backoff of a failed pod on a node."""
    step = _Step(owner, mark, waits_s, now)
    for slot in slots:
        step.manage(slot)
    if not step.nodes and not step.deleted and _rolls(owner):
        step.nodes, step.deleted = plan_rolling(owner, slots, mark, now)
    return DaemonSetPlan(
        nodes=tuple(step.nodes),
        deleted=tuple(step.deleted),
        failed_on=tuple(step.failed_on),
        remarks=tuple(step.remarks),
        status=plan_status(owner, slots, mark, now),
        recheck_s=step.recheck_s(slots),
    )


def _rolls(owner: Obj) -> bool:
    return (owner["spec"].get("updateStrategy") or {}).get("type") == "RollingUpdate"


class _Step:
    def __init__(self, owner: Obj, mark: str, waits_s: Callable[[str], float], now: float) -> None:
        self._owner, self._mark, self._waits_s, self._now = owner, mark, waits_s, now
        self._surges = allows_surge(owner)
        self._min_ready_s = owner["spec"].get("minReadySeconds") or 0
        self._waits: list[float] = []
        self.nodes: list[str] = []
        self.deleted: list[Obj] = []
        self.failed_on: list[str] = []
        self.remarks: list[EventNote] = []

    def manage(self, slot: NodeSlot) -> None:
        """One pod on each eligible node, none elsewhere."""
        if not slot.present:
            self.deleted += [pod for pod in slot.pods if not pod["spec"].get("nodeName") and not is_terminating(pod)]
        elif not slot.fit.stays:
            self.deleted += [pod for pod in slot.pods if not is_terminating(pod)]
        elif not slot.pods:
            if slot.fit.runs:
                self.nodes.append(slot.name)
        else:
            running = [pod for pod in slot.pods if not is_terminating(pod) and not self._ended(slot.name, pod)]
            if self._surges:
                self._settle_surge(slot, running)
            else:
                self.deleted += running[1:]

    def _ended(self, node: str, pod: Obj) -> bool:
        """Whether the pod has ended; then delete it, a failed one after its backoff."""
        phase, about = phase_of(pod), pod["metadata"]
        if phase not in ("Failed", "Succeeded"):
            return False
        what = f"daemon pod {about['namespace']}/{about['name']} on node {node}"
        if phase == "Failed":
            wait_s = self._waits_s(node)
            if wait_s > 0:
                self._waits.append(wait_s)
                return True
            self.failed_on.append(node)
            self.remarks.append(EventNote(True, "FailedDaemonPod", f"Found failed {what}, will try to kill it"))
        else:
            self.remarks.append(
                EventNote(False, "SucceededDaemonPod", f"Found succeeded {what}, will try to delete it")
            )
        self.deleted.append(pod)
        return True

    def _settle_surge(self, slot: NodeSlot, running: list[Obj]) -> None:
        """An old and a new pod may be together on a node until the new one is available or the old one is not ready."""
        if len(running) <= 1:
            if not running and slot.fit.runs:
                self.nodes.append(slot.name)
            return
        new = next((pod for pod in running if self._is_new(pod)), None)
        old = next((pod for pod in running if not self._is_new(pod)), None)
        self.deleted += [pod for pod in running if pod is not new and pod is not old]
        if new is not None and old is not None:
            if not is_ready(old) or is_available(new, self._min_ready_s, self._now):
                self.deleted.append(old)

    def _is_new(self, pod: Obj) -> bool:
        return is_updated(pod, self._mark)

    def recheck_s(self, slots: Sequence[NodeSlot]) -> float | None:
        pods = [pod for slot in slots for pod in slot.pods] if self._min_ready_s else []
        available_s = next_availability_s(pods, self._min_ready_s, self._now)
        waits = self._waits if available_s is None else [*self._waits, available_s]
        return min(waits, default=None)


def is_updated(pod: Obj, mark: str) -> bool:
    return (pod["metadata"].get("labels") or {}).get(REVISION_LABEL) == mark


def plan_status(owner: Obj, slots: Sequence[NodeSlot], mark: str, now: float) -> Obj:
    min_ready_s = owner["spec"].get("minReadySeconds") or 0
    desired = current = misscheduled = ready = available = updated = 0
    for slot in slots:
        if not slot.present:
            continue
        if not slot.fit.runs:
            misscheduled += bool(slot.pods)
            continue
        desired += 1
        if slot.pods:
            first = slot.pods[0]
            current += 1
            updated += is_updated(first, mark)
            ready += is_ready(first)
            available += is_available(first, min_ready_s, now)
    status: Obj = {
        "currentNumberScheduled": current,
        "numberMisscheduled": misscheduled,
        "desiredNumberScheduled": desired,
        "numberReady": ready,
        "observedGeneration": owner["metadata"].get("generation") or 0,
    }
    counts = {
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": desired - available,
    }
    status |= {name: count for name, count in counts.items() if count}
    before = owner.get("status") or {}
    return status | {name: before[name] for name in ("collisionCount", "conditions") if before.get(name)}


def pods_for(owner: Obj, reference: Obj, mark: str, nodes: Sequence[str]) -> list[Obj]:
    """The set's pods for these nodes; the scheduler places each on its node."""
    template = owner["spec"]["template"]
    meta = template.get("metadata") or {}
    labelled = {**meta, "labels": {**(meta.get("labels") or {}), REVISION_LABEL: mark}}
    spec = {**template["spec"], "tolerations": tolerations_of(template["spec"])}
    made = []
    for node in nodes:
        pinned = {**spec, "affinity": pinned_to(spec.get("affinity"), node)}
        made.append(pod_of({"metadata": labelled, "spec": pinned}, owner, reference))
    return made
