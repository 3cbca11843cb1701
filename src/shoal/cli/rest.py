"""REST client of the commands: one connection, decoded responses, readable errors."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from shoal.cli.contexts import Context
from shoal.errors import ConfigError, ShoalError

_TIMEOUT_S = 30.0
_PROXY_VARIABLES = ("https_proxy", "all_proxy")
_QUIET_S = 60.0  # streams send a message or a keep-alive more often than this


class CannotReach(ShoalError):
    """The server did not respond, or its certificate is not trusted."""

    exit_code = 3


class AnswerLost(CannotReach):
    """The request was sent, and no answer came: it may have been carried out."""


class RequestRefused(ShoalError):
    """The server returned an error. ``code`` is its stable reason, ``body`` the whole response."""

    def __init__(
        self, status: int, code: str, message: str, details: list[dict[str, str]], body: Any = None
    ) -> None:  # fmt: skip
        super().__init__(in_lines(message, details))
        self.status = status
        self.code = code
        self.message = message
        self.details = details
        self.body = body
        self.correlation = _correlation(body)


def _correlation(body: Any) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    return str(error.get("correlation") or "") if isinstance(error, dict) else ""


def in_lines(message: str, details: list[dict[str, str]]) -> str:
    """An error with one line per field; cuts the field list that the message of an invalid object repeats."""
    head = message.partition(" is invalid: ")[0] + " is invalid:" if details and " is invalid: " in message else message
    return "\n".join([head, *(f"  {each.get('field', '')}: {each.get('message', '')}" for each in details)])


@dataclass(frozen=True, slots=True)
class RestReply:
    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def etag(self) -> str:
        return self.headers.get("etag", "")


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One message of an event stream."""

    id: str
    event: str
    data: Any


