"""Which pods to remove, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shoal.kube.objects import Obj

PERIOD_S: Final = 20.0
QUARANTINE_S: Final = 40.0  # a node may be registered again
TERMINATED_LIMIT: Final = 12_500
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
_FINISHED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Removal:
    pod: Obj
    why: str = ""  # written to the status of a pod that had not finished


def is_finished(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in _FINISHED


def surplus(pods: Iterable[Obj], limit: int = TERMINATED_LIMIT) -> list[Removal]:
    """Finished pods beyond the limit: evicted ones first, then the oldest."""
    finished = [pod for pod in pods if is_finished(pod)]
    if limit <= 0 or len(finished) <= limit:
        return []
    finished.sort(key=_age_order)
    return [Removal(pod) for pod in finished[: len(finished) - limit]]


def _age_order(pod: Obj) -> tuple[bool, str, str]:
    about, status = pod["metadata"], pod.get("status") or {}
    return status.get("reason") != "Evicted", about.get("creationTimestamp") or "", about["name"]


def unscheduled_ending(pods: Iterable[Obj]) -> list[Removal]:
    """Terminating pods without a node, which no kubelet will remove."""
    return [Removal(pod) for pod in pods if pod["metadata"].get("deletionTimestamp") and not _node(pod)]


def stuck_out_of_service(pods: Iterable[Obj], nodes: Mapping[str, Obj]) -> list[Removal]:
    """Terminating pods on nodes with the out-of-service taint."""
    return [
        Removal(pod)
        for pod in pods
        if pod["metadata"].get("deletionTimestamp") and _is_out_of_service(nodes.get(_node(pod)))
    ]


def _is_out_of_service(node: Obj | None) -> bool:
    if node is None:
        return False
    conditions = (node.get("status") or {}).get("conditions") or ()
    if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
        return False
    return any(taint["key"] == OUT_OF_SERVICE for taint in (node.get("spec") or {}).get("taints") or ())


def missing_nodes(names: Iterable[str], known: Mapping[str, Obj], since: Mapping[str, float], now_s: float) -> (
    dict[str, float]
):  # fmt: skip
    """The nodes that pods name but that do not exist, and since when that is known."""
    return {name: since.get(name, now_s) for name in names if name and name not in known}


def due_nodes(missing: Mapping[str, float], now_s: float) -> Sequence[str]:
    return [name for name, since_s in missing.items() if now_s - since_s >= QUARANTINE_S]


def orphaned(pods: Iterable[Obj]) -> list[Removal]:
    return [Removal(pod, "PodGC: node no longer exists") for pod in pods]


def _node(pod: Obj) -> str:
    return pod["spec"].get("nodeName") or ""
