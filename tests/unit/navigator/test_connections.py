"""Measured calls between services: reading, merging and percentiles."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from answers_world import DB, INF, WEB, a_connection
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.navigator.connections import (
    CallEndpoint,
    LatencyHistogram,
    ServiceConnection,
    connections_json,
    merged,
    read_connections,
)


def test_the_success_rate_stays_between_0_and_1_despite_rounding() -> None:
    assert a_connection(10.0, 10.000001).success_rate == 0.0
    assert a_connection(10.0, -1e-9).success_rate == 1.0
    assert a_connection(0.0, 0.0).success_rate is None


def test_a_call_between_clusters_that_both_ends_measured_counts_once() -> None:
    there = CallEndpoint("us-1", "shop", "db")
    seen = [
        a_connection(7.0, destination=there, reporter="source"),
        a_connection(6.9, destination=there, reporter="destination"),
        a_connection(2.0, reporter="destination"),
    ]
    assert [(each.destination.cluster, each.requests) for each in merged(seen)] == [("eu-1", 2.0), ("us-1", 7.0)]


def test_invalid_connections_are_left_out_and_counted() -> None:
    good = connections_json([a_connection(3.0)])["connections"][0]
    bad: list[Any] = [{**good, "requests": float("nan")}, {**good, "source": None}, {}, 7, {**good, "buckets": [[1]]}]
    found, warnings = read_connections({"connections": [good, *bad], "warnings": ["slow"]}, "eu-1")
    assert len(found) == 1
    assert warnings == ["slow", "5 connections could not be read"]
    with pytest.raises(ValueError, match="no list"):
        read_connections([], "eu-1")


_BOUNDS = st.lists(st.sampled_from([1.0, 5.0, 10.0, 50.0, 100.0]), min_size=1, unique=True).map(sorted)


@st.composite
def histograms(draw: st.DrawFn) -> LatencyHistogram:
    bounds = draw(_BOUNDS)
    steps = draw(st.lists(st.integers(0, 5), min_size=len(bounds) + 1, max_size=len(bounds) + 1))
    counts = [float(sum(steps[: number + 1])) for number in range(len(steps))]
    return LatencyHistogram((*bounds, INF), tuple(counts))


@settings(max_examples=100, deadline=None)
@given(parts=st.lists(histograms(), min_size=1, max_size=4))
def test_merging_keeps_every_request_and_a_percentile_lies_between_those_of_the_parts(
    parts: list[LatencyHistogram],
) -> None:
    whole = LatencyHistogram.merged(parts)
    assert whole.total == pytest.approx(sum(part.total for part in parts))
    assert all(low <= high + 1e-9 for low, high in zip(whole.counts, whole.counts[1:], strict=False))
    same = {part.bounds for part in parts}
    found = [value for part in parts if (value := part.quantile(0.5)) is not None]
    median = whole.quantile(0.5)
    if len(same) == 1 and found and median is not None and len(found) == sum(part.total > 0 for part in parts):
        assert min(found) - 1e-9 <= median <= max(found) + 1e-9


@settings(max_examples=100, deadline=None)
@given(histogram=histograms(), requests=st.floats(0, 100), errors=st.floats(0, 100))
def test_connections_of_an_edge_are_read_as_written(
    histogram: LatencyHistogram, requests: float, errors: float
) -> None:
    sent = ServiceConnection(source=WEB, destination=DB, requests=requests, errors=min(errors, requests), reporter="source",
                      latency_ms=histogram)  # fmt: skip
    (read,), warnings = read_connections(orjson.loads(orjson.dumps(connections_json([sent]))), "other")
    assert read == sent
    assert warnings == []
