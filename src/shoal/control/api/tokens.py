"""Tokens over the API: administrators create, list, rotate and revoke them. The text of a token is in one answer only.

A token of a user belongs to a workspace and is managed by its administrators. Tokens of agents, edges and relays belong
to the fleet and are managed by its operators. Creating one for an agent also creates its region, cluster and shard, and
the answer contains the join file of the agent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from shoal.control.api.objects import ROOT
from shoal.control.api.parameters import Call, Name, WorkspaceName
from shoal.control.database.tables import FLEET, NAME_LENGTH, Token
from shoal.control.database.tokens import ROTATION_GRACE_S, ApiTokens
from shoal.control.domain.access import authorize
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.kinds.places import DEFAULT_SHARD
from shoal.control.domain.objects import time_text
from shoal.errors import AlreadyExists, Conflict, FieldError, NotFound, forbidden, required
from shoal.rest.answers import bad_fields, no_such
from shoal.rest.operations import Operation

_MAX_TTL_S = 100 * 365 * 86400.0
_MAX_GRACE_S = 30 * 86400.0
_MANAGE = "manage Token"
TokenKind = Literal["user", "agent", "edge", "relay"]


class NewToken(Struct, forbid_unknown_fields=True, rename="camel"):
    """A token of a user has a role and a workspace, that of an agent a cluster and a region, that of a relay a region.
    Without ``ttlSeconds`` it works until it is revoked."""

    kind: TokenKind
    name: Annotated[str, Meta(max_length=NAME_LENGTH)]
    role: Literal["viewer", "editor", "admin"] | UnsetType = UNSET
    workspace: WorkspaceName | UnsetType = UNSET
    cluster: Name | UnsetType = UNSET
    region: Name | UnsetType = UNSET
    shard: Name | UnsetType = UNSET
    ttl_seconds: Annotated[float, Meta(ge=0, le=_MAX_TTL_S)] = 0.0


class RotateToken(Struct, forbid_unknown_fields=True, rename="camel"):
    """For how long the old text works."""

    grace_seconds: Annotated[float, Meta(ge=0, le=_MAX_GRACE_S)] = ROTATION_GRACE_S


class ListedTokens(Struct, frozen=True):
    kind: Annotated[TokenKind | None, Meta(description="Only tokens of this kind")] = None


class TokenInfo(Struct, rename="camel"):
    id: str
    kind: str
    name: str
    workspace: str
    role: str
    cluster: str
    region: str
    shard: str
    revoked: bool
    state: Literal["active", "revoked", "expired"]
    created_at: str | None
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None


class TokenList(Struct):
    items: list[TokenInfo]


class JoinFile(Struct):
    """What an agent, an edge or a relay connects with. An agent tries ``urls`` in their order; ``url`` is the first."""

    url: str
    ca: str
    token: str
    cluster: str
    region: str
    shard: str
    urls: list[str] | UnsetType = UNSET


class TokenOnce(Struct):
    """``token`` is shown this once. ``join`` is there for all but users."""

    token: str
    info: TokenInfo
    join: JoinFile | UnsetType = UNSET


class TokenPaths:
    def __init__(
        self, fleet: Fleet, tokens: ApiTokens, *, urls: Sequence[str], ca: Callable[[], str], operators: Collection[str]
    ) -> None:
        self._fleet = fleet
        self._tokens = tokens
        self._urls = list(urls)
        self._ca = ca
        self._operators = operators

    def operations(self) -> list[Operation]:
        path, one = f"{ROOT}/tokens", f"{ROOT}/tokens/{{id}}"
        return [
            Operation(
                method="GET", path=path, id="listTokens", tag="tokens", handler=self.list_, needs=_MANAGE,
                answers={200: TokenList}, summary="Tokens, without their texts",
            ),
            Operation(
                method="POST", path=path, id="createToken", tag="tokens", handler=self.create, needs=_MANAGE,
                answers={201: TokenOnce}, errors=(AlreadyExists, Conflict),
                summary="Create a token; its text is in this answer only. For an agent, `join` is its join file",
            ),
            Operation(
                method="DELETE", path=one, id="revokeToken", tag="tokens", handler=self.revoke, needs=_MANAGE,
                answers={200: TokenInfo}, errors=(NotFound,),
                summary="Revoke a token: it stops working within a second",
            ),
            Operation(
                method="POST", path=f"{one}/rotate", id="rotateToken", tag="tokens", handler=self.rotate,
                needs=_MANAGE, answers={200: TokenOnce}, errors=(NotFound, AlreadyExists, Conflict),
                summary="A new text for a token; the old one works for graceSeconds longer (an hour)",
            ),
        ]  # fmt: skip

    async def list_(self, call: Call, query: ListedTokens) -> TokenList:
        rows = [row for row in await self._known(call) if query.kind in (None, row.kind)]
        return TokenList([self._shown(row) for row in rows])

    async def create(self, call: Call, body: NewToken) -> TokenOnce:
        who = call.caller.who
        _check(body)
        workspace = body.workspace or (who.workspace_id if body.kind == "user" else FLEET)
        cluster, region = body.cluster or "", body.region or ""
        shard = body.shard or (DEFAULT_SHARD if body.kind == "agent" else "")
        if body.kind != "user" or workspace != who.workspace_id:
            authorize(who, "operate", "Token", self._operators)
        if body.kind == "agent":
            await self._fleet.ensure_cluster(who, region, cluster, shard)
        if workspace not in (FLEET, who.workspace_id):
            await self._fleet.ensure_workspace(workspace)
        text, row = await self._tokens.create(
            kind=body.kind, name=body.name, workspace_id=workspace, role=body.role or "", cluster=cluster,
            region=region, shard=shard, ttl_s=body.ttl_seconds, actor=who.actor,
        )  # fmt: skip
        return self._once(text, row)

    async def revoke(self, call: Call) -> TokenInfo:
        row = await self._find(call)
        return self._shown(await self._tokens.revoke(row.id, actor=call.caller.who.actor))

    async def rotate(self, call: Call, body: RotateToken) -> TokenOnce:
        row = await self._find(call)
        text, row = await self._tokens.rotate(row.id, grace_s=body.grace_seconds, actor=call.caller.who.actor)
        return self._once(text, row)

    async def _known(self, call: Call) -> list[Token]:
        """Those that the caller may manage."""
        own = call.caller.who.workspace_id
        rows = list(await self._tokens.list_(workspace_id=own))
        if own in self._operators and own != FLEET:
            rows += await self._tokens.list_(workspace_id=FLEET)
        return rows

    async def _find(self, call: Call) -> Token:
        wanted = call.path["id"]
        for row in await self._known(call):
            if row.id == wanted:
                return row
        raise no_such("token", wanted)

    def _once(self, text: str, row: Token) -> TokenOnce:
        if row.kind == "user":
            return TokenOnce(text, self._shown(row))
        several = self._urls if row.kind == "agent" and len(self._urls) > 1 else UNSET
        join = JoinFile(self._urls[0], self._ca(), text, row.cluster, row.region, row.shard, several)
        return TokenOnce(text, self._shown(row), join)

    def _shown(self, row: Token) -> TokenInfo:
        expired = self._tokens.has_expired(row)
        return TokenInfo(
            id=row.id,
            kind=row.kind,
            name=row.name,
            workspace=row.workspace_id,
            role=row.role,
            cluster=row.cluster,
            region=row.region,
            shard=row.shard,
            revoked=bool(row.revoked_at),
            state="revoked" if row.revoked_at else "expired" if expired else "active",
            created_at=time_text(row.created_at),
            expires_at=time_text(row.expires_at),
            revoked_at=time_text(row.revoked_at),
            last_used_at=time_text(row.last_used_at),
        )


def _check(body: NewToken) -> None:
    """Check the fields that depend on each other."""
    given = {name: value for name in ("cluster", "region", "shard") if (value := getattr(body, name))}
    errors: list[FieldError] = []
    if body.kind == "agent":
        missing = [name for name in ("cluster", "region") if name not in given]
        errors += [required(name, "an agent needs exactly one cluster and one region") for name in missing]
    elif body.kind == "relay":
        if "region" not in given:
            errors.append(required("region", "a relay serves the agents of one region"))
        extra = [name for name in ("cluster", "shard") if name in given]
        errors += [forbidden(name, "a relay serves the agents of all clusters of its region") for name in extra]
    elif body.kind == "user":
        errors += [forbidden(name, "a user's token cannot be bound to a cluster") for name in given]
    if body.kind != "user" and body.workspace and body.workspace != FLEET:
        errors.append(forbidden("workspace", f"a token of kind {body.kind} belongs to the fleet"))
    if errors:
        raise bad_fields(errors)
