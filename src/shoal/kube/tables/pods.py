"""The table of Pods: their state in one word, how many containers are ready, how often they restarted."""

from __future__ import annotations

from typing import Any, Final

from shoal.kube.objects import Obj
from shoal.kube.tables.printer import AGE, NAME, Cells, Printer, column
from shoal.kube.tables.text import NONE, age, condition, deleting, epoch, is_true, name, since, spec, status

_COLUMNS: Final = [
    NAME,
    column("Ready", "Ready containers, of all that should be ready."),
    column("Status", "State of the pod, taken from its phase and its containers."),
    column("Restarts", "How often containers were restarted, and how long ago the last time was."),
    AGE,
    column("IP", "First address of the pod.", wide=True),
    column("Node", "Node the pod is bound to.", wide=True),
    column("Nominated Node", "Node on which other pods are deleted to make room for the pod.", wide=True),
    column("Readiness Gates", "Readiness gates that are met, of all gates of the pod.", wide=True),
]

_FINISHED: Final = {
    "Succeeded": [
        {"type": "Completed", "status": "True", "reason": "Succeeded", "message": "Every container ended well."}
    ],
    "Failed": [{"type": "Completed", "status": "True", "reason": "Failed", "message": "A container failed."}],
}


class _Tally:
    """Totals over the container statuses of a pod."""

    __slots__ = ("last_restart", "last_restart_s", "ready", "restarts")

    def __init__(self) -> None:
        self.ready = 0
        self.restarts = 0
        self.last_restart = ""
        self.last_restart_s = float("-inf")

    def count_restarts(self, container: Obj) -> None:
        self.restarts += container.get("restartCount") or 0
        ended = ((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        moment = epoch(ended)
        if moment is not None and moment > self.last_restart_s:
            self.last_restart, self.last_restart_s = ended, moment

    def restarts_text(self, now: float) -> str:
        if self.restarts and self.last_restart:
            return f"{self.restarts} ({since(self.last_restart, now)} ago)"
        return str(self.restarts)


def _cells(pod: Obj, now: float) -> Cells:
    wanted, current = spec(pod), status(pod)
    init_containers = wanted.get("initContainers") or ()
    sidecars = {c.get("name") for c in init_containers if c.get("restartPolicy") == "Always"}
    total = len(wanted.get("containers") or ()) + len(sidecars)
    reason = _phase_reason(current)
    init_tally, sidecar_tally = _Tally(), _Tally()
    init_reason = _walk_init(current, sidecars, len(init_containers), init_tally, sidecar_tally)
    tally = init_tally
    tally.ready = sidecar_tally.ready
    if init_reason:
        reason = init_reason
    if not init_reason or is_true(current, "Initialized"):
        tally = sidecar_tally
        reason = _walk_containers(current, reason, tally)
    if deleting(pod):
        if current.get("reason") == "NodeLost":
            reason = "Unknown"
        elif current.get("phase") not in _FINISHED:
            reason = "Terminating"
    return [
        name(pod),
        f"{tally.ready}/{total}",
        reason,
        tally.restarts_text(now),
        age(pod, now),
        _first_ip(current),
        wanted.get("nodeName") or NONE,
        current.get("nominatedNodeName") or NONE,
        _gates(wanted, current),
    ]


def _phase_reason(current: Obj) -> str:
    scheduled = condition(current, "PodScheduled")
    if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
        return "SchedulingGated"
    return current.get("reason") or current.get("phase") or ""


def _walk_init(current: Obj, sidecars: set[Any], total: int, tally: _Tally, sidecar_tally: _Tally) -> str:
    """Why the pod is still initialising; empty if it is not."""
    for index, container in enumerate(current.get("initContainerStatuses") or ()):
        tally.count_restarts(container)
        sidecar = container.get("name") in sidecars
        if sidecar:
            sidecar_tally.count_restarts(container)
        state = container.get("state") or {}
        terminated = state.get("terminated")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if sidecar and container.get("started"):
            sidecar_tally.ready += bool(container.get("ready"))
            continue
        if terminated is not None:
            return "Init:" + _end_reason(terminated)
        waiting = (state.get("waiting") or {}).get("reason")
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{index}/{total}"
    return ""


def _end_reason(terminated: Obj) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode') or 0}"


def _walk_containers(current: Obj, reason: str, tally: _Tally) -> str:
    running = False
    error = ""
    for container in reversed(current.get("containerStatuses") or ()):
        tally.count_restarts(container)
        state = container.get("state") or {}
        waiting = (state.get("waiting") or {}).get("reason")
        terminated = state.get("terminated")
        if waiting:
            reason = waiting
        elif terminated is not None:
            reason = _end_reason(terminated)
            if terminated.get("exitCode"):
                error = reason
        elif container.get("ready") and state.get("running") is not None:
            running = True
            tally.ready += 1
    if reason != "Completed":
        return reason
    if running and is_true(current, "Ready"):
        return "Running"
    return error or ("NotReady" if running else reason)


def _first_ip(current: Obj) -> str:
    addresses = current.get("podIPs")
    return (addresses[0].get("ip") if addresses else "") or NONE


def _gates(wanted: Obj, current: Obj) -> str:
    gates = wanted.get("readinessGates")
    if not gates:
        return NONE
    met = sum(is_true(current, gate.get("conditionType") or "") for gate in gates)
    return f"{met}/{len(gates)}"


def _conditions(pod: Obj) -> list[dict[str, str]]:
    return _FINISHED.get(status(pod).get("phase") or "", [])


PRINTERS: Final = {("", "Pod"): Printer(_COLUMNS, _cells, _conditions)}
