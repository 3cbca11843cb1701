"""``shoal query`` against a served navigator."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import yaml
from answers_world import Shoal, a_pod


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


def test_a_watched_query_shows_new_lines_as_the_answer_changes(
    served: Any, spawned: Callable[..., subprocess.Popen[str]]
) -> None:
    table = spawned("query", "pods where namespace = watched", "-w").stdout
    lines = spawned("query", "pods where namespace = watched select name, age", "-w", "-o", "json").stdout
    assert table is not None and lines is not None
    assert table.readline() == "no pods match\n"
    assert json.loads(lines.readline()) == []
    served.change(lambda: served.world.view.put("eu-1", "pods", a_pod("one", "watched")))
    assert table.readline().split()[-1] == "IMAGE"  # no ages: a line changes only when the state does
    assert table.readline().split()[:3] == ["eu-1", "watched", "one"]
    assert [each["name"] for each in json.loads(lines.readline())] == ["one"]
    served.change(lambda: served.world.view.remove("eu-1", "pods", "watched/one"))
    assert table.readline() == "no pods match\n"
    assert json.loads(lines.readline()) == []


def test_what_cannot_be_watched_is_refused(shoal: Shoal) -> None:
    assert "the past does not change" in shoal("query", "pods", "-w", "--at", "1h").err
    assert "use at most 10000 with --watch" in shoal("query", "pods", "-w", "--limit", "20000").err
    assert "did you mean 'pods'?" in shoal("query", "pds", "-w").err
