"""Scaling decisions: each reason, each limit, and the explanations."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.crds.shard import ConfigSpec, Cost, CustomMetric, Forecast
from shoal.sharding.manager.scaling import Direction, LoadSample, ScalingState, bounds, decide, slope_of

SPEC = ConfigSpec(min_shards=2, max_shards=10, sustained_for="30s", cooldown="2m")
QUIET = LoadSample(at_s=0, shards=4, load=0.6)
NOW_S = 1000.0


def lasting(sample: LoadSample = QUIET, *, for_s: float = 130.0, **fields: object) -> list[LoadSample]:
    made = replace(sample, **fields)  # type: ignore[arg-type]
    return [replace(made, at_s=NOW_S - for_s + 5 * step) for step in range(int(for_s / 5) + 1)]


def decided(samples: list[LoadSample], spec: ConfigSpec = SPEC, desired: int = 4, **state: object):
    return decide(spec, samples, ScalingState(desired=desired, **state), NOW_S)  # type: ignore[arg-type]


def with_(**fields: object) -> ConfigSpec:
    return msgspec.structs.replace(SPEC, **fields)


def test_a_load_between_the_thresholds_changes_nothing():
    assert decided(lasting()).direction is Direction.HOLD


def test_a_load_above_the_threshold_for_long_enough_adds_shards():
    found = decided(lasting(load=0.85))
    assert (found.direction, found.shards, found.reason) == (Direction.UP, 5, "Load")
    assert "0.85" in found.explanation
    assert "0.8" in found.explanation


def test_one_sample_decides_nothing():
    assert decided([replace(QUIET, at_s=NOW_S, load=1.0)]).direction is Direction.HOLD
    spiked = [*lasting(), replace(QUIET, at_s=NOW_S, load=1.0)]
    assert decided(spiked).direction is Direction.HOLD
    dipped = [*lasting(load=0.9)[:-2], replace(QUIET, at_s=NOW_S - 3, load=0.7), replace(QUIET, at_s=NOW_S, load=0.9)]
    assert decided(dipped).direction is Direction.HOLD


def test_the_largest_excess_decides_how_many_but_at_most_twice_as_many():
    spec = with_(queue_depth_limit=10)
    found = decided(lasting(load=0.9, queue_depth=15), spec)
    assert (found.shards, found.reason) == (6, "QueueDepth")
    assert decided(lasting(queue_depth=1000), spec).shards == 8


def test_latency_and_custom_metrics_add_shards():
    assert decided(lasting(latency_s=0.3), with_(latency_target="200ms")).reason == "Latency"
    spec = with_(custom_metrics=[CustomMetric(name="orders", target=5)])
    found = decided(lasting(metrics={"orders": 6.0}), spec)
    assert (found.direction, found.reason) == (Direction.UP, "CustomMetric")
    assert "orders 6 per shard" in found.explanation


def test_a_rising_load_adds_shards_before_it_is_too_high():
    rising = [replace(QUIET, at_s=NOW_S - 60 + 5 * step, load=0.4 + 0.02 * step) for step in range(13)]
    assert decided(rising).direction is Direction.HOLD
    found = decided(rising, with_(forecast=Forecast(horizon="1m")))
    assert (found.direction, found.reason) == (Direction.UP, "Forecast")
    falling = [replace(sample, load=1.0 - sample.load) for sample in rising]
    assert decided(falling, with_(forecast=Forecast(horizon="1m"))).direction is Direction.HOLD


def test_a_low_load_removes_one_shard_when_it_has_lasted_for_the_cooldown():
    found = decided(lasting(load=0.2))
    assert (found.direction, found.shards, found.reason) == (Direction.DOWN, 3, "Load")
    assert decided(lasting(load=0.2, for_s=60)).direction is Direction.HOLD


def test_excess_capacity_removes_a_shard_though_the_load_is_not_low():
    many = lasting(replace(QUIET, shards=10), load=0.45)
    found = decided(many, desired=10)
    assert (found.direction, found.shards, found.reason) == (Direction.DOWN, 9, "ExcessCapacity")
    assert decided(lasting(replace(QUIET, shards=2), load=0.45), desired=2).direction is Direction.HOLD


def test_a_shard_is_not_removed_when_the_others_could_not_do_its_work():
    two = replace(QUIET, shards=2)
    spec = with_(min_shards=1, scale_down_threshold=0.5)
    assert decided(lasting(two, load=0.45), spec, desired=2).direction is Direction.HOLD  # 0.9 on one
    assert decided(lasting(two, load=0.2), spec, desired=2).direction is Direction.DOWN
    busy = with_(min_shards=1, queue_depth_limit=10)
    assert decided(lasting(two, load=0.1, queue_depth=8), busy, desired=2).direction is Direction.HOLD


def test_a_cooldown_separates_two_scalings():
    held = decided(lasting(load=0.9), scaled_s=NOW_S - 100)
    assert (held.direction, held.reason) == (Direction.HOLD, "Cooldown")
    assert "20 s to go" in held.explanation
    assert decided(lasting(load=0.9), scaled_s=NOW_S - 121).direction is Direction.UP


def test_scaling_waits_for_shards_that_are_joining():
    assert decided(lasting(load=0.9), arriving=1).reason == "Settling"


def test_bounds_and_budget_act_at_once():
    assert decided([], desired=1).shards == 2
    assert decided([], desired=12).shards == 10
    assert decided(lasting(load=0.9), desired=10).reason == "AtMaximum"
    poor = with_(cost=Cost(per_shard_hour=0.5, budget_per_hour=1.6))
    found = decided(lasting(), poor)
    assert (found.shards, found.reason) == (3, "Cost")
    assert bounds(with_(cost=Cost(per_shard_hour=1, budget_per_hour=1)))[:2] == (2, 2)
    assert decided(lasting(load=0.1), desired=2).reason == "AtMinimum"


def test_without_reports_nothing_is_decided():
    assert decided([]).reason == "NoReports"


@settings(max_examples=200, deadline=None)
@given(
    load=st.floats(0, 1), queue=st.floats(0, 1000), desired=st.integers(1, 12), shards=st.integers(1, 12),
    for_s=st.floats(0, 300), scaled=st.one_of(st.none(), st.floats(0, 400)),
)  # fmt: skip
def test_every_decision_is_within_the_bounds_and_explained(load, queue, desired, shards, for_s, scaled):
    spec = with_(queue_depth_limit=100)
    samples = lasting(LoadSample(at_s=0, shards=shards, load=load, queue_depth=queue), for_s=for_s)
    found = decided(samples, spec, desired=desired, scaled_s=None if scaled is None else NOW_S - scaled)
    assert found.explanation
    if found.direction is not Direction.HOLD:
        assert 2 <= found.shards <= 10
    else:
        assert found.shards == desired


@settings(max_examples=50, deadline=None)
@given(load=st.floats(0.01, 1), shards=st.integers(2, 10))
def test_scaling_down_is_never_followed_by_scaling_up_for_the_same_work(load, shards):
    samples = lasting(LoadSample(at_s=0, shards=shards, load=load))
    found = decided(samples, desired=shards)
    if found.direction is Direction.DOWN:
        after = lasting(LoadSample(at_s=0, shards=found.shards, load=min(1.0, load * shards / found.shards)))
        assert decided(after, desired=found.shards).direction is not Direction.UP


def test_the_slope_is_that_of_the_best_line():
    assert abs(slope_of([(0, 1), (1, 3), (2, 5)]) - 2) < 1e-9
    assert slope_of([(1, 1), (1, 5)]) == 0
