"""What keeps agents from joining, and the fix, told from the state of the cluster. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shoal.app.joining.examine import admission_fix
from shoal.app.joining.manifests import NAMESPACE
from shoal.kube.objects import Obj

_NAME = "app.kubernetes.io/name"
_IMAGE = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"})
_REVISION = "deployment.kubernetes.io/revision"
_LONGEST = 300
VARYING = re.compile(r"[0-9a-f]{12,}|\b\d{2,}\b")


@dataclass(frozen=True, slots=True, order=True)
class Blocker:
    """What keeps a part from joining."""

    part: str
    what: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """A blocker that parts have in common. Where its words name a pod or a part, that is one of them."""

    parts: tuple[str, ...]
    what: str
    fix: str
    shape: str  # equal for what is the same in other parts, and at another time

    def __str__(self) -> str:
        return f"{', '.join(self.parts)}: {self.what}" + (f"\n  fix: {self.fix}" if self.fix else "")


def causes(found: Iterable[Blocker]) -> list[Cause]:
    """The blockers, those that several parts have as one."""
    alike: dict[str, list[Blocker]] = {}
    for each in found:
        alike.setdefault(_shape(each), []).append(each)
    return [
        Cause(tuple(dict.fromkeys(each.part for each in group)), group[0].what, group[0].fix, shape)
        for shape, group in alike.items()
    ]


def _shape(blocker: Blocker) -> str:
    """Without names of the part, its pods and its container, and without numbers and ids."""
    part = re.escape(blocker.part)
    container = re.escape(blocker.part.removeprefix("shoal-"))
    own = re.compile(rf'{part}(-[0-9a-z]+-[0-9a-z]{{5}}\b)?|"{container}"')
    return VARYING.sub("", own.sub("", f"{blocker.what}\n{blocker.fix}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The objects of the agents' namespace, and the last log lines of pods that do not get on, by pod."""

    deployments: tuple[Obj, ...] = ()
    replica_sets: tuple[Obj, ...] = ()
    pods: tuple[Obj, ...] = ()
    logs: Mapping[str, str] = field(default_factory=dict)


def is_rolled_out(deployment: Obj) -> bool:
    """The newest pods are available, and no older ones are left."""
    spec, status = deployment.get("spec") or {}, deployment.get("status") or {}
    wanted = spec.get("replicas", 1)
    return bool(
        status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
        and status.get("updatedReplicas", 0) >= wanted
        and status.get("availableReplicas", 0) >= wanted
        and status.get("replicas", 0) == status.get("updatedReplicas", 0)
    )


def blockers(state: ClusterState) -> list[Blocker]:
    """One per cause, most telling first. Pods of older revisions do not count: they are replaced."""
    newest = _newest(state.replica_sets)
    state = replace(
        state,
        replica_sets=tuple(each for each in state.replica_sets if each["metadata"].get("uid") in newest),
        pods=tuple(pod for pod in state.pods if _owner(pod) in newest),
    )
    found = [*_refusals(state), *_of_pods(state)]
    return list(dict.fromkeys(found))


def _newest(sets: Iterable[Obj]) -> set[str | None]:
    """The ids of the newest ReplicaSet of each Deployment."""
    found: dict[str, tuple[int, str | None]] = {}
    for each in sets:
        about = each["metadata"]
        revision = int((about.get("annotations") or {}).get(_REVISION) or 0)
        found[_part(each)] = max(
            found.get(_part(each), (-1, None)), (revision, about.get("uid")), key=lambda one: one[0]
        )
    return {uid for _, uid in found.values()}


def _owner(pod: Obj) -> str | None:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((each["uid"] for each in owners if each.get("controller")), None)


def _refusals(state: ClusterState) -> Iterator[Blocker]:
    """Pods that could not be made."""
    for each in state.replica_sets:
        for condition in (each.get("status") or {}).get("conditions") or ():
            if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
                message = _short(condition.get("message", ""))
                yield Blocker(_part(each), f"pods are refused: {message}", admission_fix(message))


def _of_pods(state: ClusterState) -> Iterator[Blocker]:
    for pod in state.pods:
        status = pod.get("status") or {}
        for condition in status.get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
                fix = "add nodes or free capacity; the agents need 50m CPU and 128Mi of memory each"
                yield Blocker(_part(pod), f"no node for the pod: {_short(condition.get('message', ''))}", fix)
        for container in status.get("containerStatuses") or ():
            yield from _of_container(pod, container, state.logs.get(pod["metadata"]["name"], ""))


