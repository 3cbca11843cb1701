"""Credentials: sealed as secrets are, and told to no agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fleet_world import ADMIN, World, a_fleet, an_app, doc, ref

from shoal.control.database import tables
from shoal.control.domain.model import Actor
from shoal.control.domain.specs import parse
from shoal.errors import Conflict, Forbidden, Invalid

BEARER = {"Authorization": "Bearer hunter2"}


def faults(spec: dict[str, Any]) -> str:
    with pytest.raises(Invalid) as refused:
        parse(doc("Credential", "hooks", spec))
    assert "hunter" not in str(refused.value) and "hunter" not in str(refused.value.status())
    return str(refused.value)


async def put(world: World, values: dict[str, str] | None = None) -> Any:
    return await world.apply(doc("Credential", "hooks", {"values": values or BEARER}))


async def test_the_headers_are_sealed_and_only_their_names_are_shown(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        applied = await put(world)
        assert world.sealer.sealed == [BEARER] and applied.object["spec"] == {"headers": ["Authorization"]}
        (row,) = await world.rows(tables.Credential)
        assert (row.ciphertext, row.revision) == (b"sealed 1", 1) and "hunter2" not in repr(vars(row))
        assert "hunter2" not in repr(applied)
        assert (await put(world)).changed == []
        await put(world, {"Authorization": "Bearer hunter3"})
        shown = await world.fleet.get(ADMIN, ref("Credential", "hooks"))
        assert shown["status"] == {"revision": 2}
        stored = (await world.rows(tables.Credential))[0].ciphertext
        await world.apply({**shown, "metadata": {**shown["metadata"], "labels": {"team": "x"}}})
        assert (await world.rows(tables.Credential))[0].ciphertext == stored != b"sealed 1"


async def test_no_agent_is_told_and_no_app_can_use_it_as_a_secret(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        wanted, numbers = await world.wanted(), await world.numbers()
        for value in ("Bearer hunter2", "Bearer hunter3"):
            assert (await put(world, {"Authorization": value})).effects == []
        assert (await world.wanted(), await world.numbers()) == (wanted, numbers)
        with pytest.raises(Invalid, match=r'spec\.secrets\[0\]: Not found: "hooks"'):
            await world.apply(an_app(secrets=["hooks"]))


async def test_a_credential_and_a_secret_may_have_the_same_name(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await put(world)
        await world.apply(doc("Secret", "hooks", {"values": {"A": "1"}}))
        await world.fleet.delete(ADMIN, ref("Secret", "hooks"))
        assert [row.name for row in await world.rows(tables.Credential)] == ["hooks"]


async def test_one_that_a_rollout_uses_cannot_be_deleted_and_goes_with_its_environment(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await put(world)
        await world.apply(an_app())
        async with world.databases.fleet.transaction() as tx:
            app = await tx.session.get_one(tables.App, (await world.app()).id)
            app.spec = {**app.spec, "rollout": {"notify": [{"url": "https://a.example", "secret": "hooks"}]}}
        with pytest.raises(Conflict, match="rollouts use it: app web"):
            await world.fleet.delete(ADMIN, ref("Credential", "hooks"))
        gone = await world.fleet.delete(ADMIN, ref("Environment", "prod"), cascade=True)
        assert ref("Credential", "hooks") in gone.also and await world.rows(tables.Credential) == []


async def test_viewers_may_not_write_one(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        with pytest.raises(Forbidden):
            await world.apply(doc("Credential", "hooks", {"values": BEARER}), who=Actor("default", "vic", "viewer"))


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({}, "spec.values: Required value: name at least one header"),
        ({"values": {}}, "name at least one header"),
        ({"values": {"Host": "hunter.example"}}, "is set by the control plane itself"),
        ({"values": {"content-length": "hunter5"}}, "is set by the control plane itself"),
        ({"values": {"bad header": "hunter2"}}, "spec.values: Invalid value"),
        ({"values": {"X-A": "hunter2\r\nX-B: 1"}}, "must be printable ASCII"),
        ({"values": {"X-A": " hunter2"}}, "without spaces at its ends"),
        ({"values": {"X-A": "hünter2"}}, "must be printable ASCII"),
        ({"values": {"X-A": "hunter" * 2000}}, "may not be more than 8192 bytes"),
        ({"values": {"X-A": "hunter2", "x-a": "hunter3"}}, "may not have the same header twice"),
        ({"values": {"X-A": 5}}, "must be a string"),
        ({"values": BEARER, "headers": ["X-A"]}, "must name the same headers as values, or be left out"),
        ({"values": BEARER, "variables": ["X-A"]}, "unknown field"),
    ],
)
def test_what_cannot_be_sent_as_a_header_is_refused_without_its_value(spec: dict[str, Any], fault: str) -> None:
    assert fault in faults(spec)
