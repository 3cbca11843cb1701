"""Workloads over all clusters, with their pods and their app."""

from __future__ import annotations

from typing import Any

import pytest
from answers_world import done, the_world

from shoal.errors import NotFound
from shoal.navigator.answers.fleet import read_deployments
from shoal.navigator.answers.workloads import workload, workloads

WORLD = the_world()


def fleet() -> Any:
    return read_deployments(WORLD.fleet)


def test_workloads_have_their_pods_of_all_clusters_and_the_app_of_the_fleet() -> None:
    page = done(workloads(WORLD.view, fleet))
    assert [(each["kind"], each["name"]) for each in page.items] == [
        ("Pod", "lonely-0"), ("Deployment", "web"), ("Pod", "batch-7"),
        ("Deployment", "shopfront-dep-2"), ("Deployment", "shopfront-dep-3"),
    ]  # fmt: skip
    found = done(workload(WORLD.view, fleet, "shop", "deployment", "web"))
    assert (found["kind"], found["app"], found["revisions"], found["pods"], found["ready"]) == (
        "Deployment", "shopfront", [2, 3], 3, 1,
    )  # fmt: skip
    eu = found["clusters"][0]
    assert (eu["replicas"], eu["services"]) == (2, ["web"])
    assert [each["name"] for each in eu["instances"]] == ["web-1", "web-2"]
    with pytest.raises(NotFound):
        done(workload(WORLD.view, fleet, "shop", "Deployment", "nothing"))
