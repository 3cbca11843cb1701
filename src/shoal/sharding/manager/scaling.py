"""Decides the number of shards from the workers' reports over time, and explains it. Pure.

It scales up when load, queue depth, latency, a custom metric or a forecast of the load has been too high for long
enough. It scales down, one shard at a time, when one shard fewer has been enough during the cooldown. There is a
cooldown between two scalings; only bounds and budget apply at once. Every decision has an explanation, also to hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, floor

from shoal.crds.shard import ConfigSpec, seconds

HEADROOM = 0.9  # of the threshold for scaling up: with one shard fewer the load must stay below this part of it
_SLACK_S = 0.5  # samples are not evenly spaced: a window counts as covered when this much is missing


class Direction(StrEnum):
    UP = "up"
    DOWN = "down"
    HOLD = "hold"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSample:
    """The live shards at one moment; averages over them."""

    at_s: float  # monotonic
    shards: int
    load: float
    queue_depth: float = 0.0
    latency_s: float = 0.0  # the worst
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    shards: int
    direction: Direction
    reason: str  # one word, for metrics and events
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingState:
    """The current desired number, when it last changed, and how many shards and slots are still in transition."""

    desired: int
    scaled_s: float | None = None  # monotonic; None: never
    arriving: int = 0  # shards that have not received their share yet
    moving: int = 0  # slots


def bounds(spec: ConfigSpec) -> tuple[int, int, str]:
    """(least, most, why not more)."""
    most, why = spec.max_shards, f"maxShards is {spec.max_shards}"
    if spec.cost is not None:
        paid = floor(spec.cost.budget_per_hour / spec.cost.per_shard_hour)
        if paid < most:
            most, why = paid, f"the budget of {spec.cost.budget_per_hour:g} per hour pays for {paid}"
    if most < spec.min_shards:
        most, why = spec.min_shards, f"minShards is {spec.min_shards}, whatever the budget"
    return spec.min_shards, most, why


def decide(spec: ConfigSpec, samples: Sequence[LoadSample], state: ScalingState, now_s: float) -> ScalingDecision:
    """``samples`` are in order of time and reach back as far as the longer of the two windows."""
    least, most, why_most = bounds(spec)
    now = state.desired
    if now < least:
        return ScalingDecision(
            shards=least, direction=Direction.UP, reason="Minimum", explanation=f"minShards is {least}"
        )
    if now > most:
        reason = "Cost" if spec.cost is not None and most < spec.max_shards else "Maximum"
        return ScalingDecision(shards=most, direction=Direction.DOWN, reason=reason, explanation=why_most)
    if not samples:
        return _hold(now, "NoReports", "no live shard has reported yet")
    up = _up(spec, samples, now_s)
    down = _down(spec, samples, now, now_s) if up is None else None
    if up is None and down is None:
        return _hold(now, "Balanced", _balanced(spec, samples[-1]))
    blocked = _blocked(spec, state, now_s)
    if up is not None:
        ratio, reason, why = up
        if now >= most:
            return _hold(now, "AtMaximum", f"{why}, but {why_most}")
        if blocked:
            return _hold(now, blocked[0], f"{why}, but {blocked[1]}")
        # in proportion to the excess, at most twice as many at a time
        shards = min(most, max(now + 1, min(2 * now, ceil(now * ratio))))
        return ScalingDecision(shards=shards, direction=Direction.UP, reason=reason, explanation=why)
    assert down is not None
    reason, why = down
    if now <= least:
        return _hold(now, "AtMinimum", f"{why}, but minShards is {least}")
    if blocked:
        return _hold(now, blocked[0], f"{why}, but {blocked[1]}")
    return ScalingDecision(shards=now - 1, direction=Direction.DOWN, reason=reason, explanation=why)


def joined(spec: ConfigSpec, arrived: Sequence[str], active: int, desired: int) -> ScalingDecision | None:
    """Shards that users create add to the desired number, within its bounds, instead of replacing others."""
    wanted = min(bounds(spec)[1], active)
    if not arrived or wanted <= desired:
        return None
    text = f"a user created {', '.join(sorted(arrived))}"
    return ScalingDecision(shards=wanted, direction=Direction.UP, reason="Joined", explanation=text)


def _hold(shards: int, reason: str, explanation: str) -> ScalingDecision:
    return ScalingDecision(shards=shards, direction=Direction.HOLD, reason=reason, explanation=explanation)


def _blocked(spec: ConfigSpec, state: ScalingState, now_s: float) -> tuple[str, str] | None:
    if state.arriving:
        return "Settling", f"{state.arriving} new shards have not received their slots yet"
    if state.scaled_s is not None:
        rest_s = state.scaled_s + seconds(spec.cooldown) - now_s
        if rest_s > 0:
            return "Cooldown", f"the last scaling was less than {spec.cooldown} ago ({rest_s:.0f} s to go)"
    return None


def _balanced(spec: ConfigSpec, last: LoadSample) -> str:
    return (
        f"load {last.load:.2f} of {last.shards} shards is neither above {spec.scale_up_threshold:g} for "
        f"{spec.sustained_for} nor low enough for one shard fewer for {spec.cooldown}"
    )


# up


def _up(spec: ConfigSpec, samples: Sequence[LoadSample], now_s: float) -> tuple[float, str, str] | None:
    """The strongest reason for more shards: (how many times too few, word, text)."""
    window_s = seconds(spec.sustained_for)
    recent = _window(samples, now_s, window_s)
    if not recent:
        return None
    last, least_load = recent[-1], min(sample.load for sample in recent)
    found: list[tuple[float, str, str]] = []
    lasting = f"for {spec.sustained_for}"
    if least_load > spec.scale_up_threshold:
        text = f"load {last.load:.2f} has been above {spec.scale_up_threshold:g} {lasting}"
        found.append((last.load / spec.scale_up_threshold, "Load", text))
    limit = spec.queue_depth_limit
    if limit and min(sample.queue_depth for sample in recent) > limit:
        text = f"{last.queue_depth:.0f} queued per shard have been more than {limit} {lasting}"
        found.append((last.queue_depth / limit, "QueueDepth", text))
    target_s = seconds(spec.latency_target) if spec.latency_target else 0.0
    if target_s and min(sample.latency_s for sample in recent) > target_s:
        text = f"latency {last.latency_s:.3f} s has been above {spec.latency_target} {lasting}"
        found.append((last.latency_s / target_s, "Latency", text))
    for metric in spec.custom_metrics:
        if min(sample.metrics.get(metric.name, 0.0) for sample in recent) > metric.target:
            value = last.metrics[metric.name]
            text = f"{metric.name} {value:g} per shard has been above {metric.target:g} {lasting}"
            found.append((value / metric.target, "CustomMetric", text))
    forecast = _forecast(spec, recent)
    if forecast is not None and not found:
        text = (
            f"load {last.load:.2f} rises and would be {forecast:.2f}, above {spec.scale_up_threshold:g}, "
            f"in {spec.forecast.horizon if spec.forecast else ''}"
        )
        found.append((forecast / spec.scale_up_threshold, "Forecast", text))
    return max(found, default=None)


def _forecast(spec: ConfigSpec, recent: Sequence[LoadSample]) -> float | None:
    """The load at the horizon if the trend of the window continues; None unless it exceeds the threshold."""
    if spec.forecast is None or len(recent) < 3 or recent[-1].load <= spec.scale_down_threshold:
        return None
    slope = slope_of([(sample.at_s, sample.load) for sample in recent])
    ahead = recent[-1].load + slope * seconds(spec.forecast.horizon)
    return ahead if slope > 0 and ahead > spec.scale_up_threshold else None


def slope_of(points: Sequence[tuple[float, float]]) -> float:
    """Slope of the least-squares line; 0 when all points are at one moment."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


