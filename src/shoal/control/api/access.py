"""Authentication and authorization of API requests: the user of a token or session, the workspace and the role."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select

from shoal.control.database.engine import Databases
from shoal.control.database.sessions import PREFIX, Sessions
from shoal.control.database.tables import Workspace
from shoal.control.database.tokens import ApiTokens, Principal
from shoal.control.domain.access import authorize
from shoal.control.domain.model import Actor
from shoal.errors import BadRequest, Forbidden
from shoal.rest.answers import no_such
from shoal.rest.api import RestMetrics
from shoal.rest.request import RestRequest

WORKSPACE = "x-shoal-workspace"
is_workspace = re.compile(r"[a-z0-9]([a-z0-9_-]{0,62})").fullmatch
_LOOPBACK = ("127.", "::1", "::ffff:127.")
_BY_PROXY = ("forwarded", "x-forwarded-for", "via")


@dataclass(frozen=True, slots=True)
class ApiCaller:
    """``who`` acts in the requested workspace; ``principal`` is the owner of the token."""

    who: Actor
    principal: Principal


class Credentials:
    """What a request may carry: the text of a token or of a session."""

    def __init__(self, tokens: ApiTokens, sessions: Sessions) -> None:
        self._tokens = tokens
        self._sessions = sessions

    async def authenticate(self, text: str) -> Principal | None:
        """Whom it speaks for; None when it does not work."""
        if not is_session(text):
            return await self._tokens.authenticate(text)
        found = await self._sessions.authenticate(text)
        return found.principal if found is not None else None


def is_session(text: str) -> bool:
    return text.startswith(PREFIX)


class ApiAccess:
    """``operators`` are the workspaces that run the fleet."""

    def __init__(self, databases: Databases, metrics: RestMetrics, operators: Collection[str]) -> None:
        self._databases = databases
        self._metrics = metrics
        self._operators = frozenset(operators)

    async def admit(self, request: RestRequest, principal: Principal) -> ApiCaller:
        if principal.kind != "user":
            self._metrics.refused.labels("kind").inc()
            raise Forbidden(f"a token of kind {principal.kind} cannot be used here: use a user's token")
        workspace = await self._workspace(principal, request.header(WORKSPACE) or "")
        who = Actor(workspace, principal.name, principal.role, request.trace, request.correlation, request.accepted_at)
        return ApiCaller(who, principal)

    def authorize(self, caller: ApiCaller, needs: str) -> None:
        """``needs`` is a verb and a kind: ``manage Token``."""
        verb, _, kind = needs.partition(" ")
        authorize(caller.who, verb, kind, self._operators)

    async def _workspace(self, principal: Principal, asked: str) -> str:
        """The workspace that was asked for, the principal's own if none was."""
        if not asked or asked == principal.workspace_id:
            return principal.workspace_id
        if not runs_the_fleet(principal, self._operators):
            self._metrics.refused.labels("workspace").inc()
            raise Forbidden(f"{principal.name!r} belongs to another workspace and does not run the fleet")
        if not is_workspace(asked):
            raise BadRequest(f"X-Shoal-Workspace is {asked[:64]!r}, which is not the name of a workspace")
        async with self._databases.of(asked).reading() as session:
            found = await session.scalar(select(Workspace.id).where(Workspace.id == asked))
        if found is None:
            raise no_such("workspace", asked)
        return asked


def runs_the_fleet(principal: Principal, operators: Collection[str]) -> bool:
    """Administrators of the fleet may speak for any workspace."""
    return principal.role == "admin" and principal.workspace_id in operators


def from_this_machine(request: RestRequest) -> bool:
    """Whether a request was sent from this machine and not forwarded for another client."""
    return request.peer.startswith(_LOOPBACK) and all(request.header(name) is None for name in _BY_PROXY)