class Rest:
    """A client for one context. Not thread-safe, except ``interrupt``."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.correlation = ""  # sent with each request; the server's own after the first change, so that all share one
        parts = urlsplit(context.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"url is {context.url!r}: use https://HOST:PORT")
        self._host, self._port, self._secure = parts.hostname, parts.port, parts.scheme == "https"
        self._connection: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = (
            None  # of the last request; kept because a response may detach it from the connection
        )

    def get(self, path: str, **params: Any) -> Any:
        return self.request("GET", path, params=params).body

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RestReply:
        """Raises ``RequestRefused`` for a status of 400 and above, ``CannotReach`` without a response."""
        sent = {"Authorization": f"Bearer {self.context.token}", "Accept": "application/json", **(headers or {})}
        if self.correlation:
            sent.setdefault("X-Correlation-Id", self.correlation)
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        answer = self._answer(method, _target(path, params), data, sent)
        try:
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._lost(method, error) from None
        found = {name.lower(): value for name, value in answer.getheaders()}
        decoded = _decoded(text, found.get("content-type", ""))
        if answer.status >= 400:
            raise _refused(answer.status, decoded)
        if method != "GET":
            self.correlation = self.correlation or found.get("x-correlation-id", "")
        return RestReply(answer.status, decoded, found)

    def events(self, path: str, *, params: Mapping[str, Any] | None = None, last: str = "") -> EventStream:
        """The messages of a stream after the one with the id ``last``, over a separate connection."""
        return EventStream(Rest(self.context), _target(path, params), last)

    def stream(self, path: str, *, params: Mapping[str, Any] | None = None) -> TextStream:
        """The body of a response as it arrives, over a separate connection."""
        return TextStream(Rest(self.context), _target(path, params))

    @contextmanager
    def streamed(
        self, target: str, headers: Mapping[str, str], timeout_s: float | None
    ) -> Iterator[http.client.HTTPResponse]:
        """A response that is read as it arrives; the connection is closed at the end."""
        sent = {"Authorization": f"Bearer {self.context.token}", **headers}
        try:
            answer = self._answer("GET", target, None, sent, timeout_s)
            if answer.status >= 400:
                raise _refused(answer.status, _decoded(answer.read(), answer.getheader("content-type") or ""))
            with answer:
                yield answer
        except (OSError, http.client.HTTPException) as error:
            raise CannotReach(f"the stream from {self.context.url} broke off: {error}") from None
        finally:
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def interrupt(self) -> None:
        """Abort a request that another thread waits for."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _answer(
        self, method: str, target: str, data: bytes | None, headers: Mapping[str, str],
        timeout_s: float | None = _TIMEOUT_S,
    ) -> http.client.HTTPResponse:  # fmt: skip
        fresh = self._connection is None
        sent = False
        try:
            connection = self._connected(timeout_s)
            connection.request(method, target, data, dict(headers))
            self._socket, sent = connection.sock, True
            return connection.getresponse()
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise CannotReach(
                f"{self.context.url} is not trusted by the CA of context {self.context.name!r}: {error.verify_message}"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not fresh and method in ("GET", "PUT", "DELETE"):  # the server closed the idle connection
                return self._answer(method, target, data, headers, timeout_s)
            if sent and method != "GET":
                raise self._lost(method, error) from None
            raise CannotReach(
                f"no response from {self.context.url}: {error}; start it with `shoal up`, or check the context's URL"
            ) from None

    def _lost(self, method: str, error: Exception) -> CannotReach:
        """The server has the request, and its answer did not arrive as a whole."""
        kind = CannotReach if method == "GET" else AnswerLost
        return kind(f"the connection to {self.context.url} was lost before the answer: {error}")

    def _connected(self, timeout_s: float | None) -> http.client.HTTPConnection:
        if self._connection is None:
            if self._secure:
                tls = ssl.create_default_context(cadata=self.context.ca or None)
                self._connection = self._over_tls(tls, timeout_s)
            else:
                self._connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        return self._connection

    def _over_tls(self, tls: ssl.SSLContext, timeout_s: float | None) -> http.client.HTTPConnection:
        port = self._port or http.client.HTTPS_PORT
        direct = http.client.HTTPSConnection(self._host, port, timeout=timeout_s, context=tls)
        if not any(name.lower() in _PROXY_VARIABLES for name in os.environ):
            return direct
        from shoal.base import proxies  # most commands go without it

        proxy = proxies.for_host(self._host, port)
        if proxy is None:
            return direct
        through = http.client.HTTPSConnection(proxy.hostname or "", proxy.port or 80, timeout=timeout_s, context=tls)
        through.set_tunnel(self._host, port, proxies.credentials(proxy))
        return through


class TextStream:
    """Bytes as they arrive; raises ``CannotReach`` if the stream breaks off. Another thread may call ``close``."""

    def __init__(self, rest: Rest, target: str) -> None:
        self._rest = rest
        self._target = target

    def __iter__(self) -> Iterator[bytes]:
        headers = {"Accept": "text/plain, application/json"}
        with self._rest.streamed(self._target, headers, timeout_s=None) as answer:
            while part := answer.read1(65536):
                yield part

    def close(self) -> None:
        self._rest.interrupt()


class EventStream:
    """Messages as they arrive, until the stream ends; raises ``CannotReach`` if it breaks off. Another thread may call
    ``close``."""

    def __init__(self, rest: Rest, target: str, last: str) -> None:
        self._rest = rest
        self._target = target
        self._last = last

    def __iter__(self) -> Iterator[ServerEvent]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": self._last} if self._last else {})}
        with self._rest.streamed(self._target, headers, timeout_s=_QUIET_S) as answer:
            yield from _messages(answer)

    def close(self) -> None:
        self._rest.interrupt()


def _target(path: str, params: Mapping[str, Any] | None) -> str:
    given = {name: _text(value) for name, value in (params or {}).items() if value not in (None, "", False)}
    return f"{path}?{urlencode(given)}" if given else path


def _text(value: Any) -> str:
    return "true" if value is True else str(value)


def _decoded(text: bytes, content_type: str) -> Any:
    if "json" in content_type:
        with suppress(ValueError):
            return json.loads(text)
    return text.decode(errors="replace")


def _refused(status: int, body: Any) -> RequestRefused:
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        details = [each for each in error.get("details") or () if isinstance(each, dict)]
        return RequestRefused(status, str(error.get("code", "")), str(error.get("message", "")), details, body)
    return RequestRefused(status, "", f"the server returned status {status}: {str(body)[:500]}", [], body)


def _messages(lines: Iterator[bytes] | http.client.HTTPResponse) -> Iterator[ServerEvent]:
    id_, event, data = "", "message", list[str]()
    for raw in lines:
        line = raw.decode(errors="replace").rstrip("\r\n")
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                text = "\n".join(data)
                yield ServerEvent(id_, event, _decoded(text.encode(), "json"))
            event, data = "message", []
        elif name == "id":
            id_ = value
        elif name == "event":
            event = value
        elif name == "data":
            data.append(value)
