"""Computes the status of a pod, as kubelet reports it; pure.

The input is the view that the plan used and the waiting reasons that it decided; the result is the whole status.
Conditions of other owners stay, and a terminal phase never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.kube.objects import Obj
from shoal.kube.times import format_time
from shoal.node.containers import ContainerRole, ContainerWait, all_containers, init_containers, newest, previous
from shoal.node.pods.conditions import conditions_of
from shoal.node.pods.model import PodView
from shoal.node.pods.restarts import restarts
from shoal.node.runtime.model import Container, ContainerPhase, ExitReason

TERMINAL = ("Succeeded", "Failed")
_OURS = {
    "observedGeneration", "phase", "reason", "message", "conditions", "startTime", "hostIP", "hostIPs", "podIP",
    "podIPs", "initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses",
}  # fmt: skip
_GROUPS = {
    ContainerRole.INIT: "initContainerStatuses",
    ContainerRole.SIDECAR: "initContainerStatuses",
    ContainerRole.MAIN: "containerStatuses",
    ContainerRole.EPHEMERAL: "ephemeralContainerStatuses",
}


def status_of(view: PodView, waits: Mapping[str, ContainerWait], runtime: str, now: float) -> Obj:
    """The pod's status now. ``waits`` has the reasons of waiting containers; ``runtime`` is the scheme of ids."""
    theirs = {key: value for key, value in (view.pod.get("status") or {}).items() if key not in _OURS}
    if view.failure is not None and view.failure.rejected:
        generation = view.pod["metadata"].get("generation", 1)
        return {**theirs, "observedGeneration": generation, "phase": "Failed", **_reason(view, "Failed")}
    writer = _Writer(view, waits, runtime)
    groups: dict[str, list[Obj]] = {}
    for each, role in all_containers(view.pod):
        groups.setdefault(_GROUPS[role], []).append(writer.container(each, role))
    if "containerStatuses" in groups:
        groups["containerStatuses"].sort(key=lambda each: str(each["name"]))
    phase = _phase_to_report(view, phase_of(view, groups))
    status: Obj = {
        **theirs,
        "observedGeneration": view.pod["metadata"].get("generation", 1),
        "phase": phase,
        **_reason(view, phase),
        "conditions": conditions_of(view, groups, phase, now),
        "startTime": view.old.get("startTime") or format_time(view.started_at),
        **_addresses(view),
        **groups,
    }
    return status


def _addresses(view: PodView) -> Obj:
    found: Obj = {}
    if view.host_addresses:
        found["hostIP"] = view.host_addresses[0]
        found["hostIPs"] = [{"ip": each} for each in view.host_addresses]
    addresses = list(view.sandbox.addresses) if view.sandbox is not None and view.sandbox.ready else []
    if view.pod["spec"].get("hostNetwork"):
        addresses = list(view.host_addresses)
    if addresses:
        found["podIP"] = addresses[0]
        found["podIPs"] = [{"ip": each} for each in addresses]
    elif view.old.get("podIP"):
        found["podIP"], found["podIPs"] = view.old["podIP"], view.old.get("podIPs") or [{"ip": view.old["podIP"]}]
    return found


def _reason(view: PodView, phase: str) -> Obj:
    if view.failure is not None:
        return {"reason": view.failure.reason, "message": view.failure.message}
    if phase == view.old.get("phase"):
        return {key: view.old[key] for key in ("reason", "message") if view.old.get(key)}
    return {}


def _phase_to_report(view: PodView, phase: str) -> str:
    """The phase for the status: a terminal one never changes, and a failure of the node is Failed."""
    if view.old.get("phase") in TERMINAL:
        return str(view.old["phase"])
    return "Failed" if view.failure is not None else phase


# phase


