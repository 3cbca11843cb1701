"""Streams of server-sent events: in order, resumed, bounded, ended when their token is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from api_world import ENV, World, an_app, error_of, prepared_world

from shoal.base.clock import FakeClock, RealClock
from shoal.control.api import events
from shoal.control.api.events import Follower
from shoal.errors import ServiceUnavailable
from shoal.rest import streams

EVENTS = "/api/v1/events"
WAIT_S = 30.0


class Reading:
    """A client of a stream; it takes a part only when asked, unless told otherwise."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.parts: asyncio.Queue[str] = asyncio.Queue()
        self.ended = asyncio.Event()
        self.taking = asyncio.Event()
        self.taking.set()
        self.leave = asyncio.Event()
        self._left = ""

    async def receive(self) -> dict[str, Any]:
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        await self.taking.wait()
        self.parts.put_nowait(message["body"].decode())

    async def text(self) -> str:
        return await asyncio.wait_for(self.parts.get(), WAIT_S)

    async def next(self) -> tuple[str, str, Any]:
        """Id, name and data of the next event."""
        while "\n\n" not in self._left or self._left.startswith(":"):
            if self._left.startswith(":") and "\n\n" in self._left:
                self._left = self._left.partition("\n\n")[2]
                continue
            self._left += await self.text()
        block, _, self._left = self._left.partition("\n\n")
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        return fields.get("id", ""), fields["event"], orjson.loads(fields["data"])


@asynccontextmanager
async def reading(world: World, path: str, token: str = "", **headers: str) -> AsyncIterator[Reading]:
    path, _, query = path.partition("?")
    sent = {"authorization": f"Bearer {token or world.viewer.token}"} | headers
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "headers": [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in sent.items()],
        "client": ("10.0.0.1", 1), "server": ("x", 443), "scheme": "https", "root_path": "", "http_version": "2",
    }  # fmt: skip
    found = Reading()

    async def serve() -> None:
        await world.api(scope, found.receive, found.send)
        found.ended.set()

    serving = asyncio.create_task(serve())
    try:
        yield found
    finally:
        found.taking.set()
        found.leave.set()
        await asyncio.wait_for(serving, WAIT_S)


