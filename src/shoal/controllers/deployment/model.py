"""Data of a Deployment's plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shoal.controllers.pods.amounts import scaled
from shoal.controllers.replicaset.plan import replicas_of
from shoal.kube.objects import Obj

HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
REVISION_HISTORY: Final = "deployment.kubernetes.io/revision-history"
DESIRED_REPLICAS: Final = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS: Final = "deployment.kubernetes.io/max-replicas"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
ROLLBACK_TO: Final = "deprecated.deployment.rollback.to"
NOT_COPIED: Final = frozenset({LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, ROLLBACK_TO})

NO_LIMIT: Final = 2**31 - 1  # of the progress deadline and the history


@dataclass(frozen=True, slots=True)
class CreateReplicaSet:
    obj: Obj


@dataclass(frozen=True, slots=True)
class UpdateReplicaSet:
    """Scale a ReplicaSet or change its annotations; ``obj`` has the resourceVersion of the decision."""

    obj: Obj
    before: int  # its current replicas


@dataclass(frozen=True, slots=True)
class DeleteReplicaSet:
    obj: Obj


Action = CreateReplicaSet | UpdateReplicaSet | DeleteReplicaSet


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentPlan:
    """The next step of a Deployment."""

    actions: tuple[Action, ...] = ()
    status: Obj
    revision: str = ""  # new value of its revision annotation; empty: unchanged
    recheck_s: float | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a rollout may deviate from the desired number of pods."""

    replicas: int
    surge: int
    unavailable: int

    @property
    def most(self) -> int:
        return self.replicas + self.surge

    @property
    def least_available(self) -> int:
        return self.replicas - self.unavailable


def bounds_of(deployment: Obj) -> Bounds:
    """Surge is rounded up and unavailability down; if both are 0, one pod may be unavailable, so that a rollout can
    progress."""
    replicas = replicas_of(deployment)
    strategy = deployment["spec"].get("strategy") or {}
    if strategy.get("type") != "RollingUpdate":
        return Bounds(replicas, 0, 0)
    rolling = strategy.get("rollingUpdate") or {}
    surge = scaled(rolling.get("maxSurge"), replicas, round_up=True)
    unavailable = scaled(rolling.get("maxUnavailable"), replicas, round_up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return Bounds(replicas, surge, min(unavailable, replicas))


def progress_deadline_s(deployment: Obj) -> int | None:
    found = deployment["spec"].get("progressDeadlineSeconds")
    return None if found is None or found == NO_LIMIT else int(found)


def available_of(replica_set: Obj) -> int:
    return (replica_set.get("status") or {}).get("availableReplicas") or 0


def actual_of(replica_set: Obj) -> int:
    return (replica_set.get("status") or {}).get("replicas") or 0


def annotation_of(obj: Obj, name: str) -> str:
    found: str = (obj["metadata"].get("annotations") or {}).get(name) or ""
    return found


def number_of(obj: Obj, name: str) -> int | None:
    """The value of an annotation as a number of 0 or more; None if it is not one."""
    text = annotation_of(obj, name)
    if not (text.isascii() and text.isdigit()):
        return None
    number = int(text)
    return number if number <= NO_LIMIT else None


def revision_number(replica_set: Obj) -> int:
    text = annotation_of(replica_set, REVISION)
    return int(text) if text.isascii() and text.isdigit() else 0
