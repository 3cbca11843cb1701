"""Fields of claims and volumes, and the possible next steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shoal.kube.objects import Obj
from shoal.kube.quantity import Quantity, parse

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
STORAGE_PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION: Final = "kubernetes.io/pv-protection"
_OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_NOTHING: Final = parse("0")


def notes_of(obj: Obj) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def class_of(obj: Obj) -> str:
    return notes_of(obj).get(_OLD_CLASS) or obj["spec"].get("storageClassName") or ""


def requested(claim: Obj) -> Quantity:
    text = ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage")
    return parse(str(text)) if text else _NOTHING


def capacity(volume: Obj) -> Quantity:
    text = (volume["spec"].get("capacity") or {}).get("storage")
    return parse(str(text)) if text else _NOTHING


def names_claim(volume: Obj, claim: Obj) -> bool:
    """Whether the volume refers to this claim: bound to it, or reserved for its name."""
    reference, about = volume["spec"].get("claimRef"), claim["metadata"]
    if not reference or reference.get("name") != about["name"] or reference.get("namespace") != about["namespace"]:
        return False
    return reference.get("uid") in (None, "", about["uid"])


def is_ours(volume: Obj, provisioner: str) -> bool:
    return notes_of(volume).get(PROVISIONED_BY) == provisioner


# the next step of a claim


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


@dataclass(frozen=True, slots=True)
class Reserve:
    """Write the claim into the volume."""

    volume: Obj


@dataclass(frozen=True, slots=True)
class Bind:
    """Write the volume into the claim; the volume has the claim already."""

    volume: Obj


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write the status; with ``reason`` and ``message`` also a warning event."""

    status: Obj
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Provision:
    """Create a volume for the claim."""


@dataclass(frozen=True, slots=True)
class AskProvisioner:
    """Annotate the claim for an external provisioner."""

    name: str


@dataclass(frozen=True, slots=True)
class Grow:
    """Grow the volume: the claim requests more than it has, and it is a folder."""

    volume: Obj


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """Nothing can be done now; record the reason as an event."""

    reason: str
    message: str
    warning: bool = False


ClaimStep = Nothing | Reserve | Bind | WriteStatus | Provision | AskProvisioner | Grow | RecordEvent


# the next step of a volume


@dataclass(frozen=True, slots=True)
class SetPhase:
    phase: str


@dataclass(frozen=True, slots=True)
class Release:
    """Its claim seems to be deleted: verify it, set the phase, and reclaim the volume if its policy says so."""


@dataclass(frozen=True, slots=True)
class Free:
    """Its claim has another volume: remove the reference."""


VolumeStep = Nothing | SetPhase | Release | Free
