"""What a StatefulSet's plan is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shoal.kube.objects import Obj

POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the pod, after those of its claims that are missing."""

    pod: Obj
    claims: tuple[Obj, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateClaims:
    """Claims of a pod that exists and waits for them."""

    pod: Obj
    claims: tuple[Obj, ...]


@dataclass(frozen=True, slots=True)
class UpdatePod:
    """Give the pod the identity that it should have."""

    pod: Obj


@dataclass(frozen=True, slots=True)
class UpdateClaim:
    """Whose deletion takes the claim along has changed."""

    pod: Obj
    claim: Obj


@dataclass(frozen=True, slots=True)
class DeletePod:
    pod: Obj


@dataclass(frozen=True, slots=True)
class Refuse:
    """The pod cannot be created now."""

    pod: Obj
    why: str


Action = CreatePod | CreateClaims | UpdatePod | UpdateClaim | DeletePod | Refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulSetPlan:
    actions: tuple[Action, ...]
    parallel: bool  # the actions do not depend on each other
    status: Obj
    recheck_s: float | None = None


def is_parallel(owner: Obj) -> bool:
    return bool(owner["spec"].get("podManagementPolicy") == "Parallel")


def start_of(owner: Obj) -> int:
    return (owner["spec"].get("ordinals") or {}).get("start") or 0


def parent_and_ordinal(name: str) -> tuple[str, int]:
    """``web-3`` is number 3 of ``web``; the number is -1 for names that are not like this."""
    parent, dash, digits = name.rpartition("-")
    if not dash or not (digits.isascii() and digits.isdigit()) or int(digits) >= 2**31:
        return "", -1
    return parent, int(digits)


def ordinal_of(pod: Obj) -> int:
    return parent_and_ordinal(pod["metadata"]["name"])[1]
