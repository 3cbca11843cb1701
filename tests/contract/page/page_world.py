"""A control plane's page on a port, as it is served without TLS, with users and browsers."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from api_world import Client, World, a_world, empty_database

from shoal.app.fleet.control import with_page
from shoal.app.ports import any_free
from shoal.base.asgi import serving
from shoal.base.clock import Clock, RealClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.base.tasks import beside
from shoal.control.api.wiring import make_api
from shoal.control.database.sessions import Sessions
from shoal.dashboard.files import PageFiles
from shoal.dashboard.gate import PageGate
from shoal.dashboard.live.plan import Patch, Row
from shoal.dashboard.navigator import NavigatorPlace
from shoal.dashboard.wiring import Dashboard
from shoal.errors import ConfigError
from shoal.testing.pages import applied

PAGE = {"X-Shoal-Page": "1"}
KEY = b"k" * 32


class Places:
    """Where the navigator is; nowhere by default."""

    def __init__(self, place: NavigatorPlace | None = None) -> None:
        self.known = place

    async def place(self) -> NavigatorPlace:
        if self.known is None:
            raise ConfigError("write the navigator's url to the file url")
        return self.known

    async def is_known(self) -> bool:
        return self.known is not None


class Browser:
    """Somebody who has logged in."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        sent = {
            **(PAGE if method not in ("GET", "HEAD") else {}),
            **{k.replace("_", "-"): v for k, v in headers.items()},
        }
        return await self.http.request(method, path, json=body, headers=sent)

    @asynccontextmanager
    async def stream(self, *topics: dict[str, Any]) -> AsyncIterator[PageStreamReader]:
        opened = f"?open={quote(json.dumps(topics))}" if topics else ""
        async with self.http.stream("GET", f"/ui/stream{opened}", timeout=30) as answer:
            assert answer.status_code == 200, (answer.status_code, await answer.aread())
            reader = PageStreamReader(answer)
            yield reader
            await reader.close()


class PageStreamReader:
    """What a page knows of its topics, by the ids that it gave them."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.aiter_lines()
        self.id = ""
        self.rows: dict[int, dict[str, Row]] = {}
        self.errors: dict[int, dict[str, str]] = {}
        self.beats = 0
        self.ended: dict[str, str] | None = None
        self.messages: list[dict[str, Any]] = []

    async def until(self, done: Callable[[], bool], within_s: float = 20.0) -> None:
        async with asyncio.timeout(within_s):
            while not done():
                await self.next()

    async def next(self) -> None:
        """Read one event."""
        async for line in self._lines:
            if line.startswith("data: "):
                told = json.loads(line.removeprefix("data: "))
                for message in told if isinstance(told, list) else [told]:
                    self._take(message)
                return
        raise EOFError("the stream has ended")

    async def close(self) -> None:
        await self._lines.aclose()  # type: ignore[attr-defined]

    def _take(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        if "stream" in message:
            self.id = message["stream"]
        elif "beat" in message:
            self.beats += 1
        elif "end" in message:
            self.ended = message["end"]
        elif "error" in message:
            self.errors[message["id"]] = message["error"]
        elif message.get("reset"):
            self.rows[message["id"]] = message["rows"]
            self.errors.pop(message["id"], None)
        else:
            patch = Patch(message.get("set", {}), frozenset(message.get("drop", ())))
            self.rows[message["id"]] = applied(self.rows[message["id"]], patch)


class PageWorld:
    def __init__(self, world: World, port: int, places: Places, files: Path | None) -> None:
        self.world = world
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.places = places
        self.sessions = Sessions(world.databases, world.tokens, world.clock)
        self.metrics = Metrics()
        gate = PageGate(["localhost", "127.0.0.1"])
        self.api = make_api(
            world.fleet, world.tokens, world.databases, clock=world.clock, metrics=Metrics(), urls=[], ca=lambda: "",
            version="1.2.3", sessions=self.sessions, credential=gate.credential, page_url=lambda _: self.url,
        )  # fmt: skip
        self.dashboard = Dashboard(
            world.fleet, world.tokens, self.sessions, world.databases, clock=world.clock, metrics=self.metrics,
            gate=gate, navigator=places, grant_key=KEY, new_id=Ids().new_uid, version="1.2.3",
            files=PageFiles(files) if files is not None else None,
        )  # fmt: skip

    @property
    def app(self) -> Any:
        return with_page(self.dashboard.page, self.api)

    @asynccontextmanager
    async def stranger(self) -> AsyncIterator[Browser]:
        """Somebody who has not logged in."""
        async with httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=20) as http:
            yield Browser(http)

    @asynccontextmanager
    async def browser(self, user: Client) -> AsyncIterator[Browser]:
        async with self.stranger() as browser:
            answer = await browser("POST", "/ui/login", {"token": user.token})
            assert answer.status_code == 204, answer.text
            yield browser


@asynccontextmanager
async def served_page(
    folder: Path,
    *,
    urls: dict[str, str] | None = None,
    clock: Clock | None = None,
    places: Places | None = None,
    files: Path | None = None,
    prepare: bool = True,
    workspaces: dict[str, str] | None = None,
) -> AsyncIterator[PageWorld]:
    """On a free port, with the users and places of ``World.prepare``."""
    clock = clock or RealClock()
    if not urls:
        shutil.copy(empty_database(), folder / "fleet.db")
    async with (
        asyncio.timeout(120),
        a_world(urls or {"main": f"sqlite:///{folder}/fleet.db"}, clock, workspaces) as world,
    ):
        if prepare:
            await world.prepare()
        port = any_free("127.0.0.1")
        page = PageWorld(world, port, places or Places(), files)
        async with (
            beside(page.dashboard.run(), name="dashboard"),
            serving(page.app, host="127.0.0.1", port=port, clock=RealClock()),
        ):
            yield page
            page.dashboard.page.end_streams()
            page.api.end_streams()
