"""The health page of processes without another HTTP server."""

from __future__ import annotations

import json
from typing import Any

from shoal.app.health import health_app
from shoal.base.metrics import PROCESS, Metrics


async def page(app: Any, path: str) -> tuple[int, bytes]:
    found: dict[str, Any] = {}

    async def send(message: Any) -> None:
        found.update(message)

    await app({"type": "http", "path": path, "headers": []}, None, send)
    return found["status"], found["body"]


async def test_livez_healthz_and_readyz_say_what_fails() -> None:
    app = health_app(lambda: (True, {}), lambda: (False, {"caches": "not synced"}), Metrics())
    assert [(await page(app, path))[0] for path in ("/livez", "/healthz", "/readyz")] == [200, 200, 503]
    assert json.loads((await page(app, "/readyz"))[1])["checks"] == {"caches": "not synced"}
    status, body = await page(app, "/other")
    assert status == 404 and b"/livez, /healthz, /readyz, /metrics" in body


async def test_metrics_have_the_process_and_each_family_once() -> None:
    metrics = Metrics()
    metrics.counter("c_total", "C.").inc()
    _, body = await page(health_app(lambda: (True, {}), lambda: (True, {}), metrics), "/metrics")
    assert b"c_total 1.0" in body and body.count(b"# TYPE process_resident_memory_bytes") == 1
    _, body = await page(health_app(lambda: (True, {}), lambda: (True, {}), PROCESS), "/metrics")
    assert body.count(b"# TYPE process_resident_memory_bytes") == 1
