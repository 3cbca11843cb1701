"""Workspaces over the API: what administrators of the fleet may do, and nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from api_world import ENV, Client, World, error_of, fields_of, prepared_world

PATH = "/api/v1/workspaces"


async def a_user(world: World, workspace: str, role: str = "admin", name: str = "bob") -> Client:
    body = {"kind": "user", "name": name, "role": role, "workspace": workspace}
    return Client(world.api, (await world.ok(world.admin("POST", "/api/v1/tokens", body)))["token"])


async def names(world: World) -> list[str]:
    return [each["name"] for each in (await world.ok(world.admin("GET", PATH)))["items"]]


async def test_workspaces_are_created_listed_and_deleted(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        made = await world.admin("POST", PATH, {"name": "team-a"})
        assert made.status_code == 201 and made.json()["name"] == "team-a"
        assert await names(world) == ["default", "team-a"], "before it has a token"
        bob = await a_user(world, "team-a")
        await world.ok(bob("PUT", "/api/v1/projects/theirs", {}))
        listed = {each["name"]: each for each in (await world.ok(world.admin("GET", PATH)))["items"]}
        assert list(listed) == ["default", "team-a"]
        assert (listed["team-a"]["projects"], listed["team-a"]["tokens"], listed["team-a"]["database"]) == (
            1,
            1,
            "main",
        )
        assert await world.ok(world.admin("GET", f"{PATH}/team-a")) == listed["team-a"]
        assert error_of(await world.admin("POST", PATH, {"name": "team-a"})) == (409, "AlreadyExists")
        await world.ok(bob("DELETE", "/api/v1/projects/theirs"))
        gone = await world.ok(world.admin("DELETE", f"{PATH}/team-a"))
        assert gone == {"name": "team-a", "revokedTokens": ["bob"]}
        assert await names(world) == ["default"] and (await bob("GET", "/api/v1/projects")).status_code == 401
        assert error_of(await world.admin("DELETE", f"{PATH}/team-a")) == (404, "NotFound")
        actions = [
            (each["action"], each["name"]) for each in (await world.ok(world.admin("GET", "/api/v1/audit")))["items"]
        ]
        assert ("create", "team-a") in actions and ("delete", "team-a") in actions


async def test_a_workspace_that_is_not_empty_stays_and_the_answer_says_what_is_in_it(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        bob = await a_user(world, "team-a")
        for number in range(7):
            await world.ok(bob("PUT", f"/api/v1/projects/p{number}", {}))
        answer = await world.admin("DELETE", f"{PATH}/team-a")
        assert error_of(answer) == (409, "Conflict")
        assert "it has the projects p0, p1, p2, p3, p4 and 2 more; delete them first" in answer.text
        assert await names(world) == ["default", "team-a"] and (await bob("GET", "/api/v1/projects")).status_code == 200


async def test_the_workspaces_that_run_the_fleet_stay(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        for name in ("default", "fleet"):
            answer = await world.admin("DELETE", f"{PATH}/{name}")
            assert error_of(answer) == (409, "Conflict") and "run the fleet" in answer.text
        assert error_of(await world.admin("POST", PATH, {"name": "fleet"})) == (409, "Conflict")


@pytest.mark.parametrize("name", ["Team", "a b", "x" * 64, "-a", "a/b"])
async def test_a_name_that_cannot_be_one_is_refused_with_what_is_expected(tmp_path: Path, name: str) -> None:
    async with prepared_world(tmp_path) as world:
        answer = await world.admin("POST", PATH, {"name": name})
        assert answer.status_code == 422 and "lower case letters" in answer.text
        assert await names(world) == ["default"]
        for wrong in ("Team", "a%00b", "x" * 300):
            assert (await world.admin("DELETE", f"{PATH}/{wrong}")).status_code == 404


async def test_only_administrators_of_the_fleet_may_see_or_change_workspaces(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await world.ok(world.admin("POST", PATH, {"name": "team-a"}))
        text, _ = await world.tokens.create(kind="agent", name="a", cluster="eu1", region="eu")
        others = {
            "an editor of the fleet": world.editor,
            "a viewer of the fleet": world.viewer,
            "an administrator of another workspace": await a_user(world, "team-a"),
            "an agent": Client(world.api, text),
        }
        requests: list[tuple[str, str, Any]] = [
            ("GET", PATH, None), ("POST", PATH, {"name": "new"}), ("GET", f"{PATH}/team-a", None),
            ("DELETE", f"{PATH}/team-a", None),
        ]  # fmt: skip
        for who, client in others.items():
            for method, path, body in requests:
                assert error_of(await client(method, path, body)) == (403, "Forbidden"), (who, method, path)
        for method, path, body in requests:
            assert error_of(await world.nobody(method, path, body)) == (401, "Unauthorized")
        assert await names(world) == ["default", "team-a"]


async def test_the_hosts_that_may_be_called_for_a_workspace_are_set_by_those_who_run_the_fleet(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        made = await world.ok(world.admin("POST", PATH, {"name": "team-a"}))
        assert made["outbound"] == []
        bob = await a_user(world, "team-a")
        body = {"outbound": ["hooks.example.com", "*.corp.example", "10.1.2.0/24:9090", "hooks.example.com"]}
        changed = await world.ok(world.admin("PATCH", f"{PATH}/team-a", body))
        assert changed["outbound"] == body["outbound"][:3]
        for client in (bob, world.editor, world.viewer):
            assert error_of(await client("PATCH", f"{PATH}/team-a", body)) == (403, "Forbidden")
        kept = await world.ok(world.admin("PATCH", f"{PATH}/team-a", {"quotas": {"apps": 3}}))
        assert kept["outbound"] == changed["outbound"]
        wrong = await world.admin("PATCH", f"{PATH}/team-a", {"outbound": ["a.example", "*", "10.1.2.3/24"]})
        assert wrong.status_code == 422 and fields_of(wrong) == ["outbound[1]", "outbound[2]"]
        assert (await world.ok(world.admin("PATCH", f"{PATH}/team-a", {"outbound": []})))["outbound"] == []


async def test_quotas_domains_and_tolerations_are_set_by_those_who_run_the_fleet(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await world.ok(world.admin("POST", PATH, {"name": "team-a"}))
        bob = await a_user(world, "team-a")
        body = {"quotas": {"apps": 3}, "domains": ["Team.example"], "tolerations": ["gpu"]}
        changed = await world.ok(world.admin("PATCH", f"{PATH}/team-a", body))
        assert changed["quotas"]["apps"] == {"used": 0, "limit": 3} and changed["domains"] == ["team.example"]
        assert changed["tolerations"] == ["gpu"] and await world.ok(world.admin("GET", f"{PATH}/team-a")) == changed
        assert (await world.ok(bob("GET", "/api/v1/quotas")))["quotas"] == changed["quotas"]
        for client in (bob, world.editor, world.viewer):
            assert error_of(await client("PATCH", f"{PATH}/team-a", body)) == (403, "Forbidden")
        kept = await world.ok(world.admin("PATCH", f"{PATH}/team-a", {"quotas": {"apps": None}}))
        assert kept["quotas"]["apps"]["limit"] == 1000 and kept["domains"] == ["team.example"]
        assert (await world.ok(world.admin("PATCH", f"{PATH}/team-a", {"defaultTolerations": True})))[
            "tolerations"
        ] is None
        actions = [each["action"] for each in (await world.ok(world.admin("GET", "/api/v1/audit")))["items"]]
        assert "update" in actions


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"quotas": {"appz": 1}}, "quotas.appz"),
        ({"quotas": {"apps": -1}}, "quotas.apps"),
        ({"domains": ["not a domain"]}, "domains[0]"),
        ({"domains": ["*.example"]}, "domains[0]"),
    ],
)
async def test_what_cannot_be_set_is_named_and_changes_nothing(
    tmp_path: Path, body: dict[str, Any], field: str
) -> None:
    async with prepared_world(tmp_path) as world:
        before = await world.ok(world.admin("GET", f"{PATH}/default"))
        answer = await world.admin("PATCH", f"{PATH}/default", body)
        assert error_of(answer) == (422, "Invalid") and fields_of(answer) == [field]
        assert await world.ok(world.admin("GET", f"{PATH}/default")) == before
        assert error_of(await world.admin("PATCH", f"{PATH}/nobody", {"quotas": {"apps": 1}})) == (404, "NotFound")


async def test_a_quota_answers_403_with_the_count_and_the_limit(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await world.ok(world.admin("PATCH", f"{PATH}/default", {"quotas": {"secrets": 1}}))
        for name, status in (("a", 200), ("b", 403)):
            answer = await world.editor("PUT", f"{ENV}/secrets/{name}", {"spec": {"values": {"A": "1"}}})
            assert answer.status_code in (status, 201 if status == 200 else status)
        assert answer.json()["error"]["code"] == "QuotaExceeded"
        assert "uses 1 of 1 secrets" in answer.json()["error"]["message"]
