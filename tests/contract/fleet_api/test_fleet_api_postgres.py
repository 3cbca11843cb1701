"""The API over PostgreSQL: two control planes on one database, and a database that goes away and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from api_world import ENV, Client, World, a_world, an_app, error_of

from shoal.testing.databases import PostgresServer, postgres_server, shared_postgres
from shoal.testing.waiting import eventually

BACK_S = 30.0


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as found:
        yield found


async def until_served(client: Client, path: str) -> None:
    """Until the database is back; meanwhile only 503 is answered."""

    async def status() -> int:
        found: int = (await client("GET", path)).status_code
        return found if found != 503 else 0

    assert await eventually(status, timeout_s=BACK_S) == 200


async def test_while_the_database_is_away_the_answer_is_503_and_afterwards_all_goes_on(server: PostgresServer) -> None:
    async with asyncio.timeout(120):
        async with a_world({"main": server.create_database()}) as world:
            await world.prepare()
            before = await world.put_app()
            await asyncio.to_thread(server.kill)
            for request in (
                world.viewer("GET", f"{ENV}/apps/web"),
                world.editor("PUT", f"{ENV}/apps/web", an_app(env={"A": "1"})),
                world.editor("POST", "/api/v1/apply", before["object"]),
                world.viewer("GET", "/api/v1/events?follow=true"),
            ):
                answer = await request
                assert error_of(answer) == (503, "ServiceUnavailable")
                assert int(answer.headers["retry-after"]) >= 1
                assert "nothing was changed" in answer.json()["error"]["message"]
                assert "connect" not in answer.text.lower() and str(server.folder) not in answer.text
            ready = await world.nobody("GET", "/readyz")
            assert ready.status_code == 503 and ready.json()["checks"][0]["state"] == "away"
            assert (await world.nobody("GET", "/livez")).status_code == 200
            await asyncio.to_thread(server.start)
            await until_served(world.viewer, f"{ENV}/apps/web")
            await until_served(world.nobody, "/readyz")
            again = await world.ok(world.editor("PUT", f"{ENV}/apps/web", an_app(env={"A": "1"})))
            assert again["object"]["metadata"]["id"] == before["object"]["metadata"]["id"]


async def test_two_control_planes_on_one_database_are_one_api() -> None:
    async with asyncio.timeout(120):
        url = shared_postgres().create_database()
        async with a_world({"main": url}) as one, a_world({"main": url}) as other:
            await one.prepare()
            there = Client(other.api, one.editor.token)
            body = {"metadata": {"name": "web"}, **an_app()}
            answers = await asyncio.gather(
                *(client("POST", f"{ENV}/apps", body, Idempotency_Key="k") for client in (one.editor, there) * 3)
            )
            assert {answer.status_code for answer in answers} == {201}
            assert len({answer.json()["object"]["metadata"]["id"] for answer in answers}) == 1
            tag = (await there("GET", f"{ENV}/apps/web")).headers["etag"]
            races = await asyncio.gather(
                *(
                    client("PUT", f"{ENV}/apps/web", an_app(env={"N": str(n)}), If_Match=tag)
                    for n, client in enumerate((one.editor, there) * 3)
                )
            )
            assert sorted(answer.status_code for answer in races) == [200, 412, 412, 412, 412, 412]
            await revoked_everywhere(one, other)


async def revoked_everywhere(one: World, other: World) -> None:
    """A token that one control plane revokes stops working at the other, within a second of real time."""
    there = Client(other.api, one.viewer.token)
    assert (await there("GET", "/api/v1")).status_code == 200
    row = await one.tokens.find("user", "vic", workspace_id="default")
    await one.ok(one.admin("DELETE", f"/api/v1/tokens/{row.id}"))

    async def is_refused() -> bool:
        return bool((await there("GET", "/api/v1")).status_code == 401)

    await eventually(is_refused)


async def test_what_postgresql_cannot_keep_is_refused_and_not_a_fault_of_ours() -> None:
    async with asyncio.timeout(120):
        async with a_world({"main": shared_postgres().create_database()}) as world:
            await world.prepare()
            nul = b'{"metadata":{"annotations":{"a":"\\u0000"}},"spec":{"meta":{"\\u0000":1}}}'
            for path in (f"{ENV}/apikeys/k", "/api/v1/projects/p"):
                answer = await world.admin("PUT", path, nul, Content_Type="application/json")
                assert error_of(answer) == (400, "BadRequest")
            for path in ("/api/v1/projects/%00", f"{ENV}/apps/%00/status", "/api/v1/tokens/%00/rotate"):
                method = "POST" if "tokens" in path else "GET"
                assert (await world.admin(method, path)).status_code == 404, path
            for query in ("projects?continue=a%00/b", "events?kind=App&name=%00", "audit?continue=9999999999999999999"):
                assert error_of(await world.admin("GET", f"/api/v1/{query}")) == (422, "Invalid"), query
            large = {"spec": {"meta": {"n": 10**18, "f": 1e308, "deep": [[[]]]}}}
            assert (await world.admin("PUT", f"{ENV}/apikeys/k", large)).status_code == 201
            for body in ({"kind": "user", "name": "\0"}, {"kind": "user", "name": "x", "workspace": "a\0"}):
                assert (await world.admin("POST", "/api/v1/tokens", body)).status_code == 400
