"""Rotating the master key over the API, as ``shoal master-key rotate`` does: who may, in parts, and what it says."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from api_world import CA, ENV, URL, Client, World, error_of, prepared_world

from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.cli.fleet.master_key import move_all
from shoal.cli.rest import CannotReach
from shoal.control.api.wiring import make_api
from shoal.control.domain.fleet import Fleet
from shoal.control.secrets.masters import FileKeys, GivenKeys, parse_keys
from shoal.control.secrets.sealer import EnvelopeSealer
from shoal.testing.seeded import seeded_bytes

PATH = "/api/v1/master-keys"


def sealed_with(world: World, sealer: EnvelopeSealer) -> None:
    """The same world, with secrets that are really sealed."""
    world.fleet = Fleet(world.databases, Ids(), sealer)
    world.api = make_api(
        world.fleet, world.tokens, world.databases, clock=world.clock, metrics=Metrics(), urls=[URL], ca=lambda: CA,
        version="1.2.3", sealer=sealer,
    )  # fmt: skip
    world.admin, world.editor, world.viewer = (
        Client(world.api, client.token) for client in (world.admin, world.editor, world.viewer)
    )


async def put_secrets(world: World, count: int) -> None:
    for number in range(count):
        await world.ok(world.editor("PUT", f"{ENV}/secrets/s{number}", {"spec": {"values": {"A": "b"}}}))


async def test_every_secret_moves_to_the_new_key_in_parts_and_the_audit_says_who(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        sealed_with(world, EnvelopeSealer(FileKeys(tmp_path / "master.key", create=True), clock=world.clock))
        await put_secrets(world, 3)
        before = await world.ok(world.admin("GET", PATH))
        assert before["inUse"] == [{"masterKey": before["current"], "secrets": 3}]
        first = await world.ok(world.admin("POST", f"{PATH}/rotate", {"newKey": True, "limit": 1}))
        assert first["masterKey"] != before["current"]
        assert (first["moved"], first["complete"], first["unmoved"]) == (3, False, []), "a batch is not torn apart"
        second = await world.ok(world.admin("POST", f"{PATH}/rotate"))
        assert second == {
            "masterKey": first["masterKey"], "moved": 0, "remaining": 0, "complete": True, "unmoved": [],
        }  # fmt: skip
        after = await world.ok(world.admin("GET", PATH))
        assert after["current"] == first["masterKey"] and after["inUse"] == [
            {"masterKey": first["masterKey"], "secrets": 3}
        ]
        from shoal.control.database.tables import Audit

        rotated = await world.rows(Audit, Audit.kind == "MasterKey")
        assert [(row.actor, row.action) for row in rotated] == [("ann", "rotate")]


async def test_only_administrators_of_those_who_run_the_fleet_may(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        sealed_with(world, EnvelopeSealer(FileKeys(tmp_path / "master.key", create=True), clock=world.clock))
        bob = Client(world.api, (await world.user("bob", "admin", workspace="other")).token)
        before = (tmp_path / "master.key").read_text()
        for client in (world.viewer, world.editor, bob):
            assert error_of(await client("GET", PATH)) == (403, "Forbidden")
            assert error_of(await client("POST", f"{PATH}/rotate", {"newKey": True})) == (403, "Forbidden")
        assert (await world.nobody("POST", f"{PATH}/rotate")).status_code == 401
        assert (tmp_path / "master.key").read_text() == before


async def test_what_cannot_be_done_is_said_and_changes_nothing(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        assert (await world.admin("GET", PATH)).status_code == 409, "no keys here"
        given = GivenKeys(parse_keys(base64.b64encode(seeded_bytes(1)(32)).decode(), "a test"), "a test")
        sealed_with(world, EnvelopeSealer(given, clock=world.clock))
        await put_secrets(world, 1)
        assert (await world.admin("POST", f"{PATH}/rotate", {"newKey": True})).status_code == 400, "others make them"
        for wrong in ({"newkey": True}, {"newKey": "yes"}, {"limit": 0}):
            assert (await world.admin("POST", f"{PATH}/rotate", wrong)).status_code == 422
        other = GivenKeys(parse_keys(base64.b64encode(seeded_bytes(2)(32)).decode(), "a test"), "a test")
        sealed_with(world, EnvelopeSealer(other, clock=world.clock))
        found = await world.ok(world.admin("POST", f"{PATH}/rotate"))
        assert found["complete"] and found["remaining"] == 1
        assert [(each["name"], "is not in" in each["why"]) for each in found["unmoved"]] == [("shop/prod/s0", True)]


class Answers:
    """A control plane that answers these, one after another."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.bodies: list[Any] = []

    def request(self, method: str, path: str, body: Any) -> Any:
        self.bodies.append(body)
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return type("Reply", (), {"body": found})


def part(moved: int, remaining: int, *, complete: bool) -> dict[str, Any]:
    return {"masterKey": "mk-1", "moved": moved, "remaining": remaining, "complete": complete, "unmoved": []}


def test_the_command_asks_for_one_new_key_and_goes_on_until_nothing_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    rest: Any = Answers(part(500, 700, complete=False), part(500, 200, complete=False), part(200, 0, complete=True))
    assert move_all(rest, new_key=True) == {"masterKey": "mk-1", "moved": 1200, "unmoved": []}
    assert rest.bodies == [{"newKey": True}, {"newKey": False}, {"newKey": False}]
    assert capsys.readouterr().err == "500 secrets re-encrypted, 700 left\n1000 secrets re-encrypted, 200 left\n"


def test_a_command_that_is_cut_off_says_how_to_go_on() -> None:
    rest: Any = Answers(part(500, 700, complete=False), CannotReach("no answer"))
    with pytest.raises(
        CannotReach, match="500 secrets were re-encrypted; continue with `shoal master-key rotate --no-new-key`"
    ):
        move_all(rest, new_key=True)
