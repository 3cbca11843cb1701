"""The progress and status of a simulated pod at an instant, from the pod, its behaviour and the time; pure.

    WAITING ──start_s──▶ RUNNING ──run_s──▶ FINISHED
                            ▲                 │ restarted by policy
                            └────BACKOFF◀─────┘

The progress can be read back from a status, so a restarted fleet continues from the API.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from shoal.kube.objects import Obj
from shoal.kube.times import format_time, parse_epoch
from shoal.node.simulated.model import Behaviour, PodProgress, Stage, exit_code_of

BACKOFF_BASE_S = 10.0
BACKOFF_CAP_S = 300.0
BACKOFF_RESET_S = 600.0
_SHOWN_WAIT_S = 1.0  # a start that takes less is not worth a write of its own

NEVER = float("inf")
TERMINAL = ("Succeeded", "Failed")
_DEADLINE = "Pod was active on the node longer than the specified deadline"

Summary = tuple[str, str, int, str, str, int]


@dataclass(frozen=True, slots=True)
class PodStep:
    """The progress of a pod now, and the time of its next change."""

    progress: PodProgress
    due: float = NEVER


def backoff_s(progress: PodProgress) -> float:
    """The delay between an exit and the next start: none at first, then 10 s, doubling. A long run resets it."""
    if not progress.restarts or progress.exited_at - progress.started_at >= BACKOFF_RESET_S:
        return 0.0
    return min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** min(progress.restarts - 1, 10))


def resume(pod: Obj, address: str, now: float) -> PodProgress:
    """The progress of a pod, from its status."""
    status = pod.get("status") or {}
    uid = pod["metadata"]["uid"]
    begun_at = parse_epoch(status["startTime"]) if status.get("startTime") else now
    progress = PodProgress(uid=uid, address=status.get("podIP") or address, since=now, begun_at=begun_at)
    if status.get("phase") in TERMINAL:
        return replace(progress, stage=Stage.FINISHED)
    statuses = status.get("containerStatuses")
    if not statuses:
        return progress
    first, restarts = statuses[0], int(statuses[0].get("restartCount") or 0)
    state, last = first.get("state") or {}, first.get("lastState") or {}
    if running := state.get("running"):
        started_at = parse_epoch(running["startedAt"])
        return replace(progress, stage=Stage.RUNNING, since=started_at, started_at=started_at, restarts=restarts)
    if (state.get("waiting") or {}).get("reason") == "CrashLoopBackOff" and (ended := last.get("terminated")):
        exited_at = parse_epoch(ended["finishedAt"])
        return replace(
            progress, stage=Stage.BACKOFF, since=exited_at, exited_at=exited_at, restarts=restarts,
            started_at=parse_epoch(ended["startedAt"]), exit_code=ended["exitCode"],
        )  # fmt: skip
    return progress


def advance(progress: PodProgress, behaviour: Behaviour, pod: Obj, now: float) -> PodStep:
    """Advance to the stage at ``now``, over several stages if necessary."""
    spec = pod["spec"]
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and progress.stage is not Stage.FINISHED and now >= progress.begun_at + deadline:
        return PodStep(_ended(progress, now, 137, "DeadlineExceeded", _DEADLINE))
    step = _advance(progress, behaviour, spec.get("restartPolicy", "Always"), now)
    while step.due <= now:
        step = _advance(step.progress, behaviour, spec.get("restartPolicy", "Always"), now)
    if deadline is not None and step.progress.stage is not Stage.FINISHED:
        return PodStep(step.progress, min(step.due, progress.begun_at + deadline))
    return step


def _advance(progress: PodProgress, behaviour: Behaviour, policy: str, now: float) -> PodStep:
    stage = progress.stage
    if stage is Stage.WAITING:
        if behaviour.image_error:
            return PodStep(progress)
        starts_at = progress.since + behaviour.start_s
        if now < starts_at:
            return PodStep(progress, starts_at)
        return _running(replace(progress, stage=Stage.RUNNING, since=starts_at, started_at=starts_at), behaviour, now)
    if stage is Stage.RUNNING:
        return _running(progress, behaviour, now, policy)
    if stage is Stage.BACKOFF:
        starts_at = progress.since + backoff_s(progress)
        if now < starts_at:
            return PodStep(progress, starts_at)
        restarted = replace(
            progress, stage=Stage.RUNNING, since=starts_at, started_at=starts_at, restarts=progress.restarts + 1
        )
        return _running(restarted, behaviour, now)
    return PodStep(progress)


def _running(progress: PodProgress, behaviour: Behaviour, now: float, policy: str = "") -> PodStep:
    ends_at = NEVER if behaviour.run_s is None else progress.started_at + behaviour.run_s
    if policy and now >= ends_at:
        code = exit_code_of(behaviour, progress.uid, progress.restarts)
        if policy == "Always" or (policy == "OnFailure" and code):
            return PodStep(
                replace(progress, stage=Stage.BACKOFF, since=ends_at, exited_at=ends_at, exit_code=code), ends_at
            )
        return PodStep(_ended(progress, ends_at, code))
    ready_at = progress.started_at + behaviour.ready_s
    return PodStep(progress, min(ends_at, ready_at if ready_at > now else NEVER))


def _ended(progress: PodProgress, at: float, code: int, reason: str = "", message: str = "") -> PodProgress:
    return replace(
        progress, stage=Stage.FINISHED, since=at, exited_at=at, exit_code=code, reason=reason, message=message
    )  # fmt: skip


def stopped(progress: PodProgress, now: float) -> PodProgress:
    """The progress after the containers were stopped because the pod is deleted."""
    return progress if progress.stage is Stage.FINISHED else _ended(progress, now, 143)


def rejected(progress: PodProgress, reason: str, message: str, now: float) -> PodProgress:
    """The progress of a pod that the node rejects: it fails without having started."""
    return _ended(progress, now, 1, reason, f"Pod was rejected: {message}")


def is_ready(progress: PodProgress, behaviour: Behaviour, now: float) -> bool:
    return progress.stage is Stage.RUNNING and now >= progress.started_at + behaviour.ready_s


def is_shown(progress: PodProgress, behaviour: Behaviour) -> bool:
    """Whether a status is written for this stage."""
    return progress.stage is not Stage.WAITING or behaviour.image_error or behaviour.start_s >= _SHOWN_WAIT_S


def _phase(progress: PodProgress) -> str:
    if progress.stage is Stage.WAITING:
        return "Pending"
    if progress.stage is Stage.FINISHED:
        return "Failed" if progress.exit_code else "Succeeded"
    return "Running"


def _waiting_reason(progress: PodProgress, behaviour: Behaviour) -> str:
    if progress.stage is Stage.BACKOFF:
        return "CrashLoopBackOff"
    return "ErrImagePull" if behaviour.image_error else "ContainerCreating"


def summary_of(status: Obj) -> Summary:
    """The parts of a status that the simulation sets, for comparison."""
    first: Obj = next(iter(status.get("containerStatuses") or ()), {})
    state = first.get("state") or {}
    kind = next(iter(state), "")
    reason = state[kind].get("reason", "") if kind == "waiting" else ""
    ready = next((each["status"] for each in status.get("conditions") or () if each["type"] == "Ready"), "")
    return (
        status.get("phase", ""),
        ready,
        first.get("restartCount", 0),
        kind,
        reason,
        status.get("observedGeneration", 0),
    )


def summary(progress: PodProgress, behaviour: Behaviour, pod: Obj, now: float) -> Summary:
    """``summary_of`` the status that the pod should have."""
    ready = is_ready(progress, behaviour, now) and _gates_open(pod)
    kind = {Stage.RUNNING: "running", Stage.FINISHED: "terminated"}.get(progress.stage, "waiting")
    reason = _waiting_reason(progress, behaviour) if kind == "waiting" else ""
    generation = pod["metadata"].get("generation", 1)
    return _phase(progress), "True" if ready else "False", progress.restarts, kind, reason, generation


def status_of(progress: PodProgress, behaviour: Behaviour, pod: Obj, host_address: str, now: float) -> Obj:
    """The whole status that the pod should have now. Fields of other owners stay."""
    old, spec = pod.get("status") or {}, pod["spec"]
    ready = is_ready(progress, behaviour, now)
    status: Obj = {
        **old,
        "observedGeneration": pod["metadata"].get("generation", 1),
        "phase": _phase(progress),
        "conditions": _conditions(old.get("conditions") or (), progress, pod, ready, now),
        "hostIP": host_address,
        "hostIPs": [{"ip": host_address}],
        "startTime": old.get("startTime") or format_time(progress.begun_at),
        "containerStatuses": [_container(each, progress, behaviour, ready) for each in spec["containers"]],
    }
    if inits := spec.get("initContainers"):
        status["initContainerStatuses"] = [_init_container(each, progress, behaviour, ready) for each in inits]
    if guests := spec.get("ephemeralContainers"):
        known = {each["name"]: each for each in old.get("ephemeralContainerStatuses") or ()}
        status["ephemeralContainerStatuses"] = [_guest(each, known.get(each["name"]), progress, now) for each in guests]
    if progress.stage is not Stage.WAITING:
        status["podIP"] = progress.address
        status["podIPs"] = [{"ip": progress.address}]
    if progress.reason:
        status["reason"], status["message"] = progress.reason, progress.message
    return status


def _gates_open(pod: Obj) -> bool:
    gates = pod["spec"].get("readinessGates")
    if not gates:
        return True
    conditions = {each["type"]: each["status"] for each in (pod.get("status") or {}).get("conditions") or ()}
    return all(conditions.get(gate["conditionType"]) == "True" for gate in gates)


def _conditions(old: Iterable[Obj], progress: PodProgress, pod: Obj, ready: bool, now: float) -> list[Obj]:
    before = {each["type"]: each for each in old}
    started = progress.stage is not Stage.WAITING
    unready: tuple[str, str] = ("False", "ContainersNotReady")
    if progress.stage is Stage.FINISHED:
        unready = ("False", "PodFailed" if progress.exit_code else "PodCompleted")
    whole = ("True", "") if ready else unready
    wanted = {
        "PodReadyToStartContainers": ("True" if started and progress.stage is not Stage.FINISHED else "False", ""),
        "Initialized": ("True", "") if started else ("False", "ContainersNotInitialized"),
        "Ready": whole if not ready or _gates_open(pod) else ("False", "ReadinessGatesNotReady"),
        "ContainersReady": whole,
        "PodScheduled": ("True", ""),
    }
    if progress.stage is Stage.FINISHED and not progress.exit_code:
        wanted["Initialized"] = ("True", "PodCompleted")
    stamp, generation = format_time(now), pod["metadata"].get("generation", 1)
    found = [_condition(before.pop(kind, None), kind, *value, stamp, generation) for kind, value in wanted.items()]
    return [*found, *before.values()]


def _condition(old: Obj | None, kind: str, value: str, reason: str, stamp: str, generation: int) -> Obj:
    if old is not None and old["status"] == value:
        stamp = old.get("lastTransitionTime") or stamp
    made: Obj = {"type": kind, "status": value, "lastTransitionTime": stamp}
    if reason:
        made["reason"] = reason
    made["observedGeneration"] = generation
    return made


def _container(spec: Obj, progress: PodProgress, behaviour: Behaviour, ready: bool) -> Obj:
    name, image = spec["name"], spec.get("image", "")
    running = progress.stage is Stage.RUNNING
    state: Obj
    if running:
        state = {"running": {"startedAt": format_time(progress.started_at)}}
    elif progress.stage is Stage.FINISHED:
        state = {"terminated": _terminated(name, progress)}
    elif progress.stage is Stage.BACKOFF:
        message = f"back-off {int(backoff_s(progress))}s restarting failed container={name}"
        state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    else:
        state = {"waiting": {"reason": _waiting_reason(progress, behaviour)}}
        if behaviour.image_error:
            state["waiting"]["message"] = image_error(image)
    last: Obj = {}
    if progress.exited_at and progress.stage is not Stage.FINISHED:
        last = {"terminated": _terminated(name, progress)}
    started = progress.stage is not Stage.WAITING
    return {
        "name": name, "state": state, "lastState": last, "ready": ready, "restartCount": progress.restarts,
        "image": image, "imageID": f"simulated://{image}" if started else "",
        **({"containerID": container_id(name, progress)} if started else {}), "started": running,
    }  # fmt: skip


def _init_container(spec: Obj, progress: PodProgress, behaviour: Behaviour, ready: bool) -> Obj:
    if spec.get("restartPolicy") == "Always":
        return _container(spec, progress, behaviour, ready)
    started = progress.stage is not Stage.WAITING
    at = format_time(progress.begun_at)
    done = {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}
    return {
        "name": spec["name"], "state": {"terminated": done} if started else {"waiting": {"reason": "PodInitializing"}},
        "lastState": {}, "ready": started, "restartCount": 0, "image": spec.get("image", ""),
        "imageID": f"simulated://{spec.get('image', '')}" if started else "", "started": False,
    }  # fmt: skip


def _guest(spec: Obj, old: Obj | None, progress: PodProgress, now: float) -> Obj:
    """The status of an ephemeral container: it runs until the pod ends, and is never ready."""
    name, image = spec["name"], spec.get("image", "")
    before: Obj = (old or {}).get("state") or {}
    since = (before.get("running") or before.get("terminated") or {}).get("startedAt") or format_time(now)
    state: Obj = {"running": {"startedAt": since}}
    if progress.stage is Stage.WAITING:
        state = {"waiting": {"reason": "ContainerCreating"}}
    elif progress.stage is Stage.FINISHED:
        state = {"terminated": {**_terminated(name, progress), "startedAt": since}}
    return {
        "name": name, "state": state, "lastState": {}, "ready": False, "restartCount": 0, "image": image,
        "imageID": f"simulated://{image}", "containerID": container_id(name, progress), "started": "running" in state,
    }  # fmt: skip


def image_error(image: str) -> str:
    return f'failed to pull image "{image}": the pod asks for a simulated failure'


def failure_event(progress: PodProgress, behaviour: Behaviour, pod: Obj) -> tuple[str, str] | None:
    """Reason and message of the warning event for a failing pod; None if it does not fail."""
    about, first = pod["metadata"], pod["spec"]["containers"][0]
    if progress.stage is Stage.BACKOFF:
        whole = f"{about['name']}_{about['namespace']}({about['uid']})"
        return "BackOff", f"Back-off restarting failed container {first['name']} in pod {whole}"
    if progress.stage is Stage.WAITING and behaviour.image_error:
        return "Failed", f"Error: {image_error(first.get('image', ''))}"
    return None


def container_id(name: str, progress: PodProgress) -> str:
    return f"simulated://{progress.uid}-{name}-{progress.restarts}"


def _terminated(name: str, progress: PodProgress) -> Obj:
    return {
        "exitCode": progress.exit_code,
        "reason": "Error" if progress.exit_code else "Completed",
        "startedAt": format_time(progress.started_at or progress.exited_at),
        "finishedAt": format_time(progress.exited_at),
        "containerID": container_id(name, progress),
    }
