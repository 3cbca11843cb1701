"""What analysis says of a candidate after each window: the sentences, and what holds whatever the windows are."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from math import comb, exp
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.control.rollout.analysis import Rules, Window, look
from shoal.control.rollout.measures import Counts
from shoal.control.rollout.progress import AnalysisFacts
from shoal.control.rollout.samples import BOUNDS_MS as BOUNDS
from shoal.control.rollout.sequential import begun
from shoal.control.rollout.strategy import AbortSpec, LatencyLimit

BOUNDS_MS = tuple(10 * 1.2**at for at in range(30))
COMPARED = Rules(
    abort=AbortSpec(), bounds_ms=BOUNDS_MS, regions={"r1": "us", "r2": "eu"}, candidate=2, stable=1, since_ms=1
)
REAL = replace(COMPARED, bounds_ms=BOUNDS)
LIMITED = replace(COMPARED, abort=AbortSpec(errors=0.01, latency=(LatencyLimit(quantile=0.99, ms=300),)))
NO_REQUESTS = Counts(requests=0, failed=0, latency=(0,) * 31)


def counts(requests: int, failed: int = 0, *, slower: int = 0) -> Counts:
    """Most take about 20 ms, one in twenty 60; ``slower``: by so many buckets of a fifth each."""
    latency = [0] * 31
    latency[4 + slower] = requests - requests // 20
    latency[10 + slower] = requests // 20
    return Counts(requests=requests, failed=failed, latency=tuple(latency))


def windows(n: int, candidate: Counts, stable: Counts, regions: Sequence[str] = ("r1", "r2")) -> list[Window]:
    return [
        Window(until_ms=5000 * (at + 1), candidate=dict.fromkeys(regions, candidate), stable=dict.fromkeys(regions, stable))
        for at in range(n)
    ]  # fmt: skip


def looked(rules: Rules, all_: Iterable[Window], state: dict[str, Any] | None = None) -> AnalysisFacts:
    """The last look; stops at a failure, as a rollout does."""
    found = None
    for window in all_:
        found = look(rules, {} if found is None and state is None else found.state if found else state or {}, window)
        if found.outcome == "fail":
            break
    assert found is not None
    return found


def test_failures_are_noticed_against_stable_and_said_with_numbers() -> None:
    found = looked(COMPARED, windows(12, counts(40, 2), counts(760)))
    assert found.outcome == "fail" and not found.has_enough
    assert found.reason == "5.0 % of 480 requests to revision 2 failed, 0.0 % of 9 120 to revision 1"


def test_failures_are_noticed_against_a_limit() -> None:
    found = looked(LIMITED, windows(12, counts(40, 2), counts(760)))
    assert found.reason == "5.0 % of 400 requests to revision 2 failed, the limit is 1 %"


def test_the_region_that_is_bad_is_named() -> None:
    bad, good = counts(40, 4), counts(40)
    all_ = [replace(each, candidate={"r1": bad, "r2": good}) for each in windows(15, good, counts(760))]
    assert looked(COMPARED, all_).reason == (
        "10.0 % of 480 requests to revision 2 failed in us, 0.0 % of 9 120 to revision 1"
    )


def test_slow_requests_are_noticed_with_and_without_a_limit() -> None:
    all_ = windows(12, counts(40, slower=12), counts(760))
    assert looked(LIMITED, all_).reason == "p99 of revision 2 is 534 ms, the limit is 300 ms"
    assert looked(COMPARED, all_).reason == "p90 of revision 2 is 183 ms, 21 ms of revision 1"


def test_a_good_candidate_passes_once_there_are_enough_requests() -> None:
    all_ = windows(12, counts(40), counts(760))
    few, enough = looked(COMPARED, all_[:7]), looked(COMPARED, all_)
    assert (few.outcome, few.has_enough) == ("inconclusive", False)
    assert few.reason == "560 of 600 requests to revision 2 that a judgement needs"
    assert (enough.outcome, enough.has_enough, enough.requests) == ("pass", True, 960)
    assert enough.reason == (
        "0.0 % of 960 requests to revision 2 failed, 0.0 % of 18 240 to revision 1; "
        "p99 of revision 2 is 60 ms, 60 ms of revision 1"
    )


def spread(requests: int, median_ms: float, added_ms: float = 0.0, bounds: Sequence[float] = BOUNDS) -> Counts:
    """From two thirds of the median to one and a half of it, by the bounds of the gateways' samples."""
    latency = [0] * (len(bounds) + 1)
    for at in range(requests):
        latency[bisect_left(bounds, added_ms + median_ms * (2 / 3) * 2.25 ** ((at + 0.5) / requests))] += 1
    return Counts(requests=requests, failed=0, latency=tuple(latency))


