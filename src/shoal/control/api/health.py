"""Whether the process lives, whether it can serve, what it has counted, and the page of the API."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from shoal.base.metrics import CONTENT_TYPE, PROCESS, Metrics, exposition
from shoal.control.api.answers import json_answer
from shoal.control.database.engine import Database, Databases
from shoal.errors import ApiError

_READY_S = 5.0


class Health:
    def __init__(self, databases: Databases, metrics: Metrics) -> None:
        self._databases = databases
        self._metrics = metrics

    async def livez(self, request: Request) -> Response:
        return json_answer({"alive": True})

    async def readyz(self, request: Request) -> Response:
        """Every database answers."""
        states = await asyncio.gather(*(_state(database) for database in self._databases.all))
        checks = [
            {"name": f"database/{database.name}", "state": state}
            for database, state in zip(self._databases.all, states, strict=True)
        ]
        ready = all(state == "ok" for state in states)
        headers = {} if ready else {"Retry-After": "1"}
        return json_answer({"ready": ready, "checks": checks}, 200 if ready else 503, headers)

    async def metrics(self, request: Request) -> Response:
        body = exposition() if self._metrics is PROCESS else self._metrics.render()
        return Response(body, media_type=CONTENT_TYPE)

    async def docs(self, request: Request) -> Response:
        page, policy = _page()
        return Response(page, headers={"Content-Security-Policy": policy}, media_type="text/html; charset=utf-8")


async def _state(database: Database) -> str:
    try:
        async with asyncio.timeout(_READY_S):
            await database.position()
    except (ApiError, TimeoutError):
        return "away"
    return "ok"


@cache
def _page() -> tuple[bytes, str]:
    """The page, and a policy that lets its own script and style run and nothing else."""
    text = Path(__file__).with_name("docs.html").read_text()
    digests = {
        tag: " ".join(f"'sha256-{_digest(found)}'" for found in re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL))
        for tag in ("script", "style")
    }
    policy = (
        f"default-src 'none'; script-src {digests['script']}; style-src {digests['style']}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), policy


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
