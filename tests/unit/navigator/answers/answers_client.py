"""A client of the navigator's REST API, which is served in the same process."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import orjson
from answers_world import TOKEN, World, WorldClock, authenticate, the_world

from shoal.base.metrics import Metrics
from shoal.navigator.answers.api import Caller, make_api
from shoal.rest.api import RestApi

ROOT = "/api/v1"


def an_api(world: World) -> RestApi[Caller, Caller]:
    return make_api(
        lambda: world.view, world.history, world.edges, world.fleet, authenticate=authenticate, clock=WorldClock(),
        metrics=Metrics(), new_id=lambda: "id-1", version="1.2.3",
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
