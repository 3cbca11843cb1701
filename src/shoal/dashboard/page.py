"""The page as an ASGI application: its files, logging in and out, who is logged in, the stream, and the navigator.

    /                    leads to /ui/
    /ui/…                files; every path without a dot is a view of the one page
    /ui/login, /ui/logout, /ui/session
    /ui/stream           server-sent events; POST /ui/stream/ID opens and closes topics
    /ui/navigator/PATH   the navigator's REST

Everything but files and logging in needs a session. A token is taken too, over TLS.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from shoal.base.asgi_common import Application, Receive, Scope, Send
from shoal.base.clock import Clock
from shoal.base.logs import correlated, get_logger
from shoal.control.api.access import WORKSPACE, Credentials, runs_the_fleet
from shoal.control.api.answers import public_message
from shoal.control.database.sessions import OpenSession, Sessions
from shoal.control.domain.access import verbs_of
from shoal.control.domain.live_reads import LiveReads
from shoal.dashboard.files import SECURITY_HEADERS, PageFiles
from shoal.dashboard.gate import PageGate, session_cookie
from shoal.dashboard.live.feed import Feed, Subscription
from shoal.dashboard.live.stream import PageStreams, StreamDeps, read_closed, read_opened
from shoal.dashboard.login import MOST_BODY_BYTES, Login
from shoal.dashboard.metrics import PageMetrics
from shoal.dashboard.navigator import NavigatorClient
from shoal.dashboard.topics.registry import PageUser, Topics
from shoal.errors import ApiError, BadRequest, Forbidden, MethodNotAllowed, Unauthorized
from shoal.rest.answers import RestAnswer, error_answer, internal_error, json_answer
from shoal.rest.api import CORRELATION, is_correlation
from shoal.rest.request import RestRequest
from shoal.rest.streams import BrokenOff, RestStreams

PATHS = ("/", "/ui", "/ui/")
_STREAM, _NAVIGATOR = "/ui/stream/", "/ui/navigator/"
_STREAM_BODY = 256 * 1024
_COMMAND = "shoal"

Handler = Callable[[RestRequest], Awaitable[Application]]

_log = get_logger("dashboard")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDeps:
    clock: Clock
    new_id: Callable[[], str]
    metrics: PageMetrics
    gate: PageGate
    files: PageFiles
    login: Login
    sessions: Sessions
    credentials: Credentials
    operators: Collection[str]
    reads: LiveReads
    topics: Topics
    navigator: NavigatorClient
    leave: Callable[[Feed, Subscription], None]
    version: str


class FleetPage:
    """``end_streams`` must be called before the process stops."""

    def __init__(self, deps: PageDeps) -> None:
        self._deps = deps
        self._gauge = deps.metrics.streams
        self._streams = RestStreams(deps.credentials.authenticate, deps.clock, self._gauge, owner="the control plane")
        self._pages = PageStreams(StreamDeps(deps.clock, self._streams, deps.leave), deps.new_id)
        self._paths: dict[str, dict[str, Handler]] = {
            "/": {"GET": self._home, "HEAD": self._home},
            "/ui": {"GET": self._home, "HEAD": self._home},
            "/ui/login": {"POST": self._login},
            "/ui/logout": {"POST": self._logout},
            "/ui/session": {"GET": self._session},
            "/ui/stream": {"GET": self._stream},
        }

    def end_streams(self) -> None:
        self._streams.end()

    def serves(self, path: str) -> bool:
        return path in PATHS or path.startswith("/ui/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = RestRequest(scope, receive)
        given = request.header(CORRELATION) or ""
        request.correlation = given if is_correlation(given) else self._deps.new_id()
        sending = _Sending(send, request.correlation)
        with correlated(correlation=request.correlation):
            try:
                answer = await self._answer(request)
                await answer(scope, receive, sending)
            except ApiError as error:
                refusal = error_answer(error, request.correlation, message=public_message(error))
                if not sending.begun:
                    await refusal(scope, receive, sending)
            except BrokenOff as error:
                _log.info("a stream broke off", reason=str(error), path=request.path)
            except Exception as error:
                _log.error("a request failed", error=error, method=request.method, path=request.path)
                if not sending.begun:
                    await error_answer(internal_error(), request.correlation)(scope, receive, sending)

    async def _answer(self, request: RestRequest) -> Application:
        path, method = request.path, request.method
        self._deps.gate.host(request)
        handlers = self._paths.get(path)
        if handlers is None and path.startswith(_STREAM):
            handlers = {"POST": partial(self._change_stream, path.removeprefix(_STREAM))}
        if handlers is None and path.startswith(_NAVIGATOR):
            forward = partial(self._ask_navigator, path.removeprefix(_NAVIGATOR))
            handlers = dict.fromkeys(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"), forward)
        if handlers is None:
            files = partial(self._file, path.removeprefix("/ui/"))
            handlers = {"GET": files, "HEAD": files}
        if method not in handlers:
            raise MethodNotAllowed(f"{method[:16]} is not possible at {path[:200]}")
        return await handlers[method](request)

    async def _home(self, request: RestRequest) -> Application:
        return RestAnswer(b"", 307, {"Location": "/ui/", "Cache-Control": "no-cache"}, "text/plain")

    async def _file(self, path: str, request: RestRequest) -> Application:
        return self._deps.files.answer(request, path)

    async def _login(self, request: RestRequest) -> Application:
        host = self._deps.gate.check(request)
        begun = await self._deps.login.begin(await request.body(MOST_BODY_BYTES), request.peer)
        _log.info("logged in", user=begun.principal.name, session=begun.id, peer=request.peer)
        cookie = session_cookie(host, begun.text, age_s=(begun.ends_at - begun.created_at) / 1000)
        return RestAnswer(b"", 204, {"Set-Cookie": cookie})

    async def _logout(self, request: RestRequest) -> Application:
        host = self._deps.gate.check(request)
        text = self._deps.gate.session_text(request)
        found = await self._deps.sessions.authenticate(text) if text else None
        if found is not None:
            await self._deps.sessions.end(found.id, actor=found.principal.name)
        return RestAnswer(b"", 204, {"Set-Cookie": session_cookie(host, "", age_s=0)})

    async def _session(self, request: RestRequest) -> Application:
        user = await self._user(request)
        session = await self._deps.sessions.authenticate(request.token)
        principal = user.principal
        return json_answer(
            {
                "user": principal.name,
                "role": principal.role,
                "workspace": principal.workspace_id,
                "workspaces": await self._workspaces(user),
                "operator": user.runs_the_fleet,
                "may": verbs_of(principal.role),
                "version": self._deps.version,
                "navigator": await self._deps.navigator.places.is_known(),
                "now": _ms(self._deps.clock),
                **_ends(session),
                "command": _COMMAND,
            }
        )

    async def _workspaces(self, user: PageUser) -> list[str]:
        own = user.principal.workspace_id
        if not user.runs_the_fleet:
            return [own]
        return [own, *(each for each in await self._deps.reads.workspaces() if each != own)]

    async def _stream(self, request: RestRequest) -> Application:
        user = await self._user(request)
        asked = dict(request.query).get("open", "")
        stream = self._pages.begin(
            request.token,
            partial(self._deps.topics.subscribe, user),
            read_opened(_read(asked.encode()) if asked else []),
        )
        return self._pages.answer(stream, self._gauge.labels("page"))

    async def _change_stream(self, id_: str, request: RestRequest) -> Application:
        await self._user(request)
        stream = self._pages.find(id_, request.token)
        body = _read(await request.body(_STREAM_BODY))
        if not isinstance(body, dict) or body.keys() - {"open", "close"}:
            raise BadRequest("the body must be an object with open and close")
        stream.change(read_opened(body.get("open", [])), read_closed(body.get("close", [])))
        return RestAnswer(b"", 204)

    async def _ask_navigator(self, path: str, request: RestRequest) -> Application:
        user = await self._user(request)
        asker = user.asker(request.header(WORKSPACE) or "")
        if request.method not in ("GET", "HEAD") and not asker.may_write:
            raise Forbidden(f"{user.principal.name!r} may read, but not change anything of the navigator")
        return await self._deps.navigator.forward(asker, request, path, self._streams)

    async def _user(self, request: RestRequest) -> PageUser:
        """Whoever sent the request; ``Unauthorized`` without a session."""
        text = self._deps.gate.credential(request)
        if not text:
            raise Unauthorized("log in first: with a link of `shoal open`, or a token")
        principal = await self._deps.credentials.authenticate(text)
        if principal is None:
            raise Unauthorized("the session has ended: log in again")
        if principal.kind != "user":
            raise Forbidden(f"a token of kind {principal.kind} cannot be used here: use a user's token")
        request.token = text
        return PageUser(principal, runs_the_fleet(principal, self._deps.operators))


class _Sending:
    """Adds what every answer of the page has."""

    def __init__(self, send: Send, correlation: str) -> None:
        self.begun = False
        self._send = send
        self._correlation = correlation

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            given: Mapping[bytes, bytes] = dict(message.get("headers", ()))
            more = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
            more += [(CORRELATION.encode(), self._correlation.encode()), (b"cache-control", b"no-store")]
            added = [(name, value) for name, value in more if name not in given]
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await self._send(message)


def _read(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"not JSON: {error}") from None


def _ends(session: OpenSession | None) -> dict[str, int]:
    return {"expiresAt": session.expires_at} if session is not None else {}


def _ms(clock: Clock) -> int:
    return round(clock.wall_s() * 1000)
