"""The text of `shoal status`, and the lines of its watch mode."""

from __future__ import annotations

from typing import Any

from shown_objects import a_place, a_shown_app, an_agent

from shoal.cli.fleet.status import all_ready, lines_of, status_text


def test_lines_of_watch_mode_have_no_ages() -> None:
    def shown(age: float) -> dict[str, Any]:
        place = a_place("eu", reported={"ready": 1, "needed": 1, "age": age})
        return {"apps": [a_shown_app(place)], "agents": [an_agent(lastHeartbeat=age)]}

    assert lines_of(shown(1.0)) == lines_of(shown(50.0)) == ["p/e/web eu/eu-1: Ready, ready 1/1, applied v7 of v7"]
    assert status_text(shown(1.0)) != status_text(shown(50.0))
    lost = {"apps": [], "agents": [an_agent(state="Lost")]}
    assert lines_of(lost) == ["agent eu-1/default: Lost, breaker closed, brake free"]
    assert status_text({"apps": [], "agents": []}) == "no apps\n\nno agent has joined\n"


def test_objects_that_gateways_refuse_follow_apps_and_agents_with_the_reason() -> None:
    refused = {"kind": "route", "name": "p/e/front", "cluster": "eu-1", "gateway": "sentinel-x", "message": "Envoy: no"}
    shown = {"apps": [a_shown_app(a_place("eu"))], "agents": [an_agent()], "refused": [refused]}
    last = status_text(shown).rstrip().splitlines()[-1]
    assert all(text in last for text in ("route p/e/front", "eu-1", "sentinel-x", "Envoy: no"))
    assert "REFUSED" not in status_text({**shown, "refused": []})
    assert lines_of(shown)[-1] == "route p/e/front eu-1: Refused by sentinel-x, Envoy: no"


def test_gateways_that_are_not_healthy_are_shown_and_waited_for() -> None:
    good = {
        "gateway": "eu", "project": "p", "environment": "e", "region": "eu", "cluster": "eu-1", "health": "healthy",
        "available": 1, "desired": 1, "address": "10.0.0.1:8040", "reason": "",
    }  # fmt: skip
    shown = {"apps": [a_shown_app(a_place("eu"))], "agents": [an_agent()], "gateways": [good]}
    assert "GATEWAY" not in status_text(shown) and all_ready(shown)
    shown["gateways"] = [{**good, "health": "stale", "reason": "no sign of life"}]
    last = status_text(shown).rstrip().splitlines()[-1]
    assert all(text in last for text in ("p/e/eu", "stale", "1/1", "no sign of life"))
    assert lines_of(shown)[-1] == "gateway p/e/eu eu/eu-1: stale, no sign of life"
    assert not all_ready(shown)
