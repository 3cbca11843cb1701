"""What follows from reports: the gate, old revisions, gateways. Doing it twice does nothing more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fleet_world import ADMIN, World, a_fleet, a_route, an_app, doc, ref
from sqlalchemy import select

from shoal.control.database import tables
from shoal.control.domain import readiness
from shoal.sync.keys import key_of

TWO_IN_EU = {"eu1": ("eu", {}), "eu2": ("eu", {}), "us1": ("us", {})}
ROUTE = {"host": "shop.example.com", "app": "web"}


async def test_a_revision_is_live_when_all_regions_but_one_are_healthy(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(regions=("eu", "us"), replicas=2))
        deployment = await world.deployment()
        await world.report(deployment.id, only="eu1", count=1)
        assert (await world.deployment()).status == "deploying"
        await world.report(deployment.id, only="eu1")
        assert (await world.deployment()).status == "ready"
        assert (await world.app()).live_deployment_id == deployment.id
        shown = await world.fleet.get(ADMIN, ref("App", "web"))
        assert shown["status"]["summary"] == "Degraded: ready 1/2 regions"


async def test_what_follows_from_a_change_names_the_request_that_led_to_it(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(), who=replace(ADMIN, correlation="c-first"))
        await world.apply(doc("Route", "site", ROUTE), who=replace(ADMIN, correlation="c-route"))
        first = await world.report_app()
        await world.apply(an_app(image="shop/web:2"), who=replace(ADMIN, correlation="c-second"))
        await world.report((await world.deployment()).id)
        await world.report_config("route")
        told = [(row.reason, row.correlation) for row in await world.rows(tables.Event)]
        assert ("Ready", "c-first") in told and ("Ready", "c-second") in told and ("Superseded", "c-second") in told
        wishes = {row.key: row.correlation for row in await world.rows(tables.Desired)}
        assert wishes[key_of("deployment", first)] == "c-second"
        assert [text for key, text in wishes.items() if key.startswith("route/")] == ["c-second"]


async def test_an_app_may_ask_for_all_its_regions(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(regions=("eu", "us"), readiness={"regions": "all"}))
        deployment = await world.deployment()
        await world.report(deployment.id, only="eu1")
        assert (await world.deployment()).status == "deploying"
        await world.report(deployment.id, only="us1")
        assert (await world.deployment()).status == "ready"


async def test_instances_of_an_older_version_do_not_make_a_row_ready(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        deployment = await world.deployment()
        await world.report(deployment.id, outdated=True)
        assert (await world.deployment()).status == "deploying"
        (row,) = (await world.fleet.status(ADMIN, ref("App", "web")))["regions"]
        assert (row["state"], row["reported"]["ready"]) == ("Progressing", 0)
        await world.report(deployment.id, applied=False, count=0)
        await world.report(deployment.id)
        assert (await world.deployment()).status == "ready"


async def test_the_old_revision_ends_when_the_new_one_is_ready(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        first = await world.report_app()
        await world.apply(an_app(image="shop/web:2"))
        second = (await world.deployment()).id
        await world.report(second, ready=False)
        assert len(await world.wanted("deployment")) == 2
        await world.report(second)
        assert await world.wanted("deployment") == {("eu1", key_of("deployment", second))}
        assert (await world.app()).live_deployment_id == second
        gone = await world.rows(tables.Desired, tables.Desired.object_id == first)
        assert [(row.action, row.by_user) for row in gone] == [("delete", True)]
        old = (await world.rows(tables.Deployment, tables.Deployment.id == first))[0]
        assert (old.desired_state, old.status) == ("archived", "superseded")


async def test_reports_of_an_older_revision_never_take_the_place_of_a_newer_one(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        first = (await world.deployment()).id
        await world.report(first)
        await world.apply(an_app(image="shop/web:2"))
        second = await world.report_app()
        await world.report(first)
        assert (await world.app()).live_deployment_id == second


async def test_the_same_report_again_changes_nothing(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(doc("Policy", "limit", {"rateLimit": {"limit": 5}}))
        await world.apply(an_app(regions=("eu", "us")))
        await world.report_app()
        position, wanted = await world.databases.fleet.position(), await world.numbers()
        events = len(await world.rows(tables.Event))
        await world.report_app()
        await world.report_app()
        assert await world.databases.fleet.position() == position
        assert await world.numbers() == wanted
        assert len(await world.rows(tables.Event)) == events


async def test_requests_are_sent_to_the_new_revision_before_the_old_one_ends(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        first = await world.report_app()
        await world.apply(doc("Route", "r", ROUTE))
        await world.report_config("route", "keys")
        sent = (await world.rows(tables.Desired, tables.Desired.kind == "route"))[0].number
        await world.apply(an_app(image="shop/web:2"))
        await world.report_app()
        again = (await world.rows(tables.Desired, tables.Desired.kind == "route"))[0]
        assert (again.number > sent, again.by_user) == (True, False)
        assert ("eu1", key_of("deployment", first)) in await world.wanted()
        assert {row.deployment_id: (row.weight, row.routed) for row in await world.rows(tables.Topology)} == {
            first: (0, 100), (await world.deployment()).id: (100, 100),
        }  # fmt: skip
        await world.report_config("route")
        assert ("eu1", key_of("deployment", first)) not in await world.wanted()


async def test_a_revision_past_its_deadline_has_failed_and_may_still_become_ready(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(readiness={"deadline": 60}))
        await world.report_app(ready=False, reason="CrashLoopBackOff", exit_code=1)
        await world.clock.advance(61)
        await world.fleet.sweep()
        await world.fleet.sweep()
        deployment = await world.deployment()
        assert (deployment.status, deployment.reason) == ("failed", "not ready after 60 s")
        assert [row.desired_status for row in await world.topology()] == ["running"], "nothing else serves"
        events = [event for event in await world.fleet.events(ADMIN, ref("App", "web")) if event["reason"] == "Failed"]
        assert [(event["type"], event["name"]) for event in events] == [("Warning", "shop/prod/web")]
        shown = await world.fleet.status(ADMIN, ref("App", "web"))
        assert (shown["state"], shown["regions"][0]["reason"]) == ("Failed", "CrashLoopBackOff")
        await world.apply(an_app(readiness={"deadline": 60}, topology=[{"region": "eu", "replicas": 2}]))
        deployment = await world.deployment()
        assert (deployment.status, deployment.reason) == ("deploying", "")
        await world.report_app()
        assert (await world.deployment()).status == "ready"


async def test_a_revision_whose_pods_the_cluster_refuses_fails_with_that_reason(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(readiness={"deadline": 60}))
        id_ = await world.report_app(count=0)
        async with world.databases.of("default").transaction() as tx:
            row = await tx.session.scalar(select(tables.Desired).where(tables.Desired.key == key_of("deployment", id_)))
            row.observed = {"fault": {"reason": "FailedCreate", "message": "exceeded quota: team"}}
        await world.clock.advance(61)
        await world.fleet.sweep()
        assert (await world.deployment()).reason == "not ready after 60 s; eu: FailedCreate: exceeded quota: team"


async def test_a_revision_that_has_failed_becomes_ready_by_itself_when_its_instances_do(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(readiness={"deadline": 60}))
        await world.report_app(ready=False, reason="ErrImagePull")
        await world.clock.advance(61)
        await world.fleet.sweep()
        assert (await world.deployment()).status == "failed"
        await world.report_app()
        deployment = await world.deployment()
        assert (deployment.status, deployment.reason) == ("ready", "")


# Gateways


async def _sentinels(world: World) -> list[tables.Sentinel]:
    return await world.rows(tables.Sentinel)


async def test_the_first_ready_deployment_of_an_environment_brings_a_gateway_with_its_config(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(regions=("eu", "us")))
        await world.apply(doc("Policy", "limit", {"rateLimit": {"limit": 5}}))
        await world.apply(doc("Route", "r", {**ROUTE, "policies": ["limit"]}))
        await world.apply(doc("ApiKey", "k"))
        assert {key.split("/")[0] for _, key in await world.wanted()} == {"deployment"}
        deployment = await world.deployment()
        await world.report(deployment.id, only="eu1")
        wanted = await world.wanted()
        assert {(name, key.split("/")[0]) for name, key in wanted} == {
            ("eu1", "deployment"), ("us1", "deployment"), ("eu1", "sentinel"), ("eu1", "route"), ("eu1", "policy"),
            ("eu1", "keys"),
        }  # fmt: skip
        sentinel = (await _sentinels(world))[0]
        assert (sentinel.name, sentinel.deploy_status, sentinel.environment_id) == (
            "eu", "progressing", deployment.environment_id,
        )  # fmt: skip
        await world.report(deployment.id, only="us1")
        assert sorted(each.name for each in await _sentinels(world)) == ["eu", "us"]


async def test_an_instance_that_is_not_ready_brings_no_gateway(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        await world.report_app(ready=False)
        await world.apply(an_app("idle", replicas=0))
        await world.report_app("idle")
        assert await _sentinels(world) == []


async def test_the_gateway_goes_with_the_last_deployment_of_its_environment(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        for name in ("web", "api"):
            await world.apply(an_app(name))
            await world.apply(a_route(name, name))
            await world.report_app(name)
        for route in ("web", "api"):
            await world.fleet.delete(ADMIN, ref("Route", route))
        await world.fleet.delete(ADMIN, ref("App", "web"))
        assert len(await _sentinels(world)) == 1
        await world.fleet.delete(ADMIN, ref("App", "api"))
        assert await _sentinels(world) == []
        assert await world.wanted() == set()


async def test_what_changes_later_is_sent_to_every_gateway_of_the_environment(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(regions=("eu", "us")))
        await world.apply(a_route())
        await world.report_app()
        added = await world.apply(doc("Route", "r", ROUTE))
        assert {(each.cluster, each.kind, each.action) for each in added.effects} == {
            ("eu1", "route", "apply"),
            ("us1", "route", "apply"),
        }
        assert {each.kind for each in (await world.apply(doc("ApiKey", "k"))).effects} == {"keys"}
        gone = await world.fleet.delete(ADMIN, ref("Route", "r"))
        assert {(each.cluster, each.action) for each in gone.effects} == {("eu1", "delete"), ("us1", "delete")}


async def test_an_environment_uses_the_shared_gateway_of_its_region(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        shared = await world.apply(doc("Sentinel", "edge", {"region": "eu", "replicas": 2}))
        assert [(each.cluster, each.kind) for each in shared.effects] == [("eu1", "sentinel")]
        await world.apply(an_app(regions=("eu", "us")))
        await world.apply(doc("Route", "r", ROUTE))
        await world.report_app()
        assert {each.name: bool(each.environment_id) for each in await _sentinels(world)} == {"edge": False, "us": True}
        assert {name for name, _ in await world.wanted("route")} == {"eu1", "us1"}
        await world.fleet.delete(ADMIN, ref("App", "web"))
        assert [each.name for each in await _sentinels(world)] == ["edge"]
        assert {key.split("/")[0] for _, key in await world.wanted()} == {"sentinel"}


async def test_an_environment_may_insist_on_gateways_of_its_own(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        settings = {"sentinel": {"shared": False, "replicas": 3, "image": "edge:7", "resources": {"cpu": "2"}}}
        await world.apply(doc("Environment", "prod", settings))
        await world.apply(doc("Sentinel", "edge", {"region": "eu"}))
        await world.apply(an_app())
        await world.apply(a_route())
        await world.report_app()
        own = [each for each in await _sentinels(world) if each.environment_id]
        assert [(each.name, each.image, each.desired_replicas) for each in own] == [("eu", "edge:7", 3)]
        assert own[0].spec["resources"] == {"cpu": "2000m", "memory": "256Mi"}


async def test_a_gateway_is_ready_by_its_own_reports(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        await world.apply(a_route())
        await world.report_app()
        sentinel = (await _sentinels(world))[0]
        good: dict[str, Any] = {
            "available": 1,
            "health": "healthy",
            "image": "gateway:1",
            "address": "10.0.0.1:8040",
        }
        for change in ({"available": 0}, {"health": "unhealthy"}, {"image": ""}):
            await world.report_sentinel(sentinel.id, **(good | change))
            assert (await _sentinels(world))[0].deploy_status == "progressing"
        await world.report_sentinel(sentinel.id, **good)
        found = (await _sentinels(world))[0]
        assert (found.deploy_status, found.available_replicas, found.address) == ("ready", 1, "10.0.0.1:8040")


async def test_the_gateway_follows_when_everything_has_moved_and_the_old_one_stays_until_it_serves(
    tmp_path: Path,
) -> None:
    async with a_fleet(tmp_path, clusters=TWO_IN_EU) as world:
        await world.apply(an_app())
        await world.apply(doc("Route", "r", ROUTE))
        await world.report_app()
        names = {row.id: row.name for row in await world.rows(tables.Cluster)}
        start = names[(await _sentinels(world))[0].cluster_id]
        other = "eu2" if start == "eu1" else "eu1"
        await world.fleet.move(ADMIN, ref("App", "web"), "eu", other)
        await world.report_app()
        sentinel = (await _sentinels(world))[0]
        assert names[sentinel.cluster_id] == other
        for kind in ("sentinel", "route", "keys"):
            assert {name for name, _ in await world.wanted(kind)} == {"eu1", "eu2"}, kind
        await world.report_sentinel(sentinel.id, available=1, health="healthy", image="gateway:1")
        for kind in ("sentinel", "route", "keys"):
            assert {name for name, _ in await world.wanted(kind)} == {other}, kind


async def test_reports_about_what_is_gone_are_harmless(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        deployment = await world.report_app()
        await world.fleet.delete(ADMIN, ref("App", "web"))
        async with world.databases.fleet.transaction() as tx:
            await readiness.after_report(tx, {deployment, "dep_never"})
            await readiness.after_sentinel_report(tx, {"sentinel/sen_x", "route/rte_x", "keys/env_x", "policy/pol_x"})
            assert list(await tx.session.scalars(select(tables.Deployment))) == []
