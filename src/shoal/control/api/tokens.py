"""Tokens over the API: made, listed, replaced, revoked by administrators. The text of one is in one answer only.

A token of a user belongs to a workspace and is managed by its administrators. Tokens of agents, edges and relays belong
to the fleet and are managed by those who run it; making one for an agent also makes its region, cluster and shard
known, and answers the file that the agent joins with.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from shoal.base.clock import Clock
from shoal.control.api.answers import json_answer
from shoal.control.api.bodies import read_object, read_optional
from shoal.control.api.calls import Call, Operation, Parameter, bad_fields, no_such
from shoal.control.api.objects import ROOT
from shoal.control.database.tables import FLEET, Token
from shoal.control.database.tokens import KINDS, ROLES, ROTATION_GRACE_S, Tokens
from shoal.control.domain.access import authorize
from shoal.control.domain.fields import Reader
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.kinds.checks import is_name, is_plain
from shoal.control.domain.kinds.places import DEFAULT_SHARD
from shoal.control.domain.objects import time_text
from shoal.errors import FieldError, forbidden, required
from shoal.kube.names import Faults

_MAX_TTL_S = 100 * 365 * 86400.0
_MAX_GRACE_S = 30 * 86400.0
_workspace = re.compile(r"[a-z0-9]([a-z0-9_-]{0,62})").fullmatch
_KIND = Parameter("kind", {"type": "string", "enum": list(KINDS)}, "Only tokens of this kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A token to be made."""

    kind: str
    name: str
    workspace: str
    role: str
    cluster: str
    region: str
    shard: str
    ttl_s: float


class TokenPaths:
    def __init__(
        self, fleet: Fleet, tokens: Tokens, *, clock: Clock, url: str, ca: str, operators: Collection[str]
    ) -> None:
        self._fleet = fleet
        self._tokens = tokens
        self._clock = clock
        self._url = url
        self._ca = ca
        self._operators = operators

    def operations(self) -> list[Operation]:
        path, one = f"{ROOT}/tokens", f"{ROOT}/tokens/{{id}}"
        return [
            Operation(
                method="GET", path=path, id="listTokens", tag="tokens", handler=self.list_,
                answers={200: "TokenList"}, parameters=(_KIND,), summary="Tokens, without their texts",
            ),
            Operation(
                method="POST", path=path, id="createToken", tag="tokens", handler=self.create, body="NewToken",
                answers={201: "TokenOnce"}, errors=(400, 409, 413, 415),
                summary="Make a token; its text is in this answer only. For an agent, `join` is what it joins with",
            ),
            Operation(
                method="DELETE", path=one, id="revokeToken", tag="tokens", handler=self.revoke,
                answers={200: "Token"}, errors=(404,), summary="Revoke a token: it stops working within a second",
            ),
            Operation(
                method="POST", path=f"{one}/rotate", id="rotateToken", tag="tokens", handler=self.rotate,
                body="Rotate", body_optional=True, answers={200: "TokenOnce"}, errors=(400, 404, 409, 413, 415),
                summary="A new text for a token; the old one works for graceSeconds longer (an hour)",
            ),
        ]  # fmt: skip

    async def list_(self, call: Call) -> Response:
        kind = call.text("kind")
        rows = [row for row in await self._known(call) if kind in ("", row.kind)]
        return json_answer({"items": [self._shown(row) for row in rows]})

    async def create(self, call: Call) -> Response:
        wanted = _wanted(await read_object(call.request), call.who.workspace_id)
        await self._allow(call, wanted.kind, wanted.workspace)
        if wanted.kind == "agent":
            await self._fleet.ensure_cluster(call.who, wanted.region, wanted.cluster, wanted.shard)
        if wanted.workspace not in (FLEET, call.who.workspace_id):
            await self._fleet.ensure_workspace(wanted.workspace)
        text, row = await self._tokens.create(
            kind=wanted.kind, name=wanted.name, workspace_id=wanted.workspace, role=wanted.role,
            cluster=wanted.cluster, region=wanted.region, shard=wanted.shard, ttl_s=wanted.ttl_s, actor=call.who.actor,
        )  # fmt: skip
        return json_answer(self._once(text, row), 201)

    async def revoke(self, call: Call) -> Response:
        row = await self._find(call)
        return json_answer(self._shown(await self._tokens.revoke(row.id, actor=call.who.actor)))

    async def rotate(self, call: Call) -> Response:
        errors: list[FieldError] = []
        body = Reader(await read_optional(call.request), "", errors)
        grace_s = body.number("graceSeconds", ROTATION_GRACE_S, 0.0, _MAX_GRACE_S)
        body.close()
        if errors:
            raise bad_fields(errors)
        row = await self._find(call)
        text, row = await self._tokens.rotate(row.id, grace_s=grace_s, actor=call.who.actor)
        return json_answer(self._once(text, row))

    async def _allow(self, call: Call, kind: str, workspace: str) -> None:
        authorize(call.who, "manage", "Token")
        if kind != "user" or workspace != call.who.workspace_id:
            authorize(call.who, "operate", "Token", self._operators)

    async def _known(self, call: Call) -> list[Token]:
        """Those that the caller may manage."""
        authorize(call.who, "manage", "Token")
        rows = list(await self._tokens.list_(workspace_id=call.who.workspace_id))
        if call.who.workspace_id in self._operators and call.who.workspace_id != FLEET:
            rows += await self._tokens.list_(workspace_id=FLEET)
        return rows

    async def _find(self, call: Call) -> Token:
        asked = call.name("id")
        for row in await self._known(call):
            if row.id == asked:
                return row
        raise no_such("token", asked)

    def _once(self, text: str, row: Token) -> dict[str, Any]:
        found: dict[str, Any] = {"token": text, "info": self._shown(row)}
        if row.kind != "user":
            found["join"] = {
                "url": self._url, "ca": self._ca, "token": text, "cluster": row.cluster, "region": row.region,
                "shard": row.shard,
            }  # fmt: skip
        return found

    def _shown(self, row: Token) -> dict[str, Any]:
        now = round(self._clock.wall_s() * 1000)
        expired = bool(row.expires_at) and row.expires_at <= now
        return {
            "id": row.id,
            "kind": row.kind,
            "name": row.name,
            "workspace": row.workspace_id,
            "role": row.role,
            "cluster": row.cluster,
            "region": row.region,
            "shard": row.shard,
            "revoked": bool(row.revoked_at),
            "state": "revoked" if row.revoked_at else "expired" if expired else "active",
            "createdAt": time_text(row.created_at),
            "expiresAt": time_text(row.expires_at),
            "revokedAt": time_text(row.revoked_at),
            "lastUsedAt": time_text(row.last_used_at),
        }


