"""storage.k8s.io: classes, drivers, attachments and capacities."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, duplicate, forbidden, invalid, required, too_long
from shoal.kube.kinds.checks import (
    Errors,
    check_enum,
    check_label_selector,
    check_nonnegative,
    check_nonnegative_quantity,
    check_required_enum,
    check_syntax,
    size_bytes,
)
from shoal.kube.kinds.common import MAX_INT32, check_frozen, check_frozen_fields, deep_same, read, spec_of
from shoal.kube.names import is_dns1123_subdomain, is_qualified_name
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_MAX_PARAMETERS: Final = 512
_MAX_PARAMETERS_BYTES: Final = 256 * 1024
_MAX_ERROR_BYTES: Final = 1024
_MAX_NODE_ID: Final = 256
_MAX_DRIVER_NAME: Final = 63
_MIN_TOKEN_S: Final = 600
_RECLAIM_POLICIES: Final = ("Delete", "Retain")
_BINDING_MODES: Final = ("Immediate", "WaitForFirstConsumer")
_GROUP_POLICIES: Final = ("File", "None", "ReadWriteOnceWithFSType")
_LIFECYCLE_MODES: Final = ("Ephemeral", "Persistent")
_FROZEN_CLASS: Final = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
_ONE_SOURCE: Final = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


def check_driver_name(name: str, path: str, errors: Errors) -> None:
    """A driver's name: a short DNS name in any case."""
    if not name:
        errors.append(required(path))
        return
    if len(name) > _MAX_DRIVER_NAME:
        errors.append(too_long(path, _MAX_DRIVER_NAME))
    check_syntax(name.lower(), is_dns1123_subdomain, path, errors, shown=name)


def _check_parameters(parameters: dict[str, str], errors: Errors) -> None:
    if len(parameters) > _MAX_PARAMETERS:
        errors.append(too_long("parameters", _MAX_PARAMETERS))
        return
    if "" in parameters:
        errors.append(invalid("parameters", "", "field can not be empty."))
    if sum(size_bytes(key) + size_bytes(value) for key, value in parameters.items()) > _MAX_PARAMETERS_BYTES:
        errors.append(too_long("parameters", _MAX_PARAMETERS_BYTES))


def _check_provisioner(name: str, path: str, errors: Errors) -> None:
    if not name:
        errors.append(required(path))
    else:
        check_syntax(name.lower(), is_qualified_name, path, errors)


# --- StorageClass


def _default_class(obj: Obj) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _check_topologies(terms: list[Obj], errors: Errors) -> None:
    seen: list[dict[str, set[str]]] = []
    for position, term in enumerate(terms):
        found: dict[str, set[str]] = {}
        path = f"allowedTopologies[{position}].matchLabelExpressions"
        for index, expression in enumerate(term.get("matchLabelExpressions") or ()):
            where, key = f"{path}[{index}]", expression.get("key") or ""
            values = expression.get("values") or []
            if not values:
                errors.append(required(f"{where}.values"))
            for each, value in enumerate(values):
                if value in values[:each]:
                    errors.append(duplicate(f"{where}.values[{each}]", value))
            check_syntax(key, is_qualified_name, f"{where}.key", errors)
            if key in found:
                errors.append(duplicate(f"{where}.key", key))
            found[key] = set(values)
        if found in seen:
            errors.append(duplicate(path, ""))
        seen.append(found)


