"""HTTP client of a container engine on a Unix socket: requests, streamed responses, and hijacked connections.

Each request has a connection of its own: on a local socket that is cheaper than a pool. An ``Exchange`` is a response
whose headers have arrived. Its body is read in pieces; after ``hijack`` the connection carries raw bytes in both
directions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.http1.answer import HttpAnswer
from shoal.base.http1.connection import ClientConnection
from shoal.base.http1.dial import HttpAddress, dial
from shoal.base.http1.errors import Disconnected, TransportError, Unreachable
from shoal.base.http1.messages import request_bytes
from shoal.node.runtime.docker.config import START
from shoal.node.runtime.model import RuntimeFailure

_NEWEST = (1, 47)  # of the API, that Shoal uses
_OLDEST = (1, 41)  # the first version with one-shot statistics
_PODMAN = "libpod-api-version"  # a header that only podman sends

Query = Mapping[str, object]  # texts, numbers, truth values, mappings (as JSON) and None
_NOTHING: Query = {}
_NO_HEADERS: Mapping[str, str] = {}


class EngineError(RuntimeFailure):
    """The engine refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def missing(self) -> bool:
        """Whether the requested object does not exist. Podman may report that in the middle of a request."""
        return self.status == 404 or "no such container" in str(self).lower()


class EngineGone(RuntimeFailure):
    """The engine cannot be reached, or the connection broke during a response."""


def target(path: tuple[str, ...], query: Query) -> str:
    """The path and query of a request; None in a query is left out, mappings become JSON."""
    text = "/" + "/".join(quote(part, safe=":@") for part in path)
    pairs = [(name, _text(value)) for name, value in query.items() if value is not None]
    return f"{text}?{urlencode(pairs, quote_via=quote)}" if pairs else text


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return orjson.dumps(value).decode()
    return str(value)


def error_of(status: int, body: bytes) -> EngineError:
    """The error of a response, with the message of the engine."""
    text = body.decode(errors="replace").strip()
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    if isinstance(found, dict) and isinstance(found.get("message"), str):
        text = found["message"].strip()
    return EngineError(status, text or f"the engine answered with {status}")


def choose_version(newest: str, oldest: str) -> str:
    """The API version to use with an engine that supports this range; raise RuntimeFailure if there is none."""
    high, low = _version(newest), _version(oldest or "1.0")
    if high < _OLDEST:
        raise RuntimeFailure(
            f"the engine supports Docker API {newest}, Shoal needs {_OLDEST[0]}.{_OLDEST[1]} or newer: "
            "use Docker 20.10 or podman 4, or newer"
        )
    chosen = max(min(high, _NEWEST), low)
    return f"{chosen[0]}.{chosen[1]}"


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    try:
        return int(major), int(minor)
    except ValueError:
        raise RuntimeFailure(f"invalid Docker API version {text!r} from the engine: expected MAJOR.MINOR") from None


class Exchange:
    """A response, and the sending side of a hijacked connection."""

    def __init__(self, answer: HttpAnswer) -> None:
        self._answer = answer
        self.status = answer.status
        self.headers = answer.headers

    async def read(self) -> bytes:
        """The next piece; empty at the end."""
        try:
            return await self._answer.read()
        except TransportError as error:
            raise EngineGone(str(error)) from error

    def unread(self, data: bytes) -> None:
        """Put a piece back."""
        self._answer.unread(data)

    async def body(self) -> bytes:
        pieces = []
        while piece := await self.read():
            pieces.append(piece)
        return b"".join(pieces)

    async def write(self, data: bytes) -> None:
        """Send bytes on a hijacked connection; waits while the engine does not read."""
        try:
            await self._answer.connection.send(data)
        except TransportError as error:
            raise EngineGone(str(error)) from error

    def write_eof(self) -> None:
        self._answer.connection.write_eof()

    def close(self) -> None:
        """Close the connection once everything is sent; a pending ``read`` raises ``EngineGone``."""
        if not self._answer.ended:
            self._answer.finish(Disconnected("the connection to the engine was closed"))
        self._answer.connection.finish()


