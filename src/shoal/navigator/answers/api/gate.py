"""In front of every path: who asks, correlation, what is counted, and what an error becomes that nobody else caught.

Deny by default: only the description of the API answers without a token.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from shoal.base.asgi import Application, Receive, Scope, Send
from shoal.base.clock import Clock
from shoal.base.logs import correlated, get_logger
from shoal.base.metrics import Metrics
from shoal.errors import ApiError, Unauthorized
from shoal.navigator.answers.api.answers import error_answer, fault_of_ours
from shoal.navigator.answers.api.calls import Caller
from shoal.navigator.answers.api.streams import BrokenOff, Streams

__all__ = ["Authenticate", "Caller", "Gate"]

PUBLIC = frozenset({"/openapi.json"})
CORRELATION = "x-correlation-id"
_METHODS = frozenset({"GET", "PUT", "DELETE"})
_is_correlation = re.compile(r"[A-Za-z0-9._:/+=-]{1,64}").fullmatch

Authenticate = Callable[[str], Awaitable[Caller | None]]
"""Who has a bearer token; None for one that is not known."""

_log = get_logger("navigator.api")


class ApiMetrics:
    """``resource`` is the tag of a route, ``code`` the class of the answer: 2xx, 4xx…"""

    def __init__(self, metrics: Metrics) -> None:
        self.requests = metrics.counter(
            "shoal_navigator_api_requests_total", "Requests that were answered", ("method", "resource", "code")
        )
        self.seconds = metrics.histogram(
            "shoal_navigator_api_request_seconds", "Until the answer began", ("method", "resource")
        )
        self.refused = metrics.counter(
            "shoal_navigator_api_refused_total", "Requests refused for who asks: none, unknown", ("reason",)
        )
        self.streams = metrics.gauge("shoal_navigator_api_streams", "Logs that are being followed")


class Gate:
    """The whole API as one ASGI application."""

    def __init__(
        self,
        app: Application,
        authenticate: Authenticate,
        streams: Streams,
        *,
        clock: Clock,
        metrics: ApiMetrics,
        new_id: Callable[[], str],
    ) -> None:
        self.app = app
        self._authenticate = authenticate
        self._streams = streams
        self._clock = clock
        self._metrics = metrics
        self._new_id = new_id

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
        given = request.headers.get(CORRELATION, "")
        correlation = given if _is_correlation(given) else self._new_id()
        exchange = _Exchange(send, self._clock, correlation)
        state = scope.setdefault("state", {})
        state["correlation"] = correlation
        with correlated(correlation=correlation):
            try:
                await self._identify(request, state)
                await self.app(scope, receive, exchange.send)
            except ApiError as error:
                await exchange.refuse(error_answer(error, correlation), scope, receive)
            except BrokenOff as error:
                _log.info("a stream broke off", reason=str(error), path=request.scope["path"])
            except Exception as error:
                _log.error("a request failed", error=error, method=request.method, path=request.scope["path"])
                await exchange.refuse(error_answer(fault_of_ours(), correlation), scope, receive)
            finally:
                self._count(request, exchange)

    async def _identify(self, request: Request, state: MutableMapping[str, Any]) -> None:
        if request.scope["path"] in PUBLIC:
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            self._metrics.refused.labels("none").inc()
            raise Unauthorized("this needs a token: send the header 'Authorization: Bearer TOKEN'")
        caller = await self._authenticate(token)
        if caller is None:
            self._metrics.refused.labels("unknown").inc()
            raise Unauthorized("the token is not known, was revoked or has expired: ask an administrator for a new one")
        state.update(caller=caller, token=token)

    def _count(self, request: Request, exchange: _Exchange) -> None:
        method = request.method if request.method in _METHODS else "other"
        tags = getattr(request.scope.get("route"), "tags", None) or ("none",)
        status = exchange.status or 499  # a client that went away before the answer began
        self._metrics.requests.labels(method, str(tags[0]), f"{status // 100}xx").inc()
        self._metrics.seconds.labels(method, str(tags[0])).observe(exchange.took_s)


class _Exchange:
    """What was sent so far."""

    def __init__(self, send: Send, clock: Clock, correlation: str) -> None:
        self._send = send
        self._clock = clock
        self._asked_at = clock.monotonic()
        self._headers = [
            (CORRELATION.encode(), correlation.encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        self.status = 0
        self.took_s = 0.0  # until the answer began

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status, self.took_s = message["status"], self._clock.monotonic() - self._asked_at
            message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
        await self._send(message)

    async def refuse(self, answer: Response, scope: Scope, receive: Receive) -> None:
        """Unless an answer has begun: then it is left as it is, and the server breaks it off."""
        if not self.status:
            await answer(scope, receive, self.send)
