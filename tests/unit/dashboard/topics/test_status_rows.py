"""Rows from statuses: moments in place of ages, and what is wrong, with its fix, without its consequences."""

from __future__ import annotations

from typing import Any

from shoal.dashboard.topics.status_rows import (
    agent_row,
    app_row,
    apps_rows,
    place_row,
    problems,
    rollout_problems,
    summary,
    told,
)

NOW = 1_700_000_000_000


def a_place(state: str = "Ready", **more: Any) -> dict[str, Any]:
    return {
        "region": "eu", "cluster": "eu-1", "shard": "default", "state": state, "reason": "", "message": "", "weight": 100,
        "desired": {"version": 7, "state": "running", "replicas": 2, "autoscaling": None, "age": 12.5},
        "applied": {"version": 7, "age": 11.25},
        "reported": {"ready": 2, "needed": 2, "instances": 2, "desired": 2, "available": 2, "drift": [], "age": 1.0},
        "moving": False, "placement": {"because": "only this cluster accepts it"}, **more,
    }  # fmt: skip


def an_app(state: str = "Ready", *places: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "project": "shop", "environment": "prod", "name": "web", "summary": f"{state} 1/1 regions", "state": state,
        "reason": "", "revision": 3, "live": "dep_1", "image": "web:3", "regions": list(places) or [a_place()],
        "others": [], "rollout": None, **more,
    }  # fmt: skip


def an_agent(state: str = "Joined", **more: Any) -> dict[str, Any]:
    return {
        "cluster": "eu-1", "region": "eu", "shard": "default", "agent": "a", "epoch": 2, "software": "x", "state": state,
        "reason": "", "lastHeartbeat": 2.0, "lag": 0.0, "held": [], "image": None,
        "controllers": {
            "deployments": {"connection": "live", "breaker": "closed", "objects": 3, "buffered": 0, "retrying": 0},
            "sentinels": {"connection": "live", "breaker": "open", "objects": 2, "buffered": 1, "retrying": 4},
        }, **more,
    }  # fmt: skip


def overview(*apps: dict[str, Any], agents: Any = (), gateways: Any = (), refused: Any = ()) -> dict[str, Any]:
    return {"apps": apps, "agents": agents or [an_agent()], "gateways": gateways, "refused": refused}


def a_gateway(reason: str = "", **more: Any) -> dict[str, Any]:
    return {
        "project": "shop", "environment": "prod", "gateway": "eu", "region": "eu", "cluster": "eu-1", "shard": "default",
        "health": "unhealthy" if reason else "healthy", "available": 1, "desired": 1, "status": "ready", "address": "",
        "reason": reason, **more,
    }  # fmt: skip


def test_ages_become_moments_that_stay_the_same_as_time_goes_on() -> None:
    now = place_row(a_place(), NOW)
    later_place = a_place()
    for part, age in (("desired", 12.5), ("applied", 11.25), ("reported", 1.0)):
        later_place[part]["age"] = age + 30
    assert place_row(later_place, NOW + 30_000) == now
    assert (now["desiredAt"], now["appliedAt"], now["reportedAt"]) == (NOW - 12_500, NOW - 11_250, NOW - 1000)
    assert None not in now.values() and "moving" not in now and "drift" not in now


def test_texts_do_not_say_how_long_they_hold() -> None:
    assert told("no heartbeat for 31 s") == "no heartbeat"
    assert told("version 12 has waited for its agent for 3.2 s") == "version 12 has waited for its agent"
    assert told("the API server cannot be used for 12 s: refused") == "the API server cannot be used: refused"
    assert told("1 of 2 instances are ready") == "1 of 2 instances are ready"
    assert told("") is None and told(None) is None


def test_an_app_has_a_row_of_its_own_and_one_per_place() -> None:
    older = {"revision": 2, "status": "ready", "regions": [a_place(weight=80)]}
    rows = apps_rows(overview(an_app("Progressing", others=[older])), NOW, {"shop/prod/web": {"rate": 2.5, "p99Ms": 9}})
    assert rows.keys() == {
        "app/shop/prod/web", "place/shop/prod/web/3/eu/eu-1/default", "place/shop/prod/web/2/eu/eu-1/default"
    }  # fmt: skip
    assert rows["app/shop/prod/web"]["rate"] == 2.5 and rows["app/shop/prod/web"]["readyRegions"] == 1
    assert rows["place/shop/prod/web/3/eu/eu-1/default"]["newest"] is True
    assert "newest" not in rows["place/shop/prod/web/2/eu/eu-1/default"]


