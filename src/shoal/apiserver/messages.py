"""HTTP messages as data: requests, responses, streams, limits. ``shoal.apiserver.http`` sends and receives them."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote

from shoal.apiserver.user import User
from shoal.base.front_limits import FrontLimits

REASONS = {
    101: "Switching Protocols", 200: "OK", 201: "Created", 202: "Accepted", 301: "Moved Permanently",
    204: "No Content", 304: "Not Modified", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 406: "Not Acceptable", 409: "Conflict", 410: "Gone", 413: "Request Entity Too Large",
    415: "Unsupported Media Type", 422: "Unprocessable Entity", 429: "Too Many Requests",
    431: "Request Header Fields Too Large", 500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway",
    503: "Service Unavailable", 504: "Gateway Timeout",
}  # fmt: skip
STATUS_LINES = {code: f"HTTP/1.1 {code} {text}\r\n".encode() for code, text in REASONS.items()}


class RequestTimedOut(Exception):
    """Thrown into a handler that exceeded its time; its return value is then the response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits(FrontLimits):
    """Limits of a connection."""

    pending_in_bytes: int = 256 * 1024 * 1024  # of all bodies that are still coming in; then only small ones may
    small_body_bytes: int = 64 * 1024
    pipelined: int = 16  # requests waiting behind one that is being answered; more pauses reading
    request_timeout_s: float = 60.0  # until an answer begins; a client may ask for less with ``timeout=``
    # Without a byte in either direction on a connection that was handed over, or without the client reading from a body
    # of a node or pod, which a person may look at page by page. Kubelets close connections after the same time.
    session_idle_s: float = 4 * 3600.0
    buffered_bytes: int = 32 * 1024  # written but not taken by the client; more makes streams and bodies wait


class Request:
    """One request. ``headers`` has lower-case names; ``path`` is decoded, ``query`` is not."""

    __slots__ = (
        "body", "client", "headers", "incoming", "keep_alive", "method", "path", "peer_certificate", "query",
        "raw_path", "unhurried", "user",
    )  # fmt: skip

    def __init__(self, method: str, target: bytes, headers: dict[bytes, bytes], body: bytes = b"") -> None:
        raw, _, query = target.partition(b"?")
        self.method = method
        self.raw_path = raw
        path = raw.decode("latin-1")
        self.path = unquote(path) if "%" in path else path
        self.query = query.decode("latin-1")
        self.headers = headers
        self.body = body
        self.keep_alive = True
        self.client = ""
        self.peer_certificate: bytes | None = None
        self.incoming: IncomingBody | None = None  # a body that is streamed to the handler
        self.unhurried = False  # no deadline for the response: a backend produces it
        self.user: User | None = None  # the user, set by code in this process only, never from the network