async def test_events_of_agents_are_among_those_of_every_workspace(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await world.happen("NewRevision")
        await world.happen("AgentLost", "fleet")
        await world.fleet.ensure_workspace("other")
        await world.happen("Hidden", "other")
        oda = await world.user("oda", "viewer", "other")
        for client, expected in ((world.viewer, ["NewRevision", "AgentLost"]), (oda, ["AgentLost", "Hidden"])):
            found = (await world.ok(client("GET", "/api/v1/events")))["items"]
            assert [each["reason"] for each in found] == expected
            after = (await world.ok(client("GET", f"/api/v1/events?after={found[0]['id']}")))["items"]
            assert [each["reason"] for each in after] == expected[1:]


async def test_events_come_in_order_and_go_on_where_a_client_stopped(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        for number in range(3):
            await world.happen(f"R{number}")
        async with reading(world, f"{EVENTS}?follow=true") as stream:
            seen = [await stream.next() for _ in range(3)]
            assert [found[2]["reason"] for found in seen] == ["R0", "R1", "R2"]
            assert stream.headers["content-type"].startswith("text/event-stream")
            await world.happen("R3")
            assert (await stream.next())[2]["reason"] == "R3"
        async with reading(world, f"{EVENTS}?follow=true", Last_Event_ID=seen[1][0]) as stream:
            await world.happen("R4")
            assert [(await stream.next())[2]["reason"] for _ in range(3)] == ["R2", "R3", "R4"]
        listed = await world.ok(world.viewer("GET", f"{EVENTS}?after={seen[1][0]}&limit=2"))
        assert [item["reason"] for item in listed["items"]] == ["R2", "R3"]
        assert listed["continue"] == str(listed["items"][-1]["id"])


async def test_a_stream_begins_with_what_comes_when_nothing_has_happened_yet(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        async with reading(world, f"{EVENTS}?follow=true") as stream:
            assert await stream.text() == ": open\n\n"
            await world.happen("First")
            assert (await stream.next())[2]["reason"] == "First"


async def test_events_of_one_object_and_of_no_other_workspace(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        made = await world.put_app()
        await world.happen("Elsewhere", workspace="other")
        async with world.databases.fleet.transaction() as tx:
            await tx.number()
            tx.event(
                workspace_id="default", kind="App", object_id=made["object"]["metadata"]["id"], name="shop/prod/web",
                reason="Here", message="m",
            )  # fmt: skip
        of = "kind=App&name=web&project=shop&environment=prod"
        async with reading(world, f"{EVENTS}?follow=true&{of}") as stream:
            while (await stream.next())[2]["reason"] != "Here":
                pass
        everything = await world.ok(world.viewer("GET", EVENTS))
        assert "Elsewhere" not in {item["reason"] for item in everything["items"]}
        for query in ("kind=App", "kind=Pod&name=x", "kind=App&name=A", "after=-1"):
            assert error_of(await world.viewer("GET", f"{EVENTS}?{query}")) == (422, "Invalid"), query
        assert error_of(await world.viewer("GET", EVENTS, Last_Event_ID="x")) == (422, "Invalid")
        assert (await world.viewer("GET", f"{EVENTS}?kind=App&name=none")).status_code == 404


async def test_a_number_that_becomes_visible_late_is_sent_all_the_same_and_none_twice() -> None:
    clock = FakeClock()
    visible: list[int] = []

    async def more(after: int) -> list[dict[str, Any]]:
        return [{"id": number} for number in sorted(visible) if number > after][: events.BATCH]

    follower = Follower(more, clock, after=0)
    assert follower.taken([]) == []
    visible.extend((1, 2, 5))
    assert [row["id"] for row in await follower.look()] == [1, 2, 5]
    await clock.advance(1)
    visible.append(4)
    assert [row["id"] for row in await follower.look()] == [4]
    await clock.advance(events.SETTLED_S)
    visible.append(6)
    assert [row["id"] for row in await follower.look()] == [6]
    assert await follower.look() == []
    visible.extend(range(7, 7 + 3 * events.BATCH))
    seen: list[int] = []
    while True:
        seen += [row["id"] for row in await follower.look()]
        if not follower.behind:
            break
    assert seen == list(range(7, 7 + 3 * events.BATCH))


async def test_a_revoked_token_ends_its_streams(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        row = await world.tokens.find("user", "vic", workspace_id="default")
        async with reading(world, f"{EVENTS}?follow=true") as stream:
            assert await stream.text() == ": open\n\n"
            await world.tokens.revoke(row.id)
            name, data = "", dict[str, Any]()
            while name != "error":
                _, name, data = await stream.next()
            assert data["code"] == "Unauthorized"
            await asyncio.wait_for(stream.ended.wait(), WAIT_S)


async def test_a_process_that_stops_ends_its_streams(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        async with reading(world, f"{EVENTS}?follow=true") as one, reading(world, "/api/v1/watch/status") as other:
            await one.text()
            await other.text()
            world.api.end_streams()
            await asyncio.wait_for(asyncio.gather(one.ended.wait(), other.ended.wait()), WAIT_S)
        refused = await world.viewer("GET", f"{EVENTS}?follow=true")
        assert error_of(refused) == (503, "ServiceUnavailable")


async def test_streams_are_counted_limited_and_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = streams.RestStreams.__init__.__kwdefaults__
    monkeypatch.setattr(streams.RestStreams.__init__, "__kwdefaults__", {**defaults, "most": 1})

    async with prepared_world(tmp_path) as world:
        async with reading(world, f"{EVENTS}?follow=true") as stream:
            await stream.text()
            assert error_of(await world.viewer("GET", f"{EVENTS}?follow=true")) == (429, "TooManyRequests")
            assert b'shoal_control_api_streams{stream="events"} 1.0' in world.metrics.render()
        async with reading(world, f"{EVENTS}?follow=true") as stream:
            assert await stream.text() == ": open\n\n"
        assert b'shoal_control_api_streams{stream="events"} 0.0' in world.metrics.render()


@pytest.mark.parametrize(
    "path",
    [
        f"{EVENTS}?follow=true",
        f"{EVENTS}?correlation=deploy-7&follow=true",
        "/api/v1/watch/status",
        f"{ENV}/apps/web/watch",
    ],
)
async def test_streams_of_events_and_of_status_are_counted_for_their_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    defaults = streams.RestStreams.__init__.__kwdefaults__
    monkeypatch.setattr(streams.RestStreams.__init__, "__kwdefaults__", {**defaults, "most_per_token": 1})

    async with prepared_world(tmp_path) as world:
        await world.put_app()
        async with reading(world, f"{EVENTS}?follow=true") as first:
            await first.text()
            refused = await world.viewer("GET", path)
            assert error_of(refused) == (429, "TooManyRequests") and "1 of 1 streams of this token" in refused.text
            async with reading(world, path, world.editor.token) as other:
                assert await other.text() == ": open\n\n"


async def test_a_client_that_takes_nothing_is_let_go_and_costs_no_more_than_one_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "SEND_S", 0.2)

    async with prepared_world(tmp_path) as world:
        async with reading(world, f"{EVENTS}?follow=true") as stream:
            await stream.text()
            stream.taking.clear()
            for number in range(20):
                await world.happen(f"R{number}")
            await asyncio.wait_for(stream.ended.wait(), WAIT_S)
            assert stream.parts.qsize() <= 1


async def test_a_quiet_stream_says_that_it_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.0)

    async with prepared_world(tmp_path) as world:
        async with reading(world, f"{EVENTS}?follow=true") as stream:
            assert [await stream.text() for _ in range(3)][1:] == [": heartbeat\n\n"] * 2


async def test_a_watch_shows_the_status_and_then_every_change_of_it_but_not_the_time_passing(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await world.put_app()
        async with reading(world, "/api/v1/watch/status") as whole, reading(world, f"{ENV}/apps/web/watch") as one:
            first = (await whole.next())[2]
            assert first["apps"][0]["name"] == "web"
            assert (await one.next())[2]["revision"] == 1
            await world.put_app(image="shop/web:2")
            shown = (await one.next())[2]
            assert shown["revision"] == 2
            assert (await whole.next())[2]["apps"][0]["revision"] == 2
        assert (await world.viewer("GET", f"{ENV}/apps/none/watch")).status_code == 404
        first["agents"] = [{"cluster": "eu1", "lastHeartbeat": 1.0, "message": "no heartbeat for 12.5 s"}]
        later = orjson.loads(orjson.dumps(first))
        later["agents"][0] |= {"lastHeartbeat": 3.5, "message": "no heartbeat for 15 s"}
        assert events.status_fingerprint(first) == events.status_fingerprint(later)


async def test_a_stream_is_quiet_while_the_database_is_away_and_goes_on_after(tmp_path: Path) -> None:
    async with prepared_world(tmp_path, clock=RealClock()) as world:
        real, asked = world.fleet.events, asyncio.Event()

        async def away(*args: Any, **kwargs: Any) -> list[dict[str, Any]]:
            asked.set()
            raise ServiceUnavailable("away")

        async with reading(world, f"{EVENTS}?follow=true") as stream:
            await stream.text()
            world.fleet.events = away  # type: ignore[method-assign]
            await world.happen("Meanwhile")
            await asyncio.wait_for(asked.wait(), WAIT_S)
            world.fleet.events = real  # type: ignore[method-assign]
            assert (await stream.next())[2]["reason"] == "Meanwhile"


async def test_a_watch_sends_the_status_again_for_its_ages_when_the_watcher_asks_for_it(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await world.put_app()
        async with reading(world, "/api/v1/watch/status?refresh=0.05") as stream:
            assert [(await stream.next())[2]["apps"][0]["name"] for _ in range(3)] == ["web"] * 3


async def test_the_steps_of_a_request_are_listed_and_followed(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        path = f"{ENV}/apps/web"
        await world.ok(world.editor("PUT", path, an_app(), X_Correlation_Id="deploy-7"))
        listed = await world.ok(world.viewer("GET", f"{EVENTS}?correlation=deploy-7"))
        reasons = [item["reason"] for item in listed["items"]]
        assert reasons[:3] == ["Accepted", "Committed", "NewRevision"] and reasons[-1] == "Waiting"
        assert listed["items"][0]["at"] <= listed["items"][1]["at"]
        async with reading(world, f"{EVENTS}?correlation=deploy-7&follow=true") as stream:
            assert [(await stream.next())[2]["reason"] for _ in range(3)] == ["Accepted", "Committed", "NewRevision"]
            await world.ok(world.editor("PUT", path, an_app(image="shop/web:9"), X_Correlation_Id="deploy-7"))
            assert "NewRevision" in [(await stream.next())[2]["reason"] for _ in range(3)]
        for wrong in ("correlation=a%20b", "correlation=x&after=1", "correlation=x&kind=App&name=web"):
            answer = await world.viewer("GET", f"{EVENTS}?{wrong}")
            assert answer.status_code in (400, 422) and "correlation" in answer.text, wrong