def phase_of(view: PodView, groups: Mapping[str, Iterable[Obj]]) -> str:
    """Pending, Running, Succeeded or Failed, from the statuses of the containers."""
    pod = view.pod
    statuses = {each["name"]: each for group in groups.values() for each in group}
    initialized = _has_begun(view)
    failed, pending, waiting, running = _count_init(pod, statuses, initialized)
    if failed:
        return "Failed"
    stopped = succeeded = restarting = 0
    for each in pod["spec"]["containers"]:
        state, ended = _state_of(statuses[each["name"]])
        if state == "running":
            running += 1
        elif ended is None:
            waiting += 1
        else:
            stopped += 1
            succeeded += state == "terminated" and ended["exitCode"] == 0
            restarting += restarts(each, ContainerRole.MAIN, pod, ended["exitCode"])
    if pending or waiting:
        return "Pending"
    if running:
        return "Running"
    if restarting and not view.ending:
        return "Running"
    return "Succeeded" if stopped == succeeded else "Failed"


def _count_init(pod: Obj, statuses: Mapping[str, Obj], initialized: bool) -> tuple[int, int, int, int]:
    """Counts: init containers that failed for good and that are incomplete; sidecars that wait and that run."""
    failed = pending = waiting = running = 0
    for each, role in init_containers(pod):
        status = statuses[each["name"]]
        state, ended = _state_of(status)
        if role is ContainerRole.INIT:
            if state == "running" or ended is None:
                pending += 1
            elif ended["exitCode"] and not restarts(each, role, pod, ended["exitCode"]):
                failed += 1
            elif ended["exitCode"] or state == "waiting":
                pending += 1
        elif state == "running":
            running += 1
            pending += not initialized and not status["started"]
        elif ended is None:
            waiting += 1
            pending += not initialized
    return failed, pending, waiting, running


def _state_of(status: Obj) -> tuple[str, Obj | None]:
    """The kind of the state, and the termination: the current one, or while waiting the previous one."""
    state = status["state"]
    if "running" in state:
        return "running", None
    if "terminated" in state:
        return "terminated", state["terminated"]
    return "waiting", (status.get("lastState") or {}).get("terminated")


def _has_begun(view: PodView) -> bool:
    """Whether a main container has ever started, so that initialization is complete."""
    names = {each["name"] for each in view.pod["spec"]["containers"]}
    return any(each.name in names and each.started_at is not None for each in view.containers)


# containers


