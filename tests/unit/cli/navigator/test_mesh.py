"""``shoal mesh`` against a served navigator."""

from __future__ import annotations

import yaml
from answers_world import Shoal


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


def test_the_graph_has_rates_success_and_latency_and_names_missing_clusters(shoal: Shoal) -> None:
    ran = shoal("mesh", "graph")
    assert ran.rows()[1] == ["shop/web", "shop/db", "40.00/s", "95.00%", "91.0ms", "eu-1,us-1"]
    assert "cluster us-2 is missing" in ran.err
    nobody = shoal("mesh", "graph", "--cluster", "us-2")
    assert (nobody.code, nobody.out) == (1, "no cluster has data\n")


def test_the_configuration_of_a_proxy_is_printed(shoal: Shoal) -> None:
    assert yaml.safe_load(shoal("mesh", "proxy", "web-1", "--cluster", "eu-1").out)["listeners"][0]["port"] == 15006
