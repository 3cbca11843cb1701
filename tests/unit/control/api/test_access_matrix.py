"""Who may do what over the control plane's REST API: every operation for every kind of caller, against a table that
people can read (``access_matrix.txt``). A new operation without a line fails, with the line to add.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from api_world import ENV, Client, World, an_app, prepared_world
from matrix_requests import Table, filled

from shoal.rest.operations import Operation
from shoal.testing.asking import Answered, ask

CALLERS = ("anonymous", "agent", "edge", "relay", "viewer", "editor", "admin", "tenant")
TABLE = Table(Path(__file__).with_name("access_matrix.txt"), CALLERS)
NAMES = {
    "project": "shop", "environment": "prod", "apps.name": "web", "routes.name": "front", "secrets.name": "db",
    "credentials.name": "hooks",
    "apikeys.name": "key", "policies.name": "limit", "projects.name": "shop", "environments.name": "prod",
    "regions.name": "eu", "clusters.name": "eu1", "sentinels.name": "edge", "workspace": "spare", "id": "none",
    "cluster": "eu1", "shard": "default",
}  # fmt: skip
SPECS: dict[str, dict[str, Any]] = {
    "apps": an_app()["spec"], "routes": {"host": "a.example", "app": "web"}, "secrets": {"values": {"A": "1"}},
    "credentials": {"values": {"X-A": "1"}},
    "apikeys": {}, "policies": {"keyAuth": {}}, "projects": {}, "environments": {}, "regions": {},
    "clusters": {"region": "eu"}, "sentinels": {"region": "eu"},
}  # fmt: skip
BODIES: dict[str, Any] = {  # of operations that are not about one object, by the end of the path
    "move": {"region": "eu", "cluster": "eu1"}, "scale": {"replicas": 2}, "rollback": {"to": 1},
    "apply": {"apiVersion": "shoal.dev/v1", "kind": "Project", "metadata": {"name": "shop"}, "spec": {}},
    "tokens": {"kind": "user", "name": "x", "role": "viewer"}, "workspaces": {"name": "new"},
    "{workspace}": {"quotas": {"apps": 5}},
}  # fmt: skip


async def tokens(world: World) -> dict[str, str]:
    """A token of every kind; ``tenant`` is an administrator of a workspace that does not run the fleet."""
    for workspace in ("team", "spare"):
        await world.fleet.ensure_workspace(workspace)
    made = {"anonymous": ""}
    for role in ("viewer", "editor", "admin"):
        made[role], _ = await world.tokens.create(kind="user", name=f"m-{role}", workspace_id="default", role=role)
    made["tenant"], _ = await world.tokens.create(kind="user", name="tom", workspace_id="team", role="admin")
    made["agent"], _ = await world.tokens.create(kind="agent", name="a", cluster="eu1", region="eu")
    made["relay"], _ = await world.tokens.create(kind="relay", name="r", region="eu")
    made["edge"], _ = await world.tokens.create(kind="edge", name="e")
    return made


async def fill(world: World) -> None:
    """One of everything in the workspace ``default``."""
    for plural in ("apps", "policies", "secrets", "credentials", "routes", "apikeys", "sentinels"):
        path = f"{ENV}/{plural}" if plural != "sentinels" else "/api/v1/sentinels"
        name = NAMES[f"{plural}.name"]
        await world.ok(world.admin("PUT", f"{path}/{name}", {"spec": SPECS[plural]}))


def operations(world: World) -> list[Operation]:
    """Those that delete come last."""
    return sorted(world.api.operations, key=lambda each: each.method == "DELETE")


def body_of(operation: Operation) -> Any:
    """Such that only the caller decides whether it is accepted."""
    *_, before, last = operation.path.split("/")
    if operation.method in ("GET", "DELETE"):
        return None
    if operation.method == "POST" and last in SPECS and last != "tokens":
        return {"metadata": {"name": "new"}, "spec": SPECS[last]}
    if last == "{name}":
        return {"spec": SPECS[before]}
    return BODIES.get(last, {})


async def asked(world: World, operation: Operation, token: str) -> Answered:
    path, body = filled(operation.path, NAMES), body_of(operation)
    query = "dryRun=true" if operation.method != "GET" else ""
    first = await ask(world.api, operation.method, path, token=token, body=body, query=query)
    if b"dryRun" in first.body and first.status in (400, 422):
        return await ask(world.api, operation.method, path, token=token, body=body)
    return first


async def test_every_operation_answers_every_caller_as_the_table_says(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await fill(world)
        known = await tokens(world)
        found = {
            f"{operation.method} {operation.path}": [
                (await asked(world, operation, known[caller])).cell for caller in CALLERS
            ]
            for operation in operations(world)
        }
        for page in world.api.pages:
            answers = [await ask(world.api, "GET", page.path, token=known[caller]) for caller in CALLERS]
            found[f"GET {page.path}"] = [each.cell for each in answers]
        TABLE.check(found)


def test_the_table_says_what_it_should_mean() -> None:
    """The rules of the roles, for the table itself: a wrong line in it is found as well."""
    public = {"/livez", "/healthz", "/readyz"}
    for operation, cells in TABLE.rows().items():
        path, row = operation.split()[1], dict(zip(CALLERS, cells, strict=True))
        if not path.startswith("/api/"):
            assert path in public or row["anonymous"] == "401" or path in ("/docs", "/openapi.json"), operation
            continue
        assert row["anonymous"] == "401", operation
        for machine in ("agent", "edge", "relay"):
            assert row[machine] == "403", f"{operation}: a token of a machine is not one of a person"
        rank = [row[role] != "403" for role in ("viewer", "editor", "admin")]
        assert rank == sorted(rank), f"{operation}: a higher role may do no less"
        if (
            operation.startswith("GET")
            and "tokens" not in path
            and "workspaces" not in path
            and "master-keys" not in path
        ):
            assert row["viewer"] != "403", f"{operation}: viewers read everything of their workspace"
        if not operation.startswith("GET") and path.startswith("/api/v1/projects/{project}/"):
            assert row["viewer"] in ("403", "404"), f"{operation}: viewers change nothing"


async def test_a_caller_of_another_workspace_is_not_let_in_by_the_header(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        known = await tokens(world)
        for caller in ("tenant", "viewer", "editor"):
            other = "default" if caller == "tenant" else "team"
            client = Client(world.api, known[caller])
            assert (await client("GET", "/api/v1/projects", X_Shoal_Workspace=other)).status_code == 403
        assert (await Client(world.api, known["admin"])("GET", "/api/v1/projects", X_Shoal_Workspace="team")).json()[
            "items"
        ] == []
