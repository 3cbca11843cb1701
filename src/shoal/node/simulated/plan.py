"""What a simulated pod's course and status are at an instant: pure functions of the pod, its behaviour and the time.

    WAITING ──start_s──▶ RUNNING ──run_s──▶ FINISHED
                            ▲                 │ restarted by policy
                            └────BACKOFF◀─────┘

A course can be read back from a status, so a fleet that was killed goes on where the API says its pods are.
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
    """Where a pod is now, and when to look again."""

    course: PodProgress
    due: float = NEVER


def backoff_s(course: PodProgress) -> float:
    """How long a container that has exited waits for its next start: not at all at first, then 10 s and doubling. A
    long run wipes out what was before it."""
    if not course.restarts or course.exited_at - course.started_at >= BACKOFF_RESET_S:
        return 0.0
    return min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** min(course.restarts - 1, 10))


def resume(pod: Obj, address: str, now: float) -> PodProgress:
    """The course of a pod as its status tells it."""
    status = pod.get("status") or {}
    uid = pod["metadata"]["uid"]
    begun_at = parse_epoch(status["startTime"]) if status.get("startTime") else now
    course = PodProgress(uid=uid, address=status.get("podIP") or address, since=now, begun_at=begun_at)
    if status.get("phase") in TERMINAL:
        return replace(course, stage=Stage.FINISHED)
    statuses = status.get("containerStatuses")
    if not statuses:
        return course
    first, restarts = statuses[0], int(statuses[0].get("restartCount") or 0)
    state, last = first.get("state") or {}, first.get("lastState") or {}
    if running := state.get("running"):
        started_at = parse_epoch(running["startedAt"])
        return replace(course, stage=Stage.RUNNING, since=started_at, started_at=started_at, restarts=restarts)
    if (state.get("waiting") or {}).get("reason") == "CrashLoopBackOff" and (ended := last.get("terminated")):
        exited_at = parse_epoch(ended["finishedAt"])
        return replace(
            course, stage=Stage.BACKOFF, since=exited_at, exited_at=exited_at, restarts=restarts,
            started_at=parse_epoch(ended["startedAt"]), exit_code=ended["exitCode"],
        )  # fmt: skip
    return course


def advance(course: PodProgress, behaviour: Behaviour, pod: Obj, now: float) -> PodStep:
    """Move on to where the pod is at ``now``; several stages at once when time has passed unseen."""
    spec = pod["spec"]
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and course.stage is not Stage.FINISHED and now >= course.begun_at + deadline:
        return PodStep(_ended(course, now, 137, "DeadlineExceeded", _DEADLINE))
    step = _advance(course, behaviour, spec.get("restartPolicy", "Always"), now)
    while step.due <= now:
        step = _advance(step.course, behaviour, spec.get("restartPolicy", "Always"), now)
    if deadline is not None and step.course.stage is not Stage.FINISHED:
        return PodStep(step.course, min(step.due, course.begun_at + deadline))
    return step


def _advance(course: PodProgress, behaviour: Behaviour, policy: str, now: float) -> PodStep:
    stage = course.stage
    if stage is Stage.WAITING:
        if behaviour.image_error:
            return PodStep(course)
        starts_at = course.since + behaviour.start_s
        if now < starts_at:
            return PodStep(course, starts_at)
        return _running(replace(course, stage=Stage.RUNNING, since=starts_at, started_at=starts_at), behaviour, now)
    if stage is Stage.RUNNING:
        return _running(course, behaviour, now, policy)
    if stage is Stage.BACKOFF:
        starts_at = course.since + backoff_s(course)
        if now < starts_at:
            return PodStep(course, starts_at)
        restarted = replace(
            course, stage=Stage.RUNNING, since=starts_at, started_at=starts_at, restarts=course.restarts + 1
        )
        return _running(restarted, behaviour, now)
    return PodStep(course)


def _running(course: PodProgress, behaviour: Behaviour, now: float, policy: str = "") -> PodStep:
    ends_at = NEVER if behaviour.run_s is None else course.started_at + behaviour.run_s
    if policy and now >= ends_at:
        code = exit_code_of(behaviour, course.uid, course.restarts)
        if policy == "Always" or (policy == "OnFailure" and code):
            return PodStep(
                replace(course, stage=Stage.BACKOFF, since=ends_at, exited_at=ends_at, exit_code=code), ends_at
            )
        return PodStep(_ended(course, ends_at, code))
    ready_at = course.started_at + behaviour.ready_s
    return PodStep(course, min(ends_at, ready_at if ready_at > now else NEVER))


def _ended(course: PodProgress, at: float, code: int, reason: str = "", message: str = "") -> PodProgress:
    return replace(
        course, stage=Stage.FINISHED, since=at, exited_at=at, exit_code=code, reason=reason, message=message
    )  # fmt: skip


def stopped(course: PodProgress, now: float) -> PodProgress:
    """The node has ended the pod's containers because it is deleted."""
    return course if course.stage is Stage.FINISHED else _ended(course, now, 143)


