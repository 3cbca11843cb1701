"""A HorizontalPodAutoscaler in two shapes: autoscaling/v2, and autoscaling/v1 with the rest in annotations.

autoscaling/v1 has one target, the utilization of cpu. Other fields of a v2 object are converted to annotations and
back. An invalid annotation is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from shoal.kube import quantity
from shoal.kube.objects import Obj

METRICS: Final = "autoscaling.alpha.kubernetes.io/metrics"
CURRENT_METRICS: Final = "autoscaling.alpha.kubernetes.io/current-metrics"
CONDITIONS: Final = "autoscaling.alpha.kubernetes.io/conditions"
BEHAVIOR: Final = "autoscaling.alpha.kubernetes.io/behavior"
_ROUND_TRIP: Final = frozenset(
    {
        METRICS,
        CURRENT_METRICS,
        CONDITIONS,
        BEHAVIOR,
        "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
        "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
    }
)
DEFAULT_CPU_PERCENT: Final = 80

_SOURCES: Final = {
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "External": "external",
}
_SHARED_STATUS: Final = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
_SHARED_SPEC: Final = ("scaleTargetRef", "minReplicas", "maxReplicas")


def cpu_metric(percent: int) -> Obj:
    """The metric that autoscaling/v1 can express."""
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


# --- v2 to v1


def to_v1(hpa: Obj) -> Obj:
    """An autoscaling/v2 object as autoscaling/v1; parts that do not change are shared, not copied."""
    spec, status = hpa.get("spec") or {}, hpa.get("status") or {}
    metadata = dict(hpa["metadata"])
    annotations = _plain_annotations(metadata)
    metrics = spec.get("metrics") or []
    others = [_metric_to_v1(metric) for metric in metrics if _cpu_percent(metric) is None]
    if others:
        annotations[METRICS] = _dump(others)
    if status.get("currentMetrics"):
        annotations[CURRENT_METRICS] = _dump([_current_to_v1(metric) for metric in status["currentMetrics"]])
    if spec.get("behavior") is not None:
        annotations[BEHAVIOR] = _dump(_behavior_to_v1(spec["behavior"]))
    if status.get("conditions"):
        annotations[CONDITIONS] = _dump(status["conditions"])
    _set_annotations(metadata, annotations)
    made: Obj = {**hpa, "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": metadata}
    made["spec"] = {name: spec[name] for name in _SHARED_SPEC if name in spec}
    percent = next((found for metric in metrics if (found := _cpu_percent(metric)) is not None), None)
    if percent is not None:
        made["spec"]["targetCPUUtilizationPercentage"] = percent
    if "status" in hpa:
        made["status"] = _status_to_v1(status)
    return made


def _plain_annotations(metadata: Obj) -> dict[str, str]:
    return {key: value for key, value in (metadata.get("annotations") or {}).items() if key not in _ROUND_TRIP}


def _set_annotations(metadata: Obj, annotations: dict[str, str]) -> None:
    if annotations:
        metadata["annotations"] = annotations
    else:
        metadata.pop("annotations", None)


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _cpu_percent(metric: Obj) -> int | None:
    resource = metric.get("resource") or {}
    if metric.get("type") != "Resource" or resource.get("name") != "cpu":
        return None
    percent: int | None = (resource.get("target") or {}).get("averageUtilization")
    return percent


def _status_to_v1(status: Obj) -> Obj:
    made: Obj = {name: status[name] for name in _SHARED_STATUS if name in status}
    made.setdefault("currentReplicas", 0)  # v2 omits a zero
    for metric in status.get("currentMetrics") or ():
        resource = metric.get("resource") or {}
        percent = (resource.get("current") or {}).get("averageUtilization")
        if metric.get("type") == "Resource" and resource.get("name") == "cpu" and percent is not None:
            made["currentCPUUtilizationPercentage"] = percent
    return made


def _behavior_to_v1(behavior: Obj) -> Obj:
    """Field names in the annotation begin with a capital letter."""
    return {_capital(name): _rules_to_v1(rules) for name, rules in behavior.items()}


def _rules_to_v1(rules: Obj) -> Obj:
    made = {_capital(name): value for name, value in rules.items()}
    if rules.get("policies") is not None:
        made["Policies"] = [{_capital(key): value for key, value in each.items()} for each in rules["policies"]]
    return made


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]


def _small(name: str) -> str:
    return name[:1].lower() + name[1:]


def _without_none(fields: Obj) -> Obj:
    return {name: value for name, value in fields.items() if value is not None}


def _metric_to_v1(metric: Obj) -> Obj:
    made: Obj = {"type": metric.get("type", "")}
    for name in _SOURCES.values():
        source = metric.get(name)
        if source is not None:
            made[name] = _source_to_v1(name, source)
    return made


def _source_to_v1(name: str, source: Obj) -> Obj:
    target, identity = source.get("target") or {}, source.get("metric") or {}
    value, average = target.get("value"), target.get("averageValue")
    if name in ("resource", "containerResource"):
        fields = {
            "name": source.get("name"),
            "container": source.get("container"),
            "targetAverageUtilization": target.get("averageUtilization"),
            "targetAverageValue": average,
        }
    elif name == "pods":
        fields = {
            "metricName": identity.get("name"),
            "targetAverageValue": average or "0",
            "selector": identity.get("selector"),
        }
    elif name == "external":
        fields = {
            "metricName": identity.get("name"),
            "metricSelector": identity.get("selector"),
            "targetValue": value,
            "targetAverageValue": average,
        }
    else:
        fields = {
            "target": source.get("describedObject") or {},
            "metricName": identity.get("name"),
            "targetValue": value or "0",
            "selector": identity.get("selector"),
            "averageValue": average,
        }
    return _without_none(fields)


def _current_to_v1(metric: Obj) -> Obj:
    made: Obj = {"type": metric.get("type", "")}
    for name in _SOURCES.values():
        source = metric.get(name)
        if source is not None:
            made[name] = _current_source_to_v1(name, source)
    return made


def _current_source_to_v1(name: str, source: Obj) -> Obj:
    current, identity = source.get("current") or {}, source.get("metric") or {}
    value, average = current.get("value"), current.get("averageValue")
    if name in ("resource", "containerResource"):
        fields = {
            "name": source.get("name"),
            "container": source.get("container"),
            "currentAverageUtilization": current.get("averageUtilization"),
            "currentAverageValue": average or "0",
        }
    elif name == "pods":
        fields = {
            "metricName": identity.get("name"),
            "currentAverageValue": average or "0",
            "selector": identity.get("selector"),
        }
    elif name == "external":
        fields = {
            "metricName": identity.get("name"),
            "metricSelector": identity.get("selector"),
            "currentValue": value or "0",
            "currentAverageValue": average,
        }
    else:
        fields = {
            "target": source.get("describedObject") or {},
            "metricName": identity.get("name"),
            "currentValue": value or "0",
            "selector": identity.get("selector"),
            "averageValue": average,
        }
    return _without_none(fields)


# --- v1 to v2


def to_v2(hpa: Obj) -> Obj:
    """An autoscaling/v1 object as autoscaling/v2; parts that do not change are shared, not copied."""
    spec, status = hpa.get("spec") or {}, hpa.get("status") or {}
    metadata = dict(hpa["metadata"])
    annotations = metadata.get("annotations") or {}
    made: Obj = {**hpa, "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata}
    _set_annotations(metadata, _plain_annotations(metadata))
    new_spec: Obj = {name: spec[name] for name in _SHARED_SPEC if name in spec}
    metrics: list[Obj] = _decoded(annotations.get(METRICS), _metrics_to_v2) or []
    percent = spec.get("targetCPUUtilizationPercentage")
    if percent is not None or not metrics:
        metrics = [*metrics, cpu_metric(DEFAULT_CPU_PERCENT if percent is None else percent)]
    new_spec["metrics"] = metrics
    behavior = _decoded(annotations.get(BEHAVIOR), _behavior_to_v2)
    if behavior:
        new_spec["behavior"] = behavior
    made["spec"] = new_spec
    new_status = _status_to_v2(status, annotations)
    if "status" in hpa or new_status:
        made["status"] = new_status
    return made


def _status_to_v2(status: Obj, annotations: dict[str, str]) -> Obj:
    made: Obj = {name: status[name] for name in _SHARED_STATUS if name in status}
    percent = status.get("currentCPUUtilizationPercentage")
    current = _decoded(annotations.get(CURRENT_METRICS), _currents_to_v2)
    if current is None and percent is not None:
        resource = {"name": "cpu", "current": {"averageUtilization": percent}}
        current = [{"type": "Resource", "resource": resource}]
    if current:
        made["currentMetrics"] = current
    conditions = _decoded(annotations.get(CONDITIONS), _conditions_to_v2)
    if conditions:
        made["conditions"] = conditions
    return made


def _decoded(text: str | None, convert: Callable[[Any], Any]) -> Any:
    """The content of an annotation; None if it is invalid."""
    if not text:
        return None
    try:
        return convert(json.loads(text))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def _want(value: Any, kind: type) -> Any:
    """The value, which must be absent or of this type: any client can write annotations."""
    if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        raise TypeError(f"expected {kind.__name__}")
    return value


def _amount(value: Any) -> str | None:
    return None if value is None else quantity.canonical(value)


def _text_map(value: Any) -> Obj | None:
    found: Obj | None = _want(value, dict)
    for each in (found or {}).values():
        _want(each, str)
    return found


def _metrics_to_v2(metrics: list[Obj]) -> list[Obj]:
    return [_each_source(metric, _source_to_v2) for metric in _want(metrics, list) or ()]


def _currents_to_v2(metrics: list[Obj]) -> list[Obj]:
    return [_each_source(metric, _current_source_to_v2) for metric in _want(metrics, list) or ()]


def _each_source(metric: Obj, convert: Callable[[str, Obj], Obj]) -> Obj:
    made: Obj = {"type": _want(metric.get("type"), str) or ""}
    for name in _SOURCES.values():
        source = _want(metric.get(name), dict)
        if source is not None:
            made[name] = convert(name, source)
    return made


def _identity(source: Obj, selector: str) -> Obj:
    return _without_none({"name": _want(source.get("metricName"), str), "selector": _selector(source.get(selector))})


def _selector(value: Any) -> Obj | None:
    found: Obj | None = _want(value, dict)
    if found is None:
        return None
    _text_map(found.get("matchLabels"))
    for expression in _want(found.get("matchExpressions"), list) or ():
        for name in ("key", "operator"):
            _want(expression.get(name), str)
        for each in _want(expression.get("values"), list) or ():
            _want(each, str)
    return found


def _source_to_v2(name: str, source: Obj) -> Obj:
    made: Obj = {}
    average = _amount(source.get("averageValue" if name == "object" else "targetAverageValue"))
    if name in ("resource", "containerResource"):
        made.update(_without_none({key: _want(source.get(key), str) for key in ("name", "container")}))
        percent = _want(source.get("targetAverageUtilization"), int)
        kind = "AverageValue" if percent is None else "Utilization"
        made["target"] = _without_none({"type": kind, "averageUtilization": percent, "averageValue": average})
        return made
    made["metric"] = _identity(source, "metricSelector" if name == "external" else "selector")
    value = None if name == "pods" else _amount(source.get("targetValue"))
    if name == "object":
        made["describedObject"] = _text_map(source.get("target")) or {}
        if average is not None and value == "0":
            value = None  # required in v1
        kind = "Value" if average is None else "AverageValue"
    else:
        kind = "AverageValue" if value is None else "Value"
    made["target"] = _without_none({"type": kind, "value": value, "averageValue": average})
    return made


def _current_source_to_v2(name: str, source: Obj) -> Obj:
    made: Obj = {}
    average = _amount(source.get("averageValue" if name == "object" else "currentAverageValue"))
    if name in ("resource", "containerResource"):
        made.update(_without_none({key: _want(source.get(key), str) for key in ("name", "container")}))
        percent = _want(source.get("currentAverageUtilization"), int)
        made["current"] = _without_none({"averageUtilization": percent, "averageValue": average})
        return made
    made["metric"] = _identity(source, "metricSelector" if name == "external" else "selector")
    value = None if name == "pods" else _amount(source.get("currentValue"))
    if name == "object":
        made["describedObject"] = _text_map(source.get("target")) or {}
    made["current"] = _without_none({"value": value, "averageValue": average})
    return made


def _behavior_to_v2(behavior: Obj) -> Obj:
    named = {_small(name): value for name, value in behavior.items() if value is not None}
    return {name: _rules_to_v2(named[name]) for name in ("scaleUp", "scaleDown") if name in named}


def _rules_to_v2(rules: Obj) -> Obj:
    named = {_small(name): value for name, value in rules.items()}
    policies = _want(named.get("policies"), list)
    return _without_none(
        {
            "stabilizationWindowSeconds": _want(named.get("stabilizationWindowSeconds"), int),
            "selectPolicy": _want(named.get("selectPolicy"), str),
            "policies": None if policies is None else [_policy_to_v2(policy) for policy in policies],
            "tolerance": _amount(named.get("tolerance")),
        }
    )


def _policy_to_v2(policy: Obj) -> Obj:
    named = {_small(name): value for name, value in policy.items()}
    return _without_none(
        {
            "type": _want(named.get("type"), str),
            "value": _want(named.get("value"), int),
            "periodSeconds": _want(named.get("periodSeconds"), int),
        }
    )


def _conditions_to_v2(conditions: list[Obj]) -> list[Obj]:
    names = ("type", "status", "lastTransitionTime", "reason", "message")
    return [
        _without_none({name: _want(condition.get(name), str) for name in names})
        for condition in _want(conditions, list) or ()
    ]
