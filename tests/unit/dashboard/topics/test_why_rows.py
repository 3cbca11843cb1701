"""Chains of reasons: from what was asked for to what runs, with the first fault as the verdict."""

from __future__ import annotations

from typing import Any

from test_status_rows import NOW, a_gateway, a_place, an_agent, an_app

from shoal.dashboard.topics.why_rows import (
    app_steps,
    chain,
    cluster_steps,
    place_steps,
    pod_steps,
    rollout_steps,
)

HISTORY = {"changes": [{"actor": "ann", "action": "apply"}]}
ROUTE = {
    "project": "shop",
    "environment": "prod",
    "name": "web",
    "state": "Applied",
    "message": "",
    "spec": {"host": "h"},
}


def explained(app: dict[str, Any], *, rollout: str = "", gateways: Any = (), routes: Any = ()) -> list[tuple[str, str]]:
    status = {**app, "deployment": "dep_1"}
    steps = app_steps("shop/prod/web", status, HISTORY, rollout, gateways, routes, NOW)
    return [(each["level"], each["title"]) for each in steps]


def test_a_healthy_app_is_followed_down_to_its_gateways() -> None:
    assert explained(an_app(), gateways=[a_gateway()], routes=[ROUTE]) == [
        ("ok", "Applied"), ("ok", "Placed"), ("ok", "Applied in the cluster"), ("ok", "Instances"), ("ok", "Route"),
        ("ok", "Gateway"),
    ]  # fmt: skip


def test_the_chain_of_a_region_ends_at_its_fault() -> None:
    for state, last in (("Unplaced", "Placed"), ("AgentLost", "Agent"), ("ApplyFailed", "Applied in the cluster")):
        app = an_app("Degraded", a_place(state, message="because"))
        found = explained(app)
        assert [each for each in found if each[0] == "bad"] == [("bad", last)], state
        assert ("ok", "Instances") not in found


def test_what_the_agent_has_not_taken_yet_waits() -> None:
    place = a_place("Progressing", message="version 8 has waited for its agent for 2 s")
    place["desired"]["version"] = 8
    assert ("waiting", "Applied in the cluster") in explained(an_app("Progressing", place))


def test_the_verdict_is_the_first_fault_else_the_first_wait() -> None:
    steps = app_steps(
        "shop/prod/web", {**an_app("Degraded", a_place("Failing", message="p-1: OOMKilled")), "deployment": "d"}, HISTORY,
        "rollout 2 waits", [], [], NOW,
    )  # fmt: skip
    rows = chain(steps, "good")
    assert rows["#"]["level"] == "bad" and "OOMKilled" in rows["#"]["text"]
    assert [rows[f"step/{n}"]["order"] for n in range(len(steps))] == list(range(len(steps)))
    assert chain([], "good")["#"] == {"level": "ok", "text": "good"}


def test_other_objects_are_explained_at_each_place() -> None:
    place = {"cluster": "eu-1", "state": "Refused", "reason": "Refused", "message": "no such subset"}
    assert place_steps("Route", "shop/prod/web", {"places": [place]})[0]["level"] == "bad"
    assert place_steps("Route", "shop/prod/web", {"places": []})[0]["level"] == "waiting"


def test_a_cluster_is_explained_by_its_agents_and_what_the_navigator_sees() -> None:
    assert cluster_steps("eu-1", [], None, NOW)[0]["command"] == "shoal cluster join eu-1"
    seen = {"freshness": "stale", "kinds": [{"kind": "pods", "state": "forbidden", "error": "no right"}]}
    steps = cluster_steps("eu-1", [an_agent(held=["deployments"])], seen, NOW)
    texts = " ".join(each["text"] for each in steps)
    assert (
        "breaker is open" in texts and "confirmation" in texts and "stale" in texts and "pods cannot be read" in texts
    )
    assert cluster_steps("eu-1", [an_agent("Lost", reason="no heartbeat")], None, NOW)[0]["level"] == "bad"


def test_a_rollout_is_explained_by_its_decisions_and_what_it_waits_for() -> None:
    found = {
        "stableRevision": 1, "revision": 2, "strategy": "canary", "hold": "waits for approval", "outcome": "", "failure": "",
        "decisions": [{"action": "step", "reason": "weight 10 %"}],
        "regions": [{"region": "eu", "failure": "", "waitsFor": "2 instances"}],
    }  # fmt: skip
    levels = [each["level"] for each in rollout_steps("shop/prod/web", found)]
    assert levels == ["ok", "ok", "waiting", "waiting"]
    failed = {**found, "failure": "errors 5 %", "outcome": "rolledBack", "hold": ""}
    assert rollout_steps("shop/prod/web", failed)[-1]["level"] == "bad"


def test_a_pod_is_explained_by_its_node_and_the_events_of_its_cluster() -> None:
    pod = {
        "cluster": "eu-1", "namespace": "shop", "name": "web-1", "node": "", "status": "Pending", "phase": "Pending",
        "ready": False, "app": "web", "containers": [{"restarts": 0}],
    }  # fmt: skip
    unscheduled = {"type": "Warning", "reason": "FailedScheduling", "message": "0/3 nodes fit"}
    assert pod_steps(pod, [unscheduled], None)[-1]["text"] == "0/3 nodes fit"
    crashing = {**pod, "node": "n1", "status": "CrashLoopBackOff", "containers": [{"restarts": 4}]}
    back_off = {"type": "Warning", "reason": "BackOff", "message": "back-off restarting"}
    steps = pod_steps(crashing, [back_off], {"ready": False})
    assert [each["level"] for each in steps] == ["ok", "bad", "bad", "bad"] and "4 restarts" in steps[2]["text"]
    running = {**pod, "node": "n1", "status": "Running", "ready": True}
    assert {each["level"] for each in pod_steps(running, [back_off], None)} == {"ok"}
