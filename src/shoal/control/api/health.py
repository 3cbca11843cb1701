"""Liveness, readiness and metrics."""

from __future__ import annotations

import asyncio

from shoal.base.metrics import Metrics, metrics_page
from shoal.base.supervision import stalled_loops
from shoal.control.api.access import from_this_machine
from shoal.control.database.engine import Database, Databases
from shoal.errors import ApiError
from shoal.rest.answers import RestAnswer, json_answer
from shoal.rest.operations import RestPage, always_public
from shoal.rest.request import RestRequest

_READY_S = 5.0


class Health:
    def __init__(self, databases: Databases, metrics: Metrics) -> None:
        self._databases = databases
        self._metrics = metrics

    def pages(self) -> list[RestPage]:
        """Metrics need a token, except from the machine itself."""
        return [
            RestPage(path="/livez", handler=self.livez, public=always_public),
            RestPage(path="/healthz", handler=self.livez, public=always_public),
            RestPage(path="/readyz", handler=self.readyz, public=always_public),
            RestPage(path="/metrics", handler=self.metrics, public=from_this_machine),
        ]

    async def livez(self, request: RestRequest) -> RestAnswer:
        """Fails while a loop of the process stays down: then it has to be started again."""
        stalled = stalled_loops()
        return json_answer({"alive": False, "loops": stalled}, 503) if stalled else json_answer({"alive": True})

    async def readyz(self, request: RestRequest) -> RestAnswer:
        """Every database answers."""
        states = await asyncio.gather(*(_state(database) for database in self._databases.all))
        checks = [
            {"name": f"database/{database.name}", "state": state}
            for database, state in zip(self._databases.all, states, strict=True)
        ]
        ready = all(state == "ok" for state in states)
        headers = {} if ready else {"Retry-After": "1"}
        return json_answer({"ready": ready, "checks": checks}, 200 if ready else 503, headers)

    async def metrics(self, request: RestRequest) -> RestAnswer:
        body, media = metrics_page(self._metrics, accept=request.header("accept") or "")
        return RestAnswer(body, media=media)


async def _state(database: Database) -> str:
    try:
        async with asyncio.timeout(_READY_S):
            await database.position()
    except (ApiError, TimeoutError):
        return "away"
    return "ok"
