"""The health port of a gateway."""

from __future__ import annotations

from typing import Any

import orjson

from shoal.sentinel.health import health_app
from shoal.testing.loops import stalled_loop


async def page(path: str) -> tuple[int, dict[str, Any]]:
    found: dict[str, Any] = {}

    async def send(message: Any) -> None:
        found.update(message)

    async def receive() -> Any:
        return {}

    app = health_app(lambda: {"envoy": True}, lambda: {"caches": True})
    await app({"type": "http", "path": path}, receive, send)
    return found["status"], orjson.loads(found["body"])


async def test_a_loop_that_stays_down_fails_livez_alone() -> None:
    assert await page("/livez") == (200, {"ok": True, "checks": {"envoy": True}})
    async with stalled_loop("gateway/limits"):
        assert await page("/livez") == (503, {"ok": False, "checks": {"envoy": True, "loop gateway/limits": False}})
        assert (await page("/readyz"))[0] == 200