class Engine:
    """A container engine behind a socket."""

    def __init__(self, path: str, *, clock: Clock, request_s: float) -> None:
        self._path = path
        self._clock = clock
        self._request_s = request_s
        self._prefix: tuple[str, ...] = ()
        self._open: set[Exchange] = set()
        self._connections: set[ClientConnection] = set()  # including those without a response yet
        self.closed = False
        self.podman = False  # set by ``negotiate``

    async def negotiate(self) -> None:
        """Agree on a version of the API."""
        try:
            async with within(self._clock, self._request_s), self.stream("GET", "_ping") as answer:
                await answer.body()
        except TimeoutError:
            raise self._silent("GET", ("_ping",)) from None
        self.podman = _PODMAN in answer.headers
        newest, oldest = answer.headers.get("api-version", ""), ""
        if not newest or _version(newest) > _NEWEST:  # the oldest version is needed only then; podman is slow to say it
            about = await self.json("GET", "version")
            newest, oldest = about.get("ApiVersion", ""), about.get("MinAPIVersion", "")
        self._prefix = (f"v{choose_version(newest, oldest)}",)

    async def json(
        self, method: str, *path: str, query: Query = _NOTHING, body: object = None, patient: bool = False
    ) -> Any:
        """Send a request and decode its response; None without a body. ``patient``: without a timeout."""
        if patient:
            data = await self._whole(method, path, query, body)
        else:
            try:
                async with within(self._clock, self._request_s):
                    data = await self._whole(method, path, query, body)
            except TimeoutError:
                raise self._silent(method, path) from None
        if not data.strip():
            return None
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            raise EngineGone(f"the engine's answer to {target(path, {})} is not JSON: {data[:200]!r}") from None

    def _silent(self, method: str, path: tuple[str, ...]) -> EngineGone:
        what = f"{method} {target(path, {})}"
        return EngineGone(f"the engine at {self._path} gave no answer to {what} in {self._request_s:g} s")

    async def _whole(self, method: str, path: tuple[str, ...], query: Query, body: object) -> bytes:
        async with self.stream(method, *path, query=query, body=body) as exchange:
            return await exchange.body()

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        *path: str,
        query: Query = _NOTHING,
        body: object = None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> AsyncIterator[Exchange]:
        """Send a request and read its response in pieces; raises ``EngineError`` for an error status."""
        exchange = await self._send(method, path, query, body, {"connection": "close", **headers})
        try:
            yield exchange
        finally:
            self.release(exchange)

    async def hijack(self, *path: str, query: Query = _NOTHING, body: object = None) -> Exchange:
        """Hijack a connection for raw bytes in both directions; the caller has to ``release`` it."""
        return await self._send("POST", path, query, body, {"connection": "Upgrade", "upgrade": "tcp"})

    def release(self, exchange: Exchange) -> None:
        self._open.discard(exchange)
        exchange.close()

    def close(self) -> None:
        """Close all connections."""
        self.closed = True
        for exchange in tuple(self._open):
            self.release(exchange)
        for connection in tuple(self._connections):
            connection.finish()

    async def _send(
        self, method: str, path: tuple[str, ...], query: Query, body: object, headers: Mapping[str, str]
    ) -> Exchange:
        connection = await self._connect()
        try:
            data = self._request(method, path, query, body, headers)
            exchange = Exchange(await connection.stream(data, upgrade="upgrade" in headers))
        except TransportError as error:
            raise EngineGone(str(error)) from error
        self._open.add(exchange)
        try:
            if exchange.status >= 400:
                raise error_of(exchange.status, await exchange.body())
        except BaseException:
            self.release(exchange)
            raise
        return exchange

    def _request(
        self, method: str, path: tuple[str, ...], query: Query, body: object, headers: Mapping[str, str]
    ) -> bytes:
        data = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        kind = "application/x-tar" if isinstance(body, bytes) else "application/json"
        lines = [("host", "docker"), ("user-agent", "shoal"), *headers.items()]
        if body is not None:
            lines.append(("content-type", kind))
        declared = data if body is not None or method == "POST" else None
        return request_bytes(method, target((*self._prefix, *path), query), lines, declared)

    async def _connect(self) -> ClientConnection:
        try:
            connection = await dial(
                HttpAddress(socket_path=self._path),
                clock=self._clock,
                peer="the engine",
                on_lost=self._connections.discard,
            )
        except Unreachable as error:
            raise self._unusable(error.__cause__) from error
        self._connections.add(connection)
        return connection

    def _unusable(self, cause: BaseException | None) -> EngineGone:
        """The error for a failed connection, with what to do."""
        if isinstance(cause, FileNotFoundError):
            return EngineGone(f"no Docker socket at {self._path}: {START}")
        if isinstance(cause, PermissionError):
            return EngineGone(
                f"the Docker socket {self._path} may not be used by this user: add the user to the group that owns it "
                "(usermod -aG docker USER, then log in again), or use a rootless engine"
            )
        if isinstance(cause, ConnectionRefusedError):
            return EngineGone(f"connection refused: nothing listens on the Docker socket {self._path}: {START}")
        return EngineGone(f"the Docker socket {self._path} cannot be used: {cause}")
