"""Limits how fast the number of replicas follows the metrics, and sets the conditions that explain it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shoal.controllers.autoscaling.model import ScaleEvent, ScaleHistory, Tolerance
from shoal.kube.objects import Obj
from shoal.kube.quantity import parse

STABILIZATION_S: Final = 300
_UP: Final[Obj] = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_DOWN: Final[Obj] = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}


@dataclass(frozen=True, slots=True)
class ScalingRules:
    up: Obj
    down: Obj

    @property
    def tolerance(self) -> Tolerance:
        return Tolerance(_tolerance(self.up), _tolerance(self.down))


def _tolerance(rules: Obj) -> float:
    found = rules.get("tolerance")
    return Tolerance().up if found is None else parse(str(found)).milli() / 1000


def rules_of(spec: Obj) -> ScalingRules:
    behavior = spec.get("behavior") or {}
    return ScalingRules(_filled(behavior.get("scaleUp"), _UP), _filled(behavior.get("scaleDown"), _DOWN))


def _filled(given: Obj | None, usual: Obj) -> Obj:
    return {**usual, **{name: value for name, value in (given or {}).items() if value is not None}}


@dataclass(frozen=True, slots=True)
class Limited:
    """The number of replicas after all limits, and the conditions that explain it: (status, reason, message)."""

    replicas: int
    able: tuple[str, str, str]
    limited: tuple[str, str, str]


def limit(spec: Obj, current: int, wanted: int, history: ScaleHistory, now: float) -> Limited:
    """Record the recommendation and limit it by the rules."""
    rules = rules_of(spec)
    steady = stabilized(rules, current, wanted, history, now)
    able = ("True", "ReadyForNewScale", "recommended size matches current size")
    if steady < wanted:
        message = "recent recommendations were lower than current one, applying the lowest recent recommendation"
        able = ("True", "ScaleUpStabilized", message)
    elif steady > wanted:
        message = "recent recommendations were higher than current one, applying the highest recent recommendation"
        able = ("True", "ScaleDownStabilized", message)
    least, most = spec.get("minReplicas", 1), spec["maxReplicas"]
    replicas, limited = _within(rules, current, steady, least, most, history.events, now)
    return Limited(replicas, able, limited)


def stabilized(rules: ScalingRules, current: int, wanted: int, history: ScaleHistory, now: float) -> int:
    """The lowest recent recommendation when scaling up, the highest when scaling down."""
    up_s = rules.up.get("stabilizationWindowSeconds") or 0
    down_s = rules.down.get("stabilizationWindowSeconds", STABILIZATION_S)
    longest_s = max(up_s, down_s)
    kept = [(at, each) for at, each in history.recommendations if at > now - longest_s]
    up = min([wanted, *(each for at, each in kept if at > now - up_s)])
    down = max([wanted, *(each for at, each in kept if at > now - down_s)])
    history.recommendations = [*kept, (now, wanted)]
    return min(max(current, up), down)


def _within(
    rules: ScalingRules, current: int, wanted: int, least: int, most: int, events: Sequence[ScaleEvent], now: float
) -> tuple[int, tuple[str, str, str]]:
    fine = ("False", "DesiredWithinRange", "the desired count is within the acceptable range")
    if wanted > current:
        fastest = max(current, up_limit(rules.up, current, events, now))
        if wanted > min(fastest, most):
            if fastest < most:
                message = "the desired replica count is increasing faster than the maximum scale rate"
                return fastest, ("True", "ScaleUpLimit", message)
            message = "the desired replica count is more than the maximum replica count"
            return most, ("True", "TooManyReplicas", message)
    elif wanted < current:
        fastest = min(current, down_limit(rules.down, current, events, now))
        if wanted < max(fastest, least):
            if fastest > least:
                message = "the desired replica count is decreasing faster than the maximum scale rate"
                return fastest, ("True", "ScaleDownLimit", message)
            message = "the desired replica count is less than the minimum replica count"
            return least, ("True", "TooFewReplicas", message)
    return wanted, fine


def _changes(events: Sequence[ScaleEvent], period_s: float, now: float) -> int:
    return sum(each.change for each in events if each.at > now - period_s)


def up_limit(rules: Obj, current: int, events: Sequence[ScaleEvent], now: float) -> int:
    if rules.get("selectPolicy") == "Disabled":
        return current
    found: list[int] = []
    for policy in rules["policies"]:
        start = current - _changes(events, policy["periodSeconds"], now)
        value = policy["value"]
        found.append(start + value if policy["type"] == "Pods" else math.ceil(start * (100 + value) / 100))
    return min(found) if rules.get("selectPolicy") == "Min" else max(found)


def down_limit(rules: Obj, current: int, events: Sequence[ScaleEvent], now: float) -> int:
    if rules.get("selectPolicy") == "Disabled":
        return current
    found: list[int] = []
    for policy in rules["policies"]:
        start = current - _changes(events, policy["periodSeconds"], now)
        value = policy["value"]
        found.append(start - value if policy["type"] == "Pods" else start * (100 - value) // 100)
    return max(found) if rules.get("selectPolicy") == "Min" else min(found)


def remember(spec: Obj, history: ScaleHistory, before: int, after: int, now: float) -> None:
    """Record a change of replicas, for the rates of the rules."""
    rules = rules_of(spec)
    longest_s = max(policy["periodSeconds"] for each in (rules.up, rules.down) for policy in each["policies"])
    kept = [each for each in history.events if each.at > now - longest_s]
    history.events = [*kept, ScaleEvent(now, after - before)]
