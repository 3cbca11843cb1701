"""``shoal events`` against a served navigator."""

from __future__ import annotations

import json

from answers_world import Shoal


def test_events_of_clusters_are_shown_with_their_cluster(shoal: Shoal) -> None:
    ran = shoal("events", "--cluster", "all")
    assert [row[2:5] for row in ran.rows()[1:]] == [["eu-1", "Warning", "BackOff"], ["us-1", "Warning", "BackOff"]]
    assert "pod shop/web-2" in ran.out
    assert "cluster us-2 is missing" in ran.err
    assert len(json.loads(shoal("events", "--cluster", "eu-1", "-o", "json").out)) == 1
    assert "cluster 'mars' not found" in shoal("events", "--cluster", "mars").err
