"""Passes requests on to aggregated API servers, as the front proxy: its client certificate, the user in headers.

Authorization has happened. What clients send as headers of a front proxy is dropped. Bodies are streamed back as they
come, so that watches work, and connections that change their protocol are joined.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from shoal.apiserver.admission.webhooks.target import Resolver, Unresolved
from shoal.apiserver.aggregator.routes import Route
from shoal.apiserver.front_proxy import AGGREGATOR, user_headers
from shoal.apiserver.messages import Answer, Request, Response
from shoal.apiserver.nodes.backend import Backend, Collected, Endpoint, Head, Unreachable, connect
from shoal.apiserver.nodes.proxy import head_of, wants_upgrade
from shoal.apiserver.nodes.relay import BackendRelay, Tunnel
from shoal.apiserver.nodes.rewrite import Lines, request_headers, response_headers
from shoal.apiserver.user import User
from shoal.base.clock import Clock
from shoal.base.deadline import run_within
from shoal.base.logs import get_logger

_TEXT = b"text/plain; charset=utf-8"
_DOCUMENT_BYTES = 64 * 1024 * 1024
_REDIRECTED = b"the backend attempted to redirect this request, which is not permitted\n"
_OWN = frozenset({b"audit-id", b"date"})  # this server adds its own
_log = get_logger("aggregator")


class NotFetched(Exception):
    """A document of an aggregated server could not be read; the text says why, as in Kubernetes."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A document of an aggregated server."""

    url: str
    status: int
    body: bytes
    etag: str


class AggregatorProxy:
    """Connects to the endpoints of routes."""

    def __init__(self, clock: Clock, resolver: Resolver, dial_s: float) -> None:
        self._clock = clock
        self._resolver = resolver
        self._dial_s = dial_s

    async def pass_on(self, route: Route, request: Request, user: User) -> Answer:
        if not route.available:
            return _refused(503, b"service unavailable\n")
        try:
            endpoint = route.endpoint(self._resolver)
        except Unresolved as missing:
            _log.info("no endpoint of an APIService", name=route.name, reason=str(missing))
            return _refused(503, b"service unavailable\n")
        except ssl.SSLError as error:
            return _refused(500, f"unable to load root certificates: {error}\n".encode())
        upgrade = wants_upgrade(request)
        headers = [
            line for line in request_headers(request.headers, request.client, upgrade=upgrade) if line[0] != b"host"
        ]
        headers += _forwarded(request)
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            headers.append((b"content-length", b"%d" % len(request.body)))
        target = request.raw_path + (b"?" + request.query.encode("latin-1") if request.query else b"")
        try:
            backend, head = await self._ask(endpoint, request.method, target, headers, user, request.body)
        except Unreachable as error:
            return _refused(503, f"error trying to reach service: {error}\n".encode())
        return _answer(backend, head, upgrade=upgrade)

    async def fetch(self, route: Route, path: str, accept: str, within_s: float, etag: str = "") -> Fetched:
        """A document of the server, read as the aggregator itself."""
        try:
            endpoint = route.endpoint(self._resolver)
        except (Unresolved, ssl.SSLError) as error:
            raise NotFetched(str(error)) from error
        url = f"https://{endpoint.authority}{path}"
        headers = [(b"accept", accept.encode()), *([(b"if-none-match", etag.encode())] if etag else [])]
        try:
            work = self._read(endpoint, path, url, headers)
            return await run_within(self._clock, within_s, work, name="aggregator/fetch")
        except TimeoutError:
            raise NotFetched(
                f'failing or missing response from {url}: Get "{url}": context deadline exceeded'
            ) from None
        except Unreachable as error:
            raise NotFetched(f'failing or missing response from {url}: Get "{url}": {error}') from error

    async def _read(self, endpoint: Endpoint, path: str, url: str, headers: Lines) -> Fetched:
        backend, head = await self._ask(endpoint, "GET", path.encode(), headers, AGGREGATOR)
        body = await Collected(backend, _DOCUMENT_BYTES).read()
        return Fetched(url, head.status, body, head.get(b"etag").decode("latin-1"))

    async def _ask(
        self, endpoint: Endpoint, method: str, target: bytes, headers: Lines, user: User, body: bytes = b""
    ) -> tuple[Backend, Head]:
        backend = await connect(self._clock, endpoint, self._dial_s)
        try:
            lines = [(b"host", endpoint.authority.encode()), *headers, *user_headers(user)]
            backend.send(head_of(method, target, lines), body)
            return backend, await backend.head()
        except BaseException:
            backend.abort()
            raise


def _forwarded(request: Request) -> Lines:
    lines = [(b"x-forwarded-uri", request.raw_path), (b"x-forwarded-proto", b"https")]
    host = request.headers.get(b"host")
    return [*lines, (b"x-forwarded-host", host)] if host else lines


def _answer(backend: Backend, head: Head, *, upgrade: bool) -> Answer:
    if head.status == 101:
        if upgrade:
            return Tunnel(backend, head.headers)
        backend.abort()
        return _refused(503, b"error trying to reach service: unexpected change of protocol\n")
    if 300 <= head.status < 400 and head.status != 304:
        backend.abort()
        return _refused(502, _REDIRECTED)
    headers = [line for line in response_headers(head.headers) if line[0].lower() not in _OWN]
    return BackendRelay(backend, head.status, headers=headers, length=head.length, own_headers=True)


def _refused(status: int, body: bytes) -> Response:
    return Response(status, body, _TEXT, ((b"X-Content-Type-Options", b"nosniff"),))
