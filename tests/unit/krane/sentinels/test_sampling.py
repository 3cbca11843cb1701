"""The times of samples are reported as often as someone needs them."""

from __future__ import annotations

from typing import Any

import orjson

from shoal.krane.sentinels.sampling import REFRESH_S, Samplings


def entry(at: float, count: int = 0) -> dict[str, Any]:
    return {"v": 2, "at": at, "since": 1, "deployments": {"d": {"codes": [0, count, 0, 0, 0]}}}


def reports(counts: list[int], *, judged: bool, every_s: float) -> int:
    """How many reports differ from the one before, of a sentinel that writes its entry now and then."""
    samplings, last, found = Samplings(), None, 0
    for n, count in enumerate(counts):
        made = samplings.stamped("a", entry(n * every_s, count), judged=judged)
        again = samplings.stamped("a", entry(n * every_s, count), judged=judged)
        assert made == again, "what is described twice is the same report"
        found += made != last
        last = made
    return found


def test_an_unused_sentinel_reports_once_a_minute_and_during_a_rollout_whenever_it_writes() -> None:
    idle = [7] * 240  # an hour, every 15 s
    assert reports(idle, judged=False, every_s=15) == 60
    assert reports(idle, judged=True, every_s=15) == 240
    assert reports([*range(240)], judged=False, every_s=5) == 240, "what counts something reports every sample"
    assert 1000 / REFRESH_S < 17, "reports a second of 1000 agents with an unused sentinel each"


def test_the_time_is_that_of_the_newest_counters() -> None:
    samplings = Samplings()
    assert [
        samplings.stamped("a", entry(at, count), judged=False)["at"]
        for at, count in ((10, 1), (25, 1), (30, 2), (45, 2), (89, 2), (90, 2), (5, 2))
    ] == [10, 10, 30, 30, 30, 90, 5], "a clock that was set back is followed"
    old = {"v": 1, "deployments": {}}
    assert samplings.stamped("b", old, judged=False) == old


def test_an_entry_may_be_removed_once_the_control_plane_has_got_it() -> None:
    samplings = Samplings()

    def text(at: float, count: int) -> str:
        return orjson.dumps(entry(at, count)).decode()

    def deliver(at: float, count: int) -> None:
        made = samplings.stamped("a", entry(at, count), judged=False)
        samplings.delivered(orjson.dumps({"gateways": {"a": made}}))

    assert not samplings.has("a", text(10, 1))
    deliver(10, 1)
    assert samplings.has("a", text(10, 1)) and samplings.has("a", text(20, 1)), "nothing new"
    assert not samplings.has("a", text(20, 2))
    samplings.stamped("a", entry(20, 2), judged=False)
    assert not samplings.has("a", text(20, 2)), "it is on its way"
    deliver(20, 2)
    assert samplings.has("a", text(20, 2))
    assert samplings.has("b", "not JSON") and samplings.has("b", "{}"), "these are never reported"
    samplings.delivered(b"")
    samplings.keep({"b"})
    assert not samplings.has("a", text(20, 2))
