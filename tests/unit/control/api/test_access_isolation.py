"""A workspace sees nothing of another one: over every operation, in answers, errors, streams, metrics and logs, and in
what is done to find that something does not exist.

Everything of the workspace ``default`` has a word in its name or content that nobody else uses. An administrator of the
workspace ``team`` asks every operation for it, by its real names and by names of nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import orjson
import pytest
from api_world import Client, World, prepared_world
from matrix_requests import filled
from sqlalchemy import event, select
from sqlalchemy.engine import Engine
from test_access_matrix import SPECS, body_of, operations

from shoal.control.database import tables
from shoal.control.domain.objects import TABLES
from shoal.testing.asking import Answered, ask

WORD = "xylograph"  # in all that is not the tenant's
NOTHING = "zzznothing"  # as long as what is there
OTHERS = {
    "project": f"{WORD}p", "environment": f"{WORD}e", "projects.name": f"{WORD}p", "environments.name": f"{WORD}e",
    "apps.name": f"{WORD}a", "routes.name": f"{WORD}r", "secrets.name": f"{WORD}s",
    "credentials.name": f"{WORD}c", "apikeys.name": f"{WORD}k",
    "policies.name": f"{WORD}l", "sentinels.name": f"{WORD}g", "regions.name": "eu", "clusters.name": "eu1",
    "workspace": "default", "id": "none", "cluster": "eu1", "shard": "default",
}  # fmt: skip
MISSING = {key: value.replace(WORD, NOTHING[: len(WORD)]) for key, value in OTHERS.items()}
MARKED = {"metadata": {"labels": {"team": WORD}, "annotations": {"note": WORD}}}


@asynccontextmanager
async def two_tenants(tmp_path: Path) -> AsyncIterator[tuple[World, Client]]:
    """The world, with one of everything in ``default``, and an administrator of ``team``."""
    async with prepared_world(tmp_path) as world:
        project = f"/api/v1/projects/{OTHERS['project']}"
        environment = f"{project}/environments/{OTHERS['environment']}"
        for path in (project, environment):
            await world.ok(world.admin("PUT", path, MARKED))
        for plural in ("apps", "policies", "secrets", "credentials", "routes", "apikeys"):
            spec = orjson.loads(orjson.dumps(SPECS[plural]).replace(b'"web"', f'"{OTHERS["apps.name"]}"'.encode()))
            if plural == "routes":
                spec["host"] = f"{WORD}.example"
            await world.ok(
                world.admin("PUT", f"{environment}/{plural}/{OTHERS[f'{plural}.name']}", {**MARKED, "spec": spec})
            )
        await world.ok(
            world.admin("PUT", f"/api/v1/sentinels/{OTHERS['sentinels.name']}", {**MARKED, "spec": SPECS["sentinels"]})
        )
        await world.tokens.create(kind="user", name=f"{WORD}-user", workspace_id="default", role="viewer")
        await world.happen(WORD)
        await world.fleet.ensure_workspace("team")
        yield world, await world.user("tom", "admin", "team")


async def rows_of_default(world: World) -> list[tuple[Any, ...]]:
    """All that belongs to the workspace, as it is stored."""
    found: list[tuple[Any, ...]] = []
    async with world.databases.fleet.reading() as session:
        for table in [*TABLES.values(), tables.Deployment, tables.Topology, tables.Desired, tables.Audit]:
            columns = table.__table__.columns
            asked = select(*columns).where(columns["workspace_id"] == "default").order_by(*table.__table__.primary_key)
            found += [(table.__tablename__, *row) for row in await session.execute(asked)]
    return found


def without_names(answer: Answered) -> tuple[int, bytes]:
    """An answer without what the caller said itself and without the number of the request. Success is about objects of
    the caller's own, each with ids and times of its own."""
    if answer.status < 400:
        return answer.status, b""
    body = re.sub(rb"[0-9a-f]{8}-[0-9a-f-]{27}", b"ID", answer.body)
    return answer.status, body.replace(WORD.encode(), b"NAME").replace(NOTHING[: len(WORD)].encode(), b"NAME")


@contextmanager
def counting_statements() -> Iterator[list[str]]:
    """The statements that are executed meanwhile, without their values. The caller's token is looked up again when its
    copy in memory is old, whatever is asked, so its statements do not count."""
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "FROM tokens" not in statement and statement != "BEGIN":
            seen.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", note)


async def asked(world: World, tenant: Client, operation: Any, names: dict[str, str]) -> Answered:
    method, path = operation.method, filled(operation.path, names)
    query = "" if method == "GET" else "dryRun=true"
    return await ask(world.api, method, path, token=tenant.token, body=body_of(operation), query=query)


