"""A rollout that cannot be carried out is refused when it is applied: without requests to judge, or without room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fleet_world import ADMIN, Clusters, World, a_fleet, an_app, doc

from shoal.control.domain.refusals import DocumentsRefused
from shoal.control.domain.specs import parse
from shoal.errors import Invalid

CANARY = {"steps": [5, 50], "every": "2m"}
PAUSES = {**CANARY, "judge": False}
SMALL: Clusters = {"eu1": ("eu", {"capacity": {"cpu": "4", "memory": "4Gi"}}), "us1": ("us", {})}


def a_route(app: str = "web", **spec: Any) -> dict[str, Any]:
    return doc("Route", f"to-{app}", {"host": f"{app}.example.com", "app": app, **spec})


async def refused(world: World, document: dict[str, Any]) -> str:
    with pytest.raises(Invalid) as caught:
        await world.apply(document)
    (fault,) = caught.value.errors
    return f"{fault.field}: {fault.body}"


async def test_an_analysis_needs_a_route_that_leads_to_the_app(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        found = await refused(world, an_app(rollout=CANARY))
        assert found.startswith("spec.rollout:") and "apply a route in the same file" in found
        await world.apply(an_app(rollout=PAUSES))
        await world.apply(an_app(rollout=CANARY, desired="stopped"))
        await world.apply(a_route())
        await world.apply(an_app(rollout=CANARY))
        assert (await world.app()).spec["rollout"] == CANARY
        assert (await world.app()).revision == 1


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_an_app_and_the_route_that_it_needs_are_applied_together(tmp_path: Path, order: tuple[int, ...]) -> None:
    async with a_fleet(tmp_path) as world:
        both = [parse(an_app(rollout=CANARY)), parse(a_route())]
        applied = await world.fleet.apply_all(ADMIN, [both[at] for at in order])
        assert {each.created for each in applied} == {True}


async def test_a_route_to_another_app_in_the_file_does_not_help(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        documents = [parse(each) for each in (an_app(rollout=CANARY), an_app("other"), a_route("other"))]
        with pytest.raises(DocumentsRefused) as caught:
            await world.fleet.apply_all(ADMIN, documents)
        assert list(caught.value.errors) == [0]


async def test_what_the_environment_says_is_checked_with_each_app(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        await world.apply(doc("Environment", "prod", {"rollout": CANARY}))
        assert "no route leads to the app" in await refused(world, an_app(image="shop/web:2"))
        await world.apply(an_app(image="shop/web:2", rollout={"judge": False}))
        assert "spec.rollout.steps[0]" in await refused(world, an_app(rollout={"strategy": "rolling", "steps": [5]}))


async def test_both_revisions_must_fit_where_clusters_say_how_much_they_take(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, clusters=SMALL) as world:
        large = {"replicas": 3, "resources": {"cpu": "1", "memory": "256Mi"}}
        found = await refused(world, an_app(rollout=PAUSES, **large))
        assert "region eu has no room for both revisions" in found and "eu1: not enough cpu: 6000 of 4000" in found
        await world.apply(an_app(rollout=PAUSES, regions=("us",), **large))
        await world.apply(an_app(rollout={"strategy": "rolling"}, **large))
        for _ in range(2):  # what runs already is not counted twice
            await world.apply(an_app("other", rollout=PAUSES, replicas=1, resources={"memory": "512Mi"}))
        found = await refused(world, an_app("other", rollout=PAUSES, replicas=4, resources={"memory": "512Mi"}))
        assert "eu1: not enough memory: 4864 of 4096" in found


async def test_a_region_with_a_cluster_that_has_room_takes_a_new_app(tmp_path: Path) -> None:
    clusters: Clusters = {**SMALL, "eu2": ("eu", {"capacity": {"cpu": "8"}})}
    async with a_fleet(tmp_path, clusters=clusters) as world:
        await world.apply(an_app(rollout=PAUSES, replicas=3, resources={"cpu": "1"}))
        placed = {row.cluster_id for row in await world.topology()}
        assert len(placed) == 1
