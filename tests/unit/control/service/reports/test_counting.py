"""What gateways count is added up from their reports: nothing is lost, nothing is counted twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.control.service.reports.counting import UNROUTED, CountedPart, count
from shoal.sync.counters import NOTHING, plus

NOW = 1_800_000_000_000


def entry(at_s: float | None, deployments: Mapping[str, Any], *, since: float = NOW / 1000 - 60) -> dict[str, Any]:
    told = {"v": 2, "since": since, "deployments": deployments}
    return told if at_s is None else told | {"at": at_s}


def told(good: int, bad: int = 0, **origins: int) -> dict[str, Any]:
    def one(good: int, bad: int) -> dict[str, Any]:
        return {"codes": [0, good, 0, 0, bad], "times": [3, good + bad] if good + bad else [], "latencyMs": 2 * good}

    return one(good, bad) | {origin: one(count, 0) for origin, count in origins.items()}


class Plane:
    """What the control plane remembers of a gateway, and what it has added up."""

    def __init__(self) -> None:
        self.observed: dict[str, Any] | None = None
        self.parts: list[CountedPart] = []
        self.answers: dict[str, tuple[int, int]] = {}

    def hear(self, now_ms: int, **pods: Mapping[str, Any]) -> list[CountedPart]:
        stats = {"gateways": pods} if pods else None
        found = count(self.observed, stats, now_ms)
        self.observed = orjson.loads(orjson.dumps({"stats": stats, "counted": found.memory}))
        self.parts += found.parts
        self.answers = found.answers()
        return list(found.parts)

    def total(self, deployment: str = "d", origin: str = "entry") -> int:
        total = NOTHING
        for part in self.parts:
            if (part.deployment, part.origin) == (deployment, origin):
                total = plus(total, part.counts)
        assert sum(total.times.values()) == sum(total.codes)
        return sum(total.codes)


def seconds(ms: int) -> float:
    return ms / 1000


def test_the_difference_of_two_reports_belongs_to_the_time_of_the_gateways_sampling() -> None:
    plane = Plane()
    plane.hear(NOW, a=entry(seconds(NOW - 100), {"d": told(0)}))
    (part,) = plane.hear(NOW + 8000, a=entry(seconds(NOW + 4700), {"d": told(10, 2)}))
    assert part.from_ms == NOW, "it was sampled in time and arrived late"
    assert part.counts.codes == (0, 10, 0, 0, 2)
    assert plane.answers == {"d": (12, 2)}


def test_a_clock_that_is_wrong_is_corrected_by_the_fastest_report() -> None:
    plane, ahead = Plane(), 3_600_000
    for n, delay in enumerate((900, 100, 700)):
        at = NOW + 5000 * n
        plane.hear(at + delay, a=entry(seconds(at + ahead), {"d": told(n)}, since=seconds(NOW + ahead - 60_000)))
    assert plane.observed is not None
    until = plane.observed["counted"]["a"]["until"]
    assert NOW + 10_000 <= until <= NOW + 10_200


def test_a_clock_that_was_set_back_is_believed_again() -> None:
    plane, at = Plane(), NOW
    plane.hear(at, a=entry(seconds(at), {"d": told(0)}))
    for n in range(1, 400):
        at += 5000
        plane.hear(at, a=entry(seconds(at - 10_000), {"d": told(n)}))
    assert plane.observed is not None and at - plane.observed["counted"]["a"]["until"] < 100


def test_what_was_counted_while_no_report_came_is_spread_over_that_time() -> None:
    plane = Plane()
    plane.hear(NOW, a=entry(seconds(NOW), {"d": told(0)}))
    parts = plane.hear(NOW + 600_000, a=entry(seconds(NOW + 600_000), {"d": told(1201)}))
    assert plane.total() == 1201 and len(parts) == 12
    assert min(part.from_ms for part in parts) < NOW + 30_000
    assert max(part.from_ms for part in parts) < NOW + 580_000, "nothing of it counts as new"


def test_a_gateway_that_was_never_heard_of_counted_since_its_start() -> None:
    plane = Plane()
    day_ms = 86_400_000
    parts = plane.hear(NOW, a=entry(seconds(NOW), {"d": told(10_000_000)}, since=seconds(NOW - day_ms)))
    assert plane.total() == 10_000_000
    assert max(part.from_ms for part in parts) < NOW - 3_000_000


def test_a_restart_counts_from_zero_and_a_pod_that_leaves_takes_nothing_away() -> None:
    plane = Plane()
    plane.hear(NOW, a=entry(seconds(NOW), {"d": told(5)}), b=entry(seconds(NOW), {"d": told(7)}))
    plane.hear(NOW + 5000, a=entry(seconds(NOW + 5000), {"d": told(9)}))
    assert plane.total() == 16
    again = seconds(NOW + 6000)
    plane.hear(NOW + 10_000, a=entry(seconds(NOW + 10_000), {"d": told(3)}, since=again))
    plane.hear(NOW + 15_000, a=entry(seconds(NOW + 15_000), {"d": told(4)}, since=again))
    assert plane.total() == 20
    plane.hear(NOW + 20_000, a=entry(seconds(NOW + 20_000), {"d": told(2)}, since=again))
    assert plane.total() == 22, "a smaller number"


def test_counters_that_are_missing_for_a_while_are_not_counted_again() -> None:
    plane = Plane()
    plane.hear(NOW, a=entry(seconds(NOW), {"d": told(5), "e": told(8)}))
    plane.hear(NOW + 5000, a=entry(seconds(NOW + 5000), {"d": told(6)}))
    plane.hear(NOW + 10_000)
    plane.hear(NOW + 15_000)
    plane.hear(NOW + 20_000, a=entry(seconds(NOW + 20_000), {"d": told(7), "e": told(9)}))
    assert (plane.total("d"), plane.total("e")) == (7, 9)


def test_what_is_remembered_of_pods_that_have_gone_ends() -> None:
    plane = Plane()
    plane.hear(NOW, a=entry(seconds(NOW), {"d": told(5)}))
    plane.hear(NOW + 3_600_000)
    assert plane.observed is not None and set(plane.observed["counted"]) == {"a"}
    plane.hear(NOW + 3_600_001)
    assert plane.observed["counted"] == {}
    many = {f"d{n:04}": told(1) for n in range(600)}
    plane.hear(NOW + 4_000_000, b=entry(seconds(NOW + 4_000_000), many))
    plane.hear(NOW + 4_002_000)
    assert len(plane.observed["counted"]["b"]["rest"]) == 600, "it may come back with all of them"
    plane.hear(NOW + 4_005_000, b=entry(seconds(NOW + 4_005_000), {}))
    assert len(plane.observed["counted"]["b"]["rest"]) == 500


def test_what_a_gateways_other_version_counted_stays_its_own_when_its_pod_is_gone() -> None:
    plane = Plane()
    plane.hear(NOW, a=entry(seconds(NOW), {"d": told(5)}), b=entry(seconds(NOW), {"d": told(7)}) | {"revision": 3})
    later = seconds(NOW + 5000)
    parts = plane.hear(NOW + 5000, a=entry(later, {"d": told(6)}), b=entry(later, {"d": told(9)}))
    assert {(part.revision, sum(part.counts.codes)) for part in parts} == {(0, 1), (3, 2)}
    assert plane.observed is not None and plane.observed["counted"]["b"]["revision"] == 3


def test_requests_that_a_gateway_failed_before_it_knew_a_deployment_are_nobodys_answers() -> None:
    plane = Plane()
    plane.hear(NOW, a=entry(seconds(NOW), {"d": told(5)}) | {"unrouted": told(0, 4)})
    later = entry(seconds(NOW + 5000), {"d": told(6)}) | {"unrouted": told(0, 9)}
    parts = plane.hear(NOW + 5000, a=later)
    assert [part.counts.codes for part in parts if part.deployment == UNROUTED] == [(0, 0, 0, 0, 5)]
    assert plane.answers == {"d": (1, 0)}


def test_users_peers_and_copies_are_counted_apart() -> None:
    plane = Plane()
    plane.hear(NOW, a=entry(seconds(NOW), {"d": told(5, peer=3, mirror=2)}))
    plane.hear(NOW + 5000, a=entry(seconds(NOW + 5000), {"d": told(6, peer=13, mirror=102)}))
    assert [plane.total(origin=origin) for origin in ("entry", "peer", "mirror")] == [6, 13, 102]
    assert plane.answers == {"d": (11, 0)}, "a copy that fails has failed for no user"


def test_agents_and_gateways_of_the_version_before_are_counted_when_their_reports_come() -> None:
    old = {"codes": [0, 10, 0, 0, 5], "latency": [0] * 14, "latencyMs": 0}
    before = {"stats": {"gateways": {"a": {"v": 1, "since": seconds(NOW), "deployments": {"d": old}}}}}
    plane = Plane()
    plane.observed = before
    (part,) = plane.hear(NOW + 5001, a=entry(None, {"d": {**old, "codes": [0, 20, 0, 0, 6]}}, since=seconds(NOW)))
    assert part.counts.codes == (0, 10, 0, 0, 1) and part.from_ms == NOW + 5000
    assert plane.answers == {"d": (11, 1)}


@pytest.mark.parametrize(
    "stats",
    [None, 3, [], {}, {"gateways": 3}, {"gateways": {"a": 3}}, {"gateways": {"a": {"deployments": []}}},
     {"gateways": {"a": {"deployments": {"d": {"codes": "no"}}, "at": "now", "since": {}}}}],
)  # fmt: skip
def test_an_entry_that_cannot_be_read_counts_nothing(stats: Any) -> None:
    assert count(None, stats, NOW).parts == ()


steps = st.lists(
    st.tuples(
        st.sampled_from("abc"),  # the pod whose counters move
        st.sampled_from(["rises", "restarts", "leaves", "is late", "has no room"]),
        st.integers(0, 50),
        st.integers(0, 40_000),  # until the next report
    ),
    max_size=30,
)


@given(steps)
def test_whatever_happens_to_pods_and_reports_the_sums_are_what_was_counted(
    steps: Sequence[tuple[str, str, int, int]],
) -> None:
    """Of each pod, the sum is what it had counted in its last report before it left or restarted."""
    plane, now = Plane(), NOW
    pods: dict[str, tuple[float, int]] = {}  # since, counter
    expected = 0
    reported: dict[str, int] = {}
    for number, (pod, event, more, apart) in enumerate(steps):
        now += apart
        fresh = seconds(now) + number / 1e5  # no two starts are of the same moment
        since, value = pods.get(pod, (fresh, 0))
        if event == "leaves":
            pods.pop(pod, None)
            reported.pop(pod, None)
        elif event == "restarts":
            pods[pod] = (fresh, more)
            reported.pop(pod, None)
        else:
            pods[pod] = (since, value + more)
        if event == "is late":
            continue
        shown = {
            name: entry(seconds(now), {} if (name, event) == (pod, "has no room") else {"d": told(value)}, since=since)
            for name, (since, value) in pods.items()
        }
        for name, one in shown.items():
            if one["deployments"]:
                expected += pods[name][1] - reported.get(name, 0)
                reported[name] = pods[name][1]
        plane.hear(now, **shown)
    assert plane.total() == expected
