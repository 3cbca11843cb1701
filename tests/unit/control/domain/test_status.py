"""Status: what is beside what should be, and the reason of the first difference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal.control.database import tables
from shoal.control.domain import status
from shoal.control.domain.status import StatusFacts
from shoal.sync.keys import Place

NOW = 1_000_000
AT = Place("clu_1", "s1")


def a_row(**fields: Any) -> tables.Topology:
    given = {
        "id": "top_1", "deployment_id": "dep_1", "region_id": "reg_1", "cluster_id": AT.cluster, "shard": AT.shard,
        "reason": {"because": "only this cluster accepts it"}, "replicas": 2, "autoscaling": None, "overrides": None,
        "desired_status": "running", "moved_from": "",
    }  # fmt: skip
    return tables.Topology(**(given | fields))


def a_desired(**fields: Any) -> tables.Desired:
    given = {
        "cluster_id": AT.cluster, "shard": AT.shard, "stream": "deployments", "key": "deployment/dep_1",
        "kind": "deployment", "object_id": "dep_1", "action": "apply", "number": 7, "committed_at": NOW - 5000,
        "applied_number": 7, "applied_at": NOW - 4000, "error": None, "observed": None, "observed_at": NOW - 1000,
        "gone_at": 0,
    }  # fmt: skip
    return tables.Desired(**(given | fields))


def an_instance(name: str = "pod-1", **fields: Any) -> tables.Instance:
    given = {
        "cluster_id": AT.cluster, "shard": AT.shard, "uid": name, "deployment_id": "dep_1", "name": name,
        "status": "running", "ready": True, "restarts": 0, "reason": "", "message": "", "exit_code": 0,
        "reported_at": NOW,
    }  # fmt: skip
    return tables.Instance(**(given | fields))


def an_agent(**fields: Any) -> tables.Agent:
    given = {
        "cluster_id": AT.cluster, "shard": AT.shard, "agent": "a", "epoch": 3, "software": "shoal/1", "lost": False,
        "last_heartbeat_at": NOW - 2000, "state": None,
    }  # fmt: skip
    return tables.Agent(**(given | fields))


def judged(
    row: tables.Topology | None = None,
    desired: tables.Desired | None = None,
    instances: list[tables.Instance] | None = None,
    agent: tables.Agent | None = None,
) -> status.PlaceState:
    found = [an_instance("a"), an_instance("b")] if instances is None else instances
    return status.judge(row or a_row(), desired or a_desired(), found, agent or an_agent(), NOW)


OUTAGE = {"outage": {"reason": "connection refused", "sinceMs": NOW - 25_000}}
HELD = {"deployments": {"brake": {"held": True, "reason": "12 of 20 would go"}}}


def test_a_place_that_is_what_it_should_be_is_ready() -> None:
    assert judged().state == "Ready"


@pytest.mark.parametrize(
    ("changed", "state", "reason"),
    [
        ({"row": a_row(cluster_id="", reason={"because": "no cluster accepts it", "refused": {"c1": "full"}})}, "Unplaced", "NoPlace"),
        ({"agent": an_agent(lost=True)}, "AgentLost", "AgentLost"),
        ({"agent": an_agent(state=OUTAGE)}, "ClusterUnreachable", "ClusterUnreachable"),
        ({"agent": an_agent(lost=True, state=OUTAGE)}, "AgentLost", "AgentLost"),
        ({"desired": a_desired(error={"reason": "Forbidden", "message": "no", "attempts": 3})}, "ApplyFailed", "Forbidden"),
        ({"desired": a_desired(number=8)}, "Progressing", "NotApplied"),
        ({"desired": a_desired(number=8), "agent": an_agent(state=HELD)}, "Progressing", "BrakeHeld"),
        ({"instances": [an_instance()]}, "Progressing", "NotReady"),
        ({"instances": []}, "Progressing", "NotReady"),
        ({"desired": a_desired(observed={"drift": ["spec.replicas"]})}, "Drifted", "Drift"),
        ({"row": a_row(desired_status="stopped"), "instances": []}, "Stopped", ""),
        ({"row": a_row(desired_status="stopped")}, "Progressing", "Stopping"),
    ],
)  # fmt: skip
def test_the_first_difference_is_named(changed: dict[str, Any], state: str, reason: str) -> None:
    found = judged(**changed)
    assert (found.state, found.reason) == (state, reason)


def test_why_an_instance_died_is_told() -> None:
    dead = an_instance(
        "b", ready=False, status="failed", reason="OOMKilled", exit_code=137, restarts=4, message="too big"
    )
    found = judged(instances=[an_instance("a"), dead])
    assert found.state == "Failing"
    assert found.message == "b: OOMKilled, exit code 137, 4 restarts: too big"


REFUSED = {"reason": "FailedCreate", "message": 'pods "web-1" is forbidden: exceeded quota: team'}


def test_pods_that_cannot_be_created_are_a_failure_with_the_reason_of_the_cluster() -> None:
    faulty = a_desired(observed={"fault": REFUSED})
    found = judged(desired=faulty, instances=[an_instance("a")])
    assert (found.state, found.reason) == ("Failing", "FailedCreate")
    assert found.message == 'FailedCreate: pods "web-1" is forbidden: exceeded quota: team'
    assert judged(desired=faulty).state == "Ready", "as many run as should"


def test_an_instance_says_more_than_a_deadline_that_has_passed() -> None:
    late = a_desired(observed={"fault": {"reason": "ProgressDeadlineExceeded", "message": "timed out"}})
    dead = an_instance("b", ready=False, status="failed", reason="ErrImagePull", message="image web:9: no such image")
    assert judged(desired=late, instances=[an_instance("a"), dead]).reason == "ErrImagePull"
    starting = an_instance("b", ready=False, status="pending", reason="NotReady")
    assert judged(desired=late, instances=[an_instance("a"), starting]).reason == "ProgressDeadlineExceeded"


def test_an_instance_that_is_not_said_to_be_ready_is_not() -> None:
    assert judged(instances=[an_instance("a"), an_instance("b", ready=False)]).state == "Progressing"


def test_an_instance_that_is_not_ready_yet_is_no_failure_until_it_has_ended_once() -> None:
    starting = an_instance("b", ready=False, status="pending", reason="NotReady")
    assert judged(instances=[an_instance("a"), starting]).state == "Progressing"
    starting.restarts = 1
    assert judged(instances=[an_instance("a"), starting]).state == "Failing"


def app_and_deployment(**fields: Any) -> tuple[tables.App, tables.Deployment]:
    app = tables.App(
        id="app_1", name="web", deployment_id="dep_1", live_deployment_id="dep_1", revision=3, spec={}, labels={},
        annotations={},
    )  # fmt: skip
    given = {"status": "ready", "reason": "", "desired_state": "running"} | fields
    deployment = tables.Deployment(
        id="dep_1", app_id="app_1", revision=3, image="shop/web:1", created_at=NOW - 9000, **given
    )
    return app, deployment


def two_regions(**second: Any) -> StatusFacts:
    return StatusFacts(
        now=NOW,
        regions={"reg_1": "eu", "reg_2": "us"},
        clusters={"clu_1": "eu1", "clu_2": "us1"},
        agents={AT: an_agent(), Place("clu_2", "s1"): an_agent(cluster_id="clu_2")},
        topology=[a_row(), a_row(id="top_2", region_id="reg_2", cluster_id="clu_2")],
        desired=[a_desired(), a_desired(cluster_id="clu_2", **second)],
        instances=[an_instance(f"{c}-{n}", cluster_id=c) for c in ("clu_1", "clu_2") for n in "ab"],
    )


def test_the_summary_counts_regions() -> None:
    app, deployment = app_and_deployment()
    assert status.app_status(app, [deployment], two_regions())["summary"] == "Ready 2/2 regions"
    behind = status.app_status(app, [deployment], two_regions(number=9))
    assert behind["summary"] == "Degraded: ready 1/2 regions"
    assert behind["reason"] == "us: version 9 has waited for its agent for 5.0 s"


def test_desired_applied_and_reported_come_with_version_and_age() -> None:
    app, deployment = app_and_deployment()
    row = status.app_status(app, [deployment], two_regions(number=9))["regions"][1]
    assert (row["region"], row["cluster"], row["shard"]) == ("us", "us1", "s1")
    assert row["desired"] == {"version": 9, "state": "running", "replicas": 2, "autoscaling": None, "age": 5.0}
    assert row["applied"] == {"version": 7, "age": 4.0}
    assert (row["reported"]["ready"], row["reported"]["needed"], row["reported"]["age"]) == (2, 2, 1.0)


def test_what_is_being_removed_is_shown_until_its_agent_confirms() -> None:
    app, deployment = app_and_deployment()
    facts = two_regions()
    going = replace(facts, desired=[*facts.desired, a_desired(cluster_id="clu_9", action="delete")])
    shown = status.app_status(app, [deployment], going)["regions"]
    assert [row["state"] for row in shown] == ["Ready", "Ready", "Removing"]
    gone = replace(facts, desired=[*facts.desired, a_desired(cluster_id="clu_9", action="delete", gone_at=NOW)])
    assert len(status.app_status(app, [deployment], gone)["regions"]) == 2


def test_revisions_beside_each_other_are_judged_each_by_its_own_rows() -> None:
    app, deployment = app_and_deployment(status="deploying")
    old = tables.Deployment(id="dep_0", app_id="app_1", revision=2, image="x", status="ready", desired_state="running")
    facts = StatusFacts(
        now=NOW,
        topology=[a_row(), a_row(id="top_0", deployment_id="dep_0")],
        desired=[a_desired(number=9), a_desired(object_id="dep_0")],
        instances=[an_instance(name, deployment_id="dep_0") for name in "ab"],
        agents={AT: an_agent()},
    )
    shown = status.app_status(app, [old, deployment], facts)
    assert [row["reason"] for row in shown["regions"]] == ["NotApplied"]
    assert [(each["revision"], each["regions"][0]["state"]) for each in shown["others"]] == [(2, "Ready")]


def test_explain_gives_the_reason_of_the_placement_and_of_what_is_wrong() -> None:
    app, deployment = app_and_deployment()
    facts = two_regions(error={"reason": "Forbidden", "message": "may not create pods", "attempts": 2})
    lines = status.explain(app, status.app_status(app, [deployment], facts), None)
    assert "eu → eu1/s1: placed because only this cluster accepts it" in lines
    assert "us → us1/s1: ApplyFailed, may not create pods, 2 attempts" in lines


def test_an_agent_is_shown_with_cursor_lag_heartbeat_breaker_and_brake() -> None:
    state = {
        "deployments": {
            "cursor": "main.1.7.x", "connection": "watching", "breaker": "closed", "lag_seconds": 1.5,
            "brake": {"held": True, "count": 12},
        },
        "sentinels": {"cursor": "main.1.5.x", "breaker": "open", "lag_seconds": 0.0},
    }  # fmt: skip
    shown = status.agent_status(an_agent(state=state, lost=True), "eu1", "eu", NOW)
    assert (shown["state"], shown["lastHeartbeat"], shown["lag"], shown["held"]) == ("Lost", 2.0, 1.5, ["deployments"])
    assert shown["controllers"]["sentinels"]["breaker"] == "open"
    assert shown["controllers"]["deployments"]["cursor"] == "main.1.7.x"


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "Applied"), ({"number": 8}, "Progressing"), ({"error": {"reason": "x"}}, "ApplyFailed"),
        ({"action": "delete"}, "Removing"), ({"action": "delete", "gone_at": 1}, "Removed"),
        ({"observed": {"refused": [{"gateway": "sentinel-x", "message": "Envoy refuses it: no"}]}}, "Refused"),
        ({"observed": {"refused": []}}, "Applied"),
    ],
)  # fmt: skip
def test_any_object_has_a_state_at_each_place(fields: dict[str, Any], state: str) -> None:
    facts = StatusFacts(now=NOW, agents={AT: an_agent()})
    assert status.place_status(a_desired(**fields), facts)["state"] == state
