"""A host belongs to one workspace, in whichever database that is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fleet_world import World, a_world, an_app, doc
from sqlalchemy import delete, select

from shoal.control.database import tables
from shoal.control.domain.hosts import GRACE_MS, domains_of, preview_host_of
from shoal.control.domain.model import Actor
from shoal.control.domain.refusals import DocumentsRefused
from shoal.control.domain.specs import SpecDocument, parse
from shoal.errors import Conflict, Invalid

HERE, THERE = Actor("default", "ann", "admin"), Actor("team", "tom", "admin")


@asynccontextmanager
async def two_databases(tmp_path: Path) -> AsyncIterator[World]:
    """The workspace ``team`` is in a database of its own."""
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("main", "second")}
    async with asyncio.timeout(60), a_world(urls, {"team": "second"}) as world:
        for document in (doc("Region", "eu"), doc("Cluster", "eu1", {"region": "eu"})):
            await world.apply(document)
        for who in (HERE, THERE):
            await world.fleet.ensure_workspace(who.workspace_id)
            for document in (doc("Project", "shop"), doc("Environment", "prod"), an_app("web")):
                await world.apply(document, who=who)
        yield world


def a_route(host: str, name: str = "r") -> dict[str, Any]:
    return doc("Route", name, {"host": host, "app": "web"})


async def reserved(world: World) -> dict[str, str]:
    async with world.databases.fleet.reading() as session:
        return {row.host: row.workspace_id for row in await session.scalars(select(tables.Host))}


async def test_a_host_is_unique_over_all_databases(tmp_path: Path) -> None:
    async with two_databases(tmp_path) as world:
        await world.apply(a_route("a.example"), who=THERE)
        for dry_run in (True, False):
            with pytest.raises(Invalid, match=r'spec.host: Invalid value: "a.example": is used by another workspace'):
                await world.apply(a_route("a.example"), who=HERE, dry_run=dry_run)
        await world.apply(a_route("a.example"), who=THERE)
        assert await reserved(world) == {"a.example": "team"}
        with pytest.raises(DocumentsRefused):
            await world.fleet.apply_all(HERE, [parse(a_route("a.example"))])


async def test_of_two_that_want_a_host_at_once_one_gets_it(tmp_path: Path) -> None:
    async with two_databases(tmp_path) as world:
        for number in range(5):
            done = await asyncio.gather(
                *(world.apply(a_route(f"h{number}.example", f"r{number}"), who=who) for who in (HERE, THERE)),
                return_exceptions=True,
            )
            assert sum(isinstance(each, Invalid) for each in done) == 1


async def test_a_reservation_whose_route_was_never_written_is_removed_after_a_while(tmp_path: Path) -> None:
    async with two_databases(tmp_path) as world:
        with pytest.raises(Invalid):  # the reservation comes first, and the app does not exist
            await world.apply(doc("Route", "r", {"host": "a.example", "app": "none"}), who=THERE)
        await world.fleet.sweep()
        assert await reserved(world) == {"a.example": "team"}, "its transaction may still be under way"
        await world.clock.advance(GRACE_MS / 1000 + 1)
        await world.fleet.sweep()
        assert await reserved(world) == {}
        await world.apply(a_route("a.example"), who=HERE)


async def test_the_host_of_a_deleted_route_is_free_after_a_while_and_one_in_use_is_not(tmp_path: Path) -> None:
    async with two_databases(tmp_path) as world:
        for name in ("a", "b"):
            await world.apply(a_route(f"{name}.example", name), who=THERE)
        from shoal.control.domain.model import ObjectRef

        await world.fleet.delete(THERE, ObjectRef("Route", "a", "shop", "prod"))
        await world.clock.advance(GRACE_MS / 1000 + 1)
        await world.fleet.sweep()
        assert await reserved(world) == {"b.example": "team"}


async def test_routes_of_an_earlier_version_get_their_reservation(tmp_path: Path) -> None:
    async with two_databases(tmp_path) as world:
        await world.apply(a_route("a.example"), who=THERE)
        async with world.databases.fleet.transaction() as tx:
            await tx.session.execute(delete(tables.Host))
        await world.fleet.sweep()
        assert await reserved(world) == {"a.example": "team"}


async def test_domains_keep_others_out_and_their_own_workspace_in(tmp_path: Path) -> None:
    async with two_databases(tmp_path) as world:
        await world.fleet.hosts.set_domains("team", ["team.example"])
        for host in ("team.example", "a.b.team.example", "*.team.example"):
            with pytest.raises(Invalid, match="is in a domain of another workspace"):
                await world.apply(a_route(host), who=HERE)
            await world.apply(a_route(host, f"r{len(host)}"), who=THERE)
        with pytest.raises(Invalid, match=r"is not in a domain of this workspace \(team.example\)"):
            await world.apply(a_route("other.example"), who=THERE)
        await world.apply(a_route("notteam.example"), who=HERE)
        with pytest.raises(Conflict, match="team.example belongs to another workspace"):
            await world.fleet.hosts.set_domains("default", ["team.example"])
        await world.fleet.hosts.set_domains("default", ["part.team.example"])
        await world.apply(a_route("x.part.team.example"), who=HERE)  # the longer domain counts


def test_the_domains_of_a_host() -> None:
    assert domains_of("*.a.example") == domains_of("a.example") == ["a.example", "example"]


def previewed(host: str, name: str = "web") -> SpecDocument:
    """An app with a preview host, as its reader leaves it."""
    found = parse(an_app(name))
    return replace(found, raw={**found.raw, "rollout": {"strategy": "blueGreen", "previewHost": host}})


async def test_a_preview_host_is_reserved_as_the_hosts_of_routes_are(tmp_path: Path) -> None:
    async with two_databases(tmp_path) as world:
        await world.fleet.apply(THERE, previewed("next.example"))
        assert await reserved(world) == {"next.example": "team"}
        why = r'spec.rollout.previewHost: Invalid value: "next.example": is used by another workspace'
        for dry_run in (True, False):
            with pytest.raises(Invalid, match=why):
                await world.fleet.apply(HERE, previewed("next.example"), dry_run=dry_run)
        await world.clock.advance(2 * GRACE_MS / 1000)
        await world.fleet.sweep()
        assert await reserved(world) == {"next.example": "team"}, "it is in use"
        await world.fleet.apply(THERE, parse(an_app("web")))
        await world.clock.advance(2 * GRACE_MS / 1000)
        await world.fleet.sweep()
        assert await reserved(world) == {}


async def test_a_host_is_of_a_route_or_of_one_app(tmp_path: Path) -> None:
    async with two_databases(tmp_path) as world:
        await world.apply(a_route("a.example"), who=HERE)
        with pytest.raises(Invalid, match=r"previewHost.*is the host of route r"):
            await world.fleet.apply(HERE, previewed("a.example"))
        for _ in range(2):
            await world.fleet.apply(HERE, previewed("next.example"))
        with pytest.raises(Invalid, match=r"spec.host.*is the preview host of app web"):
            await world.apply(a_route("next.example", "other"), who=HERE)
        with pytest.raises(Invalid, match=r"previewHost.*is the preview host of app web"):
            await world.fleet.apply(HERE, previewed("next.example", "api"))


def test_a_spec_asks_for_a_preview_host_or_for_none() -> None:
    assert preview_host_of({"rollout": {"previewHost": "A.Example"}}) == "a.example"
    for spec in ({}, {"rollout": None}, {"rollout": {}}, {"rollout": "x"}, {"rollout": {"previewHost": 3}}):
        assert preview_host_of(spec) == ""
