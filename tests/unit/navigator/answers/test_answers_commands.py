"""The commands over all clusters as a user meets them, against the real API on a port."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from answers_world import TOKEN, Shoal, World

from shoal.app.main import main
from shoal.cli.contexts import Context, navigator_context, read_contexts, save_context
from shoal.errors import ConfigError


def test_a_query_shows_a_table_and_names_clusters_that_may_be_wrong(shoal: Shoal) -> None:
    ran = shoal("query", "pods where image ~ 'v2' and region = 'eu' and not ready")
    assert (ran.code, ran.err) == (0, "note: cluster us-2 is stale, last report 5m ago\n")
    assert ran.rows() == [
        ["CLUSTER", "NAMESPACE", "NAME", "STATUS", "READY", "RESTARTS", "NODE", "IMAGE", "AGE"],
        ["eu-1", "shop", "web-2", "CrashLoopBackOff", "no", "2", "n1", "reg.io/web:v2,istio/proxy:1.24.0", "2m"],
    ]
    assert shoal("query", "pods where name = nobody").out == "no pods match\n"


def test_a_query_that_is_none_shows_the_place_and_ends_with_an_error(shoal: Shoal) -> None:
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


def test_services_show_how_many_endpoints_are_ready_and_each_of_them(shoal: Shoal) -> None:
    assert ["shop", "web", "ClusterIP", "80", "1/3", "eu-1,us-1"] in shoal("services").rows()
    text = shoal("services", "shop/web").out
    assert "endpoints:  1 of 3 ready" in text
    assert "not ready   web-2   CrashLoopBackOff" in text
    assert [row[2] for row in shoal("services", "--without").rows()[1:]] == ["batch-7", "batch-7", "lonely-0"]
    assert "use NAMESPACE/NAME" in shoal("services", "web").err
    assert json.loads(shoal("services", "shop/web", "-o", "json").out)["readyEndpoints"] == 1


def test_the_mesh_is_shown_for_a_workload_with_reasons(shoal: Shoal) -> None:
    text = shoal("mesh", "workload", "web", "--cluster", "eu-1").out
    assert text.count("pod:") == 1, "the pods of a workload are alike"
    assert "VirtualService shop/web" in text
    assert shoal("mesh", "workload", "web", "--cluster", "eu-1", "--all").out.count("pod:") == 2
    assert "no Istio resource applies to it" in shoal("mesh", "workload", "shop/batch-7", "--cluster", "eu-1").out


def test_mistakes_are_shown_once_with_their_fix_and_fail_the_command(shoal: Shoal) -> None:
    ran = shoal("mesh", "mistakes")
    assert ran.code == 1
    assert "error: VirtualService shop/web in eu-1, us-1 at spec.http[0].route[0].destination.host" in ran.out
    assert "  fix: " in ran.out
    assert shoal("mesh", "mistakes", "-n", "lab").code == 0


def test_the_graph_has_rates_success_and_latency_and_says_who_is_missing(shoal: Shoal) -> None:
    ran = shoal("mesh", "graph")
    assert ran.rows()[1] == ["shop/web", "shop/db", "40.00/s", "95.00%", "91.0ms", "eu-1,us-1"]
    assert "cluster us-2 is missing" in ran.err
    nobody = shoal("mesh", "graph", "--cluster", "us-2")
    assert (nobody.code, nobody.out) == (1, "no cluster has data\n")


def test_the_configuration_of_a_proxy_is_printed(shoal: Shoal) -> None:
    assert yaml.safe_load(shoal("mesh", "proxy", "web-1", "--cluster", "eu-1").out)["listeners"][0]["port"] == 15006


def test_logs_of_one_pod_are_plain_and_those_of_an_app_say_where_they_are_from(shoal: Shoal) -> None:
    assert shoal("logs", "web-2").out == "web-2 line 0\nweb-2 line 1\nweb-2 line 2\n"
    ran = shoal("logs", "shopfront", "--tail", "1")
    assert sorted(ran.out.splitlines()) == [
        "eu-1/web-1 | web-1 line 2", "eu-1/web-2 | web-2 line 2", "us-1/web-1 | web-1 line 2",
    ]  # fmt: skip
    assert shoal("logs", "shopfront", "--cluster", "us-1", "--tail", "1").out == "web-1 line 2\n"


def test_logs_are_those_of_the_apps_container_and_not_of_the_proxy(shoal: Shoal, served: tuple[World, str]) -> None:
    shoal("logs", "web-2")
    assert served[0].edges.asked[-1][1].container == "main"  # type: ignore[attr-defined]
    shoal("logs", "web-2", "-c", "istio-proxy", "--since", "10m")
    request = served[0].edges.asked[-1][1]
    assert (request.container, request.since_seconds) == ("istio-proxy", 600)  # type: ignore[attr-defined]


def test_a_pod_whose_log_cannot_be_had_does_not_hide_the_others(shoal: Shoal, served: tuple[World, str]) -> None:
    view = served[0].view
    obj = {"metadata": {"name": "web-9", "namespace": "shop", "labels": {"shoal.dev/deployment": "dep-2"}}}
    view.put("us-2", "pods", obj)
    try:
        ran = shoal("logs", "shopfront", "--tail", "1")
    finally:
        view.remove("us-2", "pods", "shop/web-9")
    assert ran.code == 1
    assert len(ran.out.splitlines()) == 3
    assert "us-2/web-9: no edge is connected" in ran.err


def test_a_name_that_nothing_has_is_said_with_what_is_near(shoal: Shoal) -> None:
    assert (
        shoal("logs", "lonely").err
        == "error: no pod, workload or app 'lonely' found; did you mean lab/lonely-0 (us-2)?\n"
    )


def test_events_of_clusters_are_shown_with_their_cluster(shoal: Shoal) -> None:
    ran = shoal("events", "--cluster", "all")
    assert [row[2:5] for row in ran.rows()[1:]] == [["eu-1", "Warning", "BackOff"], ["us-1", "Warning", "BackOff"]]
    assert "pod shop/web-2" in ran.out
    assert "cluster us-2 is missing" in ran.err
    assert len(json.loads(shoal("events", "--cluster", "eu-1", "-o", "json").out)) == 1
    assert "cluster 'mars' not found" in shoal("events", "--cluster", "mars").err


def test_search_and_diff_and_the_steps_of_an_object(shoal: Shoal) -> None:
    assert shoal("search", "lonely").rows()[1][:4] == ["pods", "us-2", "lab", "lonely-0"]
    assert shoal("search", "unheard-of").out == "nothing found\n"
    text = shoal("diff", "--from", "1h", "--cluster", "eu-1").out
    assert "- services shop/gone (eu-1)\n" in text
    assert "    spec.containers[main].image: reg.io/web:v0 → reg.io/web:v1\n" in text
    assert shoal("diff", "eu-1", "us-1").out == "no differences\n"
    assert "give exactly two" in shoal("diff", "eu-1").err
    assert "    spec.replicas: 1 → 2\n" in shoal("diff", "--of", "deployments/shop/web", "--from", "1d").out


def test_checks_are_saved_run_and_removed(shoal: Shoal) -> None:
    assert shoal("checks", "run").out.startswith("no checks")
    assert shoal("checks", "save", "crash", "pods where status = CrashLoopBackOff").code == 0
    assert shoal("checks", "save", "up", "pods where ready", "--some").code == 0
    ran = shoal("checks", "run")
    assert ran.code == 1
    assert [row[:3] for row in ran.rows()[1:3]] == [["crash", "failed", "2"], ["up", "ok", "4"]]
    assert shoal("checks", "run", "up").code == 0
    assert "did you mean" in shoal("checks", "save", "bad", "pds").err
    assert shoal("checks", "remove", "crash").code == 0
    assert shoal("checks", "remove", "up").code == 0
    assert shoal("checks", "list").out == "no checks\n"


# Where the navigator is


def test_a_context_names_the_navigator_which_shares_what_it_has_no_own_of(tmp_path: Path) -> None:
    save_context(tmp_path, Context("local", "https://c", "t", "CA", navigator="https://n/"))
    found = navigator_context(tmp_path, environ={})
    assert (found.url, found.token, found.ca) == ("https://n", "t", "CA")
    save_context(tmp_path, Context("local", "https://c", "t", "CA", navigator_token="own", navigator_ca="OWN"))
    found = navigator_context(tmp_path, environ={})
    assert (found.url, found.token, found.ca) == ("https://n", "own", "OWN")
    assert read_contexts(tmp_path).known["local"].url == "https://c"


def test_without_a_navigator_commands_say_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_context(tmp_path, Context("local", "https://c", "t"))
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path))
    assert main(["query", "pods"]) == 2
    assert "context 'local' has no navigator: `shoal up` starts one" in capsys.readouterr().err
    assert main(["config", "set-context", "local", "--navigator", "https://n/", "--navigator-token", "secret"]) == 0
    assert navigator_context(tmp_path, environ={}).url == "https://n"
    capsys.readouterr()
    assert main(["config", "view"]) == 0
    assert "secret" not in capsys.readouterr().out


def test_the_environment_can_name_the_navigator(tmp_path: Path) -> None:
    environ = {"SHOAL_NAVIGATOR_URL": "https://n", "SHOAL_NAVIGATOR_TOKEN": TOKEN}
    assert navigator_context(tmp_path, environ=environ).token == TOKEN
    with pytest.raises(ConfigError, match="SHOAL_NAVIGATOR_TOKEN is not set"):
        navigator_context(tmp_path, environ={"SHOAL_NAVIGATOR_URL": "https://n"})
    shared = {"SHOAL_NAVIGATOR_URL": "https://n", "SHOAL_URL": "https://c", "SHOAL_TOKEN": "t"}
    assert navigator_context(tmp_path, environ=shared).token == "t"
