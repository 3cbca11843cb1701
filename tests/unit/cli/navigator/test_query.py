"""``shoal query`` against a served navigator."""

from __future__ import annotations

import json

import yaml
from answers_world import Shoal


def test_a_query_shows_a_table_and_names_clusters_that_may_be_wrong(shoal: Shoal) -> None:
    ran = shoal("query", "pods where image ~ 'v2' and region = 'eu' and not ready")
    assert (ran.code, ran.err) == (0, "note: cluster us-2 is stale, last report 5m ago\n")
    assert ran.rows() == [
        ["CLUSTER", "NAMESPACE", "NAME", "STATUS", "READY", "RESTARTS", "NODE", "IMAGE", "AGE"],
        ["eu-1", "shop", "web-2", "CrashLoopBackOff", "no", "2", "n1", "reg.io/web:v2,istio/proxy:1.24.0", "2m"],
    ]
    assert shoal("query", "pods where name = nobody").out == "no pods match\n"


def test_an_invalid_query_shows_the_place_and_ends_with_an_error(shoal: Shoal) -> None:
    ran = shoal("query", "pods where imge ~ 'v2'")
    assert ran.code == 1
    lines = ran.err.splitlines()
    assert lines[0] == "error: pods have no field 'imge'; did you mean 'image'?"
    assert lines[2].index("^") == lines[1].index("imge")
    assert "query is missing" in shoal("query").err


def test_results_are_json_and_yaml_for_programs_and_pages_are_put_together(shoal: Shoal) -> None:
    found = json.loads(shoal("query", "pods select name, age", "-o", "json").out)
    assert len(found) == 6
    assert found[0] == {"name": "batch-7", "age": 3600.0}
    assert yaml.safe_load(shoal("query", "pods count by region", "-o", "yaml").out) == [
        {"region": "eu", "count": 3}, {"region": "us", "count": 3},
    ]  # fmt: skip
    assert "… and 4 more" in shoal("query", "pods", "--limit", "2").out


def test_a_query_can_be_about_the_past_and_explain_itself(shoal: Shoal) -> None:
    assert [row[2] for row in shoal("query", "pods", "--at", "1h").rows()[1:]] == ["web-1"]
    assert (
        "plan: index of label app=web in all 3 clusters"
        in shoal("query", "pods where labels.app = web", "--explain").err
    )
    assert "does not go back" in shoal("query", "pods", "--at", "2020-01-01").err


def test_the_fields_that_can_be_asked_for_are_listed(shoal: Shoal) -> None:
    assert ["restarts", "number"] in [row[:2] for row in shoal("query", "--fields", "pods").rows()]
    assert "virtualservices" in shoal("query", "--fields", "all").out
    assert "use one of" in shoal("query", "--fields", "cats").err
