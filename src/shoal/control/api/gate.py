"""In front of every path: who asks, correlation, what is counted, and what an error becomes when nobody else caught it.

Deny by default: a path answers without a token only if it is listed here. Whoever has one is known to the rest by
``scope["state"]``: ``who``, ``principal`` and ``token``; ``correlation`` and ``trace`` are there in any case.
"""

from __future__ import annotations

import re
from collections.abc import Collection, MutableMapping
from typing import Any

from sqlalchemy import select
from starlette.requests import Request
from starlette.responses import Response

from shoal.base.asgi import Application, Receive, Scope, Send
from shoal.base.clock import Clock
from shoal.base.ids import Ids
from shoal.base.logs import correlated, get_logger
from shoal.base.metrics import Metrics
from shoal.base.tracing import span
from shoal.control.api.answers import error_answer, fault_of_ours
from shoal.control.api.calls import no_such
from shoal.control.api.streams import Streams
from shoal.control.database.engine import Databases
from shoal.control.database.tables import Workspace
from shoal.control.database.tokens import Principal, Tokens
from shoal.control.domain.model import Who
from shoal.errors import ApiError, BadRequest, Forbidden, ServiceUnavailable, Unauthorized

PUBLIC = frozenset({"/livez", "/readyz", "/openapi.json", "/docs"})
METRICS = "/metrics"  # also without a token from the machine itself
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
CORRELATION = "x-correlation-id"
TRACE = "traceparent"
WORKSPACE = "x-shoal-workspace"

_is_correlation = re.compile(r"[A-Za-z0-9._:/+=-]{1,64}").fullmatch
_is_trace = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}").fullmatch
_is_workspace = re.compile(r"[a-z0-9]([a-z0-9_-]{0,62})").fullmatch
_LOOPBACK = ("127.", "::1", "::ffff:127.")
_BY_PROXY = ("forwarded", "x-forwarded-for", "via")

_log = get_logger("control.api")


class ApiMetrics:
    """``resource`` is the tag of a route, ``code`` the class of the answer: 2xx, 4xx…"""

    def __init__(self, metrics: Metrics) -> None:
        self.requests = metrics.counter(
            "shoal_control_api_requests_total", "Requests that were answered", ("method", "resource", "code")
        )
        self.seconds = metrics.histogram(
            "shoal_control_api_request_seconds", "Until the answer began", ("method", "resource")
        )
        self.refused = metrics.counter(
            "shoal_control_api_refused_total",
            "Requests that were refused for who asks: none, unknown, kind, workspace",
            ("reason",),
        )
        self.streams = metrics.gauge("shoal_control_api_streams", "Open streams", ("stream",))