def test_a_fault_of_both_revisions_fails_nothing_without_limits() -> None:
    all_ = windows(40, counts(40, 8, slower=9), counts(760, 152, slower=9))
    assert looked(COMPARED, all_).outcome == "pass"
    assert looked(LIMITED, all_).outcome == "fail"


def test_a_candidate_may_be_a_tenth_slower_and_fail_two_in_a_thousand() -> None:
    """Of 500 ms: 9 % more is within the tolerance, 20 % more is not, wherever the bounds are."""
    for median_ms, slower, outcome in (
        (500, 1.09, "pass"),
        (440, 1.09, "pass"),
        (500, 1.2, "fail"),
        (570, 1.2, "fail"),
    ):
        all_ = windows(120, replace(spread(500, median_ms * slower), failed=1), spread(950, median_ms))
        assert looked(REAL, all_).outcome == outcome


@pytest.mark.parametrize(
    ("median_ms", "added_ms", "outcome"), [(11, 9, "pass"), (11, 20, "pass"), (2, 20, "pass"), (11, 60, "fail")]
)
def test_twenty_milliseconds_more_are_not_slower_and_sixty_are(median_ms: int, added_ms: int, outcome: str) -> None:
    assert looked(REAL, windows(60, spread(40, median_ms, added_ms), spread(760, median_ms))).outcome == outcome


def test_three_hundred_milliseconds_more_are_noticed_within_a_minute_of_which_ten_seconds_are_cold() -> None:
    all_ = windows(12, spread(25, 311), spread(475, 11))
    assert looked(replace(REAL, warm_until_ms=15_000), all_).outcome == "fail"


def test_the_slowest_hundredth_alone_is_not_slower() -> None:
    """It is far slower than stable's, but nothing of what is below it is."""
    slow = spread(1000, 40)
    latency = list(slow.latency)
    latency[bisect_left(REAL.bounds_ms, 40)] -= 20
    latency[bisect_left(REAL.bounds_ms, 800)] += 20
    all_ = windows(120, replace(slow, latency=tuple(latency)), spread(1000, 40))
    assert looked(REAL, all_).outcome == "pass"


def test_a_window_is_judged_by_thresholds_from_the_windows_before_it() -> None:
    slow = windows(1, counts(40, slower=12), counts(760))[0]
    first = look(COMPARED, {}, slow)
    assert not [key for key in first.state["evidence"] if key.startswith("latency")]
    second = look(COMPARED, first.state, slow)
    assert second.state["evidence"]["latency/"][0] > 0
    usual = look(COMPARED, {}, windows(1, counts(40), counts(760))[0])
    changed = replace(slow, stable=dict.fromkeys(("r1", "r2"), counts(760, slower=12)))
    assert look(COMPARED, usual.state, changed).state["evidence"]["latency/"][0] < 0.0


def test_fewer_requests_are_enough_where_a_rule_says_so() -> None:
    all_ = windows(12, counts(40), counts(760))
    few = replace(COMPARED, abort=AbortSpec(min_requests=200))
    assert [look_.requests for look_ in (looked(few, all_[:n]) for n in (2, 3))] == [160, 240]
    assert looked(few, all_[:2]).reason == "160 of 200 requests to revision 2 that a judgement needs"
    assert looked(few, all_[:2]).outcome == "inconclusive"
    assert looked(few, all_[:3]).outcome == "pass"  # a third of the requests, and of the windows that comparing needs
    assert looked(replace(LIMITED, abort=replace(LIMITED.abort, min_requests=200)), all_[:3]).outcome == "pass"
    assert looked(replace(LIMITED, abort=replace(LIMITED.abort, min_requests=2000)), all_).outcome == "inconclusive"


