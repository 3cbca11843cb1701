"""ResourceClaim and ResourceClaimTemplate: requested and allocated devices of a pod."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from shoal.errors import FieldError, forbidden, invalid, not_supported, required, too_many
from shoal.kube.kinds.checks import (
    Errors,
    check_required_enum,
    check_required_name,
    check_syntax,
    validate_template_metadata,
)
from shoal.kube.kinds.common import check_frozen, fill, read, spec_of
from shoal.kube.kinds.core.scheduling import check_node_selector
from shoal.kube.kinds.devices.shared import (
    MAX_LIST,
    check_configuration,
    check_full_name,
    check_pool_name,
    check_selectors,
    check_set,
    itself,
    name_of,
)
from shoal.kube.kinds.storage import check_driver_name
from shoal.kube.names import is_dns1123_label, is_dns1123_subdomain, is_label_value, is_qualified_name
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_MAX_ALTERNATIVES: Final = 8
_MAX_RESERVED: Final = 256
_MODES: Final = ("All", "ExactCount")
_STATUS_METADATA: Final = ("managedFields", "resourceVersion")
_ONE_REQUEST: Final = "exactly one of `exactly` or `firstAvailable` is required"
_NOT_A_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)


def _default_request(request: Obj) -> None:
    fill(request, "allocationMode", "ExactCount")
    if request["allocationMode"] == "ExactCount":
        fill(request, "count", 1)


def _default_claim_spec(spec: Obj) -> None:
    for request in read(spec, "devices").get("requests") or ():
        if request.get("exactly") is not None:
            _default_request(request["exactly"])
        for alternative in request.get("firstAvailable") or ():
            _default_request(alternative)


def _check_toleration(toleration: Obj, path: str, errors: Errors) -> None:
    key, operator, value = (toleration.get(name) or "" for name in ("key", "operator", "value"))
    if key:
        check_syntax(key, is_qualified_name, f"{path}.key", errors)
    if operator == "Exists":
        if value:
            errors.append(invalid(f"{path}.value", value, "must be empty for operator `Exists`"))
    elif operator == "Equal":
        check_syntax(value, is_label_value, f"{path}.value", errors)
    elif operator:
        errors.append(not_supported(f"{path}.operator", operator, ("Equal", "Exists")))
    else:
        errors.append(required(f"{path}.operator"))
    effect = toleration.get("effect")
    if effect and effect not in ("NoExecute", "NoSchedule"):
        errors.append(not_supported(f"{path}.effect", effect, ("NoExecute", "NoSchedule")))


def _check_exact(request: Obj, path: str, errors: Errors) -> None:
    check_required_name(request.get("deviceClassName"), is_dns1123_subdomain, f"{path}.deviceClassName", errors)
    check_selectors(request.get("selectors") or [], f"{path}.selectors", errors)
    mode, count = request.get("allocationMode") or "", request.get("count") or 0
    if mode not in _MODES:
        errors.append(not_supported(f"{path}.allocationMode", mode, _MODES))
    elif mode == "All" and count:
        text = "must not be specified when allocationMode is 'All'"
        errors.append(invalid(f"{path}.count", count, text))
    elif mode == "ExactCount" and count <= 0:
        errors.append(invalid(f"{path}.count", count, "must be greater than zero"))
    for position, toleration in enumerate(request.get("tolerations") or ()):
        _check_toleration(toleration, f"{path}.tolerations[{position}]", errors)


def _check_request(request: Obj, path: str, errors: Errors) -> None:
    check_syntax(name_of(request), is_dns1123_label, f"{path}.name", errors)
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
    if exactly is None and not alternatives:
        errors.append(required(path, _ONE_REQUEST))
    elif exactly is not None and alternatives:
        errors.append(invalid(path, None, f"{_ONE_REQUEST}, but multiple fields are set"))
    elif exactly is not None:
        _check_exact(exactly, f"{path}.exactly", errors)
    else:
        where = f"{path}.firstAvailable"
        check_set(alternatives, _MAX_ALTERNATIVES, name_of, where, errors)
        for position, alternative in enumerate(alternatives):
            check_syntax(name_of(alternative), is_dns1123_label, f"{where}[{position}].name", errors)
            _check_exact(alternative, f"{where}[{position}]", errors)


def _request_names(claim: Obj) -> set[str]:
    """Names that constraints and configurations may refer to: ``request`` and ``request/alternative``."""
    names: set[str] = set()
    for request in claim.get("requests") or ():
        name = name_of(request)
        names.add(name)
        names.update(f"{name}/{name_of(each)}" for each in request.get("firstAvailable") or ())
    return names


def _check_references(references: list[str], names: set[str], path: str, errors: Errors) -> None:
    check_set(references, MAX_LIST, itself, path, errors)
    for position, name in enumerate(references):
        if name not in names:
            errors.append(invalid(f"{path}[{position}]", name, _NOT_A_REQUEST))


def _check_constraint(constraint: Obj, names: set[str], path: str, errors: Errors) -> None:
    _check_references(constraint.get("requests") or [], names, f"{path}.requests", errors)
    chosen = [name for name in ("matchAttribute", "distinctAttribute") if constraint.get(name) is not None]
    if len(chosen) != 1:
        text = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        errors.append(required(path, text))
    else:
        check_full_name(constraint[chosen[0]], f"{path}.{chosen[0]}", errors)


def _check_claim_spec(spec: Obj, path: str, errors: Errors) -> None:
    claim, path = read(spec, "devices"), f"{path}.devices"
    requests = claim.get("requests") or []
    names = _request_names(claim)
    check_set(requests, MAX_LIST, name_of, f"{path}.requests", errors)
    for position, request in enumerate(requests):
        _check_request(request, f"{path}.requests[{position}]", errors)
    for name in ("constraints", "config"):
        items = claim.get(name) or []
        if len(items) > MAX_LIST:
            errors.append(too_many(f"{path}.{name}", len(items), MAX_LIST))
    for position, constraint in enumerate(claim.get("constraints") or ()):
        _check_constraint(constraint, names, f"{path}.constraints[{position}]", errors)
    for position, config in enumerate(claim.get("config") or ()):
        where = f"{path}.config[{position}]"
        _check_references(config.get("requests") or [], names, f"{where}.requests", errors)
        check_configuration(config, where, errors)


def _default_claim(obj: Obj) -> None:
    _default_claim_spec(spec_of(obj))


def _validate_claim(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_claim_spec(read(obj, "spec"), "spec", errors)
    return errors


def _validate_frozen_spec(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    check_frozen(new.get("spec"), old.get("spec"), "spec", errors)
    return errors


def _prepare_claim_status(new: Obj, old: Obj) -> None:
    """Keep the metadata, and remove devices that are no longer allocated from the status."""
    new["metadata"] = {**old["metadata"], **{k: v for k, v in new["metadata"].items() if k in _STATUS_METADATA}}
    status = read(new, "status")
    devices = status.get("devices")
    if devices:
        allocated = {_device_key(each) for each in _results(status)}
        gone = {_device_key(each) for each in _results(read(old, "status"))} - allocated
        status["devices"] = [device for device in devices if _device_key(device) not in gone]


def _results(status: Obj) -> Iterable[Obj]:
    results: list[Obj] = read(read(status, "allocation"), "devices").get("results") or []
    return results


def _device_key(device: Obj) -> tuple[Any, ...]:
    return tuple(device.get(name) or "" for name in ("driver", "pool", "device", "shareID"))


def _check_result(result: Obj, names: set[str], path: str, errors: Errors) -> None:
    request = result.get("request") or ""
    if request not in names:
        errors.append(invalid(f"{path}.request", request, _NOT_A_REQUEST))
    check_driver_name(result.get("driver") or "", f"{path}.driver", errors)
    check_pool_name(result.get("pool") or "", f"{path}.pool", errors)
    check_syntax(result.get("device") or "", is_dns1123_label, f"{path}.device", errors)


def _check_allocation(allocation: Obj, names: set[str], errors: Errors) -> None:
    path = "status.allocation.devices"
    devices = read(allocation, "devices")
    results = devices.get("results") or []
    if len(results) > MAX_LIST:
        errors.append(too_many(f"{path}.results", len(results), MAX_LIST))
    for position, result in enumerate(results):
        _check_result(result, names, f"{path}.results[{position}]", errors)
    for position, config in enumerate(devices.get("config") or ()):
        where = f"{path}.config[{position}]"
        check_required_enum(config.get("source"), ("FromClaim", "FromClass"), f"{where}.source", errors)
        _check_references(config.get("requests") or [], names, f"{where}.requests", errors)
        check_configuration(config, where, errors)
    selector = allocation.get("nodeSelector")
    if selector is not None:
        check_node_selector(selector, "status.allocation.nodeSelector", errors)


def _check_reserved(new: Obj, old: Obj, errors: Errors) -> None:
    path = "status.reservedFor"
    reserved = read(new, "status").get("reservedFor") or []
    check_set(reserved, _MAX_RESERVED, lambda each: each.get("uid") or "", path, errors)
    for position, consumer in enumerate(reserved):
        for name in ("resource", "name", "uid"):
            if not consumer.get(name):
                errors.append(required(f"{path}[{position}].{name}"))
    if not reserved:
        return
    if read(new, "status").get("allocation") is None:
        errors.append(forbidden(path, "may not be specified when `allocated` is not set"))
    elif new["metadata"].get("deletionTimestamp"):
        before = read(old, "status").get("reservedFor") or []
        if any(consumer not in before for consumer in reserved):
            text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            errors.append(forbidden(path, text))


def _validate_claim_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    status, before = read(new, "status"), read(old, "status")
    _check_reserved(new, old, errors)
    devices = status.get("devices") or []
    check_set(devices, len(devices), _device_key, "status.devices", errors)
    allocated = {_device_key(each) for each in _results(status)}
    for position, device in enumerate(devices):
        if _device_key(device) not in allocated:
            shown = "/".join(str(part) for part in _device_key(device)[:3])
            text = "must be an allocated device in the claim"
            errors.append(invalid(f"status.devices[{position}]", shown, text))
    allocation = status.get("allocation")
    if allocation is not None:
        if before.get("allocation") is not None:
            check_frozen(allocation, before["allocation"], "status.allocation", errors)
        else:
            _check_allocation(allocation, _request_names(read(read(new, "spec"), "devices")), errors)
    return errors


def _default_template(obj: Obj) -> None:
    _default_claim_spec(read(spec_of(obj), "spec"))


def _validate_template(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    validate_template_metadata(spec.get("metadata"), "spec.metadata", errors)
    _check_claim_spec(read(spec, "spec"), "spec.spec", errors)
    return errors


CLAIM: Final = KindRules(
    default=_default_claim,
    prepare_status=_prepare_claim_status,
    validate_create=_validate_claim,
    validate_update=_validate_frozen_spec,
    validate_status=_validate_claim_status,
)
TEMPLATE: Final = KindRules(
    default=_default_template,
    validate_create=_validate_template,
    validate_update=_validate_frozen_spec,
)
