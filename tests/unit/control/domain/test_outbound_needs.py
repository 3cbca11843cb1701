"""Apps and environments whose rollouts name hosts that the workspace may not call, or credentials that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fleet_world import ADMIN, World, a_fleet, an_app, doc

from shoal.control.database import tables
from shoal.control.domain.outbound_needs import credentials_in
from shoal.control.domain.specs import parse
from shoal.errors import Invalid

URL = "https://hooks.example.com/a"
CHECKS = [
    {"name": "smoke", "kind": "webhook", "url": URL, "secret": "hooks"},
    {"name": "crashes", "kind": "query", "query": "pods where restarts > 3"},
]
NOTIFY = [{"url": "https://chat.example.com/x", "secret": "chat"}]
ROLLOUT: dict[str, Any] = {"strategy": "rolling", "checks": CHECKS, "notify": NOTIFY}


async def allow(world: World, *outbound: str) -> None:
    async with world.databases.fleet.transaction() as tx:
        workspace = await tx.session.get(tables.Workspace, "default")
        if workspace is None:
            workspace = tables.Workspace(id="default", name="default", created_at=tx.now)
            tx.session.add(workspace)
        workspace.policy = {"outbound": list(outbound)}


async def refused(world: World, document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        await world.apply(document)
    return {each.field: each.body for each in caught.value.errors}


async def test_hosts_and_credentials_are_refused_with_their_fields_and_the_fix(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(doc("Secret", "chat", {"values": {"A": "1"}}))
        found = await refused(world, an_app(rollout=ROLLOUT))
        assert list(found) == [
            "spec.rollout.checks[0].url", "spec.rollout.notify[0].url", "spec.rollout.checks[0].secret",
            "spec.rollout.notify[0].secret",
        ]  # fmt: skip
        assert "--outbound hooks.example.com:443`" in found["spec.rollout.checks[0].url"]
        assert found["spec.rollout.checks[0].secret"] == 'Not found: "hooks"'
        assert "create a Credential" in found["spec.rollout.notify[0].secret"]
        await allow(world, "*.example.com:443")
        for name in ("hooks", "chat"):
            await world.apply(doc("Credential", name, {"values": {"Authorization": "Bearer x"}}))
        await world.apply(an_app(rollout=ROLLOUT))


async def test_a_credential_may_come_in_the_same_file_as_the_app_that_needs_it(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await allow(world, "hooks.example.com")
        credential = doc("Credential", "hooks", {"values": {"Authorization": "Bearer x"}})
        app = an_app(rollout={"strategy": "rolling", "checks": CHECKS})
        done = await world.fleet.apply_all(ADMIN, [parse(each) for each in (app, credential)])
        assert [each.created for each in done] == [True, True]


async def test_hosts_in_the_defaults_of_an_environment_are_refused_too(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(doc("Project", "shop"))
        found = await refused(world, doc("Environment", "prod", {"rollout": {"notify": NOTIFY}}))
        assert list(found) == ["spec.rollout.notify[0].url"]
        await allow(world, "chat.example.com")
        await world.apply(doc("Environment", "prod", {"rollout": {"notify": NOTIFY}}))
        assert list(await refused(world, an_app())) == ["spec.rollout.notify[0].secret"]
        await world.apply(doc("Credential", "chat", {"values": {"X-Key": "x"}}))
        await world.apply(an_app())


def test_the_credentials_of_a_rollout_are_found_as_it_was_applied() -> None:
    assert credentials_in(ROLLOUT) == {"hooks", "chat"}
    assert credentials_in(None) == credentials_in("rolling") == credentials_in({}) == set()