async def test_what_is_anothers_and_what_is_nothing_are_answered_alike_and_cost_the_same(tmp_path: Path) -> None:
    async with two_tenants(tmp_path) as (world, tenant):
        before = await rows_of_default(world)
        for operation in operations(world):
            shown = f"{operation.method} {operation.path}"
            if operation.path.endswith(("/tokens", "/workspaces", "/apply")) and operation.method == "POST":
                continue  # creates the tenant's own
            with counting_statements() as for_others:
                theirs = await asked(world, tenant, operation, OTHERS)
            with counting_statements() as for_nothing:
                nothing = await asked(world, tenant, operation, MISSING)
            assert without_names(theirs) == without_names(nothing), shown
            if theirs.status == 404:
                assert for_others == for_nothing, f"{shown}: the time of the answer tells that it exists"
        assert await rows_of_default(world) == before, "nothing of the other workspace has changed"


async def test_any_mixture_of_anothers_names_and_names_of_nothing_is_answered_like_nothing(tmp_path: Path) -> None:
    """A project of another workspace with an app of nothing, and so on: every subset of the names in a path."""
    async with two_tenants(tmp_path) as (world, tenant):
        mixed = 0
        for operation in operations(world):
            parts = re.findall(r"\{(\w+)\}", operation.path)
            nothing = without_names(await asked(world, tenant, operation, MISSING))
            for size in range(1, len(parts)):
                for theirs in combinations(parts, size):
                    names = {key: (OTHERS if key.rpartition(".")[2] in theirs else MISSING)[key] for key in OTHERS}
                    found = without_names(await asked(world, tenant, operation, names))
                    assert found == nothing, f"{operation.method} {operation.path} with the real {theirs}"
                    mixed += 1
        assert mixed > 50


async def test_a_query_by_anothers_names_finds_as_little_as_one_by_names_of_nothing(tmp_path: Path) -> None:
    async with two_tenants(tmp_path) as (world, tenant):
        queried = 0
        for operation in (each for each in operations(world) if each.method == "GET"):
            path = filled(operation.path, MISSING)
            for field in text_fields(operation):
                for value in sorted({value for value in OTHERS.values() if WORD in value} | {f"team={WORD}"}):
                    answers = [
                        await ask(world.api, "GET", path, token=tenant.token, query=urlencode({field: text}))
                        for text in (value, value.replace(WORD, NOTHING[: len(WORD)]))
                    ]
                    assert without_names(answers[0]) == without_names(answers[1]), f"{operation.path}?{field}={value}"
                    if answers[0].status < 400:
                        assert WORD.encode() not in answers[0].body, f"{operation.path}?{field}={value}"
                    queried += 1
        assert queried > 50


def text_fields(operation: Any) -> list[str]:
    """The parameters of its query that take a text."""
    query = operation.taken().get("query")
    return (
        [] if query is None else [each.encode_name for each in msgspec.structs.fields(query) if "str" in str(each.type)]
    )


async def test_no_answer_list_header_or_error_has_anything_of_the_other_workspace(tmp_path: Path) -> None:
    async with two_tenants(tmp_path) as (world, tenant):
        for operation in operations(world):
            if operation.method != "GET":
                continue
            for names in (MISSING, {**MISSING, "project": "own", "environment": "own"}):
                answer = await asked(world, tenant, operation, names)
                everything = answer.body + orjson.dumps(answer.headers)
                assert WORD.encode() not in everything, f"{operation.path}: {everything!r}"
        for page in world.api.pages:
            answer = await ask(world.api, "GET", page.path, token=tenant.token)
            assert WORD.encode() not in answer.body, page.path


async def test_a_stream_has_only_the_events_of_its_workspace(tmp_path: Path) -> None:
    async with two_tenants(tmp_path) as (world, tenant):
        parts: asyncio.Queue[bytes] = asyncio.Queue()
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            parts.put_nowait(message.get("body", b""))

        for path in ("/api/v1/events", "/api/v1/watch/status"):
            gone.clear()
            scope = {
                "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"follow=true" if path.endswith("events") else b"",
                "headers": [(b"authorization", f"Bearer {tenant.token}".encode()), (b"accept", b"text/event-stream")],
                "http_version": "1.1", "scheme": "https", "server": ("c", 1), "client": ("10.0.0.1", 1), "root_path": "",
            }  # fmt: skip
            reading = asyncio.create_task(world.api(scope, receive, send), name="stream")  # type: ignore[arg-type]
            await asyncio.wait_for(parts.get(), 30)  # it has begun
            await world.happen(f"{WORD}Again")
            await world.ok(world.admin("PUT", f"/api/v1/projects/{WORD}more", MARKED))
            await world.happen("Ours", "team")
            heard = b""
            while b"Ours" not in heard and path.endswith("events"):
                heard += await asyncio.wait_for(parts.get(), 30)
            gone.set()
            await reading
            while not parts.empty():
                heard += parts.get_nowait()
            assert WORD.encode() not in heard, path


async def test_the_log_of_a_tenants_requests_has_nothing_of_the_other_workspace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with two_tenants(tmp_path) as (world, tenant):
        capsys.readouterr()
        for operation in operations(world):
            await asked(world, tenant, operation, MISSING)
        assert WORD not in capsys.readouterr().err
