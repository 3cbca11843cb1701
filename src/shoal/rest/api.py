"""An API as one ASGI application: authentication, routing, authorization, decoding, the answer, and metrics.

    request ─▶ correlation and trace ─▶ token ─▶ route ─▶ query, headers ─▶ permission ─▶ body ─▶ handler ─▶ answer

Deny by default: only public pages answer without a token. Each API supplies ``RestApiDeps``: how to authenticate a
token, what its caller may do, and which formats a body may have.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
import orjson

from shoal.base.asgi_common import Application, Receive, Scope, Send
from shoal.base.clock import Clock
from shoal.base.logs import correlated, get_logger
from shoal.base.metrics import Metrics
from shoal.base.tracing import span
from shoal.errors import ApiError, BadRequest, ServiceUnavailable, Unauthorized
from shoal.rest.answers import error_answer, internal_error, json_answer, unknown_method, unknown_path
from shoal.rest.bodies import BodyReader, is_plain
from shoal.rest.openapi import ApiDescription, document
from shoal.rest.operations import Operation, RestCall, RestPage
from shoal.rest.pages import described_by
from shoal.rest.parameters import ParameterReader
from shoal.rest.request import RestRequest
from shoal.rest.routes import Routes, parameters_of
from shoal.rest.streams import BrokenOff, RestStreams

C = TypeVar("C")
P = TypeVar("P")

MAX_BODY_BYTES = 1024 * 1024
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
CORRELATION = "x-correlation-id"
TRACE = "traceparent"
CORRELATION_PATTERN = "[A-Za-z0-9._:/+=-]{1,64}"
is_correlation = re.compile(CORRELATION_PATTERN).fullmatch
_is_trace = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}").fullmatch


class RestMetrics:
    """``resource`` is the tag of an operation, ``code`` the class of the answer: 2xx, 4xx…"""

    def __init__(self, metrics: Metrics, owner: str) -> None:
        prefix = f"shoal_{owner}_api"
        self.requests = metrics.counter(
            f"{prefix}_requests_total", "Requests that were answered", ("method", "resource", "code")
        )
        self.seconds = metrics.histogram(f"{prefix}_request_seconds", "Until the answer began", ("method", "resource"))
        self.refused = metrics.counter(
            f"{prefix}_refused_total", "Requests refused by credentials: none, unknown, kind, workspace", ("reason",)
        )
        self.streams = metrics.gauge(f"{prefix}_streams", "Open streams", ("stream",))


def read_json(body: bytes, media_type: str) -> list[Any]:
    """A body that is one JSON value, whatever its type says."""
    try:
        return [orjson.loads(body)]
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None


def own_message(error: ApiError) -> str:
    return error.message


@dataclass(frozen=True, slots=True, kw_only=True)
class RestApiDeps(Generic[P, C]):
    """``authenticate`` returns the principal of a token, None for an unknown token; ``admit`` turns the principal into
    the caller or raises; ``authorize`` raises ``Forbidden`` unless the caller has the permission; ``credential`` finds
    the token in a request, empty where there is none; ``documents`` parses a body by its media type; ``message_of``
    returns the text of an error that the client may see."""

    owner: str  # in the names of metrics and of the log
    clock: Clock
    new_id: Callable[[], str]
    metrics: RestMetrics
    streams: RestStreams
    authenticate: Callable[[str], Awaitable[P | None]]
    admit: Callable[[RestRequest, P], Awaitable[C]]
    authorize: Callable[[C, str], None]
    credential: Callable[[RestRequest], str] = RestRequest.bearer
    documents: Callable[[bytes, str], list[Any]] = read_json
    max_body_bytes: int = MAX_BODY_BYTES
    message_of: Callable[[ApiError], str] = own_message


class RestApi(Generic[P, C]):
    """Serves ``operations`` and ``pages``. The process must call ``end_streams`` before it stops."""

    def __init__(
        self,
        deps: RestApiDeps[P, C],
        about: ApiDescription,
        operations: Sequence[Operation],
        pages: Sequence[RestPage] = (),
    ) -> None:
        self.operations = tuple(operations)
        self.pages = (*pages, *described_by(lambda: document(self.operations, about)))
        self._deps = deps
        self._log = get_logger(f"{deps.owner}.api")
        self._routes: Routes[_Bound | RestPage] = Routes()
        for operation in operations:
            self._routes.add(operation.method, operation.path, _Bound(operation))
        for page in self.pages:
            self._routes.add("GET", page.path, page)
            self._routes.add("HEAD", page.path, page)

    def end_streams(self) -> None:
        """End the open streams; a process that stops would wait for them."""
        self._deps.streams.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        if scope["type"] != "http":
            return
        request = RestRequest(scope, receive)
        request.accepted_at = round(self._deps.clock.wall_s() * 1000)
        given = request.header(CORRELATION) or ""
        request.correlation = given if is_correlation(given) else self._deps.new_id()
        with span("api.request", parent=self._trace(request), method=request.method) as trace:
            request.trace = trace
            with correlated(correlation=request.correlation):
                await self._exchange(request, receive, send)

    async def _exchange(self, request: RestRequest, receive: Receive, send: Send) -> None:
        exchange = _Exchange(request, self._deps.clock, send)
        try:
            answer = await self._answer(request, exchange)
            await answer(request.scope, receive, exchange.send)
        except ApiError as error:
            if isinstance(error, ServiceUnavailable):
                self._log.warning("a request could not be served", error=error.message)
            refusal = error_answer(error, request.correlation, message=self._deps.message_of(error))
            refusal.headers = {**(refusal.headers or {}), **exchange.refusal_headers}
            await exchange.refuse(refusal, receive)
        except BrokenOff as error:
            self._log.info("a stream broke off", reason=str(error), path=request.path)
        except Exception as error:
            self._log.error("a request failed", error=error, method=request.method, path=request.path)
            await exchange.refuse(error_answer(internal_error(), request.correlation), receive)
        finally:
            self._count(request, exchange)

    async def _answer(self, request: RestRequest, exchange: _Exchange) -> Application:
        methods, values = self._routes.find(request.path)
        found = methods.get(request.method)
        if isinstance(found, RestPage):
            if not found.public(request):
                await self._identify(request)
            exchange.resource = "health"
            return await found.handler(request)
        caller = await self._identify(request)
        if found is None:
            if not methods:
                raise unknown_path(request.path)
            exchange.refusal_headers = {"Allow": ", ".join(sorted(methods))}
            raise unknown_method(request.method, request.path)
        exchange.resource = found.operation.tag
        return await self._operate(found, RestCall(request, caller, dict(zip(found.names, values, strict=True))))

    async def _identify(self, request: RestRequest) -> C:
        token = self._deps.credential(request)
        if not token:
            self._deps.metrics.refused.labels("none").inc()
            raise Unauthorized("missing token: send the header 'Authorization: Bearer TOKEN'")
        principal = await self._deps.authenticate(token)
        if principal is None:
            self._deps.metrics.refused.labels("unknown").inc()
            raise Unauthorized("the token is unknown, revoked or expired: ask an administrator for a new one")
        request.token = token
        return await self._deps.admit(request, principal)

    async def _operate(self, route: _Bound, call: RestCall[C]) -> Application:
        operation, request = route.operation, call.request
        query = route.query.read(request.query)
        taken: dict[str, Any] = {}
        if route.takes_query:
            taken["query"] = query
        if route.headers is not None:
            taken["headers"] = route.headers(request)
        if operation.needs:
            self._deps.authorize(call.caller, operation.needs)
        if route.body is not None:
            body = await request.body(self._deps.max_body_bytes)
            taken["body"] = route.body(body, request.media_type(), self._deps.documents)
        result = await operation.handler(call, **taken)
        return result if callable(result) else json_answer(result, route.status)

    def _count(self, request: RestRequest, exchange: _Exchange) -> None:
        method = request.method if request.method in METHODS else "other"
        status = exchange.status or 499  # the client went away before the answer began
        self._deps.metrics.requests.labels(method, exchange.resource, f"{status // 100}xx").inc()
        self._deps.metrics.seconds.labels(method, exchange.resource).observe(exchange.took_s)

    def _trace(self, request: RestRequest) -> str:
        """The context that came with the request. None is made up: it would name a span that was not recorded."""
        given = request.header(TRACE) or ""
        return given if _is_trace(given) else ""


class _NoParameters(msgspec.Struct):
    pass


class _Bound:
    """An operation with the readers of its parameters, headers and body."""

    __slots__ = ("body", "headers", "names", "operation", "query", "status", "takes_query")

    def __init__(self, operation: Operation) -> None:
        taken = operation.taken()
        self.operation = operation
        self.names = parameters_of(operation.path)
        self.takes_query = "query" in taken
        self.query: ParameterReader[Any] = ParameterReader(taken.get("query", _NoParameters))
        self.headers = _headers_of(taken["headers"]) if "headers" in taken else None
        self.body = _body_of(taken["body"]) if "body" in taken else None
        self.status = next(iter(operation.answers))


def _headers_of(type_: type[msgspec.Struct]) -> Callable[[RestRequest], msgspec.Struct]:
    names = [(each.name, each.encode_name.lower()) for each in msgspec.structs.fields(type_)]

    def read(request: RestRequest) -> msgspec.Struct:
        return type_(**{name: request.header(header) for name, header in names})

    return read


Documents = Callable[[bytes, str], list[Any]]


def _body_of(type_: Any) -> Callable[[bytes, str, Documents], Any]:
    plain = is_plain(type_)
    reader = None if plain else BodyReader(type_)
    many = plain and type_ is not dict and getattr(type_, "__origin__", type_) is list

    def read(body: bytes, media_type: str, documents: Documents) -> Any:
        if not body.strip():
            if reader is not None and reader.optional:
                return reader.read({})
            raise BadRequest("the body is empty: send a document")
        found = documents(body, media_type)
        if many:
            return found
        if len(found) != 1:
            raise BadRequest(f"the body must be one document, not {len(found)}")
        if reader is not None:
            return reader.read(found[0])
        if not isinstance(found[0], dict):
            raise BadRequest("the body must be an object")
        return found[0]

    return read


class _Exchange:
    """One request and the state of its answer."""

    __slots__ = ("_asked_at", "_clock", "_request", "_send", "refusal_headers", "resource", "status", "took_s")

    def __init__(self, request: RestRequest, clock: Clock, send: Send) -> None:
        self._request = request
        self._clock = clock
        self._send = send
        self._asked_at = clock.monotonic()
        self.refusal_headers: Mapping[str, str] = {}
        self.resource = "none"
        self.status = 0
        self.took_s = 0.0  # until the answer began; how long a stream lasts says nothing

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status, self.took_s = message["status"], self._clock.monotonic() - self._asked_at
            more = [
                (CORRELATION.encode(), self._request.correlation.encode()),
                *([(TRACE.encode(), self._request.trace.encode())] if self._request.trace else ()),
                (b"cache-control", b"no-store"),
                (b"x-content-type-options", b"nosniff"),
            ]
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await self._send(message)

    async def refuse(self, answer: Application, receive: Receive) -> None:
        """Send an error, unless an answer has begun: the server then cuts that off."""
        if not self.status:
            await answer(self._request.scope, receive, self.send)
