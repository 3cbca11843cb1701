"""The table of HorizontalPodAutoscalers in both versions: each metric as ``current/target``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from shoal.kube.objects import Obj
from shoal.kube.quantity import canonical
from shoal.kube.tables.printer import AGE, NAME, Cells, Printer, column
from shoal.kube.tables.text import NONE, UNKNOWN, UNSET, age, name, spec, status

_SHOWN: Final = 2

# Metric type → (field of spec and status, whether the text names the resource).
_SOURCES: Final = {
    "External": ("external", False),
    "Object": ("object", False),
    "Pods": ("pods", False),
    "Resource": ("resource", True),
    "ContainerResource": ("containerResource", True),
}


def _amount(value: Any) -> str:
    if value is None:
        return UNKNOWN
    try:
        return canonical(value)
    except ValueError:
        return str(value)


def _percent(value: Any, absent: str) -> str:
    return absent if value is None else f"{value}%"


def _metric(wanted: Obj, current: Obj) -> str:
    source = _SOURCES.get(wanted.get("type") or "")
    if source is None:
        return "<unknown type>"
    field, named = source
    of_spec = wanted.get(field) or {}
    target, now = of_spec.get("target") or {}, (current.get(field) or {}).get("current") or {}
    if named:
        prefix = f"{of_spec.get('name') or ''}: "
        if target.get("averageValue") is not None:
            return f"{prefix}{_amount(now.get('averageValue'))}/{_amount(target['averageValue'])}"
        used = _percent(now.get("averageUtilization"), UNKNOWN)
        return f"{prefix}{used}/{_percent(target.get('averageUtilization'), '<auto>')}"
    if field == "pods":
        return f"{_amount(now.get('averageValue'))}/{_amount(target.get('averageValue'))}"
    if target.get("averageValue") is not None:
        return f"{_amount(now.get('averageValue'))}/{_amount(target['averageValue'])} (avg)"
    return f"{_amount(now.get('value'))}/{_amount(target.get('value'))}"


def _targets(wanted: Sequence[Obj], current: Sequence[Obj]) -> str:
    if not wanted:
        return NONE
    shown = [_metric(metric, current[i] if i < len(current) else {}) for i, metric in enumerate(wanted[:_SHOWN])]
    text = ", ".join(shown)
    return f"{text} + {len(wanted) - _SHOWN} more..." if len(wanted) > _SHOWN else text


def _cells(obj: Obj, now: float) -> Cells:
    wanted, current = spec(obj), status(obj)
    target = wanted.get("scaleTargetRef") or {}
    percent = wanted.get("targetCPUUtilizationPercentage")  # version 1 has only this metric
    if percent is not None:
        metrics = f"cpu: {_percent(current.get('currentCPUUtilizationPercentage'), UNKNOWN)}/{percent}%"
    else:
        metrics = _targets(wanted.get("metrics") or (), current.get("currentMetrics") or ())
    minimum = wanted.get("minReplicas")
    return [
        name(obj),
        f"{target.get('kind') or ''}/{target.get('name') or ''}",
        metrics,
        UNSET if minimum is None else str(minimum),
        wanted.get("maxReplicas") or 0,
        current.get("currentReplicas") or 0,
        age(obj, now),
    ]


PRINTERS: Final = {
    ("autoscaling", "HorizontalPodAutoscaler"): Printer(
        [
            NAME,
            column("Reference", "Object that it scales."),
            column("Targets", "Current value and target of each metric."),
            column("MinPods", "Smallest number of pods."),
            column("MaxPods", "Largest number of pods."),
            column("Replicas", "Current number of pods."),
            AGE,
        ],
        _cells,
    )
}
