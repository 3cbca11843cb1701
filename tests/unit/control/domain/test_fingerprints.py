"""Fingerprints of secrets: nothing in the database tells their values, and no change of keys looks like one of values."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from pathlib import Path
from typing import Any

import orjson
import pytest
from fleet_world import World, a_fleet, an_app, doc
from sqlalchemy import delete

from shoal.base.ids import Ids
from shoal.control.database import tables
from shoal.control.domain.fingerprints import FingerprintKey
from shoal.control.domain.fleet import Fleet

VALUES = {"PASSWORD": "hunter2"}


def of_an_earlier_version(world: World, values: dict[str, str]) -> str:
    text = orjson.dumps(values, option=orjson.OPT_SORT_KEYS)
    return hmac.digest(world.databases.fleet.signing_key, text, hashlib.sha256).hex()


async def secret(world: World) -> tables.Secret:
    found: tables.Secret = (await world.rows(tables.Secret))[0]
    return found


async def prepared(world: World) -> None:
    """A secret that an app uses, and the app runs."""
    await world.join("eu1")
    await world.apply(doc("Secret", "db", {"values": VALUES}))
    await world.apply(an_app(secrets=["db"]))
    await world.report_app()
    await world.fleet.sweep()  # gateways get their certificates


async def as_an_earlier_version_left_it(world: World) -> Fleet:
    """Returns the use cases of a process that has just started."""
    async with world.databases.fleet.transaction() as tx:
        row = await tx.session.get_one(tables.Secret, (await secret(world)).id)
        row.spec = {**row.spec, "fingerprint": of_an_earlier_version(world, VALUES)}
        await tx.session.execute(delete(tables.ControlKey))
    return Fleet(world.databases, Ids(), world.sealer)


async def seen(world: World) -> dict[str, Any]:
    """What users and agents can notice of the secret and of the app that uses it."""
    row, app = await secret(world), await world.app()
    return {
        "secret": (row.revision, row.generation, row.version, row.updated_at, row.ciphertext),
        "app": (app.revision, app.deployment_id, app.version),
        "desired": await world.numbers(),
        "position": await world.databases.fleet.position(),
    }


async def test_a_fingerprint_cannot_be_made_from_what_the_database_holds(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await prepared(world)
        stored = (await secret(world)).spec["fingerprint"]
        (row,) = await world.rows(tables.ControlKey)
        held = [world.databases.fleet.signing_key, row.data_key, row.master_key.encode(), row.id.encode(), b""]
        tried = {FingerprintKey(one, other).of(VALUES) for one in held for other in held}
        assert stored not in tried and of_an_earlier_version(world, VALUES) not in stored
        assert b"hunter2" not in orjson.dumps((await secret(world)).spec)


@pytest.mark.parametrize("swept", [True, False], ids=["after the sweep", "before the sweep"])
async def test_the_change_of_version_makes_no_revision_and_replaces_the_old_fingerprints(
    tmp_path: Path, swept: bool
) -> None:
    async with a_fleet(tmp_path) as world:
        await prepared(world)
        world.fleet = await as_an_earlier_version_left_it(world)
        before = await seen(world)
        if swept:
            await world.fleet.sweep()
            assert (await secret(world)).spec["fingerprint"].startswith("2:")
        same = await world.apply(doc("Secret", "db", {"values": VALUES}))
        assert same.changed == [] and await seen(world) == before
        assert (await secret(world)).spec["fingerprint"].startswith("2:")
        other = await world.apply(doc("Secret", "db", {"values": {"PASSWORD": "other"}}))
        assert [diff.path for diff in other.changed] == ["spec.values"]
        assert (await secret(world)).revision == 2


async def test_a_fingerprint_that_an_older_process_writes_meanwhile_is_understood(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await prepared(world)
        await world.fleet.sweep()
        async with world.databases.fleet.transaction() as tx:
            row = await tx.session.get_one(tables.Secret, (await secret(world)).id)
            row.spec = {**row.spec, "fingerprint": of_an_earlier_version(world, VALUES)}
        assert (await world.apply(doc("Secret", "db", {"values": VALUES}))).changed == []


async def test_two_processes_that_start_at_once_agree_on_one_key(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        both = [Fleet(world.databases, Ids(), world.sealer) for _ in range(2)]
        first, second = await asyncio.gather(*(each.fingerprints.of(world.databases.fleet) for each in both))
        assert first == second and len(await world.rows(tables.ControlKey)) == 1


async def test_values_can_be_applied_again_when_the_master_key_is_lost(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await prepared(world)
        world.sealer.lost = True
        world.fleet = Fleet(world.databases, Ids(), world.sealer)
        again = await world.apply(doc("Secret", "db", {"values": VALUES}))
        assert [diff.path for diff in again.changed] == ["spec.values"], (
            "what was sealed is lost, so it is sealed again"
        )
        assert (await world.apply(doc("Secret", "db", {"values": VALUES}))).changed == []


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(FingerprintKey(b"secret", b"secret"))