def test_rollouts_without_steps_of_an_app_that_says_nothing_about_them_are_not_shown() -> None:
    plain = {"configured": False, "steps": 0, "number": 1}
    assert "rollout" not in app_row(an_app(rollout=plain))
    assert app_row(an_app(rollout={**plain, "steps": 2}))["rollout"]["number"] == 1


def test_an_agent_shows_the_worst_of_its_controllers() -> None:
    row = agent_row(an_agent(), NOW)
    assert (row["breaker"], row["objects"], row["retrying"], row["heartbeatAt"]) == ("open", 5, 4, NOW - 2000)


def test_nothing_is_wrong_where_all_is_well() -> None:
    shown = overview(an_app(), an_app("Stopped"), gateways=[a_gateway()])
    assert problems(shown, []) == {}
    assert summary(shown, [], {})["notReady"] == 0


def test_a_lost_agent_is_one_problem_and_not_one_for_each_app_and_gateway() -> None:
    app = an_app("Degraded", a_place("AgentLost", message="no heartbeat for 31 s"))
    shown = overview(app, agents=[an_agent("Lost", reason="no heartbeat for 31 s")], gateways=[a_gateway("AgentLost")])
    found = problems(shown, [])
    assert found.keys() == {"Agent/eu-1/default"}
    assert (
        found["Agent/eu-1/default"]["severity"] == "error" and "no heartbeat" in found["Agent/eu-1/default"]["message"]
    )


def test_a_broken_app_says_how_to_go_back() -> None:
    app = an_app("Broken", a_place("Failing", message="p-1: CrashLoopBackOff"), reason="eu: p-1: CrashLoopBackOff")
    found = problems(overview(app), [])["App/shop/prod/web"]
    assert (found["severity"], found["command"]) == ("error", "shoal rollback app shop/prod/web")
    assert found["message"] == "eu: p-1: CrashLoopBackOff"


def test_an_app_that_starts_is_no_problem() -> None:
    assert problems(overview(an_app("Progressing", a_place("Progressing", reason="NotReady"))), []) == {}


def test_a_rollout_that_goes_back_by_itself_needs_nothing() -> None:
    rollout = {"configured": True, "steps": 2, "phase": "goingBack", "number": 4}
    app = an_app("Progressing", a_place("Failing", message="x"), rollout=rollout)
    found = problems(overview(app), [])["App/shop/prod/web"]
    assert found["fix"].startswith("nothing")


def test_deletions_that_wait_gateways_and_refused_configuration_are_told() -> None:
    refused = [
        {"kind": "route", "name": "shop/prod/web", "cluster": "eu-1", "gateway": "g", "message": "no such subset"}
    ]
    shown = overview(agents=[an_agent(held=["deployments"])], gateways=[a_gateway("0 of 1 replicas")], refused=refused)
    found = problems(shown, [{"state": "NoAgent", "name": "us-1", "region": "us", "problem": "no agent has joined"}])
    assert found.keys() == {
        "Agent/eu-1/default", "Gateway/shop/prod/eu", "Route/shop/prod/web/eu-1/g", "Cluster/us-1"
    }  # fmt: skip
    assert found["Agent/eu-1/default"]["command"] == "shoal agents confirm eu-1/default"
    counts = summary(shown, [{}], found)
    assert (counts["errors"], counts["warnings"]) == (2, 2)


def a_rollout(number: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "project": "shop", "environment": "prod", "app": "web", "number": number, "phase": "ended", "outcome": "promoted",
        "reason": "", "endedAt": NOW - 60_000, **more,
    }  # fmt: skip


def test_a_rollout_that_went_back_is_told_until_another_one_or_half_an_hour() -> None:
    back = a_rollout(2, outcome="rolledBack", reason="eu: errors 7 % are above 1 %")
    found = rollout_problems([a_rollout(1), back], NOW)["Rollout/shop/prod/web"]
    assert found["message"] == "rollout 2 went back: eu: errors 7 % are above 1 %"
    assert found["command"] == "shoal rollout status shop/prod/web"
    assert rollout_problems([back, a_rollout(3)], NOW) == {}
    assert rollout_problems([back], NOW + 1_800_000) == {}
    for phase, severity in (("goingBack", "warning"), ("frozen", "error")):
        going = a_rollout(3, phase=phase, outcome="", endedAt=None)
        assert rollout_problems([going, back], NOW)["Rollout/shop/prod/web"]["severity"] == severity
    assert rollout_problems([a_rollout(3, phase="running", outcome="", endedAt=None), back], NOW) == {}
