"""Flat figures are told from growing ones, whatever the noise."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.testing.flatness import FEWEST, Point, Tolerance, after_warm_up, slope, verdict

TOLERANCE = Tolerance(part=0.05, more=10.0)
finite = st.floats(-1e6, 1e6, allow_nan=False)


def line(per_s: float, *, start: float = 100.0, count: int = 60, noise: float = 0.0, seed: int = 0) -> list[Point]:
    numbers = random.Random(seed)
    return [(float(at), start + per_s * at + numbers.uniform(-noise, noise)) for at in range(count)]


@given(finite, st.floats(-1e3, 1e3), st.integers(2, 40))
def test_the_slope_of_a_line_is_the_lines(start: float, per_s: float, count: int) -> None:
    assert slope(line(per_s, start=start, count=count)) == pytest.approx(per_s, abs=1e-6)


@given(st.lists(finite, min_size=2, max_size=20), finite, st.floats(0.1, 100))
def test_the_slope_moves_with_the_unit_and_not_with_the_level(values: list[float], level: float, unit: float) -> None:
    points = [(float(at), value) for at, value in enumerate(values)]
    moved = [(at, unit * (value + level)) for at, value in points]
    assert slope(moved) == pytest.approx(unit * slope(points), rel=1e-6, abs=1e-3)


@given(st.integers(0, 1000), st.lists(st.tuples(st.integers(0, 59), st.floats(0, 1e6)), max_size=10))
def test_a_few_pauses_of_the_machine_do_not_make_a_flat_figure_grow(seed: int, pauses: list[tuple[int, float]]) -> None:
    points = line(0.0, noise=5.0, seed=seed)
    for at, value in pauses:
        points[at] = (float(at), value)
    assert verdict("p99_ms", points, TOLERANCE).flat


@given(st.integers(0, 1000), st.floats(1.0, 100.0))
def test_a_leak_is_found_through_noise(seed: int, per_s: float) -> None:
    found = verdict("memory_mb", line(per_s, noise=5.0, seed=seed), TOLERANCE)
    assert not found.flat
    assert found.growth == pytest.approx(per_s * found.seconds, rel=0.2)


def test_growth_during_the_warm_up_does_not_count() -> None:
    points = [(float(at), min(at, 30) * 100.0) for at in range(61)]
    assert not verdict("memory_mb", points, TOLERANCE, warm_up=0.0).flat
    assert verdict("memory_mb", points, TOLERANCE, warm_up=0.5).flat


def test_a_figure_that_falls_is_flat() -> None:
    assert verdict("memory_mb", line(-5.0, start=1000.0), TOLERANCE).flat


def test_the_warm_up_is_a_part_of_the_time_and_not_of_the_samples() -> None:
    points = [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (50.0, 1.0), (100.0, 1.0)]
    assert [at for at, _ in after_warm_up(points, 0.25)] == [50.0, 100.0]


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match=f"{FEWEST} are needed"):
        verdict("memory_mb", line(0.0, count=FEWEST), TOLERANCE)
    with pytest.raises(ValueError, match="0 samples"):
        verdict("memory_mb", [], TOLERANCE)