# down


def _down(spec: ConfigSpec, samples: Sequence[LoadSample], now: int, now_s: float) -> tuple[str, str] | None:
    recent = _window(samples, now_s, seconds(spec.cooldown))
    if now < 2 or not recent or not all(_fits(spec, sample) for sample in recent):
        return None
    last = recent[-1]
    lasting = f"for {spec.cooldown}"
    fewer = last.load * last.shards / max(1, last.shards - 1)
    if all(sample.load < spec.scale_down_threshold for sample in recent):
        text = f"load {last.load:.2f} has been below {spec.scale_down_threshold:g} {lasting}; {last.shards - 1} shards"
        return "Load", f"{text} would have {fewer:.2f}"
    # far enough from both thresholds that the next decision does not scale up again
    target = (spec.scale_up_threshold + spec.scale_down_threshold) / 2
    if all(sample.load * sample.shards <= target * (sample.shards - 1) for sample in recent):
        text = (
            f"{last.shards - 1} shards would have load {fewer:.2f}, at most {target:.2f}, and would have had {lasting}"
        )
        return "ExcessCapacity", text
    return None


def _fits(spec: ConfigSpec, sample: LoadSample) -> bool:
    """Whether one shard fewer would have met every limit."""
    if sample.shards < 2:
        return False
    grown = sample.shards / (sample.shards - 1)
    limit, target_s = spec.queue_depth_limit, seconds(spec.latency_target) if spec.latency_target else 0.0
    return (
        sample.load * grown < spec.scale_up_threshold * HEADROOM
        and (not limit or sample.queue_depth * grown <= limit)
        and (not target_s or sample.latency_s * grown <= target_s)
        and all(sample.metrics.get(metric.name, 0.0) * grown <= metric.target for metric in spec.custom_metrics)
    )


def _window(samples: Sequence[LoadSample], now_s: float, window_s: float) -> list[LoadSample]:
    """The samples of the last ``window_s``; none unless they cover it."""
    recent = [sample for sample in samples if sample.at_s >= now_s - window_s - _SLACK_S]
    covered = samples[0].at_s <= now_s - window_s + _SLACK_S
    return recent if covered else []
