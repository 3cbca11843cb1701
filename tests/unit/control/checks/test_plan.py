"""Which checks are due, and what their answers mean for a rollout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shoal.control.checks.plan import (
    LEASE_MS,
    CheckAnswer,
    KnownCheck,
    answered,
    check_facts,
    checks_of,
    due_checks,
    key_of,
)
from shoal.control.rollout.progress import ENDED, FROZEN, GOING_BACK, KEEPING, RUNNING, CheckFacts, Progress
from shoal.control.rollout.strategy import CANARY, CheckSpec, StepSpec, Strategy

SMOKE = CheckSpec(name="smoke", kind="webhook", interval_s=30.0)
ERRORS = CheckSpec(name="errors", kind="prometheus", interval_s=60.0, failures=3)
STRATEGY = Strategy(
    kind=CANARY,
    is_configured=True,
    steps=(
        StepSpec(kind="weight", percent=5),
        StepSpec(kind="analysis", seconds=300.0),
        StepSpec(kind="weight", percent=50),
        StepSpec(kind="analysis", seconds=300.0, checks=("errors",)),
    ),
    checks=(SMOKE, ERRORS),
)
AT = Progress(step=1, settled_ms=1000)
ANSWERS = st.sampled_from([True, False, None])


def asked(check: CheckSpec, progress: Progress = AT, **fields: Any) -> KnownCheck:
    return replace(KnownCheck(key=key_of(check, progress), due_ms=0, asked_ms=1), **fields)


def test_checks_are_asked_during_settled_analysis_steps_only() -> None:
    assert checks_of(STRATEGY, AT) == (SMOKE, ERRORS)
    assert checks_of(STRATEGY, replace(AT, step=3)) == (ERRORS,)
    for other in (
        replace(AT, settled_ms=0), replace(AT, step=0), replace(AT, step=2), replace(AT, step=4),
        replace(AT, is_hurried=True), replace(AT, is_approved=True),
        *(replace(AT, phase=phase) for phase in (KEEPING, GOING_BACK, FROZEN, ENDED)),
    ):  # fmt: skip
        assert checks_of(STRATEGY, other) == () and due_checks(STRATEGY, other, [], 10**9) == ()
        assert check_facts(STRATEGY, other, [asked(SMOKE, failures=9)]) == CheckFacts()


def test_a_check_is_due_at_once_and_then_at_its_interval() -> None:
    assert [each.check for each in due_checks(STRATEGY, AT, [], 1000)] == [SMOKE, ERRORS]
    smoke = answered(asked(SMOKE), SMOKE, CheckAnswer(passed=True, reason="ok"), 5000)
    errors = answered(asked(ERRORS), ERRORS, CheckAnswer(passed=None, reason="no result"), 5000)
    rows = [smoke, errors]
    assert due_checks(STRATEGY, AT, rows, 34_999) == ()
    assert [each.check for each in due_checks(STRATEGY, AT, rows, 35_000)] == [SMOKE]
    assert [each.check for each in due_checks(STRATEGY, AT, rows, 65_000)] == [SMOKE, ERRORS]


def test_answers_of_an_earlier_settling_count_for_nothing() -> None:
    old = asked(ERRORS, replace(AT, settled_ms=500), failures=3, reason="5 is not < 1")
    before = asked(ERRORS, replace(AT, wave=1), failures=3, reason="5 is not < 1")
    assert check_facts(STRATEGY, AT, [old, before]).failed == ""
    assert [each.known for each in due_checks(STRATEGY, AT, [old, before], 1000)] == [None, None]


def test_the_sentence_says_which_check_failed_how_often_and_why() -> None:
    rows = [asked(SMOKE, passed=True), asked(ERRORS, passed=False, failures=3, reason="0.2 is not < 0.01")]
    facts = check_facts(STRATEGY, AT, rows)
    assert facts.failed == "check errors failed 3 times in a row: 0.2 is not < 0.01"
    once = check_facts(STRATEGY, AT, [asked(SMOKE, passed=False, failures=1, reason="smoke test 4 failed")])
    assert once.failed == "check smoke failed: smoke test 4 failed"
    assert "check errors has not answered yet" in once.waits_for


def test_a_check_that_is_inconclusive_holds_even_if_it_passed_before() -> None:
    passed = answered(asked(SMOKE), SMOKE, CheckAnswer(passed=True, reason="ok"), 1)
    away = answered(passed, SMOKE, CheckAnswer(passed=None, reason="did not answer within 5 s"), 2)
    rows = [asked(ERRORS, passed=True)]
    assert check_facts(STRATEGY, AT, [*rows, passed]) == CheckFacts()
    assert check_facts(STRATEGY, AT, [*rows, away]) == CheckFacts(
        waits_for="check smoke is inconclusive: did not answer within 5 s"
    )


@given(st.lists(ANSWERS, max_size=12), st.integers(1, 4))
def test_a_check_fails_after_so_many_failures_in_a_row_and_never_by_silence(
    answers: list[bool | None], failures: int
) -> None:
    check = replace(SMOKE, failures=failures)
    strategy = replace(STRATEGY, checks=(check,))
    known = KnownCheck(key=key_of(check, AT), due_ms=0)
    in_a_row, has_failed = 0, False
    for at, passed in enumerate(answers, start=1):
        known = answered(known, check, CheckAnswer(passed=passed, reason="why"), at)
        in_a_row = 0 if passed else in_a_row + (passed is False)
        facts = check_facts(strategy, AT, [known])
        has_failed = in_a_row >= failures
        assert bool(facts.failed) == has_failed
        assert bool(facts.waits_for) == (passed is not True)
    assert answers or check_facts(strategy, AT, [known]).waits_for == "check smoke has not answered yet"


@given(st.integers(0, 10**6), st.integers(0, 10**6), ANSWERS)
def test_a_check_that_was_just_answered_is_not_due(settled_ms: int, now_ms: int, passed: bool | None) -> None:
    at = Progress(phase=RUNNING, step=1, settled_ms=settled_ms + 1)
    known = KnownCheck(key=key_of(SMOKE, at), due_ms=now_ms + LEASE_MS)
    after = answered(known, SMOKE, CheckAnswer(passed=passed, reason=""), now_ms)
    strategy = replace(STRATEGY, checks=(SMOKE,))
    assert due_checks(strategy, at, [after], now_ms) == () != due_checks(strategy, at, [after], after.due_ms)
