"""autoscaling: HorizontalPodAutoscaler in both versions, and Scale.

Objects of autoscaling/v1 are converted to autoscaling/v2 for validation.
"""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, forbidden, invalid, not_supported, required
from shoal.kube.kinds.checks import (
    Errors,
    check_enum,
    check_nonnegative_quantity,
    check_required_name,
    quantity_of,
)
from shoal.kube.kinds.common import check_nonnegative_fields, read, spec_of
from shoal.kube.kinds.hpa import DEFAULT_CPU_PERCENT, METRICS, cpu_metric, to_v2
from shoal.kube.kinds.scale import scale_errors
from shoal.kube.names import is_dns1123_label, is_path_segment_name
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_MAX_PERIOD_S: Final = 1800
_MAX_WINDOW_S: Final = 3600
_SELECT_POLICIES: Final = ("Disabled", "Max", "Min")
_POLICY_TYPES: Final = ("Percent", "Pods")
_TARGET_TYPES: Final = ("Utilization", "Value", "AverageValue")
_SOURCES: Final = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
_SOURCE_ORDER: Final = ("object", "external", "pods", "resource", "containerResource")


def _default(obj: Obj) -> None:
    spec = spec_of(obj)
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        spec["metrics"] = [cpu_metric(DEFAULT_CPU_PERCENT)]
    behavior = spec.get("behavior")
    if behavior is not None:
        _default_scale_up(behavior)
        _default_scale_down(behavior)


def _default_scale_up(behavior: Obj) -> None:
    rules = behavior.setdefault("scaleUp", {})
    rules.setdefault("stabilizationWindowSeconds", 0)
    rules.setdefault("selectPolicy", "Max")
    rules.setdefault(
        "policies",
        [
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ],
    )


def _default_scale_down(behavior: Obj) -> None:
    """The stabilization window has no default here: the controller has a setting for it."""
    rules = behavior.setdefault("scaleDown", {})
    rules.setdefault("selectPolicy", "Max")
    rules.setdefault("policies", [{"type": "Percent", "value": 100, "periodSeconds": 15}])


def _default_v1(obj: Obj) -> None:
    spec = spec_of(obj)
    spec.setdefault("minReplicas", 1)
    if METRICS not in read(obj["metadata"], "annotations"):
        spec.setdefault("targetCPUUtilizationPercentage", DEFAULT_CPU_PERCENT)


def _api_version_fault(version: str, needs_group: bool) -> str:
    if version.count("/") > 1:
        return f"unexpected GroupVersion string: {version}"
    group = version.partition("/")[0] if "/" in version else ""
    return "apiVersion must specify API group" if needs_group and not group else ""


def _check_reference(reference: Obj, path: str, errors: Errors, *, fault: str) -> None:
    check_required_name(reference.get("kind"), is_path_segment_name, f"{path}.kind", errors)
    check_required_name(reference.get("name"), is_path_segment_name, f"{path}.name", errors)
    if fault:
        errors.append(invalid(f"{path}.apiVersion", reference.get("apiVersion") or "", fault))


def _check_rules(rules: Obj, path: str, errors: Errors) -> None:
    window = rules.get("stabilizationWindowSeconds")
    if window is not None and window < 0:
        text = "must be greater than or equal to zero"
        errors.append(invalid(f"{path}.stabilizationWindowSeconds", window, text))
    if window is not None and window > _MAX_WINDOW_S:
        text = f"must be less than or equal to {_MAX_WINDOW_S}"
        errors.append(invalid(f"{path}.stabilizationWindowSeconds", window, text))
    select = rules.get("selectPolicy")
    if select is not None:
        check_enum(select, _SELECT_POLICIES, f"{path}.selectPolicy", errors)
    policies = rules.get("policies") or ()
    if not policies:
        errors.append(required(f"{path}.policies", "must specify at least one Policy"))
    for position, policy in enumerate(policies):
        _check_policy(policy, f"{path}.policies[{position}]", errors)
    if rules.get("tolerance") is not None:
        check_nonnegative_quantity(rules["tolerance"], f"{path}.tolerance", errors)


def _check_policy(policy: Obj, path: str, errors: Errors) -> None:
    check_enum(policy.get("type") or "", _POLICY_TYPES, f"{path}.type", errors)
    value, period = policy.get("value") or 0, policy.get("periodSeconds") or 0
    if value <= 0:
        errors.append(invalid(f"{path}.value", value, "must be greater than zero"))
    if period <= 0:
        errors.append(invalid(f"{path}.periodSeconds", period, "must be greater than zero"))
    if period > _MAX_PERIOD_S:
        errors.append(invalid(f"{path}.periodSeconds", period, f"must be less than or equal to {_MAX_PERIOD_S}"))