def test_a_fault_that_regions_share_is_one_observation_against_a_limit() -> None:
    """A burst in both regions says as much as the same burst in one that has all requests."""
    burst = windows(1, counts(40, 20), counts(760))
    both = look(LIMITED, {}, burst[0]).state["evidence"]
    alone = look(LIMITED, {}, windows(1, counts(80, 40), counts(760), ["r1"])[0]).state["evidence"]
    assert both["errors:0.01/"] == alone["errors:0.01/"]


def test_a_tenth_is_tolerated_by_itself_and_not_by_coarse_bounds() -> None:
    fine = tuple(10 * 1.02**at for at in range(300))
    rules = replace(COMPARED, bounds_ms=fine)
    for slower, outcome in ((1.09, "pass"), (1.15, "fail")):
        mine, others = spread(500, 500 * slower, bounds=fine), spread(950, 500, bounds=fine)
        assert looked(rules, windows(120, mine, others)).outcome == outcome


def test_latency_while_instances_are_cold_is_left_out() -> None:
    slow = windows(20, counts(40, slower=12), counts(760))
    cold = looked(replace(COMPARED, warm_until_ms=200_000), slow)
    assert cold.outcome == "inconclusive"
    assert cold.reason == "0 % of the samples that comparing with revision 1 needs"
    assert not any(key.startswith("latency") for key in cold.state["evidence"])
    all_ = windows(6, counts(40, slower=12), counts(760))
    assert looked(replace(LIMITED, warm_until_ms=40_000), all_).outcome == "inconclusive"
    assert looked(replace(LIMITED, warm_until_ms=5_000), all_).outcome == "fail"


def test_silent_gateways_and_missing_samples_never_pass() -> None:
    before = looked(COMPARED, windows(12, counts(40), counts(760)))
    assert before.has_enough
    silent = look(COMPARED, before.state, Window(until_ms=70_000, candidate={}, stable={}, stale=("us", "eu")))
    assert (silent.outcome, silent.has_enough) == ("inconclusive", False)
    assert silent.reason == "gateways in eu, us are silent: waiting for their samples"
    nothing = look(COMPARED, before.state, Window(until_ms=70_000, candidate={}, stable={}))
    assert (nothing.outcome, nothing.reason) == ("inconclusive", "no samples of revision 2 from any gateway")


def test_a_candidate_with_far_fewer_requests_than_its_weight_means_holds() -> None:
    rules = replace(LIMITED, weights={"r1": 25, "r2": 25})
    found = looked(rules, windows(20, counts(40), counts(760)))
    assert (found.outcome, found.has_enough) == ("inconclusive", False)
    assert found.reason == "revision 2 got 800 requests in us, its weight of 25 % means about 4000"
    absent = [replace(each, candidate={"r1": counts(40)}) for each in windows(20, counts(40), counts(760))]
    assert "got 0 requests in eu" in looked(replace(LIMITED, weights={"r2": 5}), absent).reason


def test_without_requests_to_stable_only_limits_can_pass() -> None:
    all_ = windows(20, counts(400), NO_REQUESTS)
    held = looked(COMPARED, all_)
    assert held.outcome == "inconclusive"
    assert held.reason == (
        "revision 1 got 0 requests, comparing with it needs 600: wait, or set limits for errors and latency"
    )
    assert looked(LIMITED, all_).outcome == "pass"


def test_comparing_takes_longer_when_stable_gets_little() -> None:
    all_ = windows(100, counts(720), counts(80))
    assert "of the samples that comparing with revision 1 needs" in looked(COMPARED, all_[:20]).reason
    assert looked(COMPARED, all_).outcome == "pass"


def test_a_step_counts_its_own_requests_and_keeps_the_evidence() -> None:
    first = looked(LIMITED, windows(3, counts(40, 2), counts(760)))
    assert first.outcome == "inconclusive"
    next_step = replace(LIMITED, since_ms=2)
    second = look(next_step, first.state, windows(1, counts(40), counts(760))[0])
    assert second.requests == 80
    after = looked(next_step, windows(3, counts(40, 2), counts(760)), first.state)
    alone = looked(LIMITED, windows(3, counts(40, 2), counts(760)))
    assert (after.outcome, alone.outcome) == ("fail", "inconclusive")


