"""The navigator, asked for a user of the page: with a signed grant of a minute that carries what the user may read.

Three ways: a question, a stream of answers that change, and a request of a browser that is passed on with its answer.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

import orjson

from shoal.base import grants
from shoal.base.access import Access
from shoal.base.asgi_common import Receive, Scope, Send
from shoal.base.clock import Clock
from shoal.base.grants import Grant
from shoal.base.http1.answer import HttpAnswer
from shoal.base.http1.connection import ClientConnection
from shoal.base.http1.dial import HttpAddress, dial
from shoal.base.http1.errors import TransportError
from shoal.base.http1.limits import AnswerLimits, Deadlines
from shoal.base.http1.messages import request_bytes
from shoal.base.tasks import OwnedTasks
from shoal.errors import ApiError, ConfigError, InternalError, ServiceUnavailable
from shoal.rest.api import CORRELATION
from shoal.rest.request import RestRequest
from shoal.rest.streams import RestStreams, until_gone

_ROOT = "/api/v1"
_CONNECT_S = 5.0
_ANSWER_S = 40.0  # the navigator waits for edges for up to 30 s
_ANSWER_BYTES = 64 << 20
_MOST_EVENT_BYTES = 64 << 20
_BODY_BYTES = 64 << 10
_CHECK_S = 2.5
_PASSED_ON = ("content-type", "etag", "x-accel-buffering")
_REASONS: Mapping[str, type[ApiError]] = {each.reason: each for each in ApiError.__subclasses__() if each.reason}


@dataclass(frozen=True, slots=True)
class NavigatorPlace:
    url: str
    ca: str = ""  # PEM; empty: the system's authorities


class NavigatorPlaces(Protocol):
    async def place(self) -> NavigatorPlace:
        """Where the navigator is now; ``ConfigError`` with the fix where there is none."""

    async def is_known(self) -> bool:
        """Whether there is one."""


@dataclass(frozen=True, slots=True)
class NavigatorUser:
    """Whom the navigator is asked for. ``scopes`` are those of ``shoal.base.access``."""

    name: str
    scopes: tuple[str, ...]
    may_write: bool = False

    def token(self, key: bytes, now_s: float) -> str:
        grant = Grant(user=self.name, access=Access.parse(self.scopes), may_write=self.may_write)
        return grants.sign(key, grant, now_s)


@dataclass(frozen=True, slots=True)
class _NavigatorRequest:
    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    deadlines: Deadlines = Deadlines(head_s=_ANSWER_S)
    body_limit: int | None = None


class NavigatorClient:
    """``key`` signs the grants; the navigator must know it."""

    def __init__(self, places: NavigatorPlaces, key: bytes, clock: Clock) -> None:
        self.places = places
        self._key = key
        self._clock = clock
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def ask(self, user: NavigatorUser, path: str, **query: Any) -> Any:
        """The answer to ``GET /api/v1/PATH``. Raises what the navigator says, or that it cannot be asked."""
        asked = _NavigatorRequest(
            "GET", _target(path, query), deadlines=Deadlines(total_s=_ANSWER_S), body_limit=_ANSWER_BYTES
        )
        async with self.answered(user, asked) as answer:
            body = await answer.body()
            if answer.status != 200:
                raise _refusal(answer.status, body)
        return _json(body)

    async def watch(self, user: NavigatorUser, path: str, **query: Any) -> AsyncGenerator[Any, None]:
        """The answers of ``GET /api/v1/watch/PATH``: the one of now, and again after each change of it."""
        async with self.answered(user, _NavigatorRequest("GET", _target(f"watch/{path}", query))) as answer:
            if answer.status != 200:
                raise _refusal(answer.status, await answer.body())
            async for name, data in _events(answer):
                if name == "error":
                    found = _json(data)
                    raise _error(str(found.get("code")), str(found.get("message")))
                if name == "answer":
                    yield _json(data)
        raise ServiceUnavailable("the navigator ended the stream", retry_after_s=1)

    async def forward(
        self, user: NavigatorUser, request: RestRequest, path: str, streams: RestStreams
    ) -> ForwardedAnswer:
        """The navigator's answer to a browser's request. ``streams`` tells whether the session still works."""
        body = None if request.method in ("GET", "HEAD") else await request.body(_BODY_BYTES)
        target = f"{_ROOT}/{path}"
        if query := request.scope["query_string"].decode("latin-1"):
            target += f"?{query}"
        headers = [(name, value) for name in ("content-type", "accept") if (value := request.header(name))]
        asked = _NavigatorRequest(request.method, target, (*headers, (CORRELATION, request.correlation)), body)
        return ForwardedAnswer(self, user, asked, request.token, streams, self._clock)

    @asynccontextmanager
    async def answered(self, user: NavigatorUser, asked: _NavigatorRequest) -> AsyncGenerator[HttpAnswer, None]:
        """The answer's status and headers; its body is still to be read."""
        try:
            place = await self.places.place()
        except ConfigError as error:
            raise ServiceUnavailable(f"there is no navigator: {error}") from None
        parts = urlsplit(place.url)
        token = user.token(self._key, self._clock.wall_s())
        sent = [("host", parts.netloc), ("authorization", f"Bearer {token}"), *asked.headers]
        connection: ClientConnection | None = None
        try:
            message = request_bytes(asked.method, asked.target, sent, asked.body)
            port = parts.port or (443 if parts.scheme == "https" else 80)
            tls = self._context(place.ca) if parts.scheme == "https" else None
            connection = await dial(
                HttpAddress(parts.hostname or "", port, tls), clock=self._clock, connect_s=_CONNECT_S,
                limits=AnswerLimits(body_bytes=asked.body_limit), peer="the navigator",
            )  # fmt: skip
            yield await connection.stream(message, asked.deadlines)
        except (TransportError, ssl.SSLError) as error:
            raise ServiceUnavailable(f"the navigator cannot be asked: {error}", retry_after_s=2) from error
        except ValueError as error:  # of a header or path
            raise InternalError(f"the navigator cannot be asked: {error}") from error
        finally:
            if connection is not None:
                await connection.close()

    def _context(self, ca: str) -> ssl.SSLContext:
        context = self._contexts.get(ca)
        if context is None:
            context = ssl.create_default_context(cadata=ca or None)
            self._contexts = {ca: context}  # there is one navigator; its authority changes now and then
        return context


