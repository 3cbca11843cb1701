"""The health page of processes without another HTTP server."""

from __future__ import annotations

import json
from typing import Any

from shoal.app.health import health_app, mostly_local
from shoal.base.metrics import PROCESS, Metrics
from shoal.testing.loops import stalled_loop


async def page(app: Any, path: str, peer: str = "127.0.0.1", **headers: str) -> tuple[int, bytes]:
    found: dict[str, Any] = {}

    async def send(message: Any) -> None:
        found.update(message)

    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    await app({"type": "http", "path": path, "headers": sent, "client": (peer, 1)}, None, send)
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


async def test_other_machines_read_health_and_need_a_token_for_the_rest() -> None:
    async def may(token: str) -> bool:
        return token == "good"

    whole = health_app(lambda: (True, {}), lambda: (True, {}), Metrics())
    for app, with_token in ((mostly_local(whole), 403), (mostly_local(whole, may), 200)):
        assert (await page(app, "/readyz", "10.0.0.7"))[0] == 200
        assert (await page(app, "/metrics"))[0] == 200
        assert (await page(app, "/metrics", "10.0.0.7"))[0] == 403
        assert (await page(app, "/metrics", "127.0.0.1", x_forwarded_for="10.0.0.7"))[0] == 403
        assert (await page(app, "/metrics", "10.0.0.7", authorization="Bearer bad"))[0] == 403
        assert (await page(app, "/metrics", "10.0.0.7", authorization="Bearer good"))[0] == with_token


async def test_a_loop_that_stays_down_fails_livez_and_is_named() -> None:
    app = health_app(lambda: (True, {"a": "ok"}), lambda: (True, {}), Metrics())
    assert (await page(app, "/livez"))[0] == 200
    async with stalled_loop("edge/send"):
        status, body = await page(app, "/livez")
        assert status == 503 and list(json.loads(body)["checks"]) == ["a", "loop edge/send"]
        assert (await page(app, "/readyz"))[0] == 200
        assert b'shoal_loop_restarts_total{loop="edge/send"}' in (await page(app, "/metrics"))[1]
