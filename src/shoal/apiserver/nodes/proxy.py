"""The proxies of pods, services and nodes: any HTTP, both bodies streamed, and other protocols after an upgrade."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from shoal.apiserver.messages import Answer, Request, Response
from shoal.apiserver.nodes import rewrite
from shoal.apiserver.nodes.backend import Backend, Endpoint, Head, Unreachable, connect
from shoal.apiserver.nodes.relay import BackendRelay, Tunnel
from shoal.apiserver.paths import ResourcePath
from shoal.base.clock import Clock
from shoal.errors import ServiceUnavailable

_CLUSTER_PARTS = 6  # of /api/v1/nodes/NAME/proxy, with the empty one at its beginning
_NAMESPACED_PARTS = 8
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class ProxyDestination:
    """The destination of a proxied request, and the part of the path to forward."""

    endpoint: Endpoint
    path: bytes  # for the backend, as in the request; empty when there is none
    prefix: str  # of the proxy itself, decoded


def place_of(request: Request, target: ResourcePath, endpoint: Endpoint) -> ProxyDestination:
    """``target`` is the parsed path of the request."""
    tail = target.tail
    if not tail and not request.path.endswith("/"):
        return ProxyDestination(endpoint, b"", request.path)
    head = _CLUSTER_PARTS if target.namespace is None else _NAMESPACED_PARTS
    parts = request.raw_path.split(b"/")
    if parts[head - 1] == b"proxy":
        path = b"/".join(parts[head:])  # still percent-encoded
    else:
        path = quote(tail).encode()
    return ProxyDestination(endpoint, b"/" + path, request.path[: len(request.path) - len(tail)].rstrip("/"))


def wants_upgrade(request: Request) -> bool:
    return b"upgrade" in request.headers.get(b"connection", b"").lower() and b"upgrade" in request.headers


def head_of(method: str, target: bytes, headers: rewrite.Lines) -> bytes:
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (method.encode(), target, lines)


class NodeProxy:
    """Passes requests on."""

    def __init__(self, clock: Clock, dial_s: float) -> None:
        self._clock = clock
        self._dial_s = dial_s

    async def pass_on(self, request: Request, place: ProxyDestination) -> Answer:
        upgrade = wants_upgrade(request)
        if not place.path and not upgrade and request.method in ("GET", "HEAD"):
            return _with_slash(request)
        headers = self._headers(request, place, upgrade=upgrade)
        chunked = request.incoming is not None and b"content-length" not in request.headers
        if request.incoming is not None and not chunked:
            headers.append((b"content-length", request.headers[b"content-length"]))
        elif chunked:
            headers.append((b"transfer-encoding", b"chunked"))
        elif request.body or request.method in ("POST", "PUT", "PATCH"):
            headers.append((b"content-length", b"%d" % len(request.body)))
        target = place.path or b"/"
        if request.query:
            target += b"?" + request.query.encode("latin-1")
        try:
            backend = await connect(self._clock, place.endpoint, self._dial_s)
            try:
                backend.send(head_of(request.method, target, headers), request.body, request.incoming, chunked=chunked)
                head = await backend.head()
            except BaseException:
                backend.abort()
                raise
        except Unreachable as error:
            raise ServiceUnavailable(f"error trying to reach service: {error}") from error
        return self._answer(request, place, backend, head)

    @staticmethod
    def _headers(request: Request, place: ProxyDestination, *, upgrade: bool) -> rewrite.Lines:
        headers = rewrite.request_headers(request.headers, request.client, upgrade=upgrade)
        uri = place.prefix.encode() + (place.path or b"/")
        headers += [(b"x-forwarded-uri", uri), (b"x-forwarded-proto", b"https")]
        host = request.headers.get(b"host")
        if host:
            headers.append((b"x-forwarded-host", host))
        else:
            headers.append((b"host", place.endpoint.authority.encode()))
        return headers

    @staticmethod
    def _answer(request: Request, place: ProxyDestination, backend: Backend, head: Head) -> Answer:
        if head.status == 101:
            if not wants_upgrade(request):
                backend.abort()
                raise ServiceUnavailable("error trying to reach service: unexpected change of protocol")
            return Tunnel(backend, head.headers)
        headers = rewrite.response_headers(head.headers)
        host = request.headers.get(b"host", b"").decode("latin-1")
        links = rewrite.Links(place.prefix, place.endpoint.authority, host)
        change = None
        if location := head.get(b"location"):
            moved = links.rewritten(location.decode("latin-1")).encode("latin-1")
            headers = [(name, moved if name.lower() == b"location" else value) for name, value in headers]
        else:
            change = rewrite.page_for(links, head.get(b"content-type"), head.get(b"content-encoding"))
        return BackendRelay(
            backend,
            head.status,
            headers=headers,
            length=None if change else head.length,
            own_headers=True,
            change=change,
        )


def _with_slash(request: Request) -> Response:
    """Redirect to the path with a slash: relative links need it."""
    where = request.raw_path + b"/"
    if request.query:
        where += b"?" + request.query.encode("latin-1")
    return Response(301, b"", b"", ((b"Location", where),))