def test_many_good_windows_do_not_hide_a_later_step() -> None:
    good = looked(LIMITED, windows(400, counts(40), counts(760)))
    assert looked(replace(LIMITED, since_ms=2), windows(12, counts(40, 2), counts(760)), good.state).outcome == "fail"


def test_a_defect_that_begins_late_in_a_long_step_is_noticed_within_minutes() -> None:
    """The time comes from the windows: 20 good minutes, then as many bad windows as fit into two minutes and a half."""
    good, bad = counts(40), counts(40, 2)
    all_ = windows(270, good, counts(760))
    late = [*all_[:240], *(replace(each, candidate={"r1": bad, "r2": bad}) for each in all_[240:])]
    assert looked(LIMITED, all_).outcome == "pass"
    assert looked(LIMITED, late).outcome == "fail"


def test_a_failure_is_final() -> None:
    failed = looked(LIMITED, windows(20, counts(40, 4), counts(760)))
    later = looked(replace(LIMITED, since_ms=2), windows(400, counts(40), counts(760)), failed.state)
    assert (later.outcome, later.reason) == ("fail", failed.reason)


def test_regions_that_come_later_count_in_the_common_test_only() -> None:
    first = looked(replace(LIMITED, regions={"r1": "us"}), windows(3, counts(40), counts(760), ["r1"]))
    second = looked(LIMITED, windows(20, counts(40, 4), counts(760), ["r2"]), first.state)
    assert second.outcome == "fail" and " in eu" not in second.reason


def test_a_changed_rule_begins_with_no_evidence() -> None:
    """One more window of this kind would fail the rule of 1 %; by the new one all of them are good."""
    all_ = windows(30, counts(40, 2), counts(760))
    number = next(at for at in range(30) if looked(LIMITED, all_[: at + 1]).outcome == "fail")
    first = looked(LIMITED, all_[:number])
    assert first.outcome == "inconclusive"
    looser = replace(COMPARED, abort=replace(LIMITED.abort, errors=0.1))
    later = look(looser, first.state, all_[number])
    assert later.outcome == "inconclusive"
    assert looked(looser, all_[number + 1 :], later.state).outcome == "pass"
    compared = replace(COMPARED, abort=AbortSpec(latency=LIMITED.abort.latency))
    assert look(compared, first.state, all_[number]).outcome == "inconclusive"


def test_a_limit_of_nothing_and_one_of_everything_are_judged() -> None:
    nothing = replace(COMPARED, abort=AbortSpec(errors=0.0, latency=(LatencyLimit(quantile=1.0, ms=300),)))
    assert looked(nothing, windows(20, counts(40, 1), counts(760))).outcome == "fail"
    assert looked(nothing, windows(20, counts(40), counts(760))).outcome == "pass"
    anything = replace(COMPARED, abort=AbortSpec(errors=1.0, latency=(LatencyLimit(quantile=0.99, ms=1e9),)))
    assert looked(anything, windows(20, counts(40, 40, slower=12), counts(760))).outcome == "pass"