def rejected(course: PodProgress, reason: str, message: str, now: float) -> PodProgress:
    """The node does not take the pod: it fails without having started."""
    return _ended(course, now, 1, reason, f"Pod was rejected: {message}")


def is_ready(course: PodProgress, behaviour: Behaviour, now: float) -> bool:
    return course.stage is Stage.RUNNING and now >= course.started_at + behaviour.ready_s


def is_shown(course: PodProgress, behaviour: Behaviour) -> bool:
    """Whether a status is written for this stage at all."""
    return course.stage is not Stage.WAITING or behaviour.image_error or behaviour.start_s >= _SHOWN_WAIT_S


def _phase(course: PodProgress) -> str:
    if course.stage is Stage.WAITING:
        return "Pending"
    if course.stage is Stage.FINISHED:
        return "Failed" if course.exit_code else "Succeeded"
    return "Running"


def _waiting_reason(course: PodProgress, behaviour: Behaviour) -> str:
    if course.stage is Stage.BACKOFF:
        return "CrashLoopBackOff"
    return "ErrImagePull" if behaviour.image_error else "ContainerCreating"


def summary_of(status: Obj) -> Summary:
    """What of a status the simulation decides, short enough to compare."""
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


def summary(course: PodProgress, behaviour: Behaviour, pod: Obj, now: float) -> Summary:
    """What ``summary_of`` gives for the status that the pod should have."""
    ready = is_ready(course, behaviour, now) and _gates_open(pod)
    kind = {Stage.RUNNING: "running", Stage.FINISHED: "terminated"}.get(course.stage, "waiting")
    reason = _waiting_reason(course, behaviour) if kind == "waiting" else ""
    generation = pod["metadata"].get("generation", 1)
    return _phase(course), "True" if ready else "False", course.restarts, kind, reason, generation


def status_of(course: PodProgress, behaviour: Behaviour, pod: Obj, host_address: str, now: float) -> Obj:
    """The whole status that the pod should have now. What others put there stays."""
    old, spec = pod.get("status") or {}, pod["spec"]
    ready = is_ready(course, behaviour, now)
    status: Obj = {
        **old,
        "observedGeneration": pod["metadata"].get("generation", 1),
        "phase": _phase(course),
        "conditions": _conditions(old.get("conditions") or (), course, pod, ready, now),
        "hostIP": host_address,
        "hostIPs": [{"ip": host_address}],
        "startTime": old.get("startTime") or format_time(course.begun_at),
        "containerStatuses": [_container(each, course, behaviour, ready) for each in spec["containers"]],
    }
    if inits := spec.get("initContainers"):
        status["initContainerStatuses"] = [_init_container(each, course, behaviour, ready) for each in inits]
    if guests := spec.get("ephemeralContainers"):
        known = {each["name"]: each for each in old.get("ephemeralContainerStatuses") or ()}
        status["ephemeralContainerStatuses"] = [_guest(each, known.get(each["name"]), course, now) for each in guests]
    if course.stage is not Stage.WAITING:
        status["podIP"] = course.address
        status["podIPs"] = [{"ip": course.address}]
    if course.reason:
        status["reason"], status["message"] = course.reason, course.message
    return status


def _gates_open(pod: Obj) -> bool:
    gates = pod["spec"].get("readinessGates")
    if not gates:
        return True
    conditions = {each["type"]: each["status"] for each in (pod.get("status") or {}).get("conditions") or ()}
    return all(conditions.get(gate["conditionType"]) == "True" for gate in gates)


