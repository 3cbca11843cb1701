"""Rows of a rollout: where its steps are, its regions in flat fields, and the limits for the line in its charts."""

from __future__ import annotations

from typing import Any

from shoal.control.rollout.strategy import AbortSpec, LatencyLimit
from shoal.dashboard.topics.apps import rollout_rows


def a_rollout(**more: Any) -> dict[str, Any]:
    region = {
        "region": "eu", "wave": 0, "size": 4, "weight": 10, "routed": 10, "goal": {"weight": 10, "instances": 1},
        "candidate": {"ready": 1, "instances": 1, "requests": 20, "failed": 2, "p50": 3.0, "p99": 9.0},
        "stable": {"present": True, "ready": 4, "instances": 4}, "lost": False, "leftOut": False, "waitsFor": "",
        "failure": "",
    }  # fmt: skip
    return {
        "number": 2, "phase": "running", "outcome": "", "step": 1, "waves": [["eu"], ["us"]], "reason": "",
        "steps": [{"kind": "weight", "weight": 10}, {"kind": "pause", "weight": 10, "seconds": 60.0}, {"kind": "weight", "weight": 50}],
        "startedAt": "2026-01-01T00:00:00.000Z", "endedAt": "", "regions": [region],
        "decisions": [{"id": 7, "at": "2026-01-01T00:00:01.000Z", "actor": "", "action": "step", "reason": "r", "numbers": None}],
        **more,
    }  # fmt: skip


def states(**more: Any) -> list[str]:
    rows = rollout_rows(a_rollout(**more), AbortSpec())
    return [rows[f"step/{n}"]["state"] for n in range(3)]


def test_steps_say_where_the_rollout_is_or_where_it_went_back() -> None:
    assert states() == ["done", "now", "next"]
    assert states(outcome="promoted", phase="ended", step=3) == ["done", "done", "done"]
    for ended in ({"outcome": "rolledBack", "phase": "ended"}, {"phase": "goingBack"}, {"phase": "frozen"}):
        assert states(**ended) == ["done", "failed", "skipped"], ended


def test_regions_and_decisions_are_flat_and_times_are_moments() -> None:
    rows = rollout_rows(a_rollout(), AbortSpec())
    eu = rows["region/eu"]
    assert (eu["candidateFailed"], eu["candidateP99Ms"], eu["stableReady"], eu["goalInstances"]) == (2, 9.0, 4, 1)
    assert "lost" not in eu and "failure" not in eu
    assert rows["decision/7"]["at"] == 1767225601000 and "numbers" not in rows["decision/7"]
    assert rows["rollout"]["startedAt"] == 1767225600000 and "endedAt" not in rows["rollout"]
    assert rows["rollout"]["waveRegions"] == [["eu"], ["us"]] and rows["rollout"]["steps"] == 3


def test_limits_are_those_of_the_strategy_else_stable_is_the_measure() -> None:
    assert rollout_rows(a_rollout(), AbortSpec())["limit/stable"]["relative"] is True
    limits = AbortSpec(errors=0.01, latency=(LatencyLimit(quantile=0.99, ms=250),))
    rows = rollout_rows(a_rollout(), limits)
    assert (rows["limit/errors"]["value"], rows["limit/errors"]["unit"]) == (0.01, "share")
    assert (rows["limit/p99"]["value"], rows["limit/p99"]["measure"]) == (250, "p99")
    assert "limit/stable" not in rows