class IncomingBody:
    """A request's body on its way in. The consumer is called for each part; ``pause`` stops reading from the client."""

    __slots__ = ("_on_data", "_on_end", "_parts", "_size", "complete", "on_room", "paused")

    def __init__(self, on_room: Callable[[], None]) -> None:
        self.on_room = on_room  # called when there may be room again
        self.complete = False
        self.paused = False
        self._parts: list[bytes] = []  # arrived before a consumer was attached
        self._size = 0
        self._on_data: Callable[[bytes], None] | None = None
        self._on_end: Callable[[], None] | None = None

    @property
    def full(self) -> bool:
        """Whether the client must wait."""
        return self.paused or self._size > _WAITING_BYTES

    def attach(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._on_data, self._on_end = on_data, on_end
        parts, self._parts, self._size = self._parts, [], 0
        for part in parts:
            on_data(part)
        if self.complete:
            on_end()
        else:
            self.on_room()

    def feed(self, data: bytes) -> None:
        if self._on_data is not None:
            self._on_data(data)
        else:
            self._parts.append(data)
            self._size += len(data)

    def end(self) -> None:
        self.complete = True
        if self._on_end is not None:
            self._on_end()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            self.on_room()


_WAITING_BYTES = 256 * 1024


class Response:
    """A complete answer. ``body`` may be in parts that are joined on the wire; ``head`` is further header lines as they
    stand there, each with its line end."""

    __slots__ = ("body", "content_type", "head", "headers", "status")
    end = b""  # after the body on the wire

    def __init__(
        self,
        status: int,
        body: bytes | Sequence[bytes] = b"",
        content_type: bytes = b"application/json",
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        self.status = status
        self.body = body
        self.content_type = content_type
        self.headers = headers
        self.head = b""


class DocumentResponse(Response):
    """A JSON document. On the wire it ends with a newline, as those of Kubernetes do; the bytes of a stored object need
    not be copied for it."""

    __slots__ = ()
    end = b"\n"


class RefusedRequest(Response):
    """An answer to a client over its limits. If it retries within ``hold_s``, its input waits until then."""

    __slots__ = ("hold_s",)
    hold_s: float


class LongResponse(Response):
    """An answer that notifies its creator when it has been sent, or never will be."""

    __slots__ = ("on_sent",)
    on_sent: Callable[[], None]


class Sink(Protocol):
    """Where a streaming answer goes: a connection, or a queue in process."""

    @property
    def writable(self) -> bool:
        """False while the client reads slower than the server writes; ``on_writable`` is called when that ends."""

    def write(self, data: bytes) -> None: ...

    def end(self) -> None:
        """The stream is complete; the connection can serve the next request."""

    def abort(self) -> None:
        """The stream broke off: the client must not take it for complete."""


class ResponseStream(Protocol):
    """A streaming answer. ``attach`` is called once the headers are out. What it writes is framed (see ``frame``)."""

    status: int
    content_type: bytes
    headers: Sequence[tuple[bytes, bytes]]

    def attach(self, sink: Sink) -> None: ...

    def on_writable(self) -> None: ...

    def on_closed(self) -> None:
        """The client is gone or the server stops; nothing may be written any more."""


class Relay:
    """A stream passed on from a backend: it may have a known length and its own complete headers,
    and its client may read slowly. Subclasses are ``ResponseStream``."""

    __slots__ = ("content_type", "headers", "length", "on_end", "own_headers", "status")

    def __init__(
        self,
        status: int,
        content_type: bytes = b"",
        headers: Sequence[tuple[bytes, bytes]] = (),
        *,
        length: int | None = None,
        own_headers: bool = False,
    ) -> None:
        self.status = status
        self.content_type = content_type
        self.headers = headers
        self.length = length  # of the body, if known
        self.own_headers = own_headers  # without the headers that all answers have
        self.on_end: Callable[[], None] | None = None  # called when it ends

    def attach(self, sink: Sink) -> None:
        raise NotImplementedError

    def on_writable(self) -> None:
        raise NotImplementedError

    def on_closed(self) -> None:
        raise NotImplementedError

    def ended(self) -> None:
        """Subclasses call this when the stream has ended for any reason."""
        callback, self.on_end = self.on_end, None
        if callback is not None:
            callback()


class Wire(Protocol):
    """A connection that has been handed over: raw bytes both ways."""

    @property
    def writable(self) -> bool:
        """False while the client reads slower than the server writes; ``on_writable`` is called when that ends."""

    def write(self, data: bytes) -> None: ...

    def hang_up(self) -> None:
        """Close it once everything is sent."""

    def pause(self) -> None:
        """Read nothing more from the client until ``resume``."""

    def resume(self) -> None: ...


class Upgrade:
    """An answer after which the connection is no longer HTTP. ``attach`` is called once the headers are out; from then
    on input is passed to ``on_data``, and output is sent unchanged."""

    __slots__ = ("headers", "on_end")
    status = 101
    content_type = b""

    def __init__(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.headers = headers  # with ``Upgrade`` and ``Connection``
        self.on_end: Callable[[], None] | None = None  # called when it ends

    def attach(self, wire: Wire) -> None:
        raise NotImplementedError

    def on_data(self, data: bytes) -> None:
        raise NotImplementedError

    def on_writable(self) -> None:
        raise NotImplementedError

    def on_closed(self) -> None:
        """The client is gone or the server stops; nothing may be written any more."""
        raise NotImplementedError

    def ended(self) -> None:
        """Subclasses call this when the session has ended for any reason."""
        callback, self.on_end = self.on_end, None
        if callback is not None:
            callback()


Answer = Response | ResponseStream | Upgrade
Handler = Callable[[Request], Coroutine[Any, Any, Answer]]


_TOO_LARGE = "request is larger than this server accepts"
_REFUSALS = {
    400: ("BadRequest", "malformed HTTP request"),
    413: ("RequestEntityTooLarge", _TOO_LARGE),
    429: ("TooManyRequests", "too many connections from this address: close some, or try again later"),
    431: ("RequestHeaderFieldsTooLarge", _TOO_LARGE),
    503: ("ServiceUnavailable", "the server has too many connections or unfinished request bodies: try again later"),
}


def refusal(status: int) -> tuple[Response, bytes]:
    """The head and body of an error response that no handler produces."""
    reason, text = _REFUSALS[status]
    body = (
        f'{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{text}",'
        f'"reason":"{reason}","code":{status}}}\n'
    ).encode()
    return Response(status, body, headers=((b"Retry-After", b"1"),) if status in (429, 503) else ()), body


def frame(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def unframed(data: bytes) -> bytes:
    """The data of one chunk."""
    return data[data.index(b"\r\n") + 2 : -2]


def header_lines(head: bytes) -> list[tuple[bytes, bytes]]:
    """Header lines as they stand on the wire, taken apart."""
    return [(name, value) for name, _, value in (line.partition(b": ") for line in head.split(b"\r\n") if line)]


_UNITS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|\u00b5s|ms|s|m|h)")


def duration(text: str) -> float | None:
    """Seconds of a duration as Go writes it, such as ``1m30s``; None when it is invalid."""
    if text == "0":
        return 0.0
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return float(sum(float(number) * _UNITS[unit] for number, unit in parts))


def timeout_of(query: str, default_s: float) -> float:
    """The timeout of a request: its ``timeout=`` parameter, up to the server's own limit."""
    if "timeout=" not in query:
        return default_s
    for part in query.split("&"):
        if part.startswith("timeout="):
            asked = duration(unquote(part[8:]))
            return min(asked, default_s) if asked else default_s
    return default_s
