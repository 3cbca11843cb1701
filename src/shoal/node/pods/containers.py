"""Facts about the containers of a pod, from its spec and from the runtime's state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from zlib import crc32

from shoal.kube.objects import Obj
from shoal.node.pods.model import ContainerRole, PodView, Probed
from shoal.node.runtime.model import Container, ContainerPhase

BACKOFF_BASE_S = 10.0
BACKOFF_CAP_S = 300.0
BACKOFF_RESET_S = 600.0

CRASHES_LABEL = "shoal.dev/crashes"


def is_sidecar(container: Obj) -> bool:
    return container.get("restartPolicy") == "Always"


def init_containers(pod: Obj) -> Iterator[tuple[Obj, ContainerRole]]:
    for each in pod["spec"].get("initContainers") or ():
        yield each, ContainerRole.SIDECAR if is_sidecar(each) else ContainerRole.INIT


def all_containers(pod: Obj) -> Iterator[tuple[Obj, ContainerRole]]:
    """Every container of the spec with its role: init and sidecar, main, ephemeral."""
    yield from init_containers(pod)
    for each in pod["spec"]["containers"]:
        yield each, ContainerRole.MAIN
    for each in pod["spec"].get("ephemeralContainers") or ():
        yield each, ContainerRole.EPHEMERAL


def find(pod: Obj, name: str) -> tuple[Obj, ContainerRole] | None:
    return next((found for found in all_containers(pod) if found[0]["name"] == name), None)


def newest(containers: Iterable[Container]) -> dict[str, Container]:
    """The latest attempt of each container by name."""
    found: dict[str, Container] = {}
    for each in containers:
        known = found.get(each.name)
        if known is None or (each.attempt, each.created_at) > (known.attempt, known.created_at):
            found[each.name] = each
    return found


def previous(containers: Iterable[Container], current: Container) -> Container | None:
    """The attempt before ``current`` that is still there."""
    found = [each for each in containers if each.name == current.name and each.id != current.id]
    return max(found, key=lambda each: (each.attempt, each.created_at), default=None)


def hash_of(container: Obj) -> str:
    """Changes when a running container does not fit its spec any more: its image was changed."""
    text = f"{container['name']} {container.get('image', '')}"
    return f"{crc32(text.encode()):08x}"


def restarts(container: Obj, role: ContainerRole, pod: Obj, exit_code: int) -> bool:
    """Whether a container that exited so is started again."""
    if role is ContainerRole.EPHEMERAL:
        return False
    if role is ContainerRole.SIDECAR:
        return True
    policy = container.get("restartPolicy") or pod["spec"].get("restartPolicy", "Always")
    if role is ContainerRole.INIT:
        return exit_code != 0 and policy != "Never"
    for rule in container.get("restartPolicyRules") or ():
        if _matches(rule, exit_code):
            return True
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _matches(rule: Obj, exit_code: int) -> bool:
    codes = rule.get("exitCodes") or {}
    among = exit_code in (codes.get("values") or ())
    return among if codes.get("operator", "In") == "In" else not among


def crashes_of(container: Container) -> int:
    text = container.labels.get(CRASHES_LABEL, "0")
    return int(text) if text.isdigit() else 0


def ran_long(container: Container) -> bool:
    if container.started_at is None or container.finished_at is None:
        return False
    return container.finished_at - container.started_at >= BACKOFF_RESET_S


def backoff_s(container: Container) -> float:
    """How long after its exit a container starts again: at once, then 10 s, doubling up to five minutes. A long run
    resets the delay."""
    crashes = 0 if ran_long(container) else crashes_of(container)
    return 0.0 if not crashes else min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** min(crashes - 1, 10))


def next_crashes(container: Container) -> int:
    """The label of the attempt that follows."""
    return 1 if ran_long(container) else crashes_of(container) + 1


def probed(view: PodView, spec: Obj, container: Container) -> Probed:
    """The probe results of a container; before the first result, the default for its probes."""
    if container.phase is not ContainerPhase.RUNNING:
        return Probed(started=False, ready=False)
    found = view.probed.get(container.id)
    if found is not None:
        return found
    started = not spec.get("startupProbe")
    return Probed(started=started, ready=started and not spec.get("readinessProbe"))


def qualified(pod: Obj) -> str:
    """A pod as kubelet writes it in messages."""
    about = pod["metadata"]
    return f"{about['name']}_{about['namespace']}({about['uid']})"


def last_attempts(view: PodView) -> Mapping[str, int]:
    """The highest known attempt of each container, also from a status whose containers were removed."""
    found: dict[str, int] = {}
    for group in ("initContainerStatuses", "containerStatuses"):
        for each in view.old.get(group) or ():
            if each.get("containerID") or (each.get("lastState") or {}).get("terminated"):
                found[each["name"]] = int(each.get("restartCount") or 0)
    for container in view.containers:
        found[container.name] = max(container.attempt, found.get(container.name, 0))
    return found
