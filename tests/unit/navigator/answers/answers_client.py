"""A client of the navigator's REST API, which is served in the same process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import orjson
from answers_world import TOKEN, World, WorldClock, authenticate, the_world

from shoal.base.metrics import Metrics
from shoal.navigator.answers.api import Authenticate, Caller, make_api
from shoal.navigator.answers.checks import CheckStore
from shoal.rest.api import RestApi

ROOT = "/api/v1"


def an_api(
    world: World, authenticate: Authenticate = authenticate, checks: CheckStore | None = None
) -> RestApi[Caller, Caller]:  # fmt: skip
    return make_api(
        lambda: world.view, world.history, world.edges, world.fleet, authenticate=authenticate, clock=WorldClock(),
        changes=world.changes, admin=world.admin, options=world.options, checks=checks, metrics=Metrics(), new_id=lambda: "id-1", version="1.2.3",
    )  # fmt: skip


class Client:
    """Asks in one loop, as the API lives in one."""

    def __init__(self, world: World | None = None, api: RestApi[Caller, Caller] | None = None) -> None:
        self.world = world or the_world()
        self._runner = asyncio.Runner()
        self.api = api or an_api(self.world)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def __call__(
        self, path: str, *, method: str = "GET", token: str | None = TOKEN, body: Any = None, **params: Any
    ) -> httpx.Response:
        async def main() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.api, raise_app_exceptions=False)
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with httpx.AsyncClient(transport=transport, base_url="http://navigator") as client:
                data = None if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
                return await client.request(method, path, params=params or None, headers=headers, content=data)

        return self._runner.run(main())

    def get(self, path: str, **params: Any) -> Any:
        answer = self(f"{ROOT}/{path}", **params)
        assert answer.status_code == 200, answer.text
        return answer.json()


class Streaming:
    """A request whose response is read while it streams."""

    def __init__(self, api: RestApi[Caller, Caller], path: str, query: str = "", token: str = TOKEN) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self._said = asyncio.Event()
        scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "headers": [(b"authorization", f"Bearer {token}".encode())], "http_version": "1.1", "scheme": "http",
            "server": ("navigator", 80), "client": ("127.0.0.1", 1), "root_path": "",
        }  # fmt: skip
        self.task = asyncio.create_task(api(scope, self._receive, self._send), name="exchange")

    async def _receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        self._said.set()

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.sent)

    @property
    def is_complete(self) -> bool:
        return any(each["type"] == "http.response.body" and not each.get("more_body") for each in self.sent)

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not true():
                self._said.clear()
                await self._said.wait()
