"""``shoal search`` and ``shoal diff`` against a served navigator."""

from __future__ import annotations

from answers_world import Shoal


def test_search_diff_and_the_history_of_an_object(shoal: Shoal) -> None:
    assert shoal("search", "lonely").rows()[1][:4] == ["pods", "us-2", "lab", "lonely-0"]
    assert shoal("search", "unheard-of").out == "nothing found\n"
    text = shoal("diff", "--from", "1h", "--cluster", "eu-1").out
    assert "- services shop/gone (eu-1)\n" in text
    assert "    spec.containers[main].image: reg.io/web:v0 → reg.io/web:v1\n" in text
    assert shoal("diff", "eu-1", "us-1").out == "no differences\n"
    assert "give exactly two" in shoal("diff", "eu-1").err
    assert "    spec.replicas: 1 → 2\n" in shoal("diff", "--of", "deployments/shop/web", "--from", "1d").out
