"""What the machine decides from given facts, one decision at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal.control.rollout.goals import NOTHING, begin, goal_of
from shoal.control.rollout.machine import decide, due_ms, go_back, supersede
from shoal.control.rollout.progress import AnalysisFacts, CandidateFacts, CheckFacts, Progress, RolloutFacts
from shoal.control.rollout.strategy import StepSpec, Strategy, WaveSpec, WindowSpec

CANARY = Strategy(
    kind="canary",
    is_configured=True,
    is_judged=True,
    steps=(StepSpec(kind="weight", percent=50), StepSpec(kind="analysis", seconds=60), StepSpec(kind="pause")),
)
AT_WEIGHT, AT_ANALYSIS, AT_PAUSE, AT_ALL = (
    replace(begin(CANARY, {"r1": "eu"}, 0), step=step, settled_ms=1) for step in range(4)
)
HALF: dict[str, Any] = {"weight": 50, "routed": 50, "count": 2, "ready": 2}
WHOLE: dict[str, Any] = {"weight": 100, "routed": 100, "count": 4, "ready": 4}


def region(name: str = "eu", **fields: Any) -> CandidateFacts:
    return CandidateFacts(**{"region": name, "size": 4, "has_stable": True, **HALF, **fields})


def facts(now_s: float = 0.0, *, more: dict[str, CandidateFacts] | None = None, **fields: Any) -> RolloutFacts:
    own = {name: fields.pop(name) for name in ("analysis", "checks", "is_reverted") if name in fields}
    return RolloutFacts(now_ms=round(now_s * 1000), regions={"r1": region(**fields), **(more or {})}, **own)


def look(until_s: float, outcome: str = "pass", **fields: Any) -> AnalysisFacts:
    found: dict[str, Any] = {"requests": 100, "has_enough": outcome == "pass", "reason": f"{outcome}: 1 %", **fields}
    return AnalysisFacts(until_ms=round(until_s * 1000), outcome=outcome, **found)


def decided(strategy: Strategy, progress: Progress, known: RolloutFacts) -> tuple[str, str, Progress]:
    at, decision = decide(strategy, progress, known)
    return (decision.action if decision else "", decision.reason if decision else at.hold, at)


def test_a_weight_is_left_when_instances_are_ready_and_gateways_have_acknowledged() -> None:
    start = begin(CANARY, {"r1": "eu"}, 0)
    assert decided(CANARY, start, facts(ready=1))[:2] == ("", "1 of 2 instances are ready in eu")
    assert "have not taken the new weight of 50 %" in decided(CANARY, start, facts(weight=0, routed=0))[1]
    assert "have not taken" in decided(CANARY, start, facts(routed=100))[1]
    waits = decided(CANARY, start, facts(waits_for="eu-gateway-1"))
    assert waits[:2] == ("", "gateways in eu have not taken the new weight of 50 %: eu-gateway-1")
    assert "is being removed" in decided(CANARY, start, facts(others=10))[1]
    action, reason, at = decided(CANARY, start, facts())
    assert (action, reason, at.step, at.settled_ms) == ("step", "weight is done; weight 50 %", 1, 0)


def test_an_analysis_ends_with_enough_samples_of_all_its_time() -> None:
    assert "takes 60 s" in decided(CANARY, AT_ANALYSIS, facts(59))[1]
    assert "the last samples" in decided(CANARY, AT_ANALYSIS, facts(62, analysis=look(50)))[1]
    few = decided(CANARY, AT_ANALYSIS, facts(62, analysis=look(62, "inconclusive")))
    assert few[:2] == ("", "inconclusive: 1 %") and few[2].held_ms == 62_000
    action, reason, at = decided(CANARY, AT_ANALYSIS, facts(62, analysis=look(62)))
    assert (action, at.step, at.requests, at.has_enough) == ("step", 2, 0, False)
    assert reason.startswith("analysis passed: pass: 1 %")


def test_an_analysis_waits_for_checks_elsewhere() -> None:
    passed = {"analysis": look(62)}
    waits = decided(CANARY, AT_ANALYSIS, facts(62, checks=CheckFacts(waits_for="check smoke runs"), **passed))
    assert waits[:2] == ("", "check smoke runs")
    failed = decided(CANARY, AT_ANALYSIS, facts(62, checks=CheckFacts(failed="check smoke failed: 500"), **passed))
    assert failed[:2] == ("rollback", "check smoke failed: 500")


def test_a_pause_without_time_waits_for_approval_until_the_hold_limit() -> None:
    action, hold, at = decided(CANARY, AT_PAUSE, facts(10))
    assert (action, hold, at.held_ms) == ("", "waits for approval", 10_000)
    assert decided(CANARY, at, facts(10 + 24 * 3600 - 1))[0] == ""
    assert decided(CANARY, at, facts(10 + 24 * 3600))[:2] == ("rollback", "held for 24 h: waits for approval")
    approved = decided(CANARY, replace(at, is_approved=True), facts(20))
    assert approved[:2] == ("step", "approved; weight 100 %")


def test_the_last_step_promotes_and_keeps_stable_for_a_while() -> None:
    action, reason, at = decided(CANARY, AT_ALL, facts(10, **WHOLE))
    assert (action, at.phase, at.kept_until_ms) == ("promote", "keeping", 1_810_000)
    assert "kept for 30 min" in reason
    assert decided(CANARY, at, facts(1809, **WHOLE))[0] == ""
    assert decided(CANARY, at, facts(1810, **WHOLE))[2].outcome == "promoted"
    alone = decided(CANARY, AT_ALL, facts(10, **WHOLE, has_stable=False, is_done=True))
    assert alone[2].phase == "ended"
    assert decided(replace(CANARY, keep_s=0), AT_ALL, facts(10, **WHOLE))[2].outcome == "promoted"


@pytest.mark.parametrize("progress", [AT_WEIGHT, AT_ANALYSIS, AT_PAUSE, AT_ALL])
def test_a_failure_takes_every_step_back_or_freezes_it(progress: Progress) -> None:
    whole = WHOLE if progress is AT_ALL else HALF
    for failing in (facts(5, **whole, analysis=look(5, "fail")), facts(5, **whole, failure="exit code 1")):
        action, _, at = decided(CANARY, progress, failing)
        assert (action, at.phase, at.wave, at.step) == ("rollback", "goingBack", progress.wave, progress.step)
        frozen = decided(replace(CANARY, on_failure="freeze"), progress, failing)[2]
        assert frozen.phase == "frozen" and frozen.failure
        assert decide(CANARY, frozen, failing)[1] is None


def test_instances_that_are_missing_fail_at_the_deadline_which_ends_when_they_are_there() -> None:
    start = replace(CANARY, deadline_s=60)
    missing = decided(start, AT_WEIGHT, facts(10, ready=1))[2]
    assert missing.short_ms == 10_000
    assert decided(start, missing, facts(69, ready=1))[0] == ""
    assert decided(start, missing, facts(70, ready=1))[:2] == ("rollback", "not ready in eu after 60 s")
    assert decided(start, missing, facts(69))[2].short_ms == 0


def test_going_back_waits_for_gateways_and_for_the_stable_template() -> None:
    back, _ = go_back(AT_ANALYSIS, "5 % errors")
    assert decided(CANARY, back, facts())[:2] == ("", "gateways still lead to it in eu")
    none = {"weight": 0, "routed": 0, "count": 0, "ready": 0}
    assert decided(CANARY, back, facts(**none))[:2] == ("", "the stable revision is applied again")
    action, _, at = decided(CANARY, back, facts(**none, is_reverted=True))
    assert (action, at.phase, at.outcome) == ("end", "ended", "rolledBack")
    lost = decided(CANARY, back, facts(is_lost=True, is_reverted=True))
    assert lost[0] == "end"
    assert decide(CANARY, at, facts(failure="late")) == (at, None)


def test_another_candidate_ends_a_rollout_and_one_that_is_kept_counts_as_promoted() -> None:
    assert supersede(AT_WEIGHT, "revision 3")[0].outcome == "superseded"
    assert supersede(replace(AT_ALL, phase="keeping"), "revision 3")[0].outcome == "promoted"


TWO = replace(CANARY, waves=(WaveSpec(name="a", regions=("eu", "us"), max_failures=1, soak_s=60),
                             WaveSpec(name="b", percent=100)))  # fmt: skip


def test_a_wave_goes_on_without_as_many_regions_as_may_fail() -> None:
    start = begin(TWO, {"r1": "eu", "r2": "us", "r3": "asia"}, 0)
    assert start.waves == (("r1", "r2"), ("r3",))
    known = facts(5, more={"r2": region("us", failure="exit code 1"), "r3": region("asia", weight=0)})
    action, reason, at = decided(TWO, start, known)
    assert (action, at.failed, at.phase) == ("leaveOut", ("r2",), "running")
    assert "instances fail in us: exit code 1" in reason
    both = facts(6, failure="exit code 2", more={"r2": known.regions["r2"]})
    assert decided(TWO, at, both)[0] == "rollback"


def test_waves_follow_each_other_after_the_soak_and_begin_with_the_first_step() -> None:
    at = replace(begin(TWO, {"r1": "eu", "r3": "asia"}, 0), step=3, settled_ms=1000)
    known = {"more": {"r3": region("asia", weight=0, routed=0, ready=0)}, **WHOLE}
    assert "soaks" in decided(TWO, at, facts(60, **known))[1]
    action, reason, after = decided(TWO, at, facts(61, **known))
    assert (action, reason, after.wave, after.step) == ("wave", "the next regions begin: asia", 1, 0)


def test_a_region_that_missed_its_wave_takes_the_steps_in_a_last_one() -> None:
    strategy = replace(CANARY, waves=(WaveSpec(name="a", regions=("us",)), WaveSpec(name="b", percent=100)))
    at = replace(begin(strategy, {"r1": "eu", "r2": "us"}, 0), step=3, settled_ms=1000)
    lost = {"more": {"r2": region("us", weight=50, routed=50, is_lost=True)}}
    action, _, at = decided(strategy, at, facts(10, weight=0, routed=0, **lost))
    assert (action, at.wave, at.missed) == ("wave", 1, ("r2",))
    assert goal_of(strategy, at, "r2", 4) == NOTHING, "it keeps stable"
    at = replace(at, step=3, settled_ms=1000)
    action, _, kept = decided(strategy, at, facts(20, **WHOLE, **lost))
    assert (action, kept.phase) == ("promote", "keeping")
    back = {"more": {"r2": region("us", weight=0, routed=0)}}
    for before in (at, kept):
        action, reason, after = decided(strategy, before, facts(30, **WHOLE, **back))
        assert (action, after.missed, after.waves[-1]) == ("catchUp", (), ("r2",))
        assert reason == "us missed the steps of its wave and takes them in a last one"
        assert (after.phase, after.outcome) == ("running", "")
    assert (after.wave, after.step, after.settled_ms) == (2, 0, 0), "while stable is kept, it begins at once"
    goals = {id_: goal_of(strategy, after, id_, 4) for id_ in ("r1", "r2")}
    assert [(goals[id_].weight, goals[id_].count) for id_ in goals if goals[id_]] == [(100, 4), (50, 2)]
    assert decided(strategy, after, facts(40, **WHOLE, more={"r2": region("us")}))[0] == "step"


def test_a_region_misses_nothing_that_has_no_steps_or_has_everything() -> None:
    for strategy, more in (
        (CANARY, {"weight": 100, "routed": 100}), (replace(CANARY, keep_s=0), {}), (replace(CANARY, kind="rolling"), {}),
    ):  # fmt: skip
        at = replace(begin(strategy, {"r1": "eu", "r2": "us"}, 0), step=3, settled_ms=1000)
        known = facts(10, **WHOLE, is_done=True, more={"r2": region("us", is_lost=True, **more)})
        assert decided(strategy, at, known)[2].missed == ()
    hurried = replace(begin(CANARY, {"r1": "eu", "r2": "us"}, 0), is_hurried=True, settled_ms=1000)
    assert decided(CANARY, hurried, facts(10, **WHOLE, more={"r2": region("us", is_lost=True)}))[2].missed == ()


def test_a_window_keeps_steps_from_being_entered_and_does_not_count_as_a_hold() -> None:
    closed = replace(CANARY, windows=(WindowSpec(days=(3,), from_s=3600, until_s=7200),))  # 1970 began on a Thursday
    action, hold, at = decided(closed, AT_WEIGHT, facts(10))
    assert (action, hold, at.held_ms) == ("", "waits for the next maintenance window", 0)
    assert decided(closed, AT_WEIGHT, facts(3600))[0] == "step"
    assert decided(closed, AT_WEIGHT, facts(10, failure="exit code 1"))[0] == "rollback"
    assert due_ms(replace(closed, is_judged=False), at, 10_000) == 3_600_000


def test_the_same_facts_decide_nothing_more() -> None:
    for progress in (AT_ANALYSIS, AT_PAUSE, replace(AT_ALL, phase="keeping", kept_until_ms=99_000)):
        once, decision = decide(CANARY, progress, facts(5, **(WHOLE if progress.phase == "keeping" else HALF)))
        assert decision is None
        again = decide(CANARY, once, facts(5, **(WHOLE if progress.phase == "keeping" else HALF)))
        assert again == (once, None)


def test_what_changes_by_time_alone_is_due() -> None:
    quiet = replace(CANARY, is_judged=False)
    assert due_ms(quiet, AT_ANALYSIS, 5_000) == 60_001
    assert due_ms(CANARY, AT_ANALYSIS, 5_000) == 30_000
    assert due_ms(quiet, replace(AT_PAUSE, held_ms=5_000), 6_000) == 5_000 + 24 * 3_600_000
    assert due_ms(quiet, replace(AT_WEIGHT, settled_ms=0, short_ms=5_000), 6_000) == 605_000
    assert due_ms(quiet, replace(AT_ALL, phase="keeping", kept_until_ms=99_000), 6_000) == 99_000
    assert due_ms(quiet, go_back(AT_ALL, "x")[0], 6_000) == 0
    assert due_ms(Strategy(), AT_WEIGHT, 6_000) == 0