def _of_container(pod: Obj, container: Obj, log: str) -> Iterator[Blocker]:
    part, waiting = _part(pod), (container.get("state") or {}).get("waiting") or {}
    reason, message = waiting.get("reason", ""), _short(waiting.get("message", ""))
    if reason in _IMAGE:
        yield Blocker(part, f"{reason}: {message or container.get('image', '')}", image_fix(message))
    elif reason in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
        yield Blocker(part, f"{reason}: {message}", "run the join again; it puts the Secret and the settings back")
    elif reason == "CrashLoopBackOff" or container.get("restartCount", 0) > 0:
        ended = (container.get("lastState") or {}).get("terminated") or {}
        text = last_problem(ended.get("message") or log) or _ending(ended)
        fix = problem_fix(text) or f"kubectl -n {NAMESPACE} logs {pod['metadata']['name']} --previous"
        yield Blocker(part, f"it stops again and again: {text}", fix)
    elif not container.get("ready") and (text := last_problem(log)):
        yield Blocker(part, text, problem_fix(text))


def _ending(ended: Mapping[str, Any]) -> str:
    code = f"exit code {ended.get('exitCode', 'unknown')}"
    last = str(ended.get("message") or "").strip().rpartition("\n")[2]
    return f"{code}: {_short(last)}" if last else code


def image_fix(message: str) -> str:
    """What to do when an image cannot be pulled."""
    low = message.lower()
    if "image table" in low:
        return "pods of this cluster are processes: name the image's program in images.yaml of the cluster's directory"
    if any(word in low for word in ("unauthorized", "authentication", "denied", "forbidden", "401", "403")):
        return (
            f"create a registry Secret in namespace {NAMESPACE} (kubectl -n {NAMESPACE} create secret docker-registry "
            "NAME …) and join with --pull-secret NAME"
        )
    if any(word in low for word in ("no such host", "timeout", "refused", "x509", "certificate", "unreachable")):
        return "the nodes cannot reach the registry: check their network, proxy and the registry's certificate"
    return "push the image to this name, or join with the right --image REGISTRY/NAME:TAG"


def last_problem(log: str) -> str:
    """The reason in the last warning or error of a log, one JSON object per line, or the last `error:` line."""
    for line in reversed(log.splitlines()):
        if line.startswith("error: "):
            return _short(line.removeprefix("error: "))
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and str(entry.get("level")) in ("warning", "error", "critical"):
            return _short(_told(entry))
    return ""


def _told(entry: Mapping[str, Any]) -> str:
    text = str(entry.get("message") or "")
    reason = str(entry.get("reason") or entry.get("error") or "")
    return f"{text}: {reason}" if text and reason else text or reason


_FIXES = (
    (
        r"api server cannot be used",
        "the pod does not reach its own cluster's API server at the Service default/kubernetes: check the service "
        "proxy of the nodes, and network policies",
    ),
    (r"the proxy", "check --https-proxy and --no-proxy, and that the proxy allows the control plane's host and port"),
    (
        r"not yet valid|expired",
        "synchronize the clocks of the cluster's nodes and of the control plane (NTP); a certificate that has "
        "expired is renewed by a restart of its server",
    ),
    (
        r"not trusted|certificate|tls handshake",
        "the server's certificate must be signed by the CA in the join file: join with --ca FILE for another CA, and "
        "name the server in its certificate (--tls-san)",
    ),
    (
        r'host ".*" not found|name or service not known|getaddrinfo',
        "the URL must resolve inside the cluster: give one that does with --advertise-url, or --navigator-url",
    ),
    (
        r"connection refused|no route|no connection|unreachable|timed out|no answer|within \d+",
        "the pods must reach the control plane and the navigator: allow the egress, give a URL that is reachable with "
        "--advertise-url or --navigator-url, or a proxy with --https-proxy",
    ),
    (
        r"forbidden|cannot \w+ resource|not allowed",
        "the agent's account lacks rights: join again as an administrator, which applies its roles",
    ),
    (r"token|unauthenticated|unauthorized", "the token was revoked or replaced: join again, which makes a new one"),
    (
        r"unknown command|no such command|no such option|not a setting",
        "the image is of another release than this command: build and use the same",
    ),
)


def problem_fix(text: str) -> str:
    """What to do about a problem that an agent logs; empty if it is not known."""
    low = text.lower()
    return next((fix for pattern, fix in _FIXES if re.search(pattern, low)), "")


def _part(obj: Obj) -> str:
    labels = obj["metadata"].get("labels") or {}
    return str(labels.get(_NAME) or obj["metadata"]["name"])


def _short(text: str) -> str:
    text = " ".join(str(text).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def progress(deployments: Iterable[Obj], names: Iterable[str], told: Mapping[str, str]) -> list[str]:
    """One line per part: its pods, and what the fleet knows of it."""
    found = {each["metadata"]["name"]: each for each in deployments}
    lines = []
    for name in names:
        status = (found.get(name) or {}).get("status") or {}
        wanted = ((found.get(name) or {}).get("spec") or {}).get("replicas", 1)
        more = f", {told[name]}" if told.get(name) else ""
        lines.append(f"{name}: {status.get('availableReplicas', 0)} of {wanted} pods available{more}")
    return lines