some_counts = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 15)).map(
    lambda each: counts(each[0], min(each[0], each[1] // 8), slower=each[2] // 5)
)
some_windows = st.lists(
    st.tuples(some_counts, some_counts, some_counts, some_counts).map(
        lambda each: Window(until_ms=1, candidate={"r1": each[0], "r2": each[1]}, stable={"r1": each[2], "r2": each[3]})
    ),
    min_size=1, max_size=8,
)  # fmt: skip
some_rules = st.sampled_from([COMPARED, LIMITED])


def evidence(rules: Rules, all_: Iterable[Window]) -> dict[str, list[float]]:
    state: dict[str, Any] = {}
    for window in all_:
        state = look(rules, state, window).state
    found: dict[str, list[float]] = state["evidence"]
    return found


@given(rules=some_rules, all_=some_windows, data=st.data())
def test_the_order_of_windows_within_a_step_does_not_matter(
    rules: Rules, all_: list[Window], data: st.DataObject
) -> None:
    """Except for the latency of both compared: its thresholds come from earlier windows."""
    other = data.draw(st.permutations(all_))
    mine, others = evidence(rules, all_), evidence(rules, other)
    for key in {*mine, *others} - {"latency/", "latency/r1", "latency/r2"}:
        assert all(abs(a - b) < 1e-6 for a, b in zip(mine[key], others[key], strict=True))


@given(rules=some_rules, all_=some_windows)
def test_the_state_survives_json_and_is_never_changed_in_place(rules: Rules, all_: list[Window]) -> None:
    direct: dict[str, Any] = {}
    stored = "{}"
    for window in all_:
        before = json.dumps(direct)
        found = look(rules, direct, window)
        assert json.dumps(direct) == before
        again = look(rules, json.loads(stored), window)
        assert again == found
        direct, stored = found.state, json.dumps(again.state, sort_keys=True)


@given(rules=some_rules, all_=some_windows, at=st.integers(0, 7))
def test_one_more_failure_never_lessens_the_evidence(rules: Rules, all_: list[Window], at: int) -> None:
    at %= len(all_)
    here = all_[at].candidate["r1"]
    if here.failed >= here.requests:
        return
    worse = replace(here, failed=here.failed + 1)
    more = [*all_[:at], replace(all_[at], candidate={**all_[at].candidate, "r1": worse}), *all_[at + 1 :]]
    mine, others = evidence(rules, all_), evidence(rules, more)
    assert all(b >= a - 1e-9 for key in mine for a, b in zip(mine[key], others[key], strict=True))


@given(rules=some_rules, all_=some_windows)
def test_whatever_is_seen_a_look_passes_only_with_enough_requests(rules: Rules, all_: list[Window]) -> None:
    found = looked(rules, all_)
    assert found.has_enough == (found.outcome == "pass")
    assert not found.has_enough or found.requests >= 600
    assert found.reason


def law(requests: int, instances: int) -> list[tuple[float, Counts]]:
    """Of a window: each instance stalls in one of five, and then half of its requests fail and all are slow."""
    found = []
    for stalled in range(instances + 1):
        chance = comb(instances, stalled) * 0.2**stalled * 0.8 ** (instances - stalled)
        slow = requests * stalled // instances
        latency = [0] * 31
        latency[4], latency[16] = requests - slow, slow
        found.append((chance, Counts(requests=requests, failed=slow // 2, latency=tuple(latency))))
    return found


@pytest.mark.parametrize("instances", [1, 2, 3])
def test_whatever_has_happened_the_next_window_of_an_equal_candidate_brings_no_evidence_on_average(
    instances: int,
) -> None:
    """All ways in which three windows can go, where the requests of an instance fail and are slow together."""
    outcomes = [
        (a * b, Window(until_ms=1, candidate={"r1": mine}, stable={"r1": others}))
        for (a, mine), (b, others) in product(law(24, 1), law(120, instances))
    ]
    states = [dict[str, Any]()]
    for _ in range(3):
        after = []
        for state in states:
            before = state.get("evidence", {})
            nexts = [(chance, look(COMPARED, state, window).state) for chance, window in outcomes]
            for key, logs in nexts[0][1]["evidence"].items():
                for at in range(len(logs)):
                    known = exp(before[key][at]) if key in before else exp(begun(1, 1)[0])
                    assert sum(chance * exp(found["evidence"][key][at]) for chance, found in nexts) <= known + 1e-9
            after += [found for _, found in nexts]
        states = after
    assert any(key.startswith("latency") for key in states[0]["evidence"])


# simulated rollouts


@pytest.mark.parametrize("is_good", [True, False])
def test_settings_that_are_hard_to_judge_stay_below_their_bars(monkeypatch: pytest.MonkeyPatch, is_good: bool) -> None:
    """Those of the benchmark whose bar is not the common one, and failures in clumps and in one region only."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[4] / "bench"))
    import rollout_error_rates as bench

    bar, settings = (bench.ALPHA, bench.GOOD) if is_good else (bench.MISSES, bench.BAD)
    hard = [each for each in settings if each.bar or "clumps of 8, 10 min" in each.name or "one region" in each.name]
    assert len(hard) == (1 if is_good else 5)
    for setting in hard:
        found = bench.batch((setting, "bars", 0, 50))
        share = bench.wrong_share(found, is_good=is_good)
        assert share <= (setting.bar or bar), f"{setting.name}: {share:.0%}"
