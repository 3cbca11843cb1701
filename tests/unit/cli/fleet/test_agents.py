"""Agents and the deletions that they hold back."""

from __future__ import annotations

from shown_objects import an_agent

from shoal.cli.fleet.agents import held_lines
from shoal.cli.fleet.views import (
    agent_rows,
)


def test_an_agent_that_holds_deletions_back_says_how_many_and_what_releases_them() -> None:
    held = an_agent(held=["deployments"])
    held["controllers"]["deployments"] |= {
        "breaker": "open", "brake": {"held": True, "count": 9, "reason": "9 of 10", "keys": ["deployment/a"]},
    }  # fmt: skip
    (row,) = agent_rows([held])
    assert (row["breaker"], row["brake"], row["objects"], row["lag"]) == ("open", "holds 9 deletions", 4, "0.5s")
    text = "\n".join(held_lines([held, an_agent()]))
    assert "holds deletions of deployments back: 9 of 10" in text
    assert text.endswith("shoal agents confirm eu-1/default")
    assert agent_rows([an_agent(controllers={}, lastHeartbeat=None)])[0]["objects"] is None
