"""What gateways of a region are told about revisions: their shares, and what a candidate has besides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleet_world import World, a_fleet, an_app, doc
from hypothesis import given
from hypothesis import strategies as st

from shoal.control.database import tables
from shoal.control.domain.routing import RoutedDeployment, RoutedShare, read_targets, resolve_extras, resolve_route

APPS = ("web", "api", "jobs")
TESTERS = {"header": {"name": "x-beta", "value": "1"}, "cookie": {"name": "beta", "value": "yes"}}
EXTRAS = {**TESTERS, "mirror": 10, "previewHost": "next.example"}


def deployment(name: str) -> RoutedDeployment:
    return RoutedDeployment(deployment=name, namespace="n", name=name, port=1, protocol="http1")


extras = st.fixed_dictionaries(
    {}, optional={**{name: st.just(value) for name, value in EXTRAS.items()}, "mirror": st.integers(0, 100)}
)


@st.composite
def lives(draw: st.DrawFn) -> dict[str, list[RoutedShare]]:
    """Each app has a live revision, or a stable one and a candidate, whose weights are 100 together."""
    made: dict[str, list[RoutedShare]] = {}
    for app in APPS:
        weight = draw(st.none() | st.integers(0, 100))
        stable = RoutedShare(deployment(f"{app}-1"), 100 - (weight or 0))
        candidate = [] if weight is None else [RoutedShare(deployment(f"{app}-2"), weight, draw(extras))]
        made[app] = [*candidate, stable]
    return made


@given(lives(), st.dictionaries(st.sampled_from(APPS), st.integers(0, 1000), min_size=1), st.integers(0, 9))
def test_the_weights_of_revisions_add_up_to_those_of_their_app_and_extras_change_none(
    live: dict[str, list[RoutedShare]], weights: dict[str, int], pinned: int
) -> None:
    backends: list[dict[str, Any]] = [{"app": app, "weight": weight} for app, weight in weights.items()]
    backends.append({"app": "web", "deployment": "old", "weight": pinned})
    spec = {"host": "a.example", "backends": backends}
    old = {"old": deployment("old")}
    found = resolve_route(spec, live, old)["backends"]
    factor = 100 if any(len(live[app]) > 1 for app in weights) else 1
    for app, weight in weights.items():
        shares = [one for one in found if one["app"] == app and one["target"]["deployment"] != "old"]
        assert sum(one["weight"] for one in shares) == weight * factor
        assert [one["weight"] for one in shares] == [weight * factor * each.weight // 100 for each in live[app]]
    assert [one["weight"] for one in found if one["target"]["deployment"] == "old"] == [pinned * factor]
    bare = {app: [share._replace(extras=None) for share in shares] for app, shares in live.items()}
    assert resolve_route(spec, bare, old)["backends"] == found
    assert not resolve_extras(spec, bare)
    copied = sum(each["percent"] for each in resolve_extras(spec, live).get("mirrors", ()))
    assert copied <= 100, "of all requests of the route"


def test_a_candidate_has_its_testers_copies_and_preview_host_whatever_its_weight_is() -> None:
    live = {"web": [RoutedShare(deployment("web-2"), 0, EXTRAS), RoutedShare(deployment("web-1"), 100)]}
    target = deployment("web-2").as_json()
    assert resolve_extras({"host": "a", "app": "web"}, live) == {
        "testers": [{"header": EXTRAS["header"], "target": target}, {"cookie": EXTRAS["cookie"], "target": target}],
        "mirrors": [{"percent": 10.0, "target": target}],
        "previews": [{"host": "next.example", "target": target}],
    }
    quarter = {"host": "a", "backends": [{"app": "web", "weight": 25}, {"app": "api", "weight": 75}]}
    assert resolve_extras(quarter, live)["mirrors"][0]["percent"] == 2.5


def test_a_pinned_backend_and_one_without_weight_have_none_of_them() -> None:
    live = {"web": [RoutedShare(deployment("web-2"), 50, EXTRAS), RoutedShare(deployment("web-1"), 50)]}
    pinned = {"host": "a", "backends": [{"app": "web", "deployment": "web-1"}]}
    assert resolve_extras(pinned, live) == {}
    assert resolve_extras({"host": "a", "backends": [{"app": "web", "weight": 0}, {"app": "api"}]}, live) == {}
    assert resolve_extras({"host": "a", "redirect": {"host": "b"}}, live) == {}


async def shares(world: World) -> dict[str, list[RoutedShare]]:
    environment = (await world.rows(tables.Environment))[0]
    async with world.databases.fleet.reading() as session:
        targets = (await read_targets(session, [environment.id]))[environment.id]
    regions = {row.id: row.name for row in await world.rows(tables.Region)}
    return {name: list(targets.in_region(id_)["web"]) for id_, name in regions.items()}


async def test_extras_of_a_row_hold_in_its_region_before_it_has_weight(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(regions=("eu", "us")))
        first = await world.report_app()
        await world.apply(doc("Route", "r", {"host": "a.example", "app": "web"}))
        await world.apply(an_app(regions=("eu", "us"), port=9001))
        second = (await world.deployment()).id
        async with world.databases.of("default").transaction() as tx:
            for row in await world.rows(tables.Topology, tables.Topology.deployment_id == second):
                if row.reason["region"] == "eu":
                    (await tx.session.get_one(tables.Topology, row.id)).extras = EXTRAS
        found = await shares(world)
        in_eu = {share.target.deployment: (share.weight, share.extras) for share in found["eu"]}
        assert in_eu == {second: (0, EXTRAS), first: (100, None)}
        assert all(share.extras is None for share in found["us"])
