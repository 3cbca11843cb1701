"""What all kinds share: roles, names, lists, audit, deleting with and without what is inside, several databases."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fleet_world import ADMIN, EDITOR, VIEWER, World, a_fleet, a_world, an_app, doc, ref
from sqlalchemy import delete, update

from shoal.control.database import tables
from shoal.control.database.changes import forget
from shoal.control.database.leftovers import forget_deleted_clusters
from shoal.control.database.tables import FLEET
from shoal.control.domain.access import authorize
from shoal.control.domain.model import Actor, ListScope, ObjectRef
from shoal.control.domain.specs import KINDS
from shoal.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound
from shoal.sync.versions import decode_cursor
from shoal.testing.databases import shared_postgres

# Who may


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_viewers_read_editors_write_and_admins_run_the_fleet(kind: str) -> None:
    fleet = kind in ("Region", "Cluster")
    authorize(VIEWER, "read", kind)
    authorize(ADMIN, "apply", kind)
    for who in (VIEWER, Actor("default", "nobody", ""), Actor("default", "x", "root")):
        with pytest.raises(Forbidden):
            authorize(who, "apply", kind)
    if fleet:
        for who in (EDITOR, Actor("tenant", "tom", "admin")):
            with pytest.raises(Forbidden):
                authorize(who, "apply", kind)
        authorize(Actor("tenant", "tom", "admin"), "read", kind)
    else:
        authorize(EDITOR, "delete", kind)
        with pytest.raises(Forbidden):
            authorize(EDITOR, "cascade", kind)


def test_somebody_without_a_role_reads_nothing() -> None:
    with pytest.raises(Forbidden):
        authorize(Actor("default", "nobody", ""), "read", "App")


async def test_every_use_case_looks_at_the_role(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        nobody, fleet, app = Actor("default", "nobody", ""), world.fleet, ref("App", "web")
        for asked in (
            fleet.get(nobody, app), fleet.list_(nobody, "App"), fleet.status(nobody), fleet.explain(nobody, app),
            fleet.history(nobody, app), fleet.instances(nobody, app), fleet.events(nobody), fleet.audit(nobody),
            fleet.agents(nobody), fleet.apply(nobody, an_app()), fleet.delete(nobody, app),
            fleet.move(VIEWER, app, "eu", "eu1"), fleet.rotate_key(VIEWER, ref("ApiKey", "k")),
            fleet.confirm_deletes(EDITOR, "eu1"), fleet.apply(VIEWER, an_app()), fleet.delete(VIEWER, app),
        ):  # fmt: skip
            with pytest.raises(Forbidden):
                await asked


async def test_a_workspace_sees_only_its_own(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        tenant = Actor("tenant", "tom", "admin")
        assert (await world.fleet.list_(tenant, "App")).items == []
        assert (await world.fleet.status(tenant))["apps"] == []
        with pytest.raises(NotFound):
            await world.fleet.get(tenant, ref("App", "web"))
        with pytest.raises(Invalid, match="metadata.project"):
            await world.fleet.apply(tenant, an_app())
        await world.fleet.apply(tenant, doc("Project", "shop"))
        assert [item["metadata"]["name"] for item in (await world.fleet.list_(tenant, "Region")).items] == ["eu", "us"]


# Scopes


async def test_projects_and_environments_with_content_are_deleted_only_when_asked_to(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(doc("Secret", "db", {"values": {"A": "1"}}))
        await world.apply(an_app(secrets=["db"], regions=("eu", "us")))
        await world.apply(doc("Policy", "p", {"keyAuth": {}}))
        await world.apply(doc("Route", "r", {"host": "a.example.com", "app": "web", "policies": ["p"]}))
        await world.apply(doc("ApiKey", "k"))
        await world.report_app()
        with pytest.raises(Conflict, match="it has environments: prod"):
            await world.fleet.delete(ADMIN, ref("Project", "shop"))
        with pytest.raises(Conflict, match="it is not empty: App web"):
            await world.fleet.delete(ADMIN, ref("Environment", "prod"))
        tried = await world.fleet.delete(ADMIN, ref("Project", "shop"), cascade=True, dry_run=True)
        assert len(await world.wanted("deployment")) == 2
        gone = await world.fleet.delete(ADMIN, ref("Project", "shop"), cascade=True)
        assert gone.also == tried.also
        assert {each.kind for each in gone.also} == {
            "Environment", "App", "Route", "Policy", "ApiKey", "Secret", "Sentinel",
        }  # fmt: skip
        assert await world.wanted() == set()
        for table in (tables.Project, tables.Environment, tables.App, tables.Secret, tables.Sentinel, tables.Route):
            assert await world.rows(table) == []


async def test_a_released_app_is_gone_and_agents_are_told_to_leave_what_runs(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(regions=("eu", "us")))
        await world.apply(doc("Route", "r", {"host": "a.example.com", "app": "web"}))
        await world.report_app()
        tried = await world.fleet.delete(EDITOR, ref("App", "web"), dry_run=True, keeps_running=True)
        assert len(await world.wanted("deployment")) == 2
        gone = await world.fleet.delete(EDITOR, ref("App", "web"), keeps_running=True)
        assert gone.effects == tried.effects
        assert {(each.cluster, each.action) for each in gone.effects if each.kind == "deployment"} == {
            ("eu1", "release"), ("us1", "release"),
        }  # fmt: skip
        assert await world.rows(tables.App) == []
        assert await world.wanted("deployment") == set()
        rows = await world.rows(tables.Desired, tables.Desired.kind == "deployment")
        assert {(row.action, row.by_user) for row in rows} == {("release", True)}
        assert [row.action for row in await world.rows(tables.Audit)][-1] == "release"


async def test_an_empty_environment_is_deleted_and_its_name_can_be_used_again(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        first = (await world.rows(tables.Environment))[0].namespace
        await world.fleet.delete(EDITOR, ref("Environment", "prod"))
        again = await world.apply(doc("Environment", "prod"))
        assert again.created
        assert again.object["metadata"]["namespace"] != first
        assert again.object["metadata"]["project"] == "shop"


async def _told_to_remove(world: World) -> set[tuple[str, str]]:
    """(cluster's name, namespace) of the namespaces that agents are told to delete, because a user asked for it."""
    names = {row.id: row.name for row in await world.rows(tables.Cluster)}
    rows = await world.rows(tables.Desired, tables.Desired.kind == "environment")
    assert {(row.action, row.by_user) for row in rows} <= {("delete", True)}
    return {(names[row.cluster_id], row.namespace) for row in rows}


async def test_the_namespace_of_a_deleted_environment_goes_wherever_it_had_something(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        namespace = (await world.rows(tables.Environment))[0].namespace
        await world.apply(an_app(regions=("eu",)))
        await world.fleet.delete(ADMIN, ref("App", "web"))
        assert await _told_to_remove(world) == set()
        gone = await world.fleet.delete(ADMIN, ref("Environment", "prod"))
        assert await _told_to_remove(world) == {("eu1", namespace)}
        assert [(each.cluster, each.action, each.kind) for each in gone.effects][-1] == ("eu1", "delete", "environment")


async def test_the_namespace_of_an_old_environment_goes_everywhere_since_nobody_knows_where_it_was(
    tmp_path: Path,
) -> None:
    async with a_fleet(tmp_path) as world:
        for cluster in ("eu1", "us1"):
            await world.join(cluster)
        namespace = (await world.rows(tables.Environment))[0].namespace
        await world.apply(an_app(regions=("eu",)))
        await world.fleet.delete(ADMIN, ref("App", "web"))
        async with world.databases.fleet.transaction() as tx:
            await tx.session.execute(update(tables.Desired).values(gone_at=tx.now))
        await world.clock.advance(3600)
        await forget(world.databases.fleet, 1000, 1000)
        assert await world.rows(tables.Desired) == []
        await world.fleet.delete(ADMIN, ref("Environment", "prod"))
        assert await _told_to_remove(world) == {("eu1", namespace), ("us1", namespace)}


# Reading


async def test_lists_are_paged_by_name_and_filtered_by_labels_and_scope(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(doc("Environment", "staging"))
        for number in range(7):
            document = doc("Secret", f"s{number}", {"values": {"A": "1"}}, labels={"odd": str(number % 2)})
            await world.apply(document)
        found: list[str] = []
        after = ""
        while True:
            page = await world.fleet.list_(VIEWER, "Secret", ListScope("shop", "prod"), limit=3, after=after)
            assert len(page.items) <= 3
            found += [item["metadata"]["name"] for item in page.items]
            after = page.next
            if not after:
                break
        assert found == [f"s{number}" for number in range(7)]
        odd = await world.fleet.list_(VIEWER, "Secret", labels="odd=1", limit=2)
        assert [item["metadata"]["name"] for item in odd.items] == ["s1", "s3"]
        rest = await world.fleet.list_(VIEWER, "Secret", labels="odd=1", limit=2, after=odd.next)
        assert ([item["metadata"]["name"] for item in rest.items], rest.next) == (["s5"], "")
        assert (await world.fleet.list_(VIEWER, "Secret", ListScope("shop", "staging"))).items == []
        assert len((await world.fleet.list_(VIEWER, "Environment", ListScope("shop"))).items) == 2
        with pytest.raises(NotFound):
            await world.fleet.list_(VIEWER, "Secret", ListScope("shop", "none"))
        for wrong in ({"after": "zzz"}, {"labels": "a in ("}):
            with pytest.raises(BadRequest):
                await world.fleet.list_(VIEWER, "Secret", **wrong)
        with pytest.raises(BadRequest):
            await world.fleet.list_(VIEWER, "Pod")


async def test_what_get_shows_can_be_applied_again_without_a_change(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(doc("Policy", "p", {"keyAuth": {}}))
        await world.apply(an_app(regions=("eu", "us")))
        await world.apply(doc("Route", "r", {"host": "a.example.com", "app": "web"}))
        await world.apply(doc("ApiKey", "k"))
        await world.apply(doc("Secret", "s", {"values": {"A": "1"}}))
        await world.apply(doc("Sentinel", "edge", {"region": "eu"}))
        await world.report_app()
        for kind in KINDS:
            for item in (await world.fleet.list_(ADMIN, kind)).items:
                metadata = item["metadata"]
                named = ObjectRef(kind, metadata["name"], metadata.get("project", ""), metadata.get("environment", ""))
                assert await world.fleet.get(ADMIN, named) == item
                again = await world.apply(item)
                assert (again.created, again.changed, again.effects) == (False, [], []), kind


async def test_the_audit_says_who_changed_what_and_history_has_every_revision(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        await world.apply(an_app(image="shop/web:2"), who=EDITOR)
        shown = await world.fleet.history(VIEWER, ref("App", "web"))
        assert [(each["actor"], each["action"]) for each in shown["changes"]] == [("eve", "update"), ("ann", "create")]
        assert shown["changes"][0]["diff"] == [{"path": "spec.image", "before": "shop/web:1", "after": "shop/web:2"}]
        assert [(each["revision"], each["image"]) for each in shown["revisions"]] == [
            (2, "shop/web:2"),
            (1, "shop/web:1"),
        ]
        await world.fleet.delete(ADMIN, ref("App", "web"))
        newest = (await world.fleet.audit(VIEWER, limit=1))[0]
        assert (newest["action"], newest["kind"], newest["name"]) == ("delete", "App", "shop/prod/web")


async def test_instances_are_shown_with_their_exit_and_unknown_when_their_agent_is_lost(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.join("eu1")
        await world.apply(an_app())
        await world.report_app(ready=False, status="failed", reason="OOMKilled", exit_code=137, restarts=3)
        shown = (await world.fleet.instances(VIEWER, ref("App", "web")))[0]
        assert (shown["reason"], shown["exitCode"], shown["restarts"]) == ("OOMKilled", 137, 3)
        lines = (await world.fleet.explain(VIEWER, ref("App", "web")))["lines"]
        assert any("OOMKilled, exit code 137" in line for line in lines)
        await world.join("eu1", lost=True)
        shown = (await world.fleet.instances(VIEWER, ref("App", "web")))[0]
        assert (shown["status"], shown["ready"], shown["reason"]) == ("unknown", False, "AgentLost")
        found = await world.fleet.status(VIEWER, ref("App", "web"))
        assert found["regions"][0]["state"] == "AgentLost"
        agents = (await world.fleet.status(VIEWER, ref("Cluster", "eu1")))["agents"]
        assert [(each["cluster"], each["region"], each["state"]) for each in agents] == [("eu1", "eu", "Lost")]


# Regions and clusters


async def test_what_is_used_cannot_be_taken_away(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        with pytest.raises(Conflict, match="it has clusters: eu1"):
            await world.fleet.delete(ADMIN, ref("Region", "eu"))
        with pytest.raises(Conflict, match="it has deployments"):
            await world.fleet.delete(ADMIN, ref("Cluster", "eu1"))
        with pytest.raises(Invalid, match="spec.region"):
            await world.apply(doc("Cluster", "eu1", {"region": "us"}))
        with pytest.raises(Invalid, match="shard default has deployments"):
            await world.apply(doc("Cluster", "eu1", {"region": "eu", "shards": ["other"]}))
        await world.fleet.delete(ADMIN, ref("App", "web"))
        await world.fleet.delete(ADMIN, ref("Cluster", "eu1"))
        await world.fleet.delete(ADMIN, ref("Region", "eu"))


async def _lost_cluster(world: World) -> None:
    """An app and its route have left eu1, but its agent is lost and never says so."""
    await world.apply(an_app(regions=("eu", "us")))
    await world.apply(doc("Route", "r", {"host": "a.example.com", "app": "web"}))
    await world.join("eu1")
    await world.report_app()
    await world.join("eu1", lost=True)
    await world.apply(an_app(regions=("us",)))


async def test_places_of_a_deleted_cluster_do_not_stay_in_the_status(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await _lost_cluster(world)
        route, app = ref("Route", "r"), ref("App", "web")
        assert ("eu1", "Removing") in [
            (each["cluster"], each["state"]) for each in (await world.fleet.status(ADMIN, route))["places"]
        ]
        assert [each["state"] for each in (await world.fleet.status(ADMIN, app))["regions"]][-1] == "Removing"
        assert len(await world.fleet.instances(ADMIN, app)) == 2
        await world.fleet.delete(ADMIN, ref("Cluster", "eu1"), dry_run=True)
        assert len(await world.fleet.instances(ADMIN, app)) == 2
        await world.fleet.delete(ADMIN, ref("Cluster", "eu1"))
        assert [each["cluster"] for each in (await world.fleet.status(ADMIN, route))["places"]] == ["us1"]
        assert [each["cluster"] for each in (await world.fleet.status(ADMIN, app))["regions"]] == ["us1"]
        assert [each["cluster"] for each in await world.fleet.instances(ADMIN, app)] == ["us1"]


async def test_what_a_deleted_cluster_left_goes_although_the_process_ended_after_the_deletion(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await _lost_cluster(world)
        async with world.databases.fleet.transaction() as tx:
            await tx.session.execute(delete(tables.Cluster).where(tables.Cluster.name == "eu1"))
        wanted = await world.rows(tables.Desired, tables.Desired.action == "apply")
        assert await forget_deleted_clusters(world.databases) == 1
        assert await forget_deleted_clusters(world.databases) == 0
        assert {row.key for row in await world.rows(tables.Desired)} == {row.key for row in wanted}


async def test_a_token_for_an_agent_can_bring_its_cluster_along(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.fleet.ensure_cluster(ADMIN, "ap", "ap1", "a")
        await world.fleet.ensure_cluster(ADMIN, "ap", "ap1", "b")
        await world.fleet.ensure_cluster(ADMIN, "ap", "ap1", "b")
        found = await world.fleet.get(ADMIN, ref("Cluster", "ap1"))
        assert found["spec"] == {"region": "ap", "shards": ["a", "b"]}
        with pytest.raises(Conflict, match="it is in region ap"):
            await world.fleet.ensure_cluster(ADMIN, "eu", "ap1", "a")
        await world.fleet.ensure_workspace("tenant")
        await world.fleet.ensure_workspace("tenant")
        assert [row.id for row in await world.rows(tables.Workspace)] == ["tenant"]


async def test_a_person_confirms_deletions_up_to_this_moment(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.join("eu1")
        await world.join("us1")
        database = world.databases.fleet
        position = await database.position()
        assert await world.fleet.confirm_deletes(ADMIN, "eu1") == ["default"]
        agents = {row.agent: row.confirmed_deletes for row in await world.rows(tables.Agent)}
        assert agents["us1-default"] == ""
        cursor = decode_cursor(agents["eu1-default"], {"main": database.signing_key})
        assert cursor.positions == {"main": (position.incarnation, position.number)}


# Databases


async def test_the_fleet_and_a_workspace_may_be_in_two_databases(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("main", "more")}
        async with a_world(urls, {"default": "more"}) as world:
            fleet, own = world.databases.fleet, world.databases.of("default")
            await world.fleet.apply(ADMIN, doc("Region", "eu"))
            await world.fleet.apply(ADMIN, doc("Cluster", "eu1", {"region": "eu"}))
            await world.fleet.apply(ADMIN, doc("Project", "shop"))
            await world.fleet.apply(ADMIN, doc("Environment", "prod"))
            applied = await world.fleet.apply(ADMIN, an_app())
            assert [(each.region, each.cluster) for each in applied.effects] == [("eu", "eu1")]
            assert (await fleet.position()).number < (await own.position()).number
            shown = await world.fleet.status(ADMIN, ref("App", "web"))
            assert shown["regions"][0]["cluster"] == "eu1"
            with pytest.raises(Conflict, match="it has deployments"):
                await world.fleet.delete(ADMIN, ref("Cluster", "eu1"))
            with pytest.raises(Invalid, match="shard default has deployments"):
                await world.fleet.apply(ADMIN, doc("Cluster", "eu1", {"region": "eu", "shards": ["x"]}))


async def test_the_whole_life_of_an_app_on_postgresql(tmp_path: Path) -> None:
    clusters = {"eu1": ("eu", {"capacity": {"cpu": "64"}}), "eu2": ("eu", {}), "us1": ("us", {})}
    async with a_fleet(tmp_path, url=shared_postgres().create_database(), clusters=clusters) as world:
        await world.apply(doc("Secret", "db", {"values": {"A": "1"}}))
        await world.apply(an_app(regions=("eu", "us"), secrets=["db"], resources={"cpu": "1"}))
        await world.apply(doc("Route", "r", {"host": "a.example.com", "app": "web"}))
        await world.report_app()
        assert (await world.fleet.get(VIEWER, ref("App", "web")))["status"]["summary"] == "Ready 2/2 regions"
        await world.apply(an_app(regions=("eu", "us"), secrets=["db"], image="shop/web:2"))
        newest = await world.report_app()
        await world.report_config("route")
        assert {key for _, key in await world.wanted("deployment")} == {f"deployment/{newest}"}
        assert (await world.fleet.list_(VIEWER, "App", labels="a!=b", limit=1)).next == ""
        await world.fleet.move(ADMIN, ref("App", "web"), "eu", "eu2")
        await world.report_app()
        assert ("eu2", f"deployment/{newest}") in await world.wanted()
        await world.fleet.sweep()
        await world.fleet.delete(ADMIN, ref("Project", "shop"), cascade=True)
        assert await world.wanted() == set()


async def test_two_who_change_the_same_app_at_once_do_it_one_after_the_other_on_postgresql(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, url=shared_postgres().create_database()) as world:
        await world.apply(an_app())
        await asyncio.gather(*(world.apply(an_app(image=f"shop/web:{number}")) for number in range(2, 10)))
        rows = sorted(await world.rows(tables.Deployment), key=lambda row: row.revision)
        assert [row.revision for row in rows] == list(range(1, 10))
        assert [row.desired_state for row in rows] == ["archived"] * 8 + ["running"]
        assert len(await world.wanted("deployment")) == 1
        version = (await world.app()).version
        results = await asyncio.gather(
            *(world.apply(an_app(port=9000 + number), if_match=version) for number in range(5)), return_exceptions=True
        )
        assert sum(not isinstance(each, BaseException) for each in results) == 1
        assert sum(isinstance(each, Conflict) for each in results) == 4


def test_the_workspace_of_the_fleet_is_no_ones() -> None:
    authorize(Actor(FLEET, "root", "admin"), "apply", "Cluster")
