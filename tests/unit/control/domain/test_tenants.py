"""Quotas and tolerations of workspaces."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fleet_world import ADMIN, World, a_fleet, an_app, doc

from shoal.control.database import tables
from shoal.control.domain.kinds.app import Toleration
from shoal.control.domain.model import Actor
from shoal.control.domain.tenants import DEFAULT_QUOTAS, QuotaExceeded, TenantPolicy, quota_faults
from shoal.errors import Invalid

TENANT = Actor("team", "tom", "admin")


async def set_policy(world: World, workspace: str, **policy: Any) -> None:
    await world.fleet.ensure_workspace(workspace)
    async with world.databases.of(workspace).transaction() as tx:
        (await tx.session.get_one(tables.Workspace, workspace)).policy = policy


def a_route(name: str, host: str) -> dict[str, Any]:
    return doc("Route", name, {"host": host, "app": "web"})


@pytest.mark.parametrize(
    ("quota", "documents"),
    [
        ("apps", [an_app("web"), an_app("api"), an_app("third")]),
        ("routes", [an_app("web"), a_route("a", "a.example"), a_route("b", "b.example"), a_route("c", "c.example")]),
        ("keys", [doc("ApiKey", name) for name in ("a", "b", "c")]),
        ("secrets", [doc("Secret", name, {"values": {"A": "1"}}) for name in ("a", "b", "c")]),
        ("credentials", [doc("Credential", name, {"values": {"X-A": "1"}}) for name in ("a", "b", "c")]),
    ],
)
async def test_one_object_too_many_is_refused_with_the_count_and_the_limit(
    tmp_path: Path, quota: str, documents: list[dict[str, Any]]
) -> None:
    async with a_fleet(tmp_path) as world:
        await set_policy(world, "default", quotas={quota: 2})
        *fits, over = documents
        for document in fits:
            await world.apply(document)
        position = await world.databases.fleet.position()
        for dry_run in (True, False):
            with pytest.raises(QuotaExceeded, match=f"uses 2 of 2 {quota} and would use 3") as refused:
                await world.apply(over, dry_run=dry_run)
            assert (refused.value.code, refused.value.details) == (403, {"quota": quota, "used": 2, "limit": 2})
        assert (await world.databases.fleet.position()).number - position.number <= 0
        await world.apply(fits[-1])  # what is there may be applied again


async def test_regions_are_counted_over_all_apps(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await set_policy(world, "default", quotas={"regions": 1})
        await world.apply(an_app("web", regions=("eu",)))
        await world.apply(an_app("api", regions=("eu",)))
        with pytest.raises(QuotaExceeded, match="uses 1 of 1 regions and would use 2"):
            await world.apply(an_app("api", regions=("eu", "us")))


async def test_of_many_that_apply_at_once_only_so_many_succeed(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await set_policy(world, "default", quotas={"secrets": 3})
        documents = [doc("Secret", f"s{n}", {"values": {"A": "1"}}) for n in range(8)]
        done = await asyncio.gather(*(world.apply(each) for each in documents), return_exceptions=True)
        assert sum(isinstance(each, QuotaExceeded) for each in done) == 5
        assert len(await world.rows(tables.Secret)) == 3


async def test_the_quota_of_one_workspace_is_not_that_of_another_nor_is_what_it_uses(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await set_policy(world, "team", quotas={"secrets": 1, "regions": 1})
        for document in (doc("Project", "shop"), doc("Environment", "prod")):
            await world.apply(document, who=TENANT)
        for name in ("a", "b"):
            await world.apply(doc("Secret", name, {"values": {"A": "1"}}), who=ADMIN)
        await world.apply(an_app("web", regions=("eu", "us")), who=ADMIN)
        await world.apply(doc("Secret", "a", {"values": {"A": "1"}}), who=TENANT)
        with pytest.raises(QuotaExceeded, match="uses 1 of 1 secrets"):
            await world.apply(doc("Secret", "b", {"values": {"A": "1"}}), who=TENANT)
        await world.apply(an_app("web", regions=("us",)), who=TENANT)
        with pytest.raises(QuotaExceeded, match="uses 1 of 1 regions"):
            await world.apply(an_app("web", regions=("us", "eu")), who=TENANT)


def tolerating(**toleration: str) -> dict[str, Any]:
    return an_app("web", placement={"tolerations": [toleration]})


async def test_a_tenant_tolerates_only_what_its_list_has(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(tolerating(key="gpu", operator="Exists"))  # of the workspace that runs the fleet
        await world.fleet.ensure_workspace("team")
        for document in (doc("Project", "shop"), doc("Environment", "prod")):
            await world.apply(document, who=TENANT)
        with pytest.raises(Invalid, match=r"spec.placement.tolerations\[0\].*may not tolerate gpu \(allowed: none\)"):
            await world.apply(tolerating(key="gpu", operator="Exists"), who=TENANT)
        await set_policy(world, "team", tolerations=["gpu", "zone=a"])
        for fine in ({"key": "gpu", "operator": "Exists"}, {"key": "gpu", "value": "x"}, {"key": "zone", "value": "a"}):
            await world.apply(tolerating(**fine), who=TENANT)
        for wrong in ({"key": "zone", "operator": "Exists"}, {"key": "zone", "value": "b"}, {"operator": "Exists"}):
            with pytest.raises(Invalid, match="may not tolerate"):
                await world.apply(tolerating(**wrong), who=TENANT)
        await set_policy(world, "default", tolerations=[])
        with pytest.raises(Invalid, match="may not tolerate"):
            await world.apply(tolerating(key="gpu", operator="Exists"))


def test_a_star_allows_every_toleration() -> None:
    every = Toleration(key="", operator="Exists", value="", effect="")
    assert TenantPolicy(tolerations=("*",)).allows(every) and not TenantPolicy(tolerations=("gpu",)).allows(every)


def test_quotas_that_cannot_be_set_are_named() -> None:
    faults = quota_faults({"apps": 5, "apps2": 1, "routes": -1, "keys": None})
    assert [fault.field for fault in faults] == ["quotas.apps2", "quotas.routes"]
    assert all(limit > 0 for limit in DEFAULT_QUOTAS.values())


async def test_an_environment_may_choose_its_namespace_once_where_the_workspace_runs_the_fleet(tmp_path: Path) -> None:
    def environment(name: str, namespace: str = "") -> dict[str, Any]:
        return doc("Environment", name, {"namespace": namespace} if namespace else {})

    async def refused(document: dict[str, Any], why: str, who: Actor = ADMIN) -> None:
        with pytest.raises(Invalid, match=why):
            await world.fleet.apply(who, document)

    async with a_fleet(tmp_path) as world:
        await world.apply(environment("team", "team-a"))
        await world.apply(environment("team"))  # left out later: it stays
        (row,) = await world.rows(tables.Environment, tables.Environment.name == "team")
        assert row.namespace == "team-a"
        await refused(environment("team", "team-b"), "spec.namespace: .*it is team-a and cannot be changed")
        await refused(environment("other", "team-a"), "another environment has this namespace")
        for name in ("kube-system", "sentinel", "shoal-system", "Upper"):
            await refused(environment("other", name), "spec.namespace")
        await world.fleet.ensure_workspace("team")
        await world.fleet.apply(TENANT, doc("Project", "shop"))
        await refused(environment("prod", "team-z"), "only the workspaces that run the fleet", TENANT)
        await world.fleet.apply(TENANT, environment("prod"))
