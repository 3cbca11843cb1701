"""ResourceQuotas and LimitRanges."""

from __future__ import annotations

from shoal.errors import FieldError, duplicate, forbidden, invalid, required
from shoal.kube.kinds.checks import IMMUTABLE, Errors, check_syntax, quantity_of
from shoal.kube.kinds.core.resources import (
    STANDARD_QUOTA,
    NameFaults,
    check_resource_list,
    container_resource_faults,
    is_overcommittable,
    quota_resource_faults,
    resource_name_faults,
    round_up_to_milli,
)
from shoal.kube.names import is_qualified_name
from shoal.kube.objects import Obj
from shoal.kube.quantity import Quantity
from shoal.kube.rules import KindRules

_POD_COUNTS = frozenset({"pods"})
_POD_RESOURCES = _POD_COUNTS | {
    "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory",
}  # fmt: skip
_CLAIM_RESOURCES = frozenset({"persistentvolumeclaims", "requests.storage"})
# scope -> the standard resources that it applies to
_SCOPES = {
    "Terminating": _POD_RESOURCES,
    "NotTerminating": _POD_RESOURCES,
    "NotBestEffort": _POD_RESOURCES,
    "PriorityClass": _POD_RESOURCES,
    "CrossNamespacePodAffinity": _POD_RESOURCES,
    "BestEffort": _POD_COUNTS,
    "VolumeAttributesClass": _CLAIM_RESOURCES,
}
_ONLY_EXISTS = frozenset({"BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity"})
_CONFLICTS = (frozenset({"BestEffort", "NotBestEffort"}), frozenset({"Terminating", "NotTerminating"}))
_LIMIT_TYPES = frozenset({"Pod", "Container", "PersistentVolumeClaim"})
_LIMIT_LISTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_ONE = Quantity(1)


# --- ResourceQuota


def _default_quota(quota: Obj) -> None:
    round_up_to_milli((quota.get("spec") or {}).get("hard"))
    status = quota.get("status") or {}
    round_up_to_milli(status.get("hard"))
    round_up_to_milli(status.get("used"))


