"""Secrets, keys, routes and policies: what is kept of them, who is told, what is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from fleet_world import ADMIN, World, a_fleet, a_route, an_app, doc, ref

from shoal.control.database import tables
from shoal.control.domain.routing import read_targets, resolve_route
from shoal.errors import BadRequest, Conflict, Invalid


async def everything(world: World) -> str:
    """All that the database and the API show, as text."""
    shown: list[object] = []
    for table in tables.Base.metadata.sorted_tables:
        async with world.databases.fleet.reading() as session:
            shown += [str(row) for row in await session.execute(table.select())]
    for kind in ("Secret", "ApiKey"):
        shown.append((await world.fleet.list_(ADMIN, kind)).items)
    shown.append(await world.fleet.audit(ADMIN))
    return json.dumps(shown, default=str)


# Secrets


async def test_the_values_of_a_secret_go_to_the_sealer_and_nowhere_else(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        applied = await world.apply(doc("Secret", "db", {"values": {"PASSWORD": "hunter2", "USER": "bob"}}))
        assert world.sealer.sealed == [{"PASSWORD": "hunter2", "USER": "bob"}]
        assert applied.object["spec"] == {"variables": ["PASSWORD", "USER"]}
        row = (await world.rows(tables.Secret))[0]
        assert (row.ciphertext, row.data_key, row.master_key, row.revision) == (b"sealed 1", b"data key", "master", 1)
        assert "hunter2" not in await everything(world)
        assert "hunter2" not in repr(applied)


async def test_a_rotated_secret_is_sent_again_to_the_deployments_that_use_it(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(doc("Secret", "db", {"values": {"PASSWORD": "one"}}))
        await world.apply(an_app(secrets=["db"], regions=("eu", "us")))
        await world.apply(an_app("other"))
        before = await world.numbers()
        rotated = await world.apply(doc("Secret", "db", {"values": {"PASSWORD": "two"}}))
        assert {(each.cluster, each.kind) for each in rotated.effects} == {("eu1", "deployment"), ("us1", "deployment")}
        assert [diff.as_json() for diff in rotated.changed] == [
            {"path": "spec.values", "before": "(sealed)", "after": "(sealed)"}
        ]
        assert (await world.rows(tables.Secret))[0].revision == 2
        changed = {key for key, number in (await world.numbers()).items() if before[key] != number}
        assert {key[1] for key in changed} == {f"deployment/{(await world.app()).deployment_id}"}
        assert (await world.app()).revision == 1


async def test_the_same_values_again_rotate_nothing(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(doc("Secret", "db", {"values": {"A": "1", "B": "2"}}))
        again = await world.apply(doc("Secret", "db", {"values": {"B": "2", "A": "1"}}))
        assert (again.changed, again.effects) == ([], [])
        assert (await world.rows(tables.Secret))[0].revision == 1


async def test_a_secret_as_it_was_read_can_be_applied_and_keeps_its_values(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(doc("Secret", "db", {"values": {"A": "1"}}))
        shown = await world.fleet.get(ADMIN, ref("Secret", "db"))
        shown["metadata"]["labels"] = {"team": "x"}
        await world.apply(shown)
        row = (await world.rows(tables.Secret))[0]
        assert (row.labels, row.revision, row.ciphertext) == ({"team": "x"}, 1, b"sealed 1")
        assert (await world.apply(doc("Secret", "db", {"values": {"A": "1"}}, labels={"team": "x"}))).changed == []
        with pytest.raises(Invalid, match=r"spec\.values: Required"):
            await world.apply(doc("Secret", "db", {"variables": ["A", "B"]}))
        with pytest.raises(Invalid, match=r"spec\.values: Required"):
            await world.apply(doc("Secret", "new", {"variables": ["A"]}))


async def test_a_secret_that_is_used_cannot_be_deleted(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(doc("Secret", "db", {"values": {"A": "1"}}))
        await world.apply(an_app(secrets=["db"]))
        with pytest.raises(Conflict, match="apps use it: web"):
            await world.fleet.delete(ADMIN, ref("Secret", "db"))
        await world.apply(an_app())
        await world.fleet.delete(ADMIN, ref("Secret", "db"))
        assert await world.rows(tables.Secret) == []


# Keys


async def test_a_key_is_shown_once_and_only_its_digest_is_kept(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        applied = await world.apply(doc("ApiKey", "ci", {"permissions": ["read"]}))
        key = applied.object["status"]["key"]
        row = (await world.rows(tables.ApiKey))[0]
        assert row.digest == hashlib.sha256(key.encode()).hexdigest()
        assert key.startswith(row.prefix)
        assert key not in await everything(world)
        again = await world.apply(doc("ApiKey", "ci", {"permissions": ["read", "write"]}))
        assert "key" not in again.object["status"]
        assert (await world.rows(tables.ApiKey))[0].digest == row.digest
        rotated = await world.fleet.rotate_key(ADMIN, ref("ApiKey", "ci"))
        assert rotated.object["status"]["key"] != key
        assert (await world.rows(tables.ApiKey))[0].digest != row.digest
        with pytest.raises(BadRequest):
            await world.fleet.rotate_key(ADMIN, ref("Secret", "ci"))


async def test_a_key_that_is_disabled_is_revoked_and_gateways_are_told(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        await world.apply(a_route())
        await world.report_app()
        await world.apply(doc("ApiKey", "ci", {"expiresAt": "2030-01-01T00:00:00Z"}))
        assert (await world.rows(tables.ApiKey))[0].expires_at == 1893456000000
        off = await world.apply(doc("ApiKey", "ci", {"enabled": False}))
        assert [each.kind for each in off.effects] == ["keys"]
        assert (await world.rows(tables.ApiKey))[0].revoked_at > 0
        await world.apply(doc("ApiKey", "ci"))
        assert (await world.rows(tables.ApiKey))[0].revoked_at == 0
        gone = await world.fleet.delete(ADMIN, ref("ApiKey", "ci"))
        assert [(each.kind, each.action) for each in gone.effects] == [("keys", "apply")]


# Routes and policies


async def test_a_host_belongs_to_one_environment(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        await world.apply(doc("Environment", "staging"))
        await world.apply(doc("Route", "a", {"host": "a.example.com", "app": "web"}))
        await world.apply(doc("Route", "b", {"host": "a.example.com", "path": "/b", "app": "web"}))
        other = an_app()
        other["metadata"]["environment"] = "staging"
        await world.apply(other)
        taken = doc("Route", "c", {"host": "a.example.com", "app": "web"})
        taken["metadata"]["environment"] = "staging"
        with pytest.raises(Invalid, match=r"spec\.host: .*used by another environment"):
            await world.apply(taken)


async def test_what_a_route_names_must_exist(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        with pytest.raises(Invalid) as caught:
            await world.apply(
                doc("Route", "r", {"host": "a.example.com", "app": "none", "policies": ["p"], "tls": {"secret": "s"}})
            )
        assert [error.field for error in caught.value.errors] == [
            "spec.backends", "spec.policies[0]", "spec.tls.secret",
        ]  # fmt: skip
        with pytest.raises(Invalid, match=r"spec\.routes\[0\]"):
            await world.apply(doc("Policy", "p", {"keyAuth": {}, "routes": ["none"]}))


async def test_a_policy_that_a_route_names_cannot_be_deleted(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        await world.apply(doc("Policy", "p", {"keyAuth": {}}))
        await world.apply(doc("Route", "r", {"host": "a.example.com", "app": "web", "policies": ["p"]}))
        with pytest.raises(Conflict, match="routes name it: r"):
            await world.fleet.delete(ADMIN, ref("Policy", "p"))
        await world.fleet.delete(ADMIN, ref("Route", "r"))
        await world.fleet.delete(ADMIN, ref("Policy", "p"))


async def test_a_route_is_resolved_to_the_live_deployment_of_its_app(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(port=9000))
        first = await world.report_app()
        await world.apply(an_app(port=9001))
        second = await world.deployment()
        environment = (await world.rows(tables.Environment))[0]
        spec = {
            "host": "a",
            "backends": [{"app": "web"}, {"app": "web", "deployment": second.id, "weight": 5}, {"app": "x"}],
        }
        async with world.databases.fleet.reading() as session:
            targets = (await read_targets(session, [environment.id]))[environment.id]
        found = resolve_route(spec, targets.in_region("any"), targets.pinned)
        assert [(each["weight"], (each["target"] or {}).get("deployment")) for each in found["backends"]] == [
            (100, first), (5, second.id), (100, None),
        ]  # fmt: skip
        assert (found["host"], found["backends"][0]["target"]["port"]) == ("a", 9000)