def _check_target(target: Obj, path: str, errors: Errors) -> None:
    kind = target.get("type") or ""
    if not kind:
        errors.append(required(f"{path}.type", "must specify a metric target type"))
    if kind not in _TARGET_TYPES:
        errors.append(invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue"))
    for name in ("value", "averageValue"):
        amount = target.get(name)
        if amount is not None and quantity_of(amount).mantissa <= 0:
            errors.append(invalid(f"{path}.{name}", amount, "must be positive"))
    percent = target.get("averageUtilization")
    if percent is not None and percent < 1:
        errors.append(invalid(f"{path}.averageUtilization", percent, "must be greater than 0"))


def _check_source(name: str, source: Obj, path: str, errors: Errors) -> None:
    target = read(source, "target")
    if name == "object":
        described = read(source, "describedObject")
        fault = _api_version_fault(described.get("apiVersion") or "", needs_group=False)
        _check_reference(described, f"{path}.describedObject", errors, fault=fault)
    if name in ("object", "external", "pods"):
        metric = read(source, "metric").get("name")
        text = "must specify a metric name"
        check_required_name(metric, is_path_segment_name, f"{path}.metric.name", errors, text)
    else:
        if not source.get("name"):
            errors.append(required(f"{path}.name", "must specify a resource name"))
        if name == "containerResource":
            text = "must specify a container"
            check_required_name(source.get("container"), is_dns1123_label, f"{path}.container", errors, text)
    _check_target(target, f"{path}.target", errors)
    _check_target_choice(name, target, f"{path}.target", errors)


def _check_target_choice(name: str, target: Obj, path: str, errors: Errors) -> None:
    """Which values a metric target must have, and which exclude each other."""
    value, average = target.get("value"), target.get("averageValue")
    percent = target.get("averageUtilization")
    if name == "object":
        if value is None and average is None:
            errors.append(required(f"{path}.averageValue", "must set either a target value or averageValue"))
    elif name == "external":
        if value is None and average is None:
            text = "must set either a target value for metric or a per-pod target"
            errors.append(required(f"{path}.averageValue", text))
        if value is not None and average is not None:
            text = "may not set both a target value for metric and a per-pod target"
            errors.append(forbidden(f"{path}.value", text))
    elif name == "pods":
        if average is None:
            errors.append(required(f"{path}.averageValue", "must specify a positive target averageValue"))
    else:
        if percent is None and average is None:
            text = "must set either a target raw value or a target utilization"
            errors.append(required(f"{path}.averageUtilization", text))
        if percent is not None and average is not None:
            text = "may not set both a target raw value and a target utilization"
            errors.append(forbidden(f"{path}.averageValue", text))


def _check_metric(metric: Obj, path: str, errors: Errors) -> None:
    kind = metric.get("type") or ""
    if not kind:
        errors.append(required(f"{path}.type", "must specify a metric source type"))
    if kind not in _SOURCES:
        errors.append(not_supported(f"{path}.type", kind, _SOURCES))
    present = [name for name in _SOURCE_ORDER if metric.get(name) is not None]
    if present:
        _check_source(present[0], metric[present[0]], f"{path}.{present[0]}", errors)
    wanted = _SOURCES.get(kind, "")
    if wanted and wanted not in present:
        errors.append(required(f"{path}.{wanted}", "must populate information for the given metric source"))
    if len(present) != 1:
        for name in present:
            if name != wanted:
                errors.append(forbidden(f"{path}.{name}", "must populate the given metric source only"))


def _check_metrics(metrics: list[Obj], smallest: int | None, errors: Errors) -> None:
    for position, metric in enumerate(metrics):
        _check_metric(metric, f"spec.metrics[{position}]", errors)
    if smallest == 0 and not any(metric.get("type") in ("Object", "External") for metric in metrics):
        text = "must specify at least one Object or External metric to support scaling to zero replicas"
        errors.append(forbidden("spec.metrics", text))


def _check_spec(spec: Obj, errors: Errors, *, target_kept: bool) -> None:
    smallest, largest = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if smallest is not None and smallest < 0:
        errors.append(invalid("spec.minReplicas", smallest, "must be greater than or equal to 0"))
    if largest == 0:
        errors.append(required("spec.maxReplicas", "must be set and greater than 0"))
    elif largest < 0:
        errors.append(invalid("spec.maxReplicas", largest, "must be greater than or equal to 1"))
    if smallest is not None and largest < smallest:
        text = "must be greater than or equal to `minReplicas`"
        errors.append(invalid("spec.maxReplicas", largest, text))
    target = read(spec, "scaleTargetRef")
    needs_group = target.get("kind") != "ReplicationController"
    fault = "" if target_kept else _api_version_fault(target.get("apiVersion") or "", needs_group)
    _check_reference(target, "spec.scaleTargetRef", errors, fault=fault)
    _check_metrics(spec.get("metrics") or [], smallest, errors)
    behavior = read(spec, "behavior")
    for name in ("scaleUp", "scaleDown"):
        if behavior.get(name) is not None:
            _check_rules(behavior[name], f"spec.behavior.{name}", errors)


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_spec(read(obj, "spec"), errors, target_kept=False)
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = read(new, "spec")
    after, before = read(spec, "scaleTargetRef"), read(read(old, "spec"), "scaleTargetRef")
    kept = all(after.get(name) == before.get(name) for name in ("apiVersion", "kind"))
    _check_spec(spec, errors, target_kept=kept)
    return errors


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    check_nonnegative_fields(read(new, "status"), ("currentReplicas", "desiredReplicas"), "status", errors)
    return errors


def _validate_v1(obj: Obj) -> list[FieldError]:
    return _validate(to_v2(obj))


def _validate_v1_update(new: Obj, old: Obj) -> list[FieldError]:
    return _validate_update(to_v2(new), to_v2(old))


_KIND: Final = "HorizontalPodAutoscaler"

RULES: dict[tuple[str, str, str], KindRules] = {
    ("autoscaling", "v2", _KIND): KindRules(
        default=_default,
        validate_create=_validate,
        validate_update=_validate_update,
        validate_status=_validate_status,
    ),
    ("autoscaling", "v1", _KIND): KindRules(
        default=_default_v1,
        validate_create=_validate_v1,
        validate_update=_validate_v1_update,
        validate_status=_validate_status,
    ),
    ("autoscaling", "v1", "Scale"): KindRules(
        validate_create=scale_errors, validate_update=lambda new, old: scale_errors(new)
    ),
}
