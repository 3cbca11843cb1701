"""Observes the objects and pods of each deployment in the cluster; implements ``Observer``.

Pods are watched themselves, because a pod that crashes changes nothing in its Deployment. They are found by the labels
of their template, which are those of the Deployment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from shoal.base.clock import Clock
from shoal.base.tasks import run_all
from shoal.client import Client, Scope, builtin
from shoal.krane import labels
from shoal.krane.deployments.adoptable import current_hash, recorded_hash
from shoal.krane.deployments.adopted_pods import AdoptedPods
from shoal.krane.deployments.apply import KIND, PARTS, scopes_of
from shoal.krane.deployments.instances import fault_of, instance, is_instance, is_ready
from shoal.krane.deployments.running_jobs import CheckJobs
from shoal.krane.model import Report
from shoal.krane.objects.conditions import overdue, replica_failure
from shoal.krane.objects.memory import SECRET, Memory
from shoal.krane.objects.pod_events import PodEvents
from shoal.krane.objects.watching import Watched
from shoal.krane.owner import Owner
from shoal.kube.objects import Obj
from shoal.reconcile import ObjectKey
from shoal.wire.fleet.v1 import cluster_pb as pb

_PODS, _NODES = builtin("pods"), builtin("nodes")
_POD_METADATA = (
    "name", "namespace", "uid", "resourceVersion", "labels", "creationTimestamp", "deletionTimestamp",
)  # fmt: skip
_POD_STATUS = ("phase", "podIP", "startTime", "conditions", "initContainerStatuses", "containerStatuses")
_WATCHED = tuple(kind for kind in PARTS if kind.kind != SECRET)
_SECRETS = next(kind for kind in PARTS if kind.kind == SECRET)


def only_labels(node: Obj) -> Obj:
    """A transform: of a node only its zone is asked for."""
    about = node["metadata"]
    kept = {name: about[name] for name in ("name", "uid", "resourceVersion", "labels") if name in about}
    return {"metadata": kept}


def only_shown(pod: Obj) -> Obj:
    """A transform: of a pod only what a report is made of."""
    about, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    kept = {name: about[name] for name in _POD_METADATA if name in about}
    if secrets := (about.get("annotations") or {}).get(labels.SECRETS):
        kept["annotations"] = {labels.SECRETS: secrets}
    return {
        "metadata": kept,
        "spec": {
            "nodeName": spec.get("nodeName"),
            "containers": [
                {name: each[name] for name in ("name", "ports", "resources") if name in each}
                for each in spec.get("containers") or ()
            ],
        },
        "status": {name: status[name] for name in _POD_STATUS if name in status},
    }


@dataclass(frozen=True, slots=True)
class _Seen:
    """An instance, and what it was made of."""

    pod: Obj
    node: Mapping[str, str]
    secrets: str
    event: tuple[str, str]
    instance: pb.Instance


class DeploymentObserver:
    def __init__(
        self, client: Client, owner: Owner, memory: Memory, jobs: CheckJobs, *, clock: Clock,
        random: Callable[[], float], namespaces: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """``namespaces`` are the only ones that the agent may read; none: all."""
        self._namespaces = tuple(namespaces)
        self._client = client
        self._clock = clock
        self._make = partial(Watched, client, clock=clock, random=random)
        self._events: PodEvents | None = None
        self._owner = owner
        self._memory = memory
        self._jobs = jobs
        self._watched = self._make()
        self._adopted: AdoptedPods | None = None
        self._random = random
        self._instances: dict[str, dict[str, _Seen]] = {}  # by key and name, as they were reported last

    async def run(self, changed: Callable[[str], None]) -> None:
        self._watched = watched = self._make()
        scopes = scopes_of(self._namespaces, labels.selector(self._owner, KIND))
        watched.parts(_WATCHED, *scopes)
        watched.secrets(_SECRETS, scopes)
        watched.add_each(_PODS, scopes, only_shown)
        watched.add(_NODES, Scope(), only_labels)
        self._memory.caches = watched.caches
        self._events = events = PodEvents(
            self._client, clock=self._clock, unexplained=self._unexplained, changed=partial(_tell, changed)
        )
        self._adopted = adopted = AdoptedPods(
            self._client, watched.caches["Deployment"], only_shown, clock=self._clock, random=self._random
        )
        parts = {
            "watch": watched.run(changed), "adopted": adopted.run(changed),
            "events": events.run(), "jobs": self._jobs.run(changed),
        }  # fmt: skip
        await run_all(parts)

    def _unexplained(self) -> Iterable[Obj]:
        for pod in self._watched.caches["Pod"]:
            status = pod.get("status") or {}
            if is_instance(pod) and not is_ready(status) and not fault_of(status)[0]:
                yield pod

    def report(self, key: str) -> pb.DeploymentReport | None:
        root = self._watched.first("Deployment", key, self._memory)
        if root is None:
            self._instances.pop(key, None)
            return None
        found = self._watched.of("Pod", key) if not labels.is_adopted(root) else self._adopted_pods(key)
        pods = sorted(found, key=lambda pod: str(pod["metadata"]["name"]))
        here = root["metadata"]["namespace"]
        instances = self._instances_of(
            key,
            [pod for pod in pods if is_instance(pod) and pod["metadata"].get("namespace") == here],
            _secrets(root),
        )
        desired, available = root["spec"].get("replicas") or 0, (root.get("status") or {}).get("availableReplicas") or 0
        reason, message = _fault(root, instances) if available < desired else ("", "")
        return pb.DeploymentReport(
            desired_replicas=desired,
            available_replicas=available,
            instances=instances,
            drift=self._memory.drift(key) or self._missing_secret(key, root) or self._other_template(key, root),
            live_name=root["metadata"]["name"],
            reason=reason,
            message=message,
            check_jobs=self._jobs.results(key),
        )

    def _adopted_pods(self, key: str) -> Iterable[Obj]:
        return self._adopted.of(key) if self._adopted is not None else ()

    def _other_template(self, key: str, root: Obj) -> list[str]:
        """Others have changed the template of an adopted Deployment: its Service has to follow."""
        if not labels.is_adopted(root) or (known := recorded_hash(root)) == current_hash(
            self._adopted_pods(key), known
        ):
            return []
        return ["Deployment.spec.template"]

    def _missing_secret(self, key: str, root: Obj) -> list[str]:
        """What an agent that has just started sees of a Secret that was deleted while none ran."""
        seen = self._watched.caches[SECRET]
        if self._memory.has_written(key) or not _secrets(root) or not seen.synced.is_set():
            return []
        here = root["metadata"]["namespace"], root["metadata"]["name"]
        return [] if seen.get(ObjectKey(*here)) is not None else [f"{SECRET}.(deleted)"]

    def _instances_of(self, key: str, pods: list[Obj], secrets: str) -> list[pb.Instance]:
        before, now = self._instances.get(key, {}), dict[str, _Seen]()
        for pod in pods:
            name, node = str(pod["metadata"]["name"]), self._node_labels(pod)
            event = self._events.warning(pod) if self._events is not None else ("", "")
            known = before.get(name)
            if known is None or known.pod is not pod or (known.node, known.secrets, known.event) != (
                node, secrets, event,
            ):  # fmt: skip
                known = _Seen(pod, node, secrets, event, instance(pod, node, secrets, event))
            now[name] = known
        self._instances[key] = now
        return [seen.instance for seen in now.values()]

    def delivered(self, report: Report) -> None:
        """Nothing waits for it."""

    def keys(self) -> Iterable[str]:
        return self._watched.keys(("Deployment",))

    @property
    def synced(self) -> bool:
        return self._watched.synced and self._adopted is not None and self._adopted.synced

    @property
    def refusal(self) -> str:
        return self._watched.refusal

    def _node_labels(self, pod: Obj) -> dict[str, str]:
        name = (pod.get("spec") or {}).get("nodeName")
        node = self._watched.caches["Node"].get(ObjectKey("", name)) if name else None
        return (node["metadata"].get("labels") or {}) if node is not None else {}


def _tell(changed: Callable[[str], None], pod: Obj) -> None:
    if (key := labels.key_of(pod)) is not None:
        changed(key)


def _fault(root: Obj, instances: Iterable[pb.Instance]) -> tuple[str, str]:
    """What instances do not say themselves."""
    found = replica_failure(root)
    if found[0] or any(each.reason not in ("", "NotReady") for each in instances):
        return found
    return overdue(root)


def _secrets(root: Obj) -> str:
    """Which versions of its secrets the pods of a Deployment start with."""
    template = root["spec"].get("template") or {}
    return str(((template.get("metadata") or {}).get("annotations") or {}).get(labels.SECRETS) or "")
