"""Rehearsals, and what holds in every one of them: the machine and the exchange of instances together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shoal.control.rollout.plan import surge_of
from shoal.control.rollout.rehearsal import PlayedFault, RehearsedRow, play, rehearse, shown_fault
from shoal.control.rollout.rehearsed_region import Pace, RegionSize
from shoal.control.rollout.strategy import AbortSpec, LatencyLimit, StepSpec, Strategy, WaveSpec, WindowSpec

SIZES = (RegionSize(name="us", size=4), RegionSize(name="eu", size=10, surge=3))
CANARY = Strategy(
    kind="canary",
    is_configured=True,
    is_judged=True,
    steps=(
        StepSpec(kind="weight", percent=25),
        StepSpec(kind="analysis", seconds=120),
        StepSpec(kind="weight", percent=50),
        StepSpec(kind="analysis", seconds=120),
    ),
    waves=(WaveSpec(name="first", regions=("us",), soak_s=60), WaveSpec(name="rest", percent=100)),
    abort=AbortSpec(errors=0.01, latency=(LatencyLimit(quantile=0.99, ms=500),)),
)
APPROVAL = replace(CANARY, steps=(StepSpec(kind="weight", percent=25), StepSpec(kind="pause")), waves=())


def actions(rows: list[RehearsedRow], region: str = "us") -> list[tuple[str, int]]:
    return [(row.decision, row.weight) for row in rows if row.region == region]


def test_a_canary_goes_from_step_to_step_and_from_wave_to_wave() -> None:
    rows = rehearse(CANARY, SIZES)
    assert [(row.region, row.step, row.weight, row.candidate, row.stable, row.decision) for row in rows] == [
        ("us", "weight 25 %", 25, 1, 4, "start"),
        ("us", "analysis 120 s", 25, 1, 4, "step"),
        ("us", "weight 50 %", 50, 2, 4, "step"),
        ("us", "analysis 120 s", 50, 2, 4, "step"),
        ("us", "all requests", 100, 4, 4, "step"),
        ("eu", "weight 25 %", 25, 3, 10, "wave"),
        ("eu", "analysis 120 s", 25, 3, 10, "step"),
        ("eu", "weight 50 %", 50, 5, 10, "step"),
        ("eu", "analysis 120 s", 50, 5, 10, "step"),
        ("eu", "all requests", 100, 10, 10, "step"),
        ("eu", "keeping", 100, 10, 10, "promote"),
        ("us", "keeping", 100, 4, 4, "promote"),
        ("eu", "promoted", 100, 10, 0, "end"),
        ("us", "promoted", 100, 4, 0, "end"),
    ]
    assert rows[1].at_s == 12  # ten seconds until an instance is ready, two until gateways have acknowledged
    assert {row.wave for row in rows[:5]} == {"first"} and rows[5].wave == "rest"
    all_of_us, first_of_eu = rows[4].at_s, rows[5].at_s
    assert first_of_eu - all_of_us >= 60 + 12


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (PlayedFault(at_s=200, region="us", errors=0.05), "5 % errors in us"),
        (PlayedFault(at_s=200, latency_ms={0.99: 800}), "p99 800 ms in us"),
        (PlayedFault(at_s=200, crash=True), "instances fail in us: they crash"),
    ],
)
def test_bad_numbers_and_crashes_take_a_canary_back_everywhere(fault: PlayedFault, reason: str) -> None:
    rows = rehearse(CANARY, SIZES, [fault])
    assert rows[-1].decision == "end" and rows[-1].step == "rolledBack"
    (back,) = [row for row in rows if row.decision == "rollback" and row.region == "us"]
    assert reason in back.reason and (back.weight, back.candidate, back.stable) == (0, 0, 4)
    assert back.at_s <= 200 + 2 * CANARY.interval_s


def test_a_number_below_its_rule_changes_nothing_and_a_bad_one_that_passes_is_forgiven() -> None:
    good = actions(rehearse(CANARY, SIZES))
    low = PlayedFault(at_s=1, errors=0.009, latency_ms={0.99: 500, 0.5: 9000})
    assert [each for each in actions(rehearse(CANARY, SIZES, [low])) if each[0] != "fault"] == good
    short = [PlayedFault(at_s=130, errors=0.05), PlayedFault(at_s=160, errors=0.0)]
    assert rehearse(CANARY, SIZES, short)[-1].step == "promoted"


def test_without_rules_every_bad_number_counts() -> None:
    bare = replace(CANARY, abort=AbortSpec())
    assert rehearse(bare, SIZES, [PlayedFault(at_s=50, latency_ms={0.5: 20})])[-1].step == "rolledBack"


def test_without_samples_an_analysis_waits_and_the_rollout_goes_back_at_the_hold_limit() -> None:
    rows = rehearse(CANARY, SIZES, [PlayedFault(at_s=0, no_samples=True)])
    held = [row for row in rows if row.decision == "hold"]
    assert held[0].reason == "no samples of the gateways"
    assert rows[-1].step == "rolledBack" and rows[-1].at_s == pytest.approx(24 * 3600, abs=400)


def test_an_approval_that_does_not_come_ends_at_the_hold_limit_and_one_that_comes_lets_it_go_on() -> None:
    waiting = rehearse(APPROVAL, SIZES)
    assert ("hold", "waits for approval") in {(row.decision, row.reason) for row in waiting}
    assert "held for 24 h: waits for approval" in {row.reason for row in waiting}
    approved = rehearse(APPROVAL, SIZES, [PlayedFault(at_s=3600, approve=True)])
    assert approved[-1].step == "promoted" and any(row.decision == "approve" for row in approved)
    assert rehearse(APPROVAL, SIZES, approves=True)[-1].step == "promoted"
    early = rehearse(APPROVAL, SIZES, [PlayedFault(at_s=5, approve=True)])
    assert "an approval that nothing waits for" in {row.reason for row in early}
    assert early[-1].step == "rolledBack"


def test_a_lost_region_holds_up_nothing() -> None:
    rows = rehearse(CANARY, SIZES, [PlayedFault(at_s=5, region="eu", lost=True)])
    assert rows[-1].step == "promoted"


def test_steps_wait_for_a_maintenance_window() -> None:
    windows = (WindowSpec(days=(0,), from_s=9 * 3600, until_s=10 * 3600),)
    monday_ms = 4 * 86_400_000
    rows = rehearse(replace(CANARY, windows=windows), SIZES, start_ms=monday_ms + 8 * 3_600_000)
    assert rows[1].decision == "hold" and "maintenance window" in rows[1].reason
    assert next(row.at_s for row in rows if row.decision == "step") == 3600


def test_every_strategy_ends_with_all_requests_at_the_candidate() -> None:
    for kind in ("rolling", "blueGreen", "recreate"):
        rows = rehearse(Strategy(kind=kind, is_configured=True), SIZES)
        assert rows[-1].step == "promoted" and rows[-1].weight == 100, kind
    assert rehearse(Strategy(), SIZES)[-1].step == "promoted"


def test_a_frozen_rollout_ends_the_rehearsal() -> None:
    rows = rehearse(replace(CANARY, on_failure="freeze"), SIZES, [PlayedFault(at_s=50, crash=True)])
    assert (rows[-1].decision, rows[-1].step) == ("freeze", "frozen")


def test_a_fault_is_shown_in_words() -> None:
    every = PlayedFault(
        at_s=1, region="us", errors=0.05, latency_ms={0.99: 800}, lost=True, crash=False, no_samples=True
    )
    assert shown_fault(every) == "5 % errors, p99 800 ms, lost, no longer crashing, without samples in us"
    assert shown_fault(PlayedFault(at_s=1, approve=True)) == "approval in all regions"


# What holds whatever happens

REGIONS = ("us", "eu", "asia")
SECONDS = st.sampled_from([30.0, 60.0, 300.0])


def steps_of(kind: str) -> st.SearchStrategy[tuple[StepSpec, ...]]:
    pause = st.builds(StepSpec, kind=st.just("pause"), seconds=st.one_of(st.just(0.0), SECONDS))
    if kind == "recreate":
        return st.lists(pause, max_size=2).map(tuple)
    analysis = st.builds(StepSpec, kind=st.just("analysis"), seconds=SECONDS)
    if kind == "rolling":
        return st.lists(pause | analysis, max_size=3).map(tuple)
    others = st.one_of(
        pause,
        analysis,
        st.builds(StepSpec, kind=st.just("replicas"), percent=st.integers(1, 100)),
        st.builds(StepSpec, kind=st.just("replicas"), count=st.integers(1, 12)),
        st.builds(StepSpec, kind=st.just("mirror"), percent=st.integers(0, 50)),
        st.just(StepSpec(kind="header", name="X-Canary", value="1")),
    )
    if kind == "blueGreen":
        return st.lists(others, max_size=4).map(tuple)
    weights = st.lists(st.integers(1, 100), min_size=1, max_size=3).map(sorted)
    return st.tuples(weights, st.lists(others, max_size=3)).map(
        lambda both: tuple(
            each
            for at in range(max(map(len, both)))
            for each in (
                *[StepSpec(kind="weight", percent=weight) for weight in both[0][at : at + 1]],
                *both[1][at : at + 1],
            )
        )
    )


@st.composite
def rollouts(draw: st.DrawFn) -> Strategy:
    kind = draw(st.sampled_from(["rolling", "canary", "canary", "blueGreen", "recreate"]))
    waves = draw(
        st.one_of(
            st.just(()),
            st.just((WaveSpec(name="a", regions=("us",), soak_s=60, max_failures=1),)),
            st.just((WaveSpec(name="a", percent=50, soak_s=30), WaveSpec(name="b", regions=("asia", "eu"), concurrency=1))),
        )
    )  # fmt: skip
    return Strategy(
        kind=kind,
        is_configured=True,
        is_judged=kind != "recreate" and draw(st.booleans()),
        steps=draw(steps_of(kind)),
        waves=waves,
        keep_s=draw(st.sampled_from([0.0, 600.0])),
        hold_limit_s=draw(st.sampled_from([900.0, 7200.0])),
        deadline_s=draw(st.sampled_from([60.0, 600.0])),
        on_failure=draw(st.sampled_from(["rollback", "rollback", "freeze"])),
    )


SIZE = st.integers(0, 13)
TIMES = st.integers(0, 1500).map(float)
WHERE = st.sampled_from(["", *REGIONS])
FAULTS = st.lists(
    st.one_of(
        st.builds(PlayedFault, at_s=TIMES, region=WHERE, errors=st.sampled_from([0.05, 0.0])),
        st.builds(PlayedFault, at_s=TIMES, region=WHERE, crash=st.booleans()),
        st.builds(PlayedFault, at_s=TIMES, region=WHERE, lost=st.booleans()),
        st.builds(PlayedFault, at_s=TIMES, region=WHERE, no_samples=st.booleans()),
        st.builds(PlayedFault, at_s=TIMES, approve=st.just(True)),
    ),
    max_size=6,
)
PACES = st.builds(Pace, ready_s=st.sampled_from([1.0, 10.0, 90.0]), acknowledge_s=st.sampled_from([0.5, 2.0, 45.0]))


def sized(sizes: tuple[int, ...]) -> list[RegionSize]:
    return [RegionSize(name=name, size=size, surge=surge_of(size)) for name, size in zip(REGIONS, sizes, strict=True)]


@given(rollouts(), st.tuples(SIZE, SIZE, SIZE), FAULTS, PACES, st.booleans())
def test_no_revision_gets_more_than_it_carries_and_the_wanted_capacity_is_always_told(
    strategy: Strategy, sizes: tuple[int, ...], faults: list[PlayedFault], pace: Pace, approves: bool
) -> None:
    hurt: set[str] = set()
    for moment in play(strategy, sized(sizes), faults, pace=pace, approves=approves):
        for name, region in moment.regions.items():
            if region.is_lost or region.crashes:
                hurt.add(name)
            is_fault = moment.decision is not None and moment.decision.action == "fault"  # before it is answered
            if region.is_lost or not region.size or is_fault:
                continue
            shown = (moment.at_ms, name, region, moment.progress)
            stable, candidate = region.stable, region.candidate
            rounded = 100 // (2 * region.size) + 1  # whole percents, and shares of whole instances
            has_enough = stable.ready + candidate.ready >= region.size  # else what is ready shares everything
            carried = 100 * candidate.ready / region.size + rounded
            assert candidate.weight <= carried or not has_enough or not stable.ready, shown
            if strategy.kind == "recreate":
                continue
            assert stable.count + candidate.count >= region.size, shown
            if name not in hurt:
                assert stable.ready + candidate.ready >= region.size, shown
                assert stable.weight + candidate.weight == 100, shown
            for each in (stable, candidate):  # what gateways may still send somewhere runs there
                assert each.count >= min(region.size, -(-each.routed * region.size // 100) - 1), shown


@given(rollouts(), st.tuples(SIZE, SIZE, SIZE), FAULTS, PACES)
def test_steps_are_taken_one_by_one_and_no_analysis_passes_without_samples(
    strategy: Strategy, sizes: tuple[int, ...], faults: list[PlayedFault], pace: Pace
) -> None:
    at = (0, 0)
    for moment in play(strategy, sized(sizes), faults, pace=pace):
        decision, left, now = moment.decision, moment.left, moment.progress
        if decision is not None and left is not None and decision.action == "step":
            assert (now.wave, now.step) == (at[0], at[1] + 1)
            step = strategy.steps[left.step]
            if step.kind == "analysis" and strategy.is_judged:
                assert now.looked_ms >= left.settled_ms + step.seconds * 1000
                assert decision.numbers.get("requests", 0) > 0
            assert not step.needs_approval or left.is_approved
        elif decision is not None and decision.action == "wave":
            assert (at[1], now.wave, now.step) == (len(strategy.steps), at[0] + 1, 0)
        else:
            assert (now.wave, now.step) == at or now.phase != "running"
        at = (now.wave, now.step)
    if now.outcome == "promoted":
        assert now.step == len(strategy.steps) and now.wave == max(len(now.waves) - 1, 0)


@given(rollouts(), st.tuples(SIZE, SIZE, SIZE), FAULTS, PACES)
def test_a_rollout_ends_by_itself_at_the_hold_limit_at_the_latest(
    strategy: Strategy, sizes: tuple[int, ...], faults: list[PlayedFault], pace: Pace
) -> None:
    assume(any(sizes))
    *_, last = play(strategy, sized(sizes), faults, pace=pace)
    assert last.progress.phase in ("ended", "frozen"), last
    assert last.progress.phase == "ended" or strategy.on_failure == "freeze"


@given(rollouts(), st.tuples(SIZE, SIZE, SIZE), PACES)
def test_a_rollout_without_faults_whose_approvals_and_samples_arrive_is_promoted(
    strategy: Strategy, sizes: tuple[int, ...], pace: Pace
) -> None:
    assume(pace.ready_s < strategy.deadline_s and all(sizes))
    testers = False
    for step in strategy.steps:
        testers = testers or step.kind in ("weight", "header") or (step.kind == "mirror" and step.percent > 0)
        assume(step.kind != "analysis" or testers or strategy.kind == "rolling" or not strategy.is_judged)
    *_, last = play(strategy, sized(sizes), pace=pace, approves=True)
    assert last.progress.outcome == "promoted", last


@given(rollouts(), st.tuples(SIZE, SIZE, SIZE), FAULTS, st.integers(1, 2**31))
def test_the_same_rehearsal_gives_the_same_rows_whenever_it_begins(
    strategy: Strategy, sizes: tuple[int, ...], faults: list[PlayedFault], start_ms: int
) -> None:
    rows: Any = rehearse(strategy, sized(sizes), faults)
    assert rehearse(strategy, sized(sizes), faults, start_ms=start_ms) == rows