def _validate_quota(quota: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = quota.get("spec") or {}
    hard = spec.get("hard") or {}
    check_resource_list(hard, quota_resource_faults, "spec.hard", errors)
    scopes = spec.get("scopes") or []
    for scope in scopes:
        if scope not in _SCOPES:
            errors.append(invalid("spec.scopes", scopes, "unsupported scope"))
        for _ in _resources_out_of(scope, hard):
            errors.append(invalid("spec.scopes", scopes, "unsupported scope applied to resource"))
    errors += [invalid("spec.scopes", scopes, "conflicting scopes") for pair in _CONFLICTS if pair <= set(scopes)]
    if spec.get("scopeSelector"):
        _check_scope_selector(spec, hard, errors)
    return errors


def _resources_out_of(scope: str, hard: dict[str, str]) -> list[str]:
    allowed = _SCOPES.get(scope)
    if allowed is None:
        return []
    return [name for name in sorted(hard) if name in STANDARD_QUOTA and name not in allowed]


def _check_scope_selector(spec: Obj, hard: dict[str, str], errors: Errors) -> None:
    path, selector = "spec.scopeSelector.matchExpressions", spec["scopeSelector"]
    found: set[str] = set()
    for requirement in selector.get("matchExpressions") or ():
        scope, operator = requirement.get("scopeName", ""), requirement.get("operator", "")
        values = requirement.get("values") or []
        if scope not in _SCOPES:
            errors.append(invalid(f"{path}.scopeName", scope, "unsupported scope"))
        for _ in _resources_out_of(scope, hard):
            errors.append(invalid(path, selector, "unsupported scope applied to resource"))
        if scope in _ONLY_EXISTS and operator != "Exists":
            detail = (
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
                "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "
                "ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            errors.append(invalid(f"{path}.operator", operator, detail))
        if operator in ("In", "NotIn"):
            if not values:
                detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                errors.append(required(f"{path}.values", detail))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                errors.append(invalid(f"{path}.values", values, detail))
        else:
            errors.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
        found.add(scope)
    scopes = spec.get("scopes") or []
    errors += [invalid(path, scopes, "conflicting scopes") for pair in _CONFLICTS if pair <= found]


def _validate_quota_update(new: Obj, old: Obj) -> list[FieldError]:
    errors = _validate_quota(new)
    scopes, before = ((o.get("spec") or {}).get("scopes") or [] for o in (new, old))
    if set(scopes) != set(before):
        errors.append(invalid("spec.scopes", scopes, IMMUTABLE))
    return errors


def _validate_quota_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    status = new.get("status") or {}
    for field in ("hard", "used"):
        check_resource_list(status.get(field) or {}, quota_resource_faults, f"status.{field}", errors)
    return errors


def _quota_warnings(quota: Obj) -> list[str]:
    hard, found = (quota.get("spec") or {}).get("hard") or {}, []
    for name in ("cpu", "memory", "storage", "ephemeral-storage"):
        request, limit = f"requests.{name}", f"limits.{name}"
        if request not in hard and name in ("cpu", "memory"):
            request = name
        if request in hard and limit in hard and quantity_of(hard[request]) > quantity_of(hard[limit]):
            found.append(f"ResourceQuota {request} ({hard[request]}) should be less than {limit} ({hard[limit]})")
    return found


# --- LimitRange


def _default_limit_range(limit_range: Obj) -> None:
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            _default_container_limits(item)
        for field in _LIMIT_LISTS:
            round_up_to_milli(item.get(field))


def _default_container_limits(item: Obj) -> None:
    """The default limit is the maximum; the default request is the default limit, or else the minimum."""
    limits, requests = dict(item.get("default") or {}), dict(item.get("defaultRequest") or {})
    for source, target in ((item.get("max"), limits), (limits, requests), (item.get("min"), requests)):
        for name, amount in (source or {}).items():
            target.setdefault(name, amount)
    for field, resources in (("default", limits), ("defaultRequest", requests)):
        if resources:
            item[field] = resources


def _validate_limit_range(limit_range: Obj) -> list[FieldError]:
    errors: Errors = []
    seen: set[str] = set()
    for index, item in enumerate((limit_range.get("spec") or {}).get("limits") or ()):
        path, kind = f"spec.limits[{index}]", item.get("type", "")
        faults = is_qualified_name(kind)
        errors += [invalid(f"{path}.type", kind, text) for text in faults]
        if not faults and "/" not in kind and kind not in _LIMIT_TYPES:
            errors.append(invalid(f"{path}.type", kind, "must be a standard limit type or fully qualified"))
        if kind in seen:
            errors.append(duplicate(f"{path}.type", kind))
        seen.add(kind)
        _check_limit_item(item, kind, path, errors)
    return errors


def _check_limit_item(item: Obj, kind: str, path: str, errors: Errors) -> None:
    faults: NameFaults = container_resource_faults if kind in ("Pod", "Container") else resource_name_faults
    names: set[str] = set()
    for field in _LIMIT_LISTS:
        resources = item.get(field) or {}
        if kind == "Pod" and field in ("default", "defaultRequest"):
            if resources:
                errors.append(forbidden(f"{path}.{field}", "may not be specified when `type` is 'Pod'"))
            continue
        for name in resources:
            check_syntax(name, faults, f"{path}.{field}[{name}]", errors)
            names.add(name)
    if kind == "PersistentVolumeClaim":
        if "storage" not in (item.get("min") or {}) and "storage" not in (item.get("max") or {}):
            detail = "either minimum or maximum storage value is required, but neither was provided"
            errors.append(required(f"{path}.limits", detail))
    for name in sorted(names):
        amounts = {f: quantity_of(item[f][name]) for f in _LIMIT_LISTS if name in (item.get(f) or {})}
        _check_limit_order(name, amounts, path, errors)


def _check_limit_order(name: str, amounts: dict[str, Quantity], path: str, errors: Errors) -> None:
    """Minimum, default request, default limit and maximum must be in this order."""
    words = {"min": "min", "max": "max", "defaultRequest": "default request", "default": "default"}
    for low, high, reported in (
        ("min", "max", "min"),
        ("min", "defaultRequest", "defaultRequest"),
        ("defaultRequest", "max", "defaultRequest"),
        ("defaultRequest", "default", "defaultRequest"),
        ("min", "default", "default"),
        ("default", "max", "default"),
    ):
        lower, upper = amounts.get(low), amounts.get(high)
        if lower is not None and upper is not None and lower > upper:
            above = "default limit" if (low, high) == ("defaultRequest", "default") else words[high]
            detail = f"{words[low]} value {lower} is greater than {above} value {upper}"
            errors.append(invalid(f"{path}.{reported}[{name}]", str(amounts[reported]), detail))
    _check_ratio(name, amounts, path, errors)
    limit, request = amounts.get("default"), amounts.get("defaultRequest")
    if limit is not None and request is not None and limit != request and not is_overcommittable(name):
        detail = f"default value {limit} must equal to defaultRequest value {request} in {name}"
        errors.append(invalid(f"{path}.defaultRequest[{name}]", str(request), detail))


def _check_ratio(name: str, amounts: dict[str, Quantity], path: str, errors: Errors) -> None:
    ratio = amounts.get("maxLimitRequestRatio")
    if ratio is None:
        return
    where = f"{path}.maxLimitRequestRatio[{name}]"
    if ratio < _ONE:
        errors.append(invalid(where, str(ratio), f"ratio {ratio} is less than 1"))
    low, high = amounts.get("min"), amounts.get("max")
    if low is None or high is None or not low.mantissa:
        return
    if ratio.nano() * low.nano() > high.nano() * 10**9:
        detail = f"ratio {ratio} is greater than max/min = {high.nano() / low.nano():f}"
        errors.append(invalid(where, str(ratio), detail))


def _validate_limit_range_update(new: Obj, old: Obj) -> list[FieldError]:
    return _validate_limit_range(new)


RESOURCE_QUOTA = KindRules(
    default=_default_quota,
    validate_create=_validate_quota,
    validate_update=_validate_quota_update,
    validate_status=_validate_quota_status,
    warnings=_quota_warnings,
)
LIMIT_RANGE = KindRules(
    default=_default_limit_range,
    validate_create=_validate_limit_range,
    validate_update=_validate_limit_range_update,
)
