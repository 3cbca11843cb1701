"""``shoal navigator edges`` against a served navigator."""

from __future__ import annotations

import json

import pytest
from answers_world import Shoal


def test_options_are_set_shown_and_removed_for_one_edge_and_for_all(shoal: Shoal) -> None:
    assert shoal("navigator", "edges", "set", "--all", "sync.interval_s=20").out == "options of all edges changed\n"
    assert shoal("navigator", "edges", "set", "eu-1", "sync.interval_s=10", "namespaces.exclude=kube-*").code == 0
    lines = shoal("navigator", "edges", "get").out.splitlines()
    assert any("(all)" in line and "sync.interval_s=20" in line for line in lines)
    assert any("eu-1" in line and "namespaces.exclude=kube-*" in line and "taken" in line for line in lines)
    one = shoal("navigator", "edges", "get", "eu-1").out
    assert [line.split() for line in one.splitlines() if "interval" in line] == [["sync.interval_s", "10", "eu-1"]]
    assert shoal("navigator", "edges", "unset", "eu-1", "sync.interval_s").code == 0
    found = json.loads(shoal("navigator", "edges", "get", "eu-1", "-o", "json").out)
    assert found["options"] == {"namespaces.exclude": "kube-*"} and found["settings"]["sync.interval_s"] == "20"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("set", "sync.interval_s=10"), "--all"),
        (("set", "eu-1"), "KEY=VALUE"),
        (("set", "eu-1", "fast"), "KEY=VALUE"),
        (("set", "eu-1", "sync.interval_s=soon"), "soon"),
        (("set", "--all", "port=1"), "port"),
        (("set", "nowhere", "sync.interval_s=10"), "nowhere"),
        (("get", "nowhere"), "nowhere"),
    ],
)
def test_a_wrong_option_is_an_error_that_names_it(shoal: Shoal, words: tuple[str, ...], reason: str) -> None:
    ran = shoal("navigator", "edges", *words)
    assert ran.code != 0 and reason in ran.err
