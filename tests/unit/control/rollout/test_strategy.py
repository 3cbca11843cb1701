"""The values of a strategy, and their defaults."""

from __future__ import annotations

from shoal.control.rollout.strategy import NotificationSpec, StepSpec, Strategy


def test_nothing_said_means_rolling_without_going_back() -> None:
    assert Strategy() == Strategy(kind="rolling", is_configured=False, is_judged=False, keep_s=1800, deadline_s=600)


def test_only_a_pause_without_time_needs_approval() -> None:
    steps = [StepSpec(kind="pause"), StepSpec(kind="pause", seconds=1), StepSpec(kind="analysis")]
    assert [step.needs_approval for step in steps] == [True, False, False]
    assert "rollback" in NotificationSpec(url="https://a").on
