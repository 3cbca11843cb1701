"""Whether and when a container that exited starts again: restart policy, backoff, numbers of attempts; pure."""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32

from shoal.kube.objects import Obj
from shoal.node.containers import ContainerRole
from shoal.node.pods.model import PodView
from shoal.node.runtime.model import Container

BACKOFF_BASE_S = 10.0
BACKOFF_CAP_S = 300.0
BACKOFF_RESET_S = 600.0

CRASHES_LABEL = "shoal.dev/crashes"


def hash_of(container: Obj) -> str:
    """A hash of the fields whose change restarts a running container: its name and image."""
    text = f"{container['name']} {container.get('image', '')}"
    return f"{crc32(text.encode()):08x}"


def restarts(container: Obj, role: ContainerRole, pod: Obj, exit_code: int) -> bool:
    """Whether a container that exited with ``exit_code`` is started again."""
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
    """The delay between an exit and the next start: none, then 10 s, doubling up to five minutes. A long run resets
    it."""
    crashes = 0 if ran_long(container) else crashes_of(container)
    return 0.0 if not crashes else min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** min(crashes - 1, 10))


def next_crashes(container: Container) -> int:
    """The number of crashes in a row, for the label of the next attempt."""
    return 1 if ran_long(container) else crashes_of(container) + 1


def last_attempts(view: PodView) -> Mapping[str, int]:
    """The highest known attempt of each container, from the runtime and from the last status."""
    found: dict[str, int] = {}
    for group in ("initContainerStatuses", "containerStatuses"):
        for each in view.old.get(group) or ():
            if each.get("containerID") or (each.get("lastState") or {}).get("terminated"):
                found[each["name"]] = int(each.get("restartCount") or 0)
    for container in view.containers:
        found[container.name] = max(container.attempt, found.get(container.name, 0))
    return found
