"""The ports for health and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import orjson

from shoal.base.asgi_common import Application, Receive, Scope, Send, answer
from shoal.base.metrics import Metrics, metrics_page
from shoal.base.supervision import stalled_loops

Checks = Callable[[], Mapping[str, bool]]


def health_app(alive: Checks, ready: Checks, notes: Callable[[], Mapping[str, str]] = dict) -> Application:
    """``/livez``, ``/healthz`` and ``/readyz``: 200 if all checks pass; the body names those that fail, and further
    notes. A loop of the process that stays down is a check of ``/livez`` that fails."""

    def living() -> Mapping[str, bool]:
        return {**alive(), **{f"loop {name}": False for name in stalled_loops()}}

    paths = {"/livez": living, "/healthz": living, "/readyz": ready}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        checks = paths.get(scope["path"])
        if checks is None:
            await answer(send, 404, b'{"error":{"code":"not_found","message":"use /livez or /readyz"}}')
            return
        found = dict(checks())
        good = all(found.values())
        told = dict(notes())
        body = {"ok": good, "checks": found, **({"notes": told} if told else {})}
        await answer(send, 200 if good else 503, orjson.dumps(body))

    return app


def metrics_app(metrics: Metrics) -> Application:
    """``/metrics``: of this process, and of Envoy per deployment as of the last reading."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await answer(send, 200, *metrics_page(metrics))

    return app
