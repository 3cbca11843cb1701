"""The conditions of a pod that the node sets; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shoal.kube.objects import Obj
from shoal.kube.times import format_time
from shoal.node.containers import ContainerRole, init_containers
from shoal.node.pods.model import PodView


@dataclass(frozen=True, slots=True)
class _Value:
    status: str
    reason: str = ""
    message: str = ""


_TRUE = _Value("True")


def conditions_of(view: PodView, groups: Mapping[str, Iterable[Obj]], phase: str, now: float) -> list[Obj]:
    """All conditions of the status: those of other owners unchanged, then the node's."""
    statuses = {each["name"]: each for group in groups.values() for each in group}
    old = {each["type"]: each for each in view.pod.get("status", {}).get("conditions") or ()}
    before = {each["type"]: each for each in view.old.get("conditions") or ()}
    wanted: dict[str, _Value] = {}
    for kind, reason, message in view.failure.conditions if view.failure is not None else ():
        wanted[kind] = _Value("True", reason, message)
    containers = _containers_ready(view.pod, statuses, phase)
    wanted |= {
        "PodReadyToStartContainers": _sandbox(view),
        "Initialized": _initialized(view.pod, statuses, phase),
        "Ready": _ready(view.pod, containers, old),
        "ContainersReady": containers,
        "PodScheduled": _TRUE,
    }
    generation = view.pod["metadata"].get("generation", 1)
    others = [each for kind, each in old.items() if kind not in wanted]
    kept = [
        each for kind, each in before.items() if kind == "DisruptionTarget" and kind not in wanted and kind not in old
    ]
    ours = [_written(kind, value, before.get(kind), generation, now) for kind, value in wanted.items()]
    return [*others, *kept, *ours]


def _written(kind: str, value: _Value, old: Obj | None, generation: int, now: float) -> Obj:
    since = (old or {}).get("lastTransitionTime") if old is not None and old["status"] == value.status else None
    made: Obj = {"type": kind, "observedGeneration": generation, "status": value.status}
    made["lastTransitionTime"] = since or format_time(now)
    if value.reason:
        made["reason"] = value.reason
    if value.message:
        made["message"] = value.message
    return made


def _sandbox(view: PodView) -> _Value:
    ready = view.sandbox is not None and view.sandbox.ready
    return _TRUE if ready else _Value("False")


def _ended(phase: str) -> _Value | None:
    if phase == "Failed":
        return _Value("False", "PodFailed")
    return _Value("False", "PodCompleted") if phase == "Succeeded" else None


def _names(names: list[str]) -> str:
    return f"[{' '.join(names)}]"


def _containers_ready(pod: Obj, statuses: Mapping[str, Obj], phase: str) -> _Value:
    ended = _ended(phase)
    if ended is not None:
        return ended
    named = [each["name"] for each, role in init_containers(pod) if role is ContainerRole.SIDECAR]
    named += [each["name"] for each in pod["spec"]["containers"]]
    unready = [name for name in named if not statuses[name]["ready"]]
    if unready:
        return _Value("False", "ContainersNotReady", f"containers with unready status: {_names(unready)}")
    return _TRUE


def _ready(pod: Obj, containers: _Value, conditions: Mapping[str, Obj]) -> _Value:
    if containers.status != "True":
        return containers
    faults = []
    for gate in pod["spec"].get("readinessGates") or ():
        kind = gate["conditionType"]
        found = conditions.get(kind)
        if found is None:
            faults.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif found["status"] != "True":
            faults.append(f'the status of pod readiness gate "{kind}" is not "True", but {found["status"]}')
    return _Value("False", "ReadinessGatesNotReady", ", ".join(faults)) if faults else _TRUE


def _initialized(pod: Obj, statuses: Mapping[str, Obj], phase: str) -> _Value:
    if phase == "Succeeded":
        return _Value("True", "PodCompleted")
    for each in pod["spec"]["containers"]:
        status = statuses[each["name"]]
        if "waiting" not in status["state"] or (status.get("lastState") or {}).get("terminated"):
            return _TRUE
    incomplete = []
    for each, role in init_containers(pod):
        status = statuses[each["name"]]
        if not (status["started"] if role is ContainerRole.SIDECAR else status["ready"]):
            incomplete.append(each["name"])
    if incomplete:
        return _Value("False", "ContainersNotInitialized", f"containers with incomplete status: {_names(incomplete)}")
    return _TRUE
