"""The next step of a claim and of a volume. Each step is one write; its change event leads to the next."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.controllers.persistentvolume.config import PROVISIONER
from shoal.controllers.persistentvolume.model import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    CLAIM_PROTECTION,
    SELECTED_NODE,
    VOLUME_PROTECTION,
    AskProvisioner,
    Bind,
    ClaimStep,
    Free,
    Grow,
    Nothing,
    Provision,
    RecordEvent,
    Release,
    Reserve,
    SetPhase,
    VolumeStep,
    WriteStatus,
    capacity,
    class_of,
    is_ours,
    names_claim,
    notes_of,
    requested,
)
from shoal.kube.labels import from_object
from shoal.kube.objects import Obj

NOTHING = Nothing()


def claim_step(claim: Obj, volume: Obj | None, volumes: Iterable[Obj], storage_class: Obj | None) -> ClaimStep:
    """``volume`` is the claim's volume, ``volumes`` are all candidates, ``storage_class`` is the claim's."""
    if claim["spec"].get("volumeName"):
        return _bound_step(claim, volume)
    delayed = storage_class is not None and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
    found = best_match(claim, volumes, only_reserved=delayed)
    if found is not None:
        has_uid = (found["spec"].get("claimRef") or {}).get("uid")
        return Bind(found) if has_uid else Reserve(found)
    if delayed and not notes_of(claim).get(SELECTED_NODE):
        return RecordEvent("WaitForFirstConsumer", "waiting for first consumer to be created before binding")
    return _provisioning_step(claim, storage_class)


def _provisioning_step(claim: Obj, storage_class: Obj | None) -> ClaimStep:
    name = class_of(claim)
    if not name:
        return RecordEvent(
            "FailedBinding", "no persistent volumes available for this claim and no storage class is set"
        )
    if storage_class is None:
        return RecordEvent("ProvisioningFailed", f'storageclass.storage.k8s.io "{name}" not found', warning=True)
    provisioner = storage_class["provisioner"]
    if provisioner == PROVISIONER:
        if claim["spec"].get("selector"):
            return RecordEvent("ProvisioningFailed", "claim.Spec.Selector is not supported", warning=True)
        return Provision()
    if provisioner == "kubernetes.io/no-provisioner":
        return RecordEvent("FailedBinding", "no persistent volumes available for this claim", warning=True)
    return AskProvisioner(provisioner)


def _bound_step(claim: Obj, volume: Obj | None) -> ClaimStep:
    was_bound = BIND_COMPLETED in notes_of(claim)
    if volume is None:
        if not was_bound:
            return NOTHING
        return _lost(claim, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
    reference = volume["spec"].get("claimRef")
    if not reference:
        fault = mismatch(claim, volume)
        name = volume["metadata"]["name"]
        if fault:
            return RecordEvent("VolumeMismatch", f'Cannot bind to requested volume "{name}": {fault}', warning=True)
        return Reserve(volume)
    if not names_claim(volume, claim):
        if was_bound:
            message = "Two claims are bound to the same volume, this one is bound incorrectly"
            return _lost(claim, "ClaimMisbound", message)
        name = volume["metadata"]["name"]
        return RecordEvent("FailedBinding", f'volume "{name}" already bound to a different claim.', warning=True)
    if not reference.get("uid"):
        return Reserve(volume)
    if not was_bound:
        return Bind(volume)
    if capacity(volume) < requested(claim) and is_ours(volume, PROVISIONER):
        return Grow(volume)
    status = claim.get("status") or {}
    wanted = {
        **status, "phase": "Bound", "accessModes": volume["spec"]["accessModes"],
        "capacity": {"storage": volume["spec"]["capacity"]["storage"]},
    }  # fmt: skip
    return NOTHING if wanted == status else WriteStatus(wanted)


def _lost(claim: Obj, reason: str, message: str) -> ClaimStep:
    if (claim.get("status") or {}).get("phase") == "Lost":
        return NOTHING
    return WriteStatus({"phase": "Lost"}, reason, message)


def best_match(claim: Obj, volumes: Iterable[Obj], *, only_reserved: bool) -> Obj | None:
    """The volume reserved for the claim, else the smallest free one that matches."""
    selector = claim["spec"].get("selector")
    selects = from_object(selector).matches if selector else None
    best: Obj | None = None
    for volume in volumes:
        if volume["metadata"].get("deletionTimestamp") or mismatch(claim, volume):
            continue
        if volume["spec"].get("claimRef"):
            if names_claim(volume, claim):
                return volume
            continue
        if only_reserved or (volume.get("status") or {}).get("phase") != "Available":
            continue
        if selects is not None and not selects(volume["metadata"].get("labels") or {}):
            continue
        if best is None or _order(volume) < _order(best):
            best = volume
    return best


def _order(volume: Obj) -> tuple[int, str]:
    return capacity(volume).nano(), volume["metadata"]["name"]


def mismatch(claim: Obj, volume: Obj) -> str:
    """Why a volume does not match a claim; empty if it does."""
    spec, wanted = volume["spec"], claim["spec"]
    if capacity(volume) < requested(claim):
        return "requested PV is too small"
    if class_of(volume) != class_of(claim):
        return "storageClassName does not match"
    if (spec.get("volumeMode") or "Filesystem") != (wanted.get("volumeMode") or "Filesystem"):
        return "incompatible volumeMode"
    if not set(wanted.get("accessModes") or ()) <= set(spec.get("accessModes") or ()):
        return "incompatible accessMode"
    return ""


def volume_step(volume: Obj, claim: Obj | None) -> VolumeStep:
    """``claim`` is the volume's claim, if it is in the cache."""
    reference, phase = volume["spec"].get("claimRef"), (volume.get("status") or {}).get("phase")
    if not reference or not reference.get("uid"):
        return _phase("Available", phase)
    if claim is None or claim["metadata"]["uid"] != reference["uid"]:
        return Release()
    bound_to = claim["spec"].get("volumeName") or ""
    if bound_to == volume["metadata"]["name"]:
        return _phase("Bound", phase)
    if not bound_to:
        return NOTHING if phase in ("Available", "Pending") else _phase("Available", phase)
    if is_ours(volume, PROVISIONER):
        return Release()
    return Free() if BOUND_BY_CONTROLLER in notes_of(volume) else _phase("Available", phase)


