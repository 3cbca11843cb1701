"""ResourceSlice: the devices that a driver offers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shoal.errors import FieldError, invalid, required, too_long, too_many
from shoal.kube.kinds.checks import Errors, check_required_enum, check_syntax, size_bytes
from shoal.kube.kinds.common import check_frozen, check_frozen_fields, read
from shoal.kube.kinds.core.scheduling import check_node_selector
from shoal.kube.kinds.devices.shared import check_attribute_name, check_pool_name, check_set, name_of
from shoal.kube.kinds.storage import check_driver_name
from shoal.kube.names import is_dns1123_label, is_dns1123_subdomain, is_label_value, is_qualified_name
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_MAX_DEVICES: Final = 128
_MAX_ATTRIBUTES: Final = 32
_MAX_TAINTS: Final = 16
_MAX_ATTRIBUTE_TEXT: Final = 64
_TAINT_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_ATTRIBUTE_VALUES: Final = ("bool", "int", "string", "version", "bools", "ints", "strings", "versions")
_NODE_CHOICES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")


def _check_pool(pool: Obj, errors: Errors) -> None:
    check_pool_name(name_of(pool), "spec.pool.name", errors)
    count, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if count <= 0:
        errors.append(invalid("spec.pool.resourceSliceCount", count, "must be greater than zero"))
    if generation < 0:
        errors.append(invalid("spec.pool.generation", generation, "must be greater than or equal to zero"))


def _check_nodes(owner: Obj, choices: tuple[str, ...], path: str, errors: Errors) -> None:
    """Exactly one of the fields that select the nodes of the devices must be set."""
    chosen = []
    node = owner.get("nodeName")
    if node == "":
        text = "must be either unset or set to a non-empty string"
        errors.append(invalid(f"{path}.nodeName", node, text))
    elif node is not None:
        chosen.append("`nodeName`")
        check_syntax(node, is_dns1123_subdomain, f"{path}.nodeName", errors)
    selector = owner.get("nodeSelector")
    if selector is not None:
        chosen.append("`nodeSelector`")
        check_node_selector(selector, f"{path}.nodeSelector", errors)
    for name in ("allNodes", "perDeviceNodeSelection"):
        if owner.get(name):
            chosen.append(f"`{name}`")
        elif owner.get(name) is False:
            errors.append(invalid(f"{path}.{name}", False, "must be either unset or set to true"))
    listed = ", ".join(f"`{name}`" for name in choices)
    if not chosen:
        errors.append(required(path, f"exactly one of {listed} is required"))
    elif len(chosen) > 1:
        shown = "{" + ", ".join(chosen) + "}"
        errors.append(invalid(path, shown, f"exactly one of {listed} is required, but multiple fields are set"))


def _check_attribute(attribute: Obj, path: str, errors: Errors) -> None:
    values = [name for name in _ATTRIBUTE_VALUES if attribute.get(name) is not None]
    if not values:
        errors.append(required(path, "exactly one value must be specified"))
    elif len(values) > 1:
        errors.append(invalid(path, attribute, "exactly one value must be specified"))
    for name in ("string", "version"):
        if size_bytes(attribute.get(name) or "") > _MAX_ATTRIBUTE_TEXT:
            errors.append(too_long(f"{path}.{name}", _MAX_ATTRIBUTE_TEXT))


def check_taint(taint: Obj, path: str, errors: Errors) -> None:
    check_syntax(taint.get("key") or "", is_qualified_name, f"{path}.key", errors)
    if taint.get("value"):
        check_syntax(taint["value"], is_label_value, f"{path}.value", errors)
    check_required_enum(taint.get("effect"), _TAINT_EFFECTS, f"{path}.effect", errors)


def _check_device(device: Obj, path: str, per_device: bool, errors: Errors) -> None:
    check_syntax(name_of(device), is_dns1123_label, f"{path}.name", errors)
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    total = len(attributes) + len(capacity)
    if total > _MAX_ATTRIBUTES:
        text = f"the total number of attributes and capacities must not exceed {_MAX_ATTRIBUTES}"
        errors.append(invalid(path, total, text))
    for name, attribute in attributes.items():
        check_attribute_name(name, f"{path}.attributes", errors)
        _check_attribute(attribute, f"{path}.attributes[{name}]", errors)
    for name in capacity:
        check_attribute_name(name, f"{path}.capacity", errors)
    taints = device.get("taints") or []
    if len(taints) > _MAX_TAINTS:
        errors.append(too_many(f"{path}.taints", len(taints), _MAX_TAINTS))
    for position, taint in enumerate(taints):
        check_taint(taint, f"{path}.taints[{position}]", errors)
    if per_device:
        _check_nodes(device, _NODE_CHOICES[:3], path, errors)


def _check_slice(spec: Obj, errors: Errors) -> None:
    check_driver_name(spec.get("driver") or "", "spec.driver", errors)
    _check_pool(read(spec, "pool"), errors)
    _check_nodes(spec, _NODE_CHOICES, "spec", errors)
    terms = read(spec, "nodeSelector").get("nodeSelectorTerms") or []
    if spec.get("nodeSelector") is not None and len(terms) != 1:
        path = "spec.nodeSelector.nodeSelectorTerms"
        errors.append(invalid(path, terms, "must have exactly one node selector term"))
    devices = spec.get("devices") or []
    if devices and spec.get("sharedCounters"):
        errors.append(invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    check_set(devices, _MAX_DEVICES, name_of, "spec.devices", errors)
    for position, device in enumerate(devices):
        _check_device(device, f"spec.devices[{position}]", bool(spec.get("perDeviceNodeSelection")), errors)


def _validate_slice(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_slice(read(obj, "spec"), errors)
    return errors


def _validate_slice_update(new: Obj, old: Obj) -> list[FieldError]:
    errors = _validate_slice(new)
    spec, before = read(new, "spec"), read(old, "spec")
    check_frozen(read(spec, "pool").get("name"), read(before, "pool").get("name"), "spec.pool.name", errors)
    check_frozen_fields(spec, before, ("driver", "nodeName"), "spec", errors)
    return errors


def _slice_field(name: str) -> Callable[[Obj], str]:
    return lambda obj: str(read(obj, "spec").get(name) or "")


def _pool_field(obj: Obj) -> str:
    return name_of(read(read(obj, "spec"), "pool"))


RULES: Final = KindRules(
    validate_create=_validate_slice,
    validate_update=_validate_slice_update,
    selectable={
        "spec.nodeName": _slice_field("nodeName"),
        "spec.driver": _slice_field("driver"),
        "spec.pool.name": _pool_field,
    },
    indexed_fields=("spec.nodeName",),
)
