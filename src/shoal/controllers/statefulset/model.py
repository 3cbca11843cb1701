"""Data of a StatefulSet's plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shoal.kube.objects import Obj

POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the pod, after its missing claims."""

    pod: Obj
    claims: tuple[Obj, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateClaims:
    """Create missing claims of an existing pod."""

    pod: Obj
    claims: tuple[Obj, ...]


@dataclass(frozen=True, slots=True)
class UpdatePod:
    """Correct the identity of the pod."""

    pod: Obj


@dataclass(frozen=True, slots=True)
class UpdateClaim:
    """Change the owner references of the claim."""

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
    parallel: bool  # whether the actions are independent of each other
    status: Obj
    recheck_s: float | None = None


def is_parallel(owner: Obj) -> bool:
    return bool(owner["spec"].get("podManagementPolicy") == "Parallel")


def start_of(owner: Obj) -> int:
    return (owner["spec"].get("ordinals") or {}).get("start") or 0


def parent_and_ordinal(name: str) -> tuple[str, int]:
    """``web-3`` is number 3 of ``web``; the number is -1 for other names."""
    parent, dash, digits = name.rpartition("-")
    if not dash or not (digits.isascii() and digits.isdigit()) or int(digits) >= 2**31:
        return "", -1
    return parent, int(digits)


def ordinal_of(pod: Obj) -> int:
    return parent_and_ordinal(pod["metadata"]["name"])[1]
