"""Apps, agents, instances and gateways as rows of tables."""

from __future__ import annotations

from shown_objects import a_place, a_shown_app

from shoal.cli.fleet.views import (
    app_rows,
    gateway_rows,
    instance_rows,
    is_ready,
    not_ready_lines,
    refused_of_gateways,
)


def test_an_app_has_a_row_in_each_place_and_its_older_revisions_follow() -> None:
    stuck = a_place("us", "Progressing", ready=0, applied={"version": 0}, reason="NotApplied", message="it waits")
    old = {"revision": 1, "status": "ready", "regions": [a_place("eu", shard="s2")]}
    rows = app_rows([a_shown_app(a_place("eu"), stuck, others=[old], revision=2, image="web:2")])
    assert rows[0] == {
        "app": "p/e/web", "region": "eu", "cluster": "eu-1", "state": "Ready", "ready": "1/1", "desired": "v7",
        "applied": "v7", "reported": "3.2s", "reason": "", "revision": 2, "image": "web:2", "weight": "",
    }  # fmt: skip
    assert (rows[1]["applied"], rows[1]["reason"]) == ("", "NotApplied: it waits")
    assert (rows[2]["state"], rows[2]["cluster"], rows[2]["reason"]) == ("Older", "eu-1/s2", "revision 1, ready")
    serving = {**old, "regions": [{**place, "weight": 70} for place in old["regions"]]}
    rows = app_rows([a_shown_app(a_place("eu"), stuck, others=[serving])])
    assert (rows[2]["reason"], rows[2]["weight"], rows[2]["revision"]) == ("revision 1, 70 % of requests", "70 %", 1)
    assert app_rows([a_shown_app(state="Empty")])[0]["state"] == "Empty"


def test_an_app_that_is_being_removed_has_a_row_without_counts() -> None:
    going = a_place("", "Removing", reported={"age": None}, message="delete for 3 s")
    assert app_rows([a_shown_app(going)])[0]["ready"] == ""


def test_an_app_is_ready_only_if_every_region_is() -> None:
    assert is_ready(a_shown_app()) and is_ready(a_shown_app(state="Stopped"))
    degraded = a_shown_app(a_place("eu"), a_place("us", "AgentLost", message="no heartbeat"), state="Degraded")
    assert not is_ready(degraded)
    assert not_ready_lines([a_shown_app(), degraded]) == ["p/e/web: Degraded", "  us: AgentLost, no heartbeat"]


def test_an_instance_says_why_it_does_not_run() -> None:
    crashed = {"name": "a", "reason": "CrashLoopBackOff", "exitCode": 3, "message": "back-off"}
    assert instance_rows([crashed])[0]["reason"] == "CrashLoopBackOff, exit code 3: back-off"
    assert instance_rows([{"name": "a", "message": "m"}])[0]["reason"] == "m"


def test_replicas_of_a_gateway_show_their_requests_and_refused_configuration() -> None:
    counted = {"codes": [0, 5, 0, 1, 2], "healthy": 1, "total": 2}
    entry = {
        "deployments": {"dep_1": counted, "dep_2": counted},
        "refused": [{"type": "Cluster", "name": "c", "reason": "no"}],
    }
    place = {"cluster": "eu-1", "reported": {"stats": {"gateways": {"sentinel-x": entry}}}}
    assert gateway_rows([place, {"cluster": "us-1", "reported": {}}]) == [
        {
            "gateway": "sentinel-x",
            "state": "current",
            "deployments": 2,
            "requests": 16,
            "errors": 4,
            "instances": "2/4",
            "refused": 1,
        }
    ]
    stale = {**place, "reported": {**place["reported"], "stale": ["sentinel-x"]}}
    assert [row["state"] for row in gateway_rows([stale])] == ["stale"]
    out = {**stale, "reported": {**stale["reported"], "takenOut": ["sentinel-x"]}}
    assert [row["state"] for row in gateway_rows([out])] == ["out"]
    assert refused_of_gateways([place]) == [
        {"refused": "Cluster c", "cluster": "eu-1", "gateway": "sentinel-x", "reason": "no"}
    ]
