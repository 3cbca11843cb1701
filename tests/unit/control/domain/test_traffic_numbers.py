"""Numbers of now and series, from what gateways counted: windows of each region, late samples, quiet times."""

from __future__ import annotations

from shoal.control.domain.traffic_numbers import CountedSpan, TrafficSeries, numbers_by
from shoal.sync.counters import Counts

NOW = 1_000_000_000_000  # divides by 5 s


def counted(
    at_s: float, requests: int = 10, failed: int = 0, *, deployment: str = "d1", region: str = "eu"
) -> CountedSpan:
    """From so many seconds before now on."""
    counts = Counts((0, requests - failed, 0, 0, failed), {20: requests}, requests * 30)
    return CountedSpan("env", deployment, region, NOW - round(at_s * 1000), 5000, counts)


def deployment_of(span: CountedSpan) -> str:
    return span.deployment


def test_rates_are_of_the_last_half_minute_up_to_the_newest_sample() -> None:
    spans = [counted(at) for at in range(5, 100, 5)]
    found = numbers_by(spans, deployment_of, NOW)["d1"].as_json()
    assert (found["requests"], found["rate"], found["until"]) == (60, 2.0, NOW)
    assert "errorShare" in found and found["errorShare"] == 0


def test_failures_are_a_share_and_a_rate() -> None:
    found = numbers_by([counted(5, 30, 6)], deployment_of, NOW)["d1"].as_json()
    assert (found["failed"], found["errorRate"], found["errorShare"]) == (6, 0.2, 0.2)
    assert found["p50Ms"] <= found["p99Ms"]


def test_a_region_that_reports_later_is_not_shown_with_less() -> None:
    early = [counted(at, region="eu") for at in range(5, 60, 5)]
    late = [counted(at, region="us") for at in range(15, 70, 5)]
    for region, spans in (("eu", early), ("us", late)):
        alone = numbers_by(spans, lambda span: span.region, NOW)[region].as_json()["requests"]
        assert alone == 60
    both = numbers_by([*early, *late], deployment_of, NOW)["d1"].as_json()
    assert (both["requests"], both["rate"]) == (120, 4.0)


def test_what_had_requests_and_has_none_fades_away() -> None:
    assert numbers_by([counted(40)], deployment_of, NOW) == {}
    assert numbers_by([counted(28)], deployment_of, NOW)["d1"].as_json()["requests"] == 10


def test_what_has_no_key_is_left_out() -> None:
    spans = [counted(5), counted(5, deployment="d2")]
    found = numbers_by(spans, lambda span: span.deployment if span.deployment == "d2" else None, NOW)
    assert found.keys() == {"d2"}


def test_a_series_keeps_its_time_and_takes_late_samples() -> None:
    series = TrafficSeries(60_000)
    assert series.since(NOW) == NOW - 60_000
    series.add([counted(at) for at in (50, 45, 10, 5)], deployment_of, NOW)
    assert NOW - 60_000 < series.since(NOW) <= NOW - 5000 - 30_000, "the window of now is read again too"
    late = [counted(5), counted(5, deployment="d2"), counted(10, 30)]
    series.add(late, deployment_of, NOW)
    rows = {(key, (NOW - at) // 1000): numbers["requests"] for key, at, numbers in series.rows()}
    assert rows == {("d1", 50): 10, ("d1", 45): 10, ("d1", 10): 30, ("d1", 5): 10, ("d2", 5): 10}
    series.add([], deployment_of, NOW + 15_000)
    assert {(NOW - at) // 1000 for _, at, _ in series.rows()} == {45, 10, 5}
