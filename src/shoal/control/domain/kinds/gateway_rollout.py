"""``spec.sentinel.rollout`` of an environment: how another image or size reaches its gateways.

Its fields are those of an app's rollout that mean something for gateways. A weight is a share of the pods of a gateway,
and both versions get the same kinds of requests: there are no testers, copies, previews or checks elsewhere, and after
the promotion nothing is left to keep.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.rollout import read_rollout
from shoal.control.rollout.goals import FULL
from shoal.control.rollout.strategy import Strategy
from shoal.errors import forbidden, invalid

STEPS = ("weight", "pause", "analysis")
DEFAULTS: dict[str, Any] = {
    "strategy": "canary",
    "steps": [{"weight": 50}, {"pause": "2m"}],
    "waves": [{"name": "regions", "percent": 100, "concurrency": 1}],
    "interval": "15s",
    "deadline": "5m",
}
"""One region after the other; in each, half of the pods have the candidate for two minutes, in which it is compared
with the others. It waits for no number of requests: a gateway that nobody uses is exchanged too."""
_WITHOUT = {
    "strategy": "gateways are always exchanged step by step",
    "previewHost": "a gateway has no preview",
    "keep": "both versions share the pods of a gateway: nothing is kept after the promotion",
    "checks": "gateways are judged by their own numbers only",
    "notify": "rollouts of gateways notify nobody: `shoal events` and `shoal rollout status` show them",
}


def read_gateway_rollout(part: Reader | None) -> Strategy:
    """``part.errors`` has what is wrong with it."""
    if part is not None:
        for name, why in _WITHOUT.items():
            if part.has(name):
                part.note(forbidden(part.at(name), why))
    read = read_rollout(part, DEFAULTS)
    if part is not None:
        _check_steps(part, read)
    return replace(read, kind="canary", keep_s=0.0, preview_host="", checks=(), notify=())


def _check_steps(part: Reader, strategy: Strategy) -> None:
    weight = 0
    for index, step in enumerate(strategy.steps):
        path = f"{part.at('steps')}[{index}]"
        if step.kind not in STEPS:
            part.note(forbidden(path, f"gateways have no {step.kind} steps; they have {', '.join(STEPS)}"))
            continue
        if step.kind == "weight":
            weight = step.percent
            if not 0 < weight < FULL:
                why = "must be between 1 and 99: all pods get the candidate after the last step"
                part.note(invalid(path, weight, why))
        elif not weight:
            part.note(invalid(path, step.kind, "a weight must come first: before it no pod runs the candidate"))
            return
