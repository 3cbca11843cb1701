"""Nodes. Unlike other kinds, a node may be created with a status, because node agents register with one."""

from __future__ import annotations

import re
from typing import Any

from shoal.errors import FieldError, duplicate, forbidden, invalid
from shoal.kube.kinds.checks import NEGATIVE, NOT_INTEGER, Errors, check_cidr, check_positive, quantity_of
from shoal.kube.kinds.core.resources import is_counted, round_up_to_milli
from shoal.kube.kinds.core.scheduling import check_taints
from shoal.kube.names import parse_cidr
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_is_feature = re.compile(r"[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*").fullmatch
_CIDR_FROZEN = 'node updates may not change podCIDR except from "" to valid'


def _default(node: Obj) -> None:
    status = node.get("status")
    if status:
        round_up_to_milli(status.get("capacity"))
        round_up_to_milli(status.get("allocatable"))
        if status.get("allocatable") is None and status.get("capacity") is not None:
            status["allocatable"] = dict(status["capacity"])
    spec = node.get("spec")
    if spec:
        _sync_cidrs(spec)


def _sync_cidrs(spec: Obj) -> None:
    """``podCIDR`` is the first of ``podCIDRs``."""
    first, cidrs = spec.get("podCIDR"), spec.get("podCIDRs")
    if first and not cidrs:
        spec["podCIDRs"] = [first]
    elif cidrs and not first:
        spec["podCIDR"] = cidrs[0]
    elif first and cidrs and cidrs[0] != first:
        spec["podCIDRs"] = [first]


def _prepare_create(node: Obj) -> None:
    (node.get("spec") or {}).pop("configSource", None)
    (node.get("status") or {}).pop("config", None)


def _prepare_update(new: Obj, old: Obj) -> None:
    if "status" in old:
        new["status"] = old["status"]
    if (old.get("spec") or {}).get("configSource") is None:
        (new.get("spec") or {}).pop("configSource", None)


def _prepare_status(new: Obj, old: Obj) -> None:
    if (old.get("status") or {}).get("config") is None:
        (new.get("status") or {}).pop("config", None)


def _check_amounts(status: Obj, errors: Errors) -> None:
    for field in ("capacity", "allocatable"):
        for name, text in (status.get(field) or {}).items():
            amount = quantity_of(text)
            if amount.mantissa < 0:
                errors.append(invalid(f"status.{field}.{name}", str(amount), NEGATIVE))
            if is_counted(name) and amount.milli() % 1000:
                errors.append(invalid(f"status.{field}.{name}", str(amount), NOT_INTEGER))


def _check_features(features: Any, errors: Errors) -> None:
    for index, feature in enumerate(features):
        path = f"status.declaredFeatures[{index}]"
        if len(feature) > 253:
            detail = f'invalid feature name "{feature}": must be no more than 253 characters'
            errors.append(invalid(path, feature, detail))
        elif not _is_feature(feature):
            detail = (
                f'invalid feature name "{feature}": must start with an UpperCamelCase segment, with subsequent '
                "segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only "
                "alphanumeric characters and slashes"
            )
            errors.append(invalid(path, feature, detail))
        if index and feature == features[index - 1]:
            errors.append(duplicate(path, feature))
        elif index and feature < features[index - 1]:
            errors.append(invalid(path, feature, "list must be sorted alphabetically"))


def _check_status(status: Obj, errors: Errors) -> None:
    _check_amounts(status, errors)
    _check_features(status.get("declaredFeatures") or (), errors)


def _check_spec(node: Obj, errors: Errors) -> None:
    spec = node.get("spec") or {}
    if spec.get("taints"):
        check_taints(spec["taints"], "metadata.taints", errors)
    swap = ((node.get("status") or {}).get("nodeInfo") or {}).get("swap") or {}
    check_positive(swap.get("capacity"), "metadata.nodeSwapStatus.capacity", errors)
    cidrs = spec.get("podCIDRs") or []
    for index, cidr in enumerate(cidrs):
        check_cidr(cidr, f"spec.podCIDRs[{index}]", errors)
    if len(cidrs) > 1:
        networks = [parse_cidr(cidr) for cidr in cidrs]
        versions = {network.version for network in networks if network is not None}
        if len(cidrs) > 2 or len(versions) != 2:
            detail = "may specify no more than one CIDR for each IP family"
            errors.append(invalid("spec.podCIDRs", cidrs, detail))


def _validate_create(node: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_spec(node, errors)
    _check_status(node.get("status") or {}, errors)
    return errors


def _validate_change(new: Obj, old: Obj) -> list[FieldError]:
    """Checks for every update, including updates of the status."""
    errors: Errors = []
    status = new.get("status") or {}
    _check_status(status, errors)
    seen: set[tuple[str, str]] = set()
    for index, address in enumerate(status.get("addresses") or ()):
        key = (address.get("type", ""), address.get("address", ""))
        if key in seen:
            errors.append(duplicate(f"status.addresses[{index}]", address))
        seen.add(key)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if before.get("podCIDRs") and spec.get("podCIDRs") != before["podCIDRs"]:
        errors.append(forbidden("spec.podCIDRs", _CIDR_FROZEN))
    if before.get("providerID") and spec.get("providerID") != before["providerID"]:
        fault = "field cannot be modified once set" if spec.get("providerID") else "field cannot be cleared once set"
        errors.append(invalid("spec.providerID", None, fault))
    if (spec.get("externalID") or "") != (before.get("externalID") or ""):
        errors.append(forbidden("spec.externalID", "may not be updated"))
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_spec(new, errors)
    return errors + _validate_change(new, old)


def _unschedulable(node: Obj) -> str:
    return "true" if (node.get("spec") or {}).get("unschedulable") else "false"


NODE = KindRules(
    default=_default,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    prepare_status=_prepare_status,
    validate_create=_validate_create,
    validate_update=_validate_update,
    validate_status=_validate_change,
    selectable={"spec.unschedulable": _unschedulable},
)