def _conditions(old: Iterable[Obj], course: PodProgress, pod: Obj, ready: bool, now: float) -> list[Obj]:
    before = {each["type"]: each for each in old}
    started = course.stage is not Stage.WAITING
    unready: tuple[str, str] = ("False", "ContainersNotReady")
    if course.stage is Stage.FINISHED:
        unready = ("False", "PodFailed" if course.exit_code else "PodCompleted")
    whole = ("True", "") if ready else unready
    wanted = {
        "PodReadyToStartContainers": ("True" if started and course.stage is not Stage.FINISHED else "False", ""),
        "Initialized": ("True", "") if started else ("False", "ContainersNotInitialized"),
        "Ready": whole if not ready or _gates_open(pod) else ("False", "ReadinessGatesNotReady"),
        "ContainersReady": whole,
        "PodScheduled": ("True", ""),
    }
    if course.stage is Stage.FINISHED and not course.exit_code:
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


def _container(spec: Obj, course: PodProgress, behaviour: Behaviour, ready: bool) -> Obj:
    name, image = spec["name"], spec.get("image", "")
    running = course.stage is Stage.RUNNING
    state: Obj
    if running:
        state = {"running": {"startedAt": format_time(course.started_at)}}
    elif course.stage is Stage.FINISHED:
        state = {"terminated": _terminated(name, course)}
    elif course.stage is Stage.BACKOFF:
        message = f"back-off {int(backoff_s(course))}s restarting failed container={name}"
        state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    else:
        state = {"waiting": {"reason": _waiting_reason(course, behaviour)}}
        if behaviour.image_error:
            state["waiting"]["message"] = image_error(image)
    last: Obj = {}
    if course.exited_at and course.stage is not Stage.FINISHED:
        last = {"terminated": _terminated(name, course)}
    started = course.stage is not Stage.WAITING
    return {
        "name": name, "state": state, "lastState": last, "ready": ready, "restartCount": course.restarts,
        "image": image, "imageID": f"simulated://{image}" if started else "",
        **({"containerID": container_id(name, course)} if started else {}), "started": running,
    }  # fmt: skip


def _init_container(spec: Obj, course: PodProgress, behaviour: Behaviour, ready: bool) -> Obj:
    if spec.get("restartPolicy") == "Always":
        return _container(spec, course, behaviour, ready)
    started = course.stage is not Stage.WAITING
    at = format_time(course.begun_at)
    done = {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}
    return {
        "name": spec["name"], "state": {"terminated": done} if started else {"waiting": {"reason": "PodInitializing"}},
        "lastState": {}, "ready": started, "restartCount": 0, "image": spec.get("image", ""),
        "imageID": f"simulated://{spec.get('image', '')}" if started else "", "started": False,
    }  # fmt: skip


def _guest(spec: Obj, old: Obj | None, course: PodProgress, now: float) -> Obj:
    """An ephemeral container: it runs from when the node sees it for as long as the pod does, and is never ready."""
    name, image = spec["name"], spec.get("image", "")
    before: Obj = (old or {}).get("state") or {}
    since = (before.get("running") or before.get("terminated") or {}).get("startedAt") or format_time(now)
    state: Obj = {"running": {"startedAt": since}}
    if course.stage is Stage.WAITING:
        state = {"waiting": {"reason": "ContainerCreating"}}
    elif course.stage is Stage.FINISHED:
        state = {"terminated": {**_terminated(name, course), "startedAt": since}}
    return {
        "name": name, "state": state, "lastState": {}, "ready": False, "restartCount": 0, "image": image,
        "imageID": f"simulated://{image}", "containerID": container_id(name, course), "started": "running" in state,
    }  # fmt: skip


def image_error(image: str) -> str:
    return f'failed to pull image "{image}": the pod asks for a simulated failure'


def trouble_of(course: PodProgress, behaviour: Behaviour, pod: Obj) -> tuple[str, str] | None:
    """Reason and message of the event that goes with a status, when something is wrong."""
    about, first = pod["metadata"], pod["spec"]["containers"][0]
    if course.stage is Stage.BACKOFF:
        whole = f"{about['name']}_{about['namespace']}({about['uid']})"
        return "BackOff", f"Back-off restarting failed container {first['name']} in pod {whole}"
    if course.stage is Stage.WAITING and behaviour.image_error:
        return "Failed", f"Error: {image_error(first.get('image', ''))}"
    return None


def container_id(name: str, course: PodProgress) -> str:
    return f"simulated://{course.uid}-{name}-{course.restarts}"


def _terminated(name: str, course: PodProgress) -> Obj:
    return {
        "exitCode": course.exit_code,
        "reason": "Error" if course.exit_code else "Completed",
        "startedAt": format_time(course.started_at or course.exited_at),
        "finishedAt": format_time(course.exited_at),
        "containerID": container_id(name, course),
    }
