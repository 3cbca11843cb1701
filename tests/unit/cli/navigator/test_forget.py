"""``shoal navigator forget`` against a served navigator."""

from __future__ import annotations

from typing import Any

from answers_world import Shoal

from shoal.testing.views import a_cluster


def test_a_cluster_is_forgotten_and_one_with_an_edge_only_with_its_tokens(shoal: Shoal, served: Any) -> None:
    served.world.view.known = [*served.world.view.known, a_cluster("old-1")]
    refused = shoal("navigator", "forget", "old-1")
    assert refused.code == 1 and "edge 'edge-old-1' reports cluster 'old-1'" in refused.err
    assert "old-1" in shoal("query", "clusters").out
    assert shoal("navigator", "forget", "old-1", "--revoke").out == "cluster old-1 forgotten\n"
    assert "old-1" not in shoal("query", "clusters").out
    assert "cluster 'old-1' not found" in shoal("navigator", "forget", "old-1").err
