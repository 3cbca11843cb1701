"""An agent whose connection broke is told before it has missed its heartbeats, and only while it is away."""

from __future__ import annotations

from typing import Any

from shoal.dashboard.topics.status_rows import BROKEN_MS, problems, with_broken

NOW = 1_000_000_000
BROKE = NOW - 2 * BROKEN_MS


def agent(**more: Any) -> dict[str, Any]:
    said = {"cluster": "eu-1", "region": "eu", "shard": "default", "state": "Joined", "reason": "", "held": []}
    return {**said, "lastHeartbeat": 9.0, **more}


def state(broken_at: int, **more: Any) -> str:
    return str(with_broken([agent(**more)], {("eu-1", "default"): broken_at}, NOW)[0]["state"])


def test_an_agent_that_is_not_back_is_told_and_is_what_is_wrong() -> None:
    agents = with_broken([agent()], {("eu-1", "default"): BROKE}, NOW)
    assert agents[0]["state"] == "Unreachable"
    found = problems({"agents": agents, "apps": [], "gateways": [], "refused": []}, [])
    assert found["Agent/eu-1/default"]["severity"] == "error"
    assert "broke" in found["Agent/eu-1/default"]["message"]


def test_an_agent_that_was_heard_since_is_connected_elsewhere() -> None:
    assert state(BROKE, lastHeartbeat=1.0) == "Joined"


def test_a_short_break_is_not_told() -> None:
    assert state(NOW - BROKEN_MS // 2) == "Joined"


def test_others_and_lost_ones_stay_as_they_are() -> None:
    assert state(BROKE, shard="other") == "Joined"
    assert state(BROKE, state="Lost") == "Lost"
