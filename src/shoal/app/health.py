"""``/livez``, ``/readyz``, ``/healthz`` and ``/metrics`` for processes without another HTTP server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import orjson

from shoal.base.asgi_common import Application, Receive, Scope, Send, answer
from shoal.base.metrics import Metrics, metrics_page
from shoal.base.supervision import stalled_loops

Check = Callable[[], tuple[bool, dict[str, str]]]

_LOOPBACK = ("127.", "::1", "::ffff:127.")
_BY_PROXY = frozenset({b"forwarded", b"x-forwarded-for", b"via"})

HEALTH_PATHS = frozenset({"/livez", "/readyz", "/healthz"})


def health_app(
    livez: Check, readyz: Check, metrics: Metrics, status: Callable[[], object] | None = None
) -> Application:
    """Each check returns whether it passes, and why; ``/livez`` also fails while a loop of the process stays down, and
    ``/healthz`` is another name of it. ``status`` is shown at ``/status``."""

    def alive() -> tuple[bool, dict[str, str]]:
        good, parts = livez()
        stalled = stalled_loops()
        return good and not stalled, parts | {f"loop {name}": why for name, why in stalled.items()}

    checks = {"/livez": alive, "/healthz": alive, "/readyz": readyz}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        if path in checks:
            good, parts = checks[path]()
            await answer(send, 200 if good else 503, orjson.dumps({"ok": good, "checks": parts}))
        elif path == "/metrics":
            await answer(send, 200, *metrics_page(metrics))
        elif path == "/status" and status is not None:
            await answer(send, 200, orjson.dumps(status(), option=orjson.OPT_INDENT_2))
        else:
            known = ", ".join((*checks, "/metrics"))
            await answer(send, 404, orjson.dumps({"error": {"code": "not_found", "message": f"try {known}"}}))

    return app


def mostly_local(app: Application, may: Callable[[str], Awaitable[bool]] | None = None) -> Application:
    """Other machines can read only whether it is healthy; with ``may``, those with a bearer token that it accepts can
    read everything."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers") or ())
        local = (scope.get("client") or ("",))[0].startswith(_LOOPBACK) and not _BY_PROXY & headers.keys()
        if scope["path"] in HEALTH_PATHS or local:
            await app(scope, receive, send)
            return
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if may is not None and scheme.lower() == "bearer" and await may(token.strip()):
            await app(scope, receive, send)
            return
        fix = "only for this machine" if may is None else "only for this machine, or with a token"
        await answer(send, 403, orjson.dumps({"error": {"code": "forbidden", "message": fix}}))

    return guarded