def _wanted(body: dict[str, Any], workspace: str) -> Wanted:
    errors: list[FieldError] = []
    reader = Reader(body, "", errors)
    kind = reader.choice("kind", KINDS, need=True)
    user = kind == "user"
    found = Wanted(
        kind=kind,
        name=reader.text("name", need=True, check=is_plain),
        workspace=reader.text("workspace", workspace if user else FLEET, check=_is_workspace),
        role=reader.choice("role", ROLES),
        cluster=reader.text("cluster", check=is_name),
        region=reader.text("region", check=is_name),
        shard=reader.text("shard", DEFAULT_SHARD if kind == "agent" else "", check=is_name),
        ttl_s=reader.number("ttlSeconds", 0.0, 0.0, _MAX_TTL_S),
    )
    for name in ("cluster", "region") if kind == "agent" else ():
        if not reader.has(name):
            reader.note(required(name, "an agent speaks for one cluster of one region"))
    if kind == "relay" and not reader.has("region"):
        reader.note(required("region", "a relay serves the agents of one region"))
    for name in ("cluster", "shard") if kind == "relay" else ():
        if reader.has(name):
            reader.note(forbidden(name, "a relay serves the agents of all clusters of its region"))
    for name in ("cluster", "region", "shard") if user else ():
        if reader.has(name):
            reader.note(forbidden(name, "the token of a user is for no cluster"))
    if not user and kind and found.workspace != FLEET:
        reader.note(forbidden("workspace", f"a token of kind {kind} belongs to the fleet"))
    reader.close()
    if errors:
        raise bad_fields(errors)
    return found


def _is_workspace(value: str) -> Faults:
    return () if _workspace(value) else ("must be small letters, digits and dashes",)