class Gate:
    """The whole API as one ASGI application."""

    def __init__(
        self,
        app: Application,
        tokens: Tokens,
        databases: Databases,
        streams: Streams,
        *,
        clock: Clock,
        metrics: ApiMetrics,
        operators: Collection[str],
    ) -> None:
        self.app = app
        self._tokens = tokens
        self._databases = databases
        self._ids: Ids = databases.fleet.ids
        self._clock = clock
        self._metrics = metrics
        self._operators = frozenset(operators)
        self._streams = streams

    def end_streams(self) -> None:
        """To be called when the process is about to stop, which would wait for them otherwise."""
        self._streams.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        with span("api.request", parent=self._trace(request), method=request.method) as trace:
            await self._answer(request, trace, receive, send)

    async def _answer(self, request: Request, trace: str, receive: Receive, send: Send) -> None:
        scope, correlation = request.scope, self._correlation(request)
        exchange = _Exchange(send, self._clock, correlation, trace)
        state = scope.setdefault("state", {})
        state.update(correlation=correlation, trace=trace)
        with correlated(correlation=correlation):
            try:
                await self._identify(request, state)
                await self.app(scope, receive, exchange.send)
            except ApiError as error:
                await exchange.refuse(error_answer(error, correlation), scope, receive)
                log_unavailable(error)
            except Exception as error:
                _log.error("a request failed", error=error, method=request.method, path=request.scope["path"])
                await exchange.refuse(error_answer(fault_of_ours(), correlation), scope, receive)
            finally:
                self._count(request, exchange)

    def _count(self, request: Request, exchange: _Exchange) -> None:
        method = request.method if request.method in METHODS else "other"
        tags = getattr(request.scope.get("route"), "tags", None) or ("none",)
        resource = str(tags[0])
        # a client that went away before the answer began is counted as its own doing
        status = exchange.status or 499
        self._metrics.requests.labels(method, resource, f"{status // 100}xx").inc()
        self._metrics.seconds.labels(method, resource).observe(exchange.took_s)

    async def _identify(self, request: Request, state: MutableMapping[str, Any]) -> None:
        path = request.scope["path"]
        if path in PUBLIC or (path == METRICS and _is_local(request)):
            return
        token = _bearer(request)
        if token is None:
            self._metrics.refused.labels("none").inc()
            raise Unauthorized("this needs a token: send the header 'Authorization: Bearer TOKEN'")
        principal = await self._tokens.authenticate(token)
        if principal is None:
            self._metrics.refused.labels("unknown").inc()
            raise Unauthorized("the token is not known, was revoked or has expired: ask an administrator for a new one")
        if principal.kind != "user":
            self._metrics.refused.labels("kind").inc()
            raise Forbidden(
                f"this is the token of an {principal.kind}, which is for its own service alone: use the token of a user"
            )
        workspace = await self._workspace(request, principal)
        state.update(
            principal=principal,
            token=token,
            who=Who(workspace, principal.name, principal.role, state["trace"], state["correlation"]),
        )

    async def _workspace(self, request: Request, principal: Principal) -> str:
        """Administrators of the fleet may speak for any workspace."""
        asked = request.headers.get(WORKSPACE, "")
        if not asked or asked == principal.workspace_id:
            return principal.workspace_id
        if principal.role != "admin" or principal.workspace_id not in self._operators:
            self._metrics.refused.labels("workspace").inc()
            raise Forbidden(f"{principal.name!r} belongs to another workspace and does not run the fleet")
        if not _is_workspace(asked):
            raise BadRequest(f"X-Shoal-Workspace is {asked[:64]!r}, which names no workspace")
        async with self._databases.of(asked).reading() as session:
            found = await session.scalar(select(Workspace.id).where(Workspace.id == asked))
        if found is None:
            raise no_such("workspace", asked)
        return asked

    def _correlation(self, request: Request) -> str:
        given = request.headers.get(CORRELATION, "")
        return given if _is_correlation(given) else self._ids.new_uid()

    def _trace(self, request: Request) -> str:
        given = request.headers.get(TRACE, "")
        if _is_trace(given):
            return given
        return f"00-{self._ids.new_uid().replace('-', '')}-{self._ids.new_uid().replace('-', '')[:16]}-01"


class _Exchange:
    """What was sent so far."""

    def __init__(self, send: Send, clock: Clock, correlation: str, trace: str) -> None:
        self._send = send
        self._clock = clock
        self._asked_at = clock.monotonic()
        self._headers = [
            (CORRELATION.encode(), correlation.encode()),
            (TRACE.encode(), trace.encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        self.status = 0
        self.took_s = 0.0  # until the answer began; how long a stream lasts says nothing

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status, self.took_s = message["status"], self._clock.monotonic() - self._asked_at
            message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
        await self._send(message)

    async def refuse(self, answer: Response, scope: Scope, receive: Receive) -> None:
        """Unless an answer has begun: then all that is left is to end it."""
        if not self.status:
            await answer(scope, receive, self.send)


def log_unavailable(error: ApiError) -> None:
    if isinstance(error, ServiceUnavailable):
        _log.warning("a request could not be served", error=error.message)


def _bearer(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token else None


def _is_local(request: Request) -> bool:
    """From this machine, and not on behalf of another."""
    host = request.client.host if request.client else ""
    return host.startswith(_LOOPBACK) and not any(name in request.headers for name in _BY_PROXY)
