"""Maps a pod to an instance of a deployment: its address, whether it is ready, and if not why; pure.

Pods that have ended or are being deleted do not count as instances; their replacements do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.krane.deployments.pod import STARTING
from shoal.krane.labels import SECRETS, TOPOLOGY_KEY_ZONE
from shoal.kube import quantity
from shoal.kube.objects import Obj
from shoal.kube.times import parse_epoch
from shoal.wire.fleet.v1 import cluster_pb as pb

_TERMINAL = ("Succeeded", "Failed")
_CRASHED = "CrashLoopBackOff"
_IMAGE_FAULTS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_PLAIN_ENDS = ("", "Error", "Completed")  # say less than that it is started again and again
_MESSAGE_LENGTH = 1000
_MIB = 1 << 20


def is_instance(pod: Obj) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase not in _TERMINAL and not pod["metadata"].get("deletionTimestamp")


def instance(
    pod: Obj, node_labels: Mapping[str, str], secrets: str = "", event: tuple[str, str] = ("", "")
) -> pb.Instance:
    """``secrets`` names the versions of the secrets that the deployment has now. ``event`` is the reason and the
    message of the pod's newest warning, for where its status says nothing."""
    about, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    ready = is_ready(status)
    reason, message, exit_code, failed = _why(status, ready)
    if not ready and not reason:
        reason, message = event
    own_labels = about.get("labels") or {}
    return pb.Instance(
        name=about["name"],
        uid=about.get("uid", ""),
        address=_address(status.get("podIP") or "", _port(spec)),
        node=spec.get("nodeName") or "",
        zone=own_labels.get(TOPOLOGY_KEY_ZONE) or node_labels.get(TOPOLOGY_KEY_ZONE) or "",
        status=_status(ready, failed),
        ready=ready,
        restarts=sum(each.get("restartCount") or 0 for each in status.get("containerStatuses") or ()),
        reason=reason,
        message=message[:_MESSAGE_LENGTH],
        exit_code=exit_code,
        cpu_millicores=_resource(pod, "cpu"),
        memory_mib=_resource(pod, "memory"),
        started_ms=_started_ms(status),
        outdated=(about.get("annotations") or {}).get(SECRETS, "") != secrets,
    )


def is_ready(status: Obj) -> bool:
    """Only when it is said: a pod without the condition is not ready."""
    return _condition(status, "Ready").get("status") == "True"


def fault_of(status: Obj) -> tuple[str, str]:
    """Reason and message of what keeps a pod from being ready; empty while there is nothing to say, or it is."""
    ready = is_ready(status)
    reason, message, _, _ = _why(status, ready)
    return ("", "") if ready else (reason, message[:_MESSAGE_LENGTH])


def _condition(status: Obj, kind: str) -> Obj:
    return next((each for each in status.get("conditions") or () if each.get("type") == kind), {})


def _status(ready: bool, failed: bool) -> pb.InstanceStatus:
    if ready:
        return pb.InstanceStatus.RUNNING
    return pb.InstanceStatus.FAILED if failed else pb.InstanceStatus.PENDING


def _why(status: Obj, ready: bool) -> tuple[str, str, int, bool]:
    """Reason, message and exit code of what keeps it from running, else of its last end; whether it has failed."""
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    for each in containers:
        waiting = (each.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason", "") not in STARTING:
            return (*_waiting(waiting, _end(each), str(each.get("image") or "")), True)
    for each in reversed(containers):
        end = _end(each)
        if end.get("exitCode") or end.get("reason", "") not in _PLAIN_ENDS:
            failed = "terminated" in (each.get("state") or {})
            return end.get("reason") or "Error", end.get("message") or "", end.get("exitCode") or 0, failed
    if ready:
        return "", "", 0, False
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return scheduled.get("reason") or "Unschedulable", scheduled.get("message") or "", 0, False
    running = any((each.get("state") or {}).get("running") for each in containers)
    return ("NotReady", _condition(status, "Ready").get("message") or "", 0, False) if running else ("", "", 0, False)


def _end(container: Obj) -> Obj:
    """How it ended: now, or the last time."""
    now, last = container.get("state") or {}, container.get("lastState") or {}
    found: Obj = now.get("terminated") or last.get("terminated") or {}
    return found


def _waiting(waiting: Obj, end: Obj, image: str) -> tuple[str, str, int]:
    reason = waiting["reason"]
    if reason in _IMAGE_FAULTS:
        message = waiting.get("message") or ""
        return reason, message if image in message else f"image {image}: {message}".removesuffix(": "), 0
    if reason == _CRASHED and end.get("reason", "") not in _PLAIN_ENDS:
        reason = end["reason"]  # OOMKilled says more
    return reason, end.get("message") or waiting.get("message") or "", end.get("exitCode") or 0


def _port(spec: Obj) -> int:
    for container in spec.get("containers") or ():
        for port in container.get("ports") or ():
            return int(port["containerPort"])
    return 0


def _address(ip: str, port: int) -> str:
    if not ip:
        return ""
    host = f"[{ip}]" if ":" in ip else ip
    return f"{host}:{port}" if port else ip


def _resource(pod: Obj, name: str) -> int:
    """What its containers really have, of their statuses where nodes say it, else what their specs ask for."""
    actual = {
        each["name"]: each.get("resources") or {} for each in (pod.get("status") or {}).get("containerStatuses") or ()
    }
    texts = [
        text
        for container in (pod.get("spec") or {}).get("containers") or ()
        if (text := _first(name, (actual.get(container["name"]) or {}, container.get("resources") or {})))
    ]
    if name == "cpu":
        return sum(quantity.parse(text).milli() for text in texts)
    return sum(-(-quantity.parse(text).value() // _MIB) for text in texts)


def _first(name: str, places: Iterable[Obj]) -> str:
    for resources in places:
        for field in ("limits", "requests"):
            if text := (resources.get(field) or {}).get(name):
                return str(text)
    return ""


def _started_ms(status: Obj) -> int:
    starts = [
        running["startedAt"]
        for each in status.get("containerStatuses") or ()
        if (running := (each.get("state") or {}).get("running")) and running.get("startedAt")
    ]
    text = max(starts, default="") or status.get("startTime") or ""
    return int(parse_epoch(text) * 1000) if text else 0