class ForwardedAnswer:
    """An ASGI application that answers one request with what the navigator says, as it comes."""

    def __init__(
        self,
        client: NavigatorClient,
        user: NavigatorUser,
        asked: _NavigatorRequest,
        owner: str,
        streams: RestStreams,
        clock: Clock,
    ) -> None:
        self._client = client
        self._user = user
        self._asked = asked
        self._owner = owner
        self._streams = streams
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._client.answered(self._user, self._asked) as answer:
            kept = [
                (name.encode(), value.encode("latin-1")) for name in _PASSED_ON if (value := answer.headers.get(name))
            ]
            self._streams.enter(self._owner)
            tasks = OwnedTasks()
            try:
                await send({"type": "http.response.start", "status": answer.status, "headers": kept})
                pump = tasks.start(self._pump(answer, send), name="page/navigator", awaited=True)
                gone = tasks.start(until_gone(receive), name="page/navigator-gone")
                ended = tasks.start(self._until_ended(), name="page/navigator-session")
                await asyncio.wait([pump, gone, ended], return_when=asyncio.FIRST_COMPLETED)
                if pump.done():
                    pump.result()
            finally:
                await tasks.close()
                self._streams.leave(self._owner)

    async def _pump(self, answer: HttpAnswer, send: Send) -> None:
        async for piece in answer.chunks():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _until_ended(self) -> None:
        """The session ends, or the process."""
        while not self._streams.ending.is_set():
            await self._clock.sleep(_CHECK_S)
            if not await self._streams.is_allowed(self._owner):
                return


async def _events(answer: HttpAnswer) -> AsyncGenerator[tuple[str, bytes], None]:
    """Server-sent events by name; comments are left out."""
    waiting, looked = bytearray(), 0
    async for piece in answer.chunks():
        waiting += piece
        if len(waiting) > _MOST_EVENT_BYTES:
            raise ServiceUnavailable("an answer of the navigator is too large")
        while (end := waiting.find(b"\n\n", looked)) >= 0:
            fields = dict(line.partition(b": ")[::2] for line in bytes(waiting[:end]).split(b"\n"))
            del waiting[: end + 2]
            looked = 0
            if b"data" in fields:
                yield fields.get(b"event", b"").decode(), fields[b"data"]
        looked = max(0, len(waiting) - 1)


def _target(path: str, query: Mapping[str, Any]) -> str:
    given = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items() if value}
    return f"{_ROOT}/{path}" + (f"?{urlencode(given)}" if given else "")


def _json(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        raise ServiceUnavailable("an answer of the navigator is malformed") from None


def _refusal(status: int, body: bytes) -> ApiError:
    try:
        told = orjson.loads(body)["error"]
        return _error(str(told["code"]), str(told["message"]))
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ServiceUnavailable(f"the navigator answers with status {status}")


def _error(reason: str, message: str) -> ApiError:
    if reason == "Unauthorized":  # our grant: nothing that the user could change
        return ServiceUnavailable(
            "the navigator does not take the control plane's grants: it must know the key in grant.key of the control "
            "plane's directory (--control-dir or --grant-key), and the clocks of both may differ by half a minute"
        )
    return _REASONS.get(reason, ServiceUnavailable)(message)
