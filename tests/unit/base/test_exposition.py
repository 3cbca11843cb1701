"""The formats of metrics: what is written is read back by Prometheus' library, and protobuf by a reader of its own."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from shoal.base.exposition import Spread, fine_bounds, native_buckets, protobuf, wants_protobuf
from shoal.base.metrics import Distribution, Metrics

BOUNDS = (0.005, 0.1, 1.0, 60.0)
DELIMITED = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
words = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r"), max_size=8)
seconds = st.floats(0, 1e5)


@given(st.dictionaries(st.tuples(words, words), st.floats(allow_nan=False)), words)
def test_text_is_read_back_as_it_was(numbers: dict[tuple[str, str], float], about: str) -> None:
    metrics = Metrics()
    metrics.gauge("g", about, ("zone", "area")).follow_each(lambda: numbers)
    (family,) = text_string_to_metric_families(metrics.render().decode())
    read = {(sample.labels["zone"], sample.labels["area"]): sample.value for sample in family.samples}
    assert read == numbers and family.type == "gauge"


@given(st.lists(seconds, max_size=40))
def test_histograms_are_cumulative_in_classic_buckets_whether_native_or_not(values: list[float]) -> None:
    found = []
    for native in (False, True):
        metrics = Metrics()
        series = metrics.histogram("h_seconds", "H.", ("a", "z"), bounds=BOUNDS, native=native).labels("1", "2")
        for value in values:
            series.observe(value)
        (family,) = text_string_to_metric_families(metrics.render().decode())
        read = {(sample.name, sample.labels.get("le")): sample.value for sample in family.samples}
        for bound in BOUNDS:
            assert read["h_seconds_bucket", str(bound)] == sum(value <= bound for value in values)
        assert read["h_seconds_bucket", "+Inf"] == read["h_seconds_count", None] == len(values)
        assert read["h_seconds_sum", None] == pytest.approx(math.fsum(values), rel=1e-9, abs=1e-9)
        found.append(read)
    assert found[0] == found[1]


@given(st.lists(st.floats(2e-6, 4000), max_size=40))
def test_each_observation_is_in_the_native_bucket_of_its_size(values: list[float]) -> None:
    spread = Distribution(fine_bounds(BOUNDS))
    for value in values:
        spread.observe(value)
    zeros, buckets = native_buckets(Spread(spread.bounds, spread.counts, spread.total))
    assert zeros == 0 and sum(buckets.values()) == len(values)
    for index, count in buckets.items():
        low, high = 2 ** ((index - 1) / 8), 2 ** (index / 8)
        assert count == sum(low < value <= high for value in values)


def test_tiny_and_huge_observations_are_in_the_zero_bucket_and_above_the_highest() -> None:
    spread = Distribution(fine_bounds(BOUNDS))
    for value in (0.0, 1e-7, 1e9):
        spread.observe(value)
    assert native_buckets(Spread(spread.bounds, spread.counts, spread.total)) == (2, {97: 1})


def fields(message: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """The fields of a protobuf message, read independently of the writer."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 1:
            yield key >> 3, struct.unpack("<d", message[at : at + 8])[0]
            at += 8
        else:
            size = varint()
            yield key >> 3, message[at : at + size]
            at += size


def all_of(message: bytes, number: int) -> list[int | float | bytes]:
    return [value for field, value in fields(message) if field == number]


def one(message: bytes, number: int) -> bytes:
    (found,) = all_of(message, number)
    assert isinstance(found, bytes)
    return found


def test_protobuf_has_classic_and_native_buckets() -> None:
    metrics = Metrics()
    metrics.counter("c_total", "C.", ("verb",)).labels("get").inc(3)
    series = metrics.histogram("h_seconds", "H.", bounds=BOUNDS, native=True).labels()
    for value in (0.5, 0.5, 0.52, 2.0):
        series.observe(value)
    # a family is a message with its size before it, as the first field of an outer message would be
    body = protobuf(metrics.expose())
    size, start = body[0], 1
    counter, rest = body[start : start + size], body[start + size :]
    assert one(counter, 1) == b"c_total" and all_of(counter, 3) == [0]
    metric = one(counter, 4)
    assert [value for _, value in fields(one(metric, 1))] == [b"verb", b"get"]
    assert all_of(one(metric, 3), 1) == [3.0]
    shift = 1 if rest[0] < 0x80 else 2
    family = rest[shift:]
    assert one(family, 1) == b"h_seconds" and all_of(family, 3) == [4]
    histogram = one(one(family, 4), 7)
    assert all_of(histogram, 1) == [4] and all_of(histogram, 2) == [pytest.approx(3.52)]
    classic = [dict(fields(bucket)) for bucket in all_of(histogram, 3) if isinstance(bucket, bytes)]
    assert [(bucket[2], bucket[1]) for bucket in classic] == [(0.005, 0), (0.1, 0), (1.0, 3), (60.0, 4)]
    assert all_of(histogram, 5) == [6]  # schema 3, as sint32
    spans = [dict(fields(span)) for span in all_of(histogram, 12) if isinstance(span, bytes)]
    # 0.5 is 2**(-8/8), 0.52 the next bucket; then a gap until 2**(8/8)
    assert spans == [{1: 15, 2: 2}, {1: 28, 2: 1}]
    assert one(histogram, 13) == bytes([4, 1, 0])  # counts 2, 1, 1 as differences 2, -1, 0


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", False),
        ("*/*", False),
        (DELIMITED, True),
        (f"{DELIMITED},application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5", True),
        (f"{DELIMITED};q=0.3,text/plain;q=0.5", False),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", False),
        ("application/vnd.google.protobuf", False),
        (f"{DELIMITED};q=nonsense", False),
    ],
)
def test_protobuf_is_chosen_only_when_it_is_preferred(accept: str, expected: bool) -> None:
    assert wants_protobuf(accept) is expected