def _validate_class(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_provisioner(obj.get("provisioner") or "", "provisioner", errors)
    _check_parameters(obj.get("parameters") or {}, errors)
    policy = obj.get("reclaimPolicy")
    if policy:
        check_enum(policy, _RECLAIM_POLICIES, "reclaimPolicy", errors)
    check_required_enum(obj.get("volumeBindingMode"), _BINDING_MODES, "volumeBindingMode", errors)
    _check_topologies(obj.get("allowedTopologies") or [], errors)
    return errors


def _validate_class_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    check_frozen_fields(new, old, _FROZEN_CLASS, "", errors)
    return errors


# --- VolumeAttributesClass


def _validate_attributes_class(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_provisioner(obj.get("driverName") or "", "driverName", errors)
    parameters = obj.get("parameters") or {}
    _check_parameters(parameters, errors)
    if not parameters:
        errors.append(required("parameters", "must contain at least one key/value pair"))
    return errors


def _validate_attributes_class_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    for name in ("driverName", "parameters"):
        if not deep_same(new.get(name), old.get(name)):
            errors.append(forbidden(name, f"updates to {name} are forbidden."))
    return errors + _validate_attributes_class(new)


# --- CSIDriver


def _default_driver(obj: Obj) -> None:
    spec = spec_of(obj)
    spec.setdefault("attachRequired", True)
    for name in ("podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"):
        spec.setdefault(name, False)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


def _check_token_requests(requests: list[Obj], errors: Errors) -> None:
    seen: set[str] = set()
    for position, request in enumerate(requests):
        path, audience = f"spec.tokenRequests[{position}]", request.get("audience") or ""
        if audience in seen:
            errors.append(duplicate(f"{path}.audience", audience))
            continue
        seen.add(audience)
        seconds = request.get("expirationSeconds")
        if seconds is not None and seconds < _MIN_TOKEN_S:
            text = "may not specify a duration less than 10 minutes"
            errors.append(invalid(f"{path}.expirationSeconds", seconds, text))
        if seconds is not None and seconds > 1 << 32:
            text = "may not specify a duration larger than 2^32 seconds"
            errors.append(invalid(f"{path}.expirationSeconds", seconds, text))


def _validate_driver(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    if spec.get("attachRequired") is None:
        errors.append(required("spec.attachedRequired"))
    for name in ("podInfoOnMount", "storageCapacity"):
        if spec.get(name) is None:
            errors.append(required(f"spec.{name}"))
    policy = spec.get("fsGroupPolicy")
    if policy is not None:
        check_enum(policy, _GROUP_POLICIES, "spec.fsGroupPolicy", errors)
    requests = spec.get("tokenRequests") or []
    _check_token_requests(requests, errors)
    for mode in spec.get("volumeLifecycleModes") or ():
        check_enum(mode, _LIFECYCLE_MODES, "spec.volumeLifecycleModes", errors)
    if spec.get("seLinuxMount") is None:
        errors.append(required("spec.seLinuxMount"))
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        text = "must be greater than or equal to 10 seconds"
        errors.append(invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, text))
    in_secrets = spec.get("serviceAccountTokenInSecrets")
    if in_secrets is not None and not requests:
        text = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        errors.append(invalid("spec.serviceAccountTokenInSecrets", in_secrets, text))
    return errors


def _validate_driver_update(new: Obj, old: Obj) -> list[FieldError]:
    errors = _validate_driver(new)
    spec, before = read(new, "spec"), read(old, "spec")
    check_frozen(spec.get("attachRequired"), before.get("attachRequired"), "spec.attachedRequired", errors)
    check_frozen_fields(spec, before, ("volumeLifecycleModes",), "spec", errors)
    return errors


def _driver_warnings(obj: Obj) -> list[str]:
    spec = read(obj, "spec")
    if spec.get("tokenRequests") and spec.get("serviceAccountTokenInSecrets") is None:
        return [
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent "
            "possible logging of tokens in volume attributes"
        ]
    return []


# --- CSINode


def _check_node_driver(driver: Obj, path: str, seen: set[str], errors: Errors) -> None:
    name, node = driver.get("name") or "", driver.get("nodeID") or ""
    check_driver_name(name, f"{path}.name", errors)
    if not node:
        errors.append(required(f"{path}.nodeID"))
    if size_bytes(node) > _MAX_NODE_ID:
        errors.append(invalid(f"{path}.nodeID", node, f"must be {_MAX_NODE_ID} characters or less"))
    check_nonnegative(read(driver, "allocatable").get("count"), f"{path}.allocatable.count", errors)
    if name in seen:
        errors.append(duplicate(f"{path}.name", name))
    seen.add(name)
    keys = driver.get("topologyKeys") or []
    for position, key in enumerate(keys):
        if not key:
            errors.append(required(path))
        if key in keys[:position]:
            errors.append(duplicate(path, key))
        check_syntax(key, is_qualified_name, path, errors)


def _validate_node(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    seen: set[str] = set()
    for position, driver in enumerate(read(obj, "spec").get("drivers") or ()):
        _check_node_driver(driver, f"spec.drivers[{position}]", seen, errors)
    return errors


def _validate_node_update(new: Obj, old: Obj) -> list[FieldError]:
    """The data of a driver on a node is immutable, except for the number of volumes."""
    errors = _validate_node(new)
    before = {driver.get("name"): driver for driver in read(old, "spec").get("drivers") or ()}
    for driver in read(new, "spec").get("drivers") or ():
        known = before.get(driver.get("name"))
        if known is not None:
            mine, theirs = {**driver, "allocatable": None}, {**known, "allocatable": None}
            check_frozen(mine, theirs, "spec.drivers", errors)
    return errors


# --- CSIStorageCapacity


def _validate_capacity(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    check_label_selector(obj.get("nodeTopology"), "nodeTopology", errors)
    check_syntax(obj.get("storageClassName") or "", is_dns1123_subdomain, "storageClassName", errors)
    if obj.get("capacity") is not None:
        check_nonnegative_quantity(obj["capacity"], "capacity", errors)
    return errors


def _validate_capacity_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    check_frozen_fields(new, old, ("nodeTopology", "storageClassName"), "", errors)
    return errors


# --- VolumeAttachment


def _check_attachment_error(fault: Obj | None, path: str, errors: Errors) -> None:
    if fault is None:
        return
    if size_bytes(fault.get("message") or "") > _MAX_ERROR_BYTES:
        errors.append(too_long(f"{path}.message", _MAX_ERROR_BYTES))
    code = fault.get("errorCode")
    if code is not None and code < 0:
        errors.append(invalid(f"{path}.errorCode", code, f"must be between 0 and {MAX_INT32}, inclusive"))


def _check_attachment_status(obj: Obj, errors: Errors) -> None:
    status = read(obj, "status")
    details = status.get("attachmentMetadata") or {}
    if sum(size_bytes(key) + size_bytes(value) for key, value in details.items()) > _MAX_PARAMETERS_BYTES:
        errors.append(too_long("status.attachmentMetadata", _MAX_PARAMETERS_BYTES))
    for name in ("attachError", "detachError"):
        _check_attachment_error(status.get(name), f"status.{name}", errors)


def _validate_attachment(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    check_driver_name(spec.get("attacher") or "", "spec.attacher", errors)
    source, path = read(spec, "source"), "spec.source"
    volume, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    if volume is None and inline is None:
        errors.append(required(path, _ONE_SOURCE))
    elif volume is not None and inline is not None:
        errors.append(forbidden(path, _ONE_SOURCE))
    elif volume == "":
        errors.append(required(f"{path}.persistentVolumeName", "must specify non empty persistentVolumeName"))
    if volume is not None:
        check_syntax(volume, is_dns1123_subdomain, f"{path}.persistentVolumeName", errors)
    check_syntax(spec.get("nodeName") or "", is_dns1123_subdomain, "spec.nodeName", errors)
    _check_attachment_status(obj, errors)
    return errors


def _validate_attachment_update(new: Obj, old: Obj) -> list[FieldError]:
    errors = _validate_attachment(new)
    check_frozen(new.get("spec"), old.get("spec"), "spec", errors)
    return errors


def _validate_attachment_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_attachment_status(new, errors)
    return errors


_GROUP: Final = "storage.k8s.io"

RULES: dict[tuple[str, str, str], KindRules] = {
    (_GROUP, "v1", "StorageClass"): KindRules(
        default=_default_class,
        validate_create=_validate_class,
        validate_update=_validate_class_update,
    ),
    (_GROUP, "v1", "VolumeAttributesClass"): KindRules(
        validate_create=_validate_attributes_class, validate_update=_validate_attributes_class_update
    ),
    (_GROUP, "v1", "CSIDriver"): KindRules(
        default=_default_driver,
        validate_create=_validate_driver,
        validate_update=_validate_driver_update,
        warnings=_driver_warnings,
    ),
    (_GROUP, "v1", "CSINode"): KindRules(validate_create=_validate_node, validate_update=_validate_node_update),
    (_GROUP, "v1", "CSIStorageCapacity"): KindRules(
        validate_create=_validate_capacity, validate_update=_validate_capacity_update
    ),
    (_GROUP, "v1", "VolumeAttachment"): KindRules(
        validate_create=_validate_attachment,
        validate_update=_validate_attachment_update,
        validate_status=_validate_attachment_status,
    ),
}