class _Writer:
    """Computes the statuses of single containers."""

    def __init__(self, view: PodView, waits: Mapping[str, ContainerWait], runtime: str) -> None:
        self._view = view
        self._waits = waits
        self._runtime = runtime
        self._current = newest(view.containers)
        self._begun = _has_begun(view)
        self._old = {each["name"]: each for group in _GROUPS.values() for each in view.old.get(group) or ()}

    def container(self, each: Obj, role: ContainerRole) -> Obj:
        name, container = each["name"], self._current.get(each["name"])
        status: Obj = {
            "name": name, "state": {}, "lastState": {}, "ready": False, "restartCount": 0,
            "image": each.get("image", ""), "imageID": "", "started": False,
        }  # fmt: skip
        if container is None:
            self._absent(status, role)
        else:
            self._present(status, each, container)
        wait = self._waits.get(name)
        if wait is not None and "running" not in status["state"]:
            if "terminated" in status["state"]:
                status["lastState"] = {"terminated": status["state"]["terminated"]}
            status["state"] = {"waiting": _waiting(wait)}
        self._details(status, each, role, container)
        return status

    def _default_wait(self) -> ContainerWait:
        initializing = bool(self._view.pod["spec"].get("initContainers"))
        return ContainerWait("PodInitializing" if initializing else "ContainerCreating")

    def _absent(self, status: Obj, role: ContainerRole) -> None:
        """The state of a missing container: not created yet, or lost."""
        old = self._old.get(status["name"])
        status["state"] = {"waiting": _waiting(self._default_wait())}
        if old is None:
            if role is ContainerRole.INIT and self._begun:
                status["state"] = {"terminated": _lost_init()}
            return
        for key in ("restartCount", "lastState", "imageID", "containerID"):
            if old.get(key):
                status[key] = old[key]
        state = old.get("state") or {}
        if "terminated" in state:
            status["state"] = state
        elif "running" in state:
            lost = {
                "exitCode": 137, "reason": ExitReason.UNKNOWN.value,
                "message": "The container could not be located when the pod was deleted.  "
                "The container used to be Running",
                "startedAt": state["running"].get("startedAt"), "finishedAt": state["running"].get("startedAt"),
            }  # fmt: skip
            if self._view.ending:
                status["state"] = {"terminated": lost}
            else:
                status["lastState"] = {"terminated": lost}
                status["restartCount"] = int(status["restartCount"]) + 1

    def _present(self, status: Obj, each: Obj, container: Container) -> None:
        status["restartCount"] = container.attempt
        status["imageID"] = container.image_id
        status["containerID"] = self._id(container)
        if container.phase is ContainerPhase.RUNNING:
            status["state"] = {"running": {"startedAt": format_time(container.started_at or container.created_at)}}
        elif container.phase is ContainerPhase.EXITED:
            status["state"] = {"terminated": self._terminated(container)}
        elif container.phase is ContainerPhase.UNKNOWN:
            lost = {"exitCode": 137, "reason": ExitReason.UNKNOWN.value}
            status["state"] = {
                "terminated": lost | {"message": "The container could not be located when the pod was terminated"}
            }
        else:
            status["state"] = {"waiting": _waiting(self._default_wait())}
        last = previous(self._view.containers, container)
        old = self._old.get(container.name) or {}
        if last is not None and last.phase is ContainerPhase.EXITED:
            status["lastState"] = {"terminated": self._terminated(last)}
        elif old.get("containerID") == status["containerID"]:
            before = old.get("lastState") or {}
            if before.get("terminated") is None or before["terminated"] != status["state"].get("terminated"):
                status["lastState"] = before
        elif old.get("containerID") and (old.get("state") or {}).get("terminated"):
            status["lastState"] = old["state"]
        found = self._view.probe_results(each, container)
        status["started"], status["ready"] = found.started, found.started and found.ready

    def _details(self, status: Obj, each: Obj, role: ContainerRole, container: Container | None) -> None:
        if role is ContainerRole.INIT:
            status["ready"] = status["state"].get("terminated", {}).get("exitCode") == 0
        elif role is ContainerRole.EPHEMERAL:
            status["ready"] = False
        resources = each.get("resources") or {}
        if container is not None and role is not ContainerRole.EPHEMERAL:
            if resources.get("requests"):
                status["allocatedResources"] = resources["requests"]
            status["resources"] = resources
        if mounts := each.get("volumeMounts"):
            status["volumeMounts"] = [_mount(mount) for mount in mounts]
        if each.get("stopSignal") or (each.get("lifecycle") or {}).get("stopSignal"):
            status["stopSignal"] = (each.get("lifecycle") or {}).get("stopSignal") or each["stopSignal"]

    def _terminated(self, container: Container) -> Obj:
        reason = container.reason or (ExitReason.ERROR if container.exit_code else ExitReason.COMPLETED)
        found: Obj = {"exitCode": container.exit_code, "reason": reason.value}
        if message := self._view.messages.get(container.id) or container.message:
            found["message"] = message
        finished_at = container.finished_at or container.created_at
        found["startedAt"] = format_time(container.started_at or finished_at)
        found["finishedAt"] = format_time(finished_at)
        found["containerID"] = self._id(container)
        return found

    def _id(self, container: Container) -> str:
        return f"{self._runtime}://{container.id}"


def _waiting(wait: ContainerWait) -> Obj:
    return {"reason": wait.reason} | ({"message": wait.message} if wait.message else {})


def _lost_init() -> Obj:
    return {
        "exitCode": 0,
        "reason": ExitReason.COMPLETED.value,
        "message": "Unable to get init container status from container runtime and pod has been initialized, "
        "treat it as exited normally",
    }


def _mount(mount: Obj) -> Obj:
    found: Obj = {"name": mount["name"], "mountPath": mount["mountPath"]}
    if mount.get("readOnly"):
        found |= {"readOnly": True, "recursiveReadOnly": "Disabled"}
    return found
