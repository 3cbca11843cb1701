"""Sessions of the page over the API: links that log in, and the sessions of a workspace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta, Struct

from shoal.control.api.access import is_session
from shoal.control.api.objects import ROOT
from shoal.control.api.parameters import Call
from shoal.control.database.sessions import OpenSession, Sessions
from shoal.control.domain.access import authorize
from shoal.control.domain.objects import time_text
from shoal.errors import Forbidden, NotFound
from shoal.rest.operations import Operation
from shoal.rest.request import RestRequest

PageUrl = Callable[[RestRequest], str]
"""Where the sender of a request finds the page without TLS, on its own machine; empty where it does not."""


class LoginCodeOnce(Struct, rename="camel"):
    """``code`` is shown this once; it logs one browser in. ``page`` is empty where the page has the API's address."""

    code: str
    expires_at: str | None
    page: Annotated[str, Meta(description="URL of the page without TLS, for a browser on the same machine")]


class SessionInfo(Struct, rename="camel"):
    id: str
    user: str
    role: str
    token: Annotated[str, Meta(description="Id of the token that it stands for")]
    created_at: str | None
    used_at: str | None
    expires_at: str | None
    current: Annotated[bool, Meta(description="It is the one that asks")]


class SessionList(Struct):
    items: list[SessionInfo]


class SessionPaths:
    def __init__(self, sessions: Sessions, page_url: PageUrl) -> None:
        self._sessions = sessions
        self._page_url = page_url

    def operations(self) -> list[Operation]:
        path = f"{ROOT}/sessions"
        return [
            Operation(
                method="POST", path=f"{ROOT}/login-codes", id="createLoginCode", tag="sessions", handler=self.new_code,
                answers={201: LoginCodeOnce}, errors=(Forbidden,),
                summary="A code that logs a browser in to the page: once, and within two minutes",
            ),
            Operation(
                method="GET", path=path, id="listSessions", tag="sessions", handler=self.list_,
                answers={200: SessionList}, summary="Open sessions: your own, as an administrator all of the workspace",
            ),
            Operation(
                method="DELETE", path=f"{path}/{{session}}", id="endSession", tag="sessions", handler=self.end,
                answers={200: SessionInfo}, errors=(NotFound,),
                summary="End a session: your own, as an administrator any of the workspace",
            ),
        ]  # fmt: skip

    async def new_code(self, call: Call) -> LoginCodeOnce:
        if is_session(call.request.token):  # it would outlive its own end
            raise Forbidden("a session of the page cannot begin another one: use a token")
        code, expires_at = await self._sessions.new_code(call.caller.principal)
        return LoginCodeOnce(code, time_text(expires_at), self._page_url(call.request))

    async def list_(self, call: Call) -> SessionList:
        own = await self._sessions.authenticate(call.request.token)
        return SessionList([_shown(each, own) for each in await self._seen(call)])

    async def end(self, call: Call) -> SessionInfo:
        own = await self._sessions.authenticate(call.request.token)
        for each in await self._seen(call):
            if each.id == call.path["session"]:
                await self._sessions.end(each.id, actor=call.caller.who.actor)
                return _shown(each, own)
        raise NotFound.of("sessions", "shoal.dev", call.path["session"])

    async def _seen(self, call: Call) -> list[OpenSession]:
        who, own = call.caller.who, call.caller.principal.token_id
        found = await self._sessions.list_(who.workspace_id)
        try:
            authorize(who, "manage", "Session")
        except Forbidden:
            return [each for each in found if each.principal.token_id == own]
        return list(found)


def _shown(each: OpenSession, own: OpenSession | None) -> SessionInfo:
    return SessionInfo(
        id=each.id, user=each.principal.name, role=each.principal.role, token=each.principal.token_id,
        created_at=time_text(each.created_at), used_at=time_text(each.used_at), expires_at=time_text(each.expires_at),
        current=own is not None and each.id == own.id,
    )  # fmt: skip
