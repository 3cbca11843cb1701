"""PersistentVolumes and PersistentVolumeClaims."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable
from typing import Final

from shoal.errors import FieldError, forbidden, invalid, not_supported, required
from shoal.kube.kinds.checks import (
    IMMUTABLE,
    Errors,
    check_enum,
    check_positive_quantity,
    check_required_name,
    check_syntax,
    quantity_of,
    same,
)
from shoal.kube.kinds.core.claims import (
    VOLUME_MODES,
    check_access_modes,
    check_claim_spec,
    merge_data_source,
)
from shoal.kube.kinds.core.pod_defaults import default_claim_spec, default_persistent_source
from shoal.kube.kinds.core.resources import is_native, round_up_to_milli
from shoal.kube.kinds.core.scheduling import check_node_selector
from shoal.kube.kinds.core.volumes import SOURCES, check_csi_driver_name, check_required_fields, check_storage_os
from shoal.kube.names import is_dns1123_label, is_dns1123_subdomain, is_qualified_name
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_RECLAIM_POLICIES = frozenset({"Delete", "Recycle", "Retain"})
_RESIZE_STATUSES = frozenset({
    "ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizePending", "NodeResizeInProgress",
    "NodeResizeInfeasible",
})  # fmt: skip
_OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_LABEL_RENAMES = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}


# --- sources that differ from those of pods


def _check_secret_reference(reference: Obj | None, path: str, errors: Errors) -> None:
    if reference is None:
        return
    check_required_name(reference.get("name"), is_dns1123_subdomain, f"{path}.name", errors)
    check_required_name(reference.get("namespace"), is_dns1123_label, f"{path}.namespace", errors)


def _check_csi(source: Obj, path: str, errors: Errors) -> None:
    check_csi_driver_name(source.get("driver", ""), f"{path}.driver", errors)
    check_required_fields(source, ("volumeHandle",), path, errors)
    for step in ("controllerPublish", "controllerExpand", "nodePublish", "nodeExpand"):
        _check_secret_reference(source.get(f"{step}SecretRef"), f"{path}.{step}SecretRef", errors)


def _check_local(source: Obj, path: str, errors: Errors) -> None:
    value = source.get("path", "")
    if not value:
        errors.append(required(f"{path}.path"))
    elif ".." in value.split("/"):
        errors.append(invalid(f"{path}.path", value, "must not contain '..'"))


def _check_named_secret(check: Callable[[Obj, str, Errors], None]) -> Callable[[Obj, str, Errors], None]:
    """A reference to a secret from an object without a namespace includes the namespace of the secret."""

    def checked(source: Obj, path: str, errors: Errors) -> None:
        check(source, path, errors)
        reference = source.get("secretRef")
        if reference is not None and not reference.get("namespace"):
            errors.append(required(f"{path}.secretRef.namespace"))

    return checked


def _check_azure_file(source: Obj, path: str, errors: Errors) -> None:
    check_required_fields(source, ("secretName", "shareName"), path, errors)
    if source.get("secretNamespace") == "":
        errors.append(required(f"{path}.secretNamespace"))


_PERSISTENT_SOURCES: Final[dict[str, Callable[[Obj, str, Errors], None]]] = {
    field: SOURCES[field]
    for field in (
        "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte",
        "cephfs", "iscsi", "fc", "flexVolume", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk",
        "scaleIO",
    )
} | {
    "cinder": _check_named_secret(SOURCES["cinder"]),
    "azureFile": _check_azure_file,
    "local": _check_local,
    "storageos": _check_named_secret(check_storage_os),
    "csi": _check_csi,
}  # fmt: skip


# --- PersistentVolume


def _default_volume(volume: Obj) -> None:
    status = volume.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Pending"
    spec = volume.setdefault("spec", {})
    if not spec.get("persistentVolumeReclaimPolicy"):
        spec["persistentVolumeReclaimPolicy"] = "Retain"
    if spec.get("volumeMode") is None:
        spec["volumeMode"] = "Filesystem"
    round_up_to_milli(spec.get("capacity"))
    default_persistent_source(spec)


def _prepare_volume(volume: Obj) -> None:
    volume["status"] = {"phase": "Pending"}


def _prepare_volume_status(new: Obj, old: Obj) -> None:
    status, before = new.setdefault("status", {}), old.get("status") or {}
    moved = before.get("lastPhaseTransitionTime")
    if moved and not status.get("lastPhaseTransitionTime") and status.get("phase") == before.get("phase"):
        status["lastPhaseTransitionTime"] = moved


def _validate_volume(volume: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = volume.get("spec") or {}
    check_access_modes(spec.get("accessModes"), "spec.accessModes", errors)
    _check_capacity(spec.get("capacity") or {}, errors)
    policy = spec.get("persistentVolumeReclaimPolicy")
    if policy:
        check_enum(policy, _RECLAIM_POLICIES, "spec.persistentVolumeReclaimPolicy", errors)
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        if affinity.get("required") is None:
            errors.append(required("spec.nodeAffinity.required", "must specify required node constraints"))
        else:
            check_node_selector(affinity["required"], "spec.nodeAffinity.required", errors)
    _check_source(spec, errors)
    folder = (spec.get("hostPath") or {}).get("path")
    if folder and policy == "Recycle" and posixpath.normpath(folder) in ("/", "//"):
        detail = "may not be 'recycle' for a hostPath mount of '/'"
        errors.append(forbidden("spec.persistentVolumeReclaimPolicy", detail))
    if spec.get("storageClassName"):
        check_syntax(spec["storageClassName"], is_dns1123_subdomain, "spec.storageClassName", errors)
    if spec.get("volumeMode") is not None:
        check_enum(spec["volumeMode"], VOLUME_MODES, "spec.volumeMode", errors)
    attributes = spec.get("volumeAttributesClassName")
    if attributes is not None:
        path = "spec.volumeAttributesClassName"
        check_required_name(attributes, is_dns1123_subdomain, path, errors, "an empty string is disallowed")
        if spec.get("csi") is None:
            errors.append(required("spec.csi", "has to be specified when using volumeAttributesClassName"))
    return errors


def _check_capacity(capacity: dict[str, str], errors: Errors) -> None:
    if not capacity:
        errors.append(required("spec.capacity"))
    if set(capacity) != {"storage"}:
        errors.append(not_supported("spec.capacity", capacity, ("storage",)))
    for name, text in capacity.items():
        check_positive_quantity(text, f"spec.capacity[{name}]", errors)


def _check_source(spec: Obj, errors: Errors) -> None:
    found = [field for field in _PERSISTENT_SOURCES if spec.get(field) is not None]
    if not found:
        errors.append(required("spec", "must specify a volume type"))
        return
    first, *others = found
    _PERSISTENT_SOURCES[first](spec[first], f"spec.{first}", errors)
    if first == "local" and (spec.get("nodeAffinity") or {}).get("required") is None:
        errors.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    for field in others:
        errors.append(forbidden(f"spec.{field}", "may not specify more than 1 volume type"))


def _source_of(spec: Obj) -> Obj:
    return {field: spec[field] for field in _PERSISTENT_SOURCES if spec.get(field) is not None}


def _validate_volume_update(new: Obj, old: Obj) -> list[FieldError]:
    errors = _validate_volume(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    source, was = _source_of(spec), _source_of(before)
    if "csi" in source and "csi" in was and was["csi"].get("controllerExpandSecretRef") is None:
        source["csi"] = {f: v for f, v in source["csi"].items() if f != "controllerExpandSecretRef"}
    if source != was:
        detail = "spec.persistentvolumesource is immutable after creation\n"
        shown = f"- {json.dumps(was, default=str)}\n+ {json.dumps(source, default=str)}"
        errors.append(forbidden("spec.persistentvolumesource", detail + shown))
    if spec.get("volumeMode") != before.get("volumeMode"):
        errors.append(invalid("volumeMode", spec.get("volumeMode"), IMMUTABLE))
    if before.get("nodeAffinity") is not None and not _same_affinity(spec.get("nodeAffinity"), before["nodeAffinity"]):
        detail = f"{IMMUTABLE}, except for updating from beta label to GA"
        errors.append(invalid("nodeAffinity", spec.get("nodeAffinity"), detail))
    attributes = "volumeAttributesClassName"
    if before.get(attributes) is not None and spec.get(attributes) is None:
        errors.append(forbidden(f"spec.{attributes}", "update from non-nil value to nil is forbidden"))
    return errors


def _same_affinity(new: Obj | None, old: Obj) -> bool:
    """Whether two affinities are equal; a label may change from its beta name to its final name."""
    if new == old:
        return True
    terms = ((new or {}).get("required") or {}).get("nodeSelectorTerms") or []
    before = (old.get("required") or {}).get("nodeSelectorTerms") or []
    if len(terms) != len(before):
        return False
    for term, was in zip(terms, before, strict=True):
        now, then = term.get("matchExpressions") or [], was.get("matchExpressions") or []
        if len(now) != len(then) or term.get("matchFields") != was.get("matchFields"):
            return False
        for requirement, earlier in zip(now, then, strict=True):
            renamed = {**earlier, "key": _LABEL_RENAMES.get(earlier.get("key", ""), "")}
            if requirement not in (earlier, renamed):
                return False
    return True


# --- PersistentVolumeClaim


def _default_claim(claim: Obj) -> None:
    status = claim.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Pending"
    default_claim_spec(claim.setdefault("spec", {}))


def _drop_unsupported_source(spec: Obj) -> None:
    """Remove a ``dataSource`` that is neither a claim nor a snapshot if there is no ``dataSourceRef``, as Kubernetes
    does."""
    source = spec.get("dataSource")
    if source is None or spec.get("dataSourceRef") is not None:
        return
    kind, group = source.get("kind"), source.get("apiGroup") or ""
    if (kind, group) not in (("PersistentVolumeClaim", ""), ("VolumeSnapshot", "snapshot.storage.k8s.io")):
        del spec["dataSource"]


def _prepare_claim(claim: Obj) -> None:
    claim["status"] = {"phase": "Pending"}
    spec = claim.setdefault("spec", {})
    if (spec.get("dataSourceRef") or {}).get("namespace"):
        del spec["dataSourceRef"]  # sources in other namespaces are not supported
    _drop_unsupported_source(spec)
    merge_data_source(spec)


def _prepare_claim_update(new: Obj, old: Obj) -> None:
    if "status" in old:
        new["status"] = old["status"]
    spec, before = new.setdefault("spec", {}), old.get("spec") or {}
    if before.get("dataSource") is None and before.get("dataSourceRef") is None:
        _drop_unsupported_source(spec)
    merge_data_source(spec)


def _validate_claim(claim: Obj) -> list[FieldError]:
    errors: Errors = []
    check_claim_spec(claim.get("spec") or {}, "spec", errors)
    return errors


def _validate_claim_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    groups_known = any((before.get(f) or {}).get("apiGroup") for f in ("dataSource", "dataSourceRef"))
    check_claim_spec(spec, "spec", errors, check_groups=not groups_known)
    _check_claim_unchanged(new, old, errors)
    size, was = (
        quantity_of(((s.get("resources") or {}).get("requests") or {}).get("storage", "0")) for s in (spec, before)
    )
    if size < was:
        capacity = quantity_of(((old.get("status") or {}).get("capacity") or {}).get("storage", "0"))
        if size <= capacity:
            path = "spec.resources.requests.storage"
            errors.append(forbidden(path, "field can not be less than status.capacity"))
    if spec.get("volumeMode") != before.get("volumeMode"):
        errors.append(invalid("volumeMode", spec.get("volumeMode"), IMMUTABLE))
    attributes = spec.get("volumeAttributesClassName")
    current = (old.get("status") or {}).get("currentVolumeAttributesClassName")
    if attributes != before.get("volumeAttributesClassName") and current is not None and not attributes:
        to = "nil" if attributes is None else "empty string"
        detail = f"update to {to} is forbidden when status.currentVolumeAttributesClassName is not nil"
        errors.append(forbidden("spec.volumeAttributesClassName", detail))
    return errors


def _check_claim_unchanged(new: Obj, old: Obj, errors: Errors) -> None:
    spec, before = dict(new.get("spec") or {}), dict(old.get("spec") or {})
    merge_data_source(before)
    annotations = (new.get("metadata") or {}).get("annotations") or {}
    old_annotations = (old.get("metadata") or {}).get("annotations") or {}
    named, was = spec.get("storageClassName"), before.get("storageClassName")
    moved = was is None and named is not None and old_annotations.get(_OLD_CLASS, named) == named
    if moved:
        spec.pop("storageClassName")
    if annotations.get(_OLD_CLASS, "") != old_annotations.get(_OLD_CLASS, ""):
        gone = moved and _OLD_CLASS not in annotations
        if not gone:
            path = f"metadata.annotations.{_OLD_CLASS}"
            errors.append(invalid(path, annotations.get(_OLD_CLASS, ""), IMMUTABLE))
    if not before.get("volumeName"):
        before["volumeName"] = spec.get("volumeName")
    bound = (new.get("status") or {}).get("phase") == "Bound"
    if bound:
        before["volumeAttributesClassName"] = spec.get("volumeAttributesClassName")
        before["resources"] = _with_size_of(before.get("resources") or {}, spec.get("resources") or {})
    changed = [f for f in sorted(spec.keys() | before.keys()) if not same(spec.get(f), before.get(f))]
    if changed:
        detail = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        lines = [f"- {f}: {json.dumps(before.get(f))}\n+ {f}: {json.dumps(spec.get(f))}" for f in changed]
        errors.append(forbidden("spec", "\n".join([detail, *lines])))


def _with_size_of(resources: Obj, other: Obj) -> Obj:
    size = (other.get("requests") or {}).get("storage")
    if size is None:
        return resources
    return {**resources, "requests": {**(resources.get("requests") or {}), "storage": size}}


def _validate_claim_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    status = new.get("status") or {}
    if not (new.get("spec") or {}).get("accessModes"):
        errors.append(required("Spec.accessModes"))
    for field in ("capacity", "allocatedResources"):
        for name, text in (status.get(field) or {}).items():
            if field == "allocatedResources":
                _check_claim_resource(name, f"status.{field}", errors)
            amount = quantity_of(text)
            if amount.mantissa < 0:
                detail = "must be a valid resource quantity"
                errors.append(invalid(f"status.{field}[{name}]", amount.value(), detail))
    for name, value in (status.get("allocatedResourceStatuses") or {}).items():
        _check_claim_resource(name, "status.allocatedResourceStatuses", errors)
        if value not in _RESIZE_STATUSES:
            errors.append(not_supported("status.allocatedResourceStatuses", name, _RESIZE_STATUSES))
    return errors


def _check_claim_resource(name: str, path: str, errors: Errors) -> None:
    faults = is_qualified_name(name)
    errors += [invalid(path, name, text) for text in faults]
    if not faults and is_native(name) and name != "storage":
        errors.append(not_supported(path, name, ("storage",)))


def _name(obj: Obj) -> str:
    return (obj.get("metadata") or {}).get("name") or ""


PERSISTENT_VOLUME = KindRules(
    default=_default_volume,
    prepare_create=_prepare_volume,
    prepare_status=_prepare_volume_status,
    validate_create=_validate_volume,
    validate_update=_validate_volume_update,
    selectable={"name": _name},
)
PERSISTENT_VOLUME_CLAIM = KindRules(
    default=_default_claim,
    prepare_create=_prepare_claim,
    prepare_update=_prepare_claim_update,
    validate_create=_validate_claim,
    validate_update=_validate_claim_update,
    validate_status=_validate_claim_status,
    selectable={"name": _name},
)
