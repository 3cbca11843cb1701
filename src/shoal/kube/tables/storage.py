"""Tables of volumes, claims, storage classes, drivers and devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shoal.kube.objects import Obj
from shoal.kube.tables.printer import AGE, NAME, Cells, Printer, column
from shoal.kube.tables.text import NONE, UNSET, age, deleting, joined, metadata, name, spec, status

_ACCESS_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _access_modes(modes: Iterable[str] | None) -> str:
    found = set(modes or ())
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in found)


def _class(obj: Obj) -> str:
    annotations = metadata(obj).get("annotations") or {}
    old = annotations.get("volume.beta.kubernetes.io/storage-class")
    return old if old is not None else spec(obj).get("storageClassName") or ""


def _size(holder: Obj) -> str:
    return str((holder.get("capacity") or {}).get("storage", "0"))


def _phase(obj: Obj) -> str:
    return "Terminating" if deleting(obj) else status(obj).get("phase") or ""


def _optional(holder: Obj, field: str) -> str:
    value = holder.get(field)
    return UNSET if value is None else str(value)


def _volume(obj: Obj, now: float) -> Cells:
    wanted = spec(obj)
    claim = wanted.get("claimRef")
    return [
        name(obj),
        _size(wanted),
        _access_modes(wanted.get("accessModes")),
        wanted.get("persistentVolumeReclaimPolicy") or "",
        _phase(obj),
        f"{claim.get('namespace') or ''}/{claim.get('name') or ''}" if claim else "",
        _class(obj),
        _optional(wanted, "volumeAttributesClassName"),
        status(obj).get("reason") or "",
        age(obj, now),
        _optional(wanted, "volumeMode"),
    ]


def _claim(obj: Obj, now: float) -> Cells:
    wanted, current = spec(obj), status(obj)
    volume = wanted.get("volumeName") or ""
    return [
        name(obj),
        _phase(obj),
        volume,
        _size(current) if volume else "",
        _access_modes(current.get("accessModes")) if volume else "",
        _class(obj),
        _optional(wanted, "volumeAttributesClassName"),
        age(obj, now),
        _optional(wanted, "volumeMode"),
    ]


def _storage_class(obj: Obj, now: float) -> Cells:
    annotations = metadata(obj).get("annotations") or {}
    default = "true" in (
        annotations.get("storageclass.kubernetes.io/is-default-class"),
        annotations.get("storageclass.beta.kubernetes.io/is-default-class"),
    )
    return [
        f"{name(obj)} (default)" if default else name(obj),
        obj.get("provisioner") or "",
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        bool(obj.get("allowVolumeExpansion")),
        age(obj, now),
    ]


def _attributes_class(obj: Obj, now: float) -> Cells:
    return [name(obj), obj.get("driverName") or "", age(obj, now)]


def _attachment(obj: Obj, now: float) -> Cells:
    wanted = spec(obj)
    return [
        name(obj),
        wanted.get("attacher") or "",
        (wanted.get("source") or {}).get("persistentVolumeName") or "",
        wanted.get("nodeName") or "",
        bool(status(obj).get("attached")),
        age(obj, now),
    ]


def _driver(obj: Obj, now: float) -> Cells:
    wanted = spec(obj)
    tokens = wanted.get("tokenRequests")
    return [
        name(obj),
        wanted.get("attachRequired", True),
        bool(wanted.get("podInfoOnMount")),
        bool(wanted.get("storageCapacity")),
        UNSET if tokens is None else joined(token.get("audience") or "" for token in tokens),
        bool(wanted.get("requiresRepublish")),
        joined(wanted.get("volumeLifecycleModes")) or NONE,
        age(obj, now),
    ]


def _driver_node(obj: Obj, now: float) -> Cells:
    return [name(obj), len(spec(obj).get("drivers") or ()), age(obj, now)]


def _capacity(obj: Obj, now: float) -> Cells:
    return [name(obj), obj.get("storageClassName") or "", _optional(obj, "capacity")]


def _name_and_age(obj: Obj, now: float) -> Cells:
    return [name(obj), age(obj, now)]


def _device_claim(obj: Obj, now: float) -> Cells:
    current = status(obj)
    states = ["deleted"] if deleting(obj) else []
    if current.get("allocation") is not None:
        states.append("allocated")
        if current.get("reservedFor"):
            states.append("reserved")
    elif not states:
        states.append("pending")
    return [name(obj), ",".join(states), age(obj, now)]


def _device_slice(obj: Obj, now: float) -> Cells:
    wanted = spec(obj)
    return [
        name(obj),
        wanted.get("nodeName") or "",
        wanted.get("driver") or "",
        (wanted.get("pool") or {}).get("name") or "",
        age(obj, now),
    ]


def _migration(obj: Obj, now: float) -> Cells:
    resource = spec(obj).get("resource") or {}
    parts = [part for part in (resource.get("resource"), resource.get("group")) if part]
    met = [c["type"] for c in status(obj).get("conditions") or () if c.get("status") == "True"]
    states = [kind for kind in met if kind in ("Running", "Failed", "Succeeded")]
    return [name(obj), ".".join(parts), states[-1] if states else "Unknown"]


PRINTERS: Final = {
    ("storagemigration.k8s.io", "StorageVersionMigration"): Printer(
        [NAME, column("Resource", "Resource to migrate."), column("Status", "Status of the migration.")], _migration
    ),
    ("", "PersistentVolume"): Printer(
        [
            NAME,
            column("Capacity", "Size of the volume."),
            column("Access Modes", "How it can be mounted."),
            column("Reclaim Policy", "What happens to it after its claim is deleted."),
            column("Status", "Phase of the volume."),
            column("Claim", "Claim it is bound to."),
            column("StorageClass", "Class of the volume."),
            column("VolumeAttributesClass", "Class of its adjustable attributes."),
            column("Reason", "Why it is in that state."),
            AGE,
            column("VolumeMode", "File system or raw block device.", wide=True),
        ],
        _volume,
    ),
    ("", "PersistentVolumeClaim"): Printer(
        [
            NAME,
            column("Status", "Phase of the claim."),
            column("Volume", "Volume it is bound to."),
            column("Capacity", "Size of that volume."),
            column("Access Modes", "How that volume can be mounted."),
            column("StorageClass", "Class it asks for."),
            column("VolumeAttributesClass", "Class of adjustable attributes it asks for."),
            AGE,
            column("VolumeMode", "File system or raw block device.", wide=True),
        ],
        _claim,
    ),
    ("storage.k8s.io", "StorageClass"): Printer(
        [
            NAME,
            column("Provisioner", "Driver that provisions the volumes."),
            column("ReclaimPolicy", "What happens to volumes after their claim is deleted."),
            column("VolumeBindingMode", "When claims are bound."),
            column("AllowVolumeExpansion", "Whether volumes can grow."),
            AGE,
        ],
        _storage_class,
    ),
    ("storage.k8s.io", "VolumeAttributesClass"): Printer(
        [NAME, column("DriverName", "Driver of the attributes."), AGE], _attributes_class
    ),
    ("storage.k8s.io", "VolumeAttachment"): Printer(
        [
            NAME,
            column("Attacher", "Driver that attaches the volume.", form="name"),
            column("PV", "Volume to attach."),
            column("Node", "Node to attach it to."),
            column("Attached", "Whether it is attached.", "boolean"),
            AGE,
        ],
        _attachment,
    ),
    ("storage.k8s.io", "CSIDriver"): Printer(
        [
            NAME,
            column("AttachRequired", "Whether volumes are attached before they are mounted.", "boolean"),
            column("PodInfoOnMount", "Whether the driver gets data of the pod.", "boolean"),
            column("StorageCapacity", "Whether the driver reports free capacity.", "boolean"),
            column("TokenRequests", "Audiences of the tokens the driver gets."),
            column("RequiresRepublish", "Whether mounts are refreshed from time to time.", "boolean"),
            column("Modes", "Kinds of volumes the driver has."),
            AGE,
        ],
        _driver,
    ),
    ("storage.k8s.io", "CSINode"): Printer(
        [NAME, column("Drivers", "Drivers that run on the node.", "integer"), AGE], _driver_node
    ),
    ("storage.k8s.io", "CSIStorageCapacity"): Printer(
        [NAME, column("StorageClassName", "Storage class of the capacity."), column("Capacity", "Free capacity.")],
        _capacity,
    ),
    ("resource.k8s.io", "DeviceClass"): Printer([NAME, AGE], _name_and_age),
    ("resource.k8s.io", "ResourceClaim"): Printer([NAME, column("State", "State of the claim."), AGE], _device_claim),
    ("resource.k8s.io", "ResourceClaimTemplate"): Printer([NAME, AGE], _name_and_age),
    ("resource.k8s.io", "ResourceSlice"): Printer(
        [
            NAME,
            column("Node", "Node the devices belong to."),
            column("Driver", "Driver of the devices."),
            column("Pool", "Pool the devices belong to."),
            AGE,
        ],
        _device_slice,
    ),
}