def _phase(wanted: str, present: str | None) -> VolumeStep:
    return NOTHING if wanted == present else SetPhase(wanted)


def reclaims(volume: Obj) -> bool:
    """Whether a released volume must be deleted by this provisioner."""
    return volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete" and is_ours(volume, PROVISIONER)


# protection: finalizers


def claim_finalizers(claim: Obj, used: bool) -> list[str]:
    return _protected(claim, CLAIM_PROTECTION, used)


def volume_finalizers(volume: Obj) -> list[str]:
    return _protected(volume, VOLUME_PROTECTION, (volume.get("status") or {}).get("phase") == "Bound")


def _protected(obj: Obj, finalizer: str, used: bool) -> list[str]:
    """The finalizers of an object: protected from the start, released when it is deleted and not in use."""
    present = list(obj["metadata"].get("finalizers") or ())
    if not obj["metadata"].get("deletionTimestamp"):
        return present if finalizer in present else [*present, finalizer]
    return present if used else [each for each in present if each != finalizer]


def claims_of_pod(pod: Obj) -> list[str]:
    """The names of the claims that a pod uses, including those created for it."""
    found: list[str] = []
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            found.append(volume["persistentVolumeClaim"]["claimName"])
        elif volume.get("ephemeral"):
            found.append(f"{pod['metadata']['name']}-{volume['name']}")
    return found


def folder_volume(claim: Obj, storage_class: Obj, path: str, pinned: bool) -> Obj:
    """A new folder volume for a claim."""
    about, spec = claim["metadata"], claim["spec"]
    reference = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": about["namespace"], "name": about["name"],
        "uid": about["uid"], "resourceVersion": about["resourceVersion"],
    }  # fmt: skip
    made: Obj = {
        "capacity": {"storage": spec["resources"]["requests"]["storage"]},
        "accessModes": spec["accessModes"],
        "volumeMode": "Filesystem",
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
        "storageClassName": storage_class["metadata"]["name"],
        "hostPath": {"path": path, "type": "DirectoryOrCreate"},
        "claimRef": reference,
    }
    node = notes_of(claim).get(SELECTED_NODE)
    if pinned and node:
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
        made["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    if storage_class.get("mountOptions"):
        made["mountOptions"] = storage_class["mountOptions"]
    metadata: Obj = {
        "name": f"pvc-{about['uid']}",
        "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
        "finalizers": [VOLUME_PROTECTION],
    }
    return {"metadata": metadata, "spec": made}
