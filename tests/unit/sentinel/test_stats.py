"""What Envoy counts, per deployment, and what becomes of it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from shoal.base.clock import FakeClock
from shoal.base.metrics import Metrics
from shoal.client import Client
from shoal.sentinel.admin import Admin
from shoal.sentinel.bootstrap import BEYOND_MS
from shoal.sentinel.config import SentinelConfig
from shoal.sentinel.stats import UNROUTED, StatsKeeper, belonging, define_stats_metrics, read_stats
from shoal.sync.counters import LATENCY_MS, Counts, read_counts


def body(*requests: str, **numbers: int) -> bytes:
    """Four of each of the ``requests``: three took up to 5 ms, one very long."""
    stats: list[dict[str, Any]] = [{"name": f"cluster.{name}", "value": value} for name, value in numbers.items()]
    counts = {5.0: 3, BEYOND_MS: 1}
    buckets = [
        {"upper_bound": bound, "interval": 0, "cumulative": counts.get(bound, 0)} for bound in (*LATENCY_MS, BEYOND_MS)
    ]
    told = [{"name": name, "buckets": buckets} for name in requests]
    return orjson.dumps({"stats": [*stats, {"histograms": told}]})


ANSWER = body(
    "requests.ms.of.deployment_d1.200.1",
    "requests.ms.of.sticky_d1.200.1",
    "requests.copies.of.local_d1.503.1",
    "requests.ms.of.deployment_d2.200.1",
    "requests.ms.of.other.200.1",
    **{
        "deployment_d1.upstream_rq_retry": 4,
        "deployment_d1.membership_healthy": 2,
        "sticky_d1.membership_healthy": 2,
    },
)


class FakeAdmin:
    def __init__(self) -> None:
        self.answer: bytes | None = ANSWER

    async def get(self, target: str) -> bytes | None:
        return self.answer


def keeper(
    admin: FakeAdmin, starts: list[int], judged: Collection[str] = (), clock: FakeClock | None = None
) -> StatsKeeper:
    return StatsKeeper(
        SentinelConfig(region="eu"), cast(Admin, admin), cast(Client, None), clock=clock or FakeClock(),
        starts=lambda: starts[0], peers_map=lambda: None, under_test=lambda: judged,
    )  # fmt: skip


async def test_a_certificate_that_expires_soon_is_shown_and_warned_of_once_a_day(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin, metrics = FakeAdmin(), Metrics()
    stats = keeper(admin, [1])
    define_stats_metrics(metrics, stats, "eu")

    async def shown(days: int | None) -> list[str]:
        numbers = [] if days is None else [{"name": "server.days_until_first_cert_expiring", "value": days}]
        admin.answer = orjson.dumps({"stats": numbers})
        assert await stats.look()
        lines = metrics.render().decode().splitlines()
        return [line.split()[-1] for line in lines if line.startswith("shoal_sentinel_certificate_expiry_seconds ")]

    assert await shown(None) == [] == await shown(2**32 - 1)
    assert [float(value) for value in await shown(300)] == [300 * 86400]
    assert "expires soon" not in capsys.readouterr().err
    await shown(29)
    await shown(28)
    assert capsys.readouterr().err.count("a certificate of the gateway expires soon") == 1


def test_the_clusters_of_one_deployment_are_added_up() -> None:
    found = read_stats(ANSWER)
    assert set(found) == {"d1", "d2"}
    assert found["d1"].everything.codes == [0, 8, 0, 0, 4]
    assert (found["d1"].retries, found["d1"].healthy) == (4, 2)
    times = found["d1"].requests["mirror"]
    assert times.latency[LATENCY_MS.index(5.0)] == 3
    assert times.latency[-1] == 1  # beyond every bound
    assert times.latency_ms == 3 * 4.5 + LATENCY_MS[-1]


def test_requests_are_counted_by_code_unless_they_did_not_reach_the_deployment() -> None:
    def of(*told: str) -> tuple[list[int], int]:
        found = read_stats(body(*(f"requests.ms.of.{each}" for each in told))).get("d2")
        return (found.everything.codes, sum(found.everything.latency)) if found else ([0] * 5, 0)

    assert of("deployment_d2.200.1", "sticky_d2.204.2", "local_d2.503.1") == ([0, 8, 0, 0, 4], 12)
    assert of("deployment_d2.404.1", "deployment_d2.301.1", "deployment_d2.101.1") == ([4, 0, 4, 4, 0], 12)
    assert of("deployment_d2.429.0", "deployment_d2.401.0") == ([0] * 5, 0), "we have refused them"
    assert of("deployment_d2.503.0") == ([0, 0, 0, 0, 4], 0), "a failure, but no time of an instance"
    assert of("deployment_d2.0.1", "-.404.0", "none.503.1", "deployment_d2.999.1") == ([0] * 5, 0)


async def test_counters_rise_over_several_envoys_and_stay_when_one_does_not_answer() -> None:
    admin, starts = FakeAdmin(), [1]
    stats = keeper(admin, starts)
    assert await stats.look()
    starts[0] = 2
    assert await stats.look()
    assert stats.current()["d1"].everything.codes[1] == 16
    assert stats.current()["d1"].healthy == 2  # not a counter
    admin.answer = None
    assert not await stats.look()
    assert stats.current()["d1"].everything.codes[1] == 16


def test_users_peers_and_copies_are_counted_apart() -> None:
    names = ("deployment_d2.200.1", "sticky_d2.500.1", "local_d2.200.1", "local_d2.404.2")
    copies = ("local_d2.200.1", "deployment_d2.500.1")
    answer = body(*(f"requests.ms.of.{each}" for each in names), *(f"requests.copies.of.{each}" for each in copies))
    found = read_stats(answer)["d2"]
    codes = {origin: requests.codes for origin, requests in found.requests.items()}
    assert codes == {"entry": [0, 4, 0, 0, 4], "peer": [0, 4, 0, 4, 0], "mirror": [0, 4, 0, 0, 4]}
    assert found.everything.codes == [0, 12, 0, 4, 8]
    shown = orjson.loads(orjson.dumps(found.shown()))
    five, beyond = LATENCY_MS.index(5.0), len(LATENCY_MS)
    assert read_counts(shown) == Counts((0, 4, 0, 0, 4), {five: 6, beyond: 2}, round(2 * (3 * 4.5 + LATENCY_MS[-1])))
    assert shown["peer"]["codes"] == [0, 4, 0, 4, 0] and shown["mirror"]["codes"] == [0, 4, 0, 0, 4]
    assert "mirror" not in read_stats(body("requests.ms.of.local_d2.200.1"))["d2"].shown()


async def test_an_entry_has_room_for_the_busiest_and_for_those_that_a_rollout_is_judged_by() -> None:
    admin, judged = FakeAdmin(), {"d00001", "d02999"}
    admin.answer = body(*(f"requests.ms.of.deployment_d{number:05}.200.1" for number in range(3000)))
    busy = orjson.loads(admin.answer)
    for number, one in enumerate(busy["stats"][-1]["histograms"][1:]):
        one["buckets"][0]["cumulative"] += number
    admin.answer = orjson.dumps(busy)
    stats = keeper(admin, [1], judged)
    assert await stats.look()
    entry = stats.entry()
    assert len(entry) <= 256 * 1024
    shown = orjson.loads(entry)["deployments"]
    assert {"d02999", "d02998", "d00001"} <= shown.keys() and "d00002" not in shown


async def test_an_entry_says_when_envoy_was_asked_for_what_it_shows() -> None:
    """Envoy answers with what it had merged when it was asked before."""
    clock = FakeClock()
    stats = keeper(FakeAdmin(), [1], clock=clock)
    asked = []
    for _ in range(3):
        await clock.advance(5)
        asked.append(clock.wall_s())
        assert await stats.look()
    assert stats.sampled_s == asked[1]


async def test_metrics_have_a_bounded_number_of_deployments() -> None:
    admin = FakeAdmin()
    admin.answer = body(*(f"requests.ms.of.deployment_d{number}.200.1" for number in range(600)))
    stats = keeper(admin, [1])
    assert await stats.look()
    metrics = Metrics()
    define_stats_metrics(metrics, stats, "eu")
    requests = dict(next(iter(metrics.expose())).numbers)
    assert len({deployment for deployment, _, _ in requests}) == 501
    assert sum(requests.values()) == 2400


async def test_metrics_have_the_coarse_buckets_only() -> None:
    admin, metrics = FakeAdmin(), Metrics()
    admin.answer = body("requests.ms.of.deployment_d2.200.1")
    histogram = orjson.loads(admin.answer)["stats"][-1]
    histogram["histograms"][0]["buckets"][LATENCY_MS.index(3.0)]["cumulative"] = 2  # of 2 ms
    admin.answer = orjson.dumps({"stats": [{"histograms": histogram["histograms"]}]})
    stats = keeper(admin, [1])
    define_stats_metrics(metrics, stats, "eu")
    assert await stats.look()
    lines = [line for line in metrics.render().decode().splitlines() if "duration_seconds_bucket" in line]
    counted = {float(line.partition('le="')[2].partition('"')[0]): float(line.split()[-1]) for line in lines}
    assert len(counted) == 14
    assert [counted[bound] for bound in (0.001, 0.0025, 0.005, 10.0, float("inf"))] == [0, 2, 5, 5, 6]


def test_what_is_written_belongs_to_the_gateway() -> None:
    labels = {"shoal.dev/sentinel": "snt_1", "app.kubernetes.io/managed-by": "krane"}
    made = belonging({"metadata": {"name": "peers-x", "uid": "u", "labels": labels}})
    assert made["labels"] == {"shoal.dev/sentinel": "snt_1", "app.kubernetes.io/component": "sentinel-stats"}
    assert made["ownerReferences"] == [{"apiVersion": "v1", "kind": "ConfigMap", "name": "peers-x", "uid": "u"}]
    assert belonging(None) == {}


async def test_no_answer_from_a_socket_that_is_not_there(tmp_path: Path) -> None:
    assert await Admin(tmp_path / "none.sock", clock=FakeClock()).get("/stats") is None


def test_requests_that_were_failed_before_a_deployment_was_chosen_are_counted_apart() -> None:
    found = read_stats(body("requests.ms.of.-.503.0", "requests.ms.of.-.404.0", "requests.ms.of.deployment_d1.200.1"))
    assert found[UNROUTED].requests["entry"].codes == [0, 0, 0, 0, 4], "what has no route is no fault"
    assert found["d1"].requests["entry"].codes == [0, 4, 0, 0, 0]
