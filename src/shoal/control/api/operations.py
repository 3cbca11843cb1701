"""Operations that are not on an object: the list of kinds, the workspace summary, agents, the audit log; and waits for
gateways."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from shoal.control.api.documents import Items, Json
from shoal.control.api.objects import ENVIRONMENT, ROOT
from shoal.control.api.parameters import Call, Limited, ref_of
from shoal.control.database.engine import Databases
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.kinds.checks import is_name
from shoal.control.domain.model import API_VERSION
from shoal.control.domain.specs import KINDS
from shoal.errors import NotFound
from shoal.rest.answers import no_such
from shoal.rest.operations import Operation

AuditPosition = Annotated[
    str,
    Meta(
        pattern="^[0-9]{1,18}$",
        description="The `continue` token of the previous page",
        extra={"expected": "is not a valid token: use the one of the previous page"},
    ),
]


class ListedAudit(Limited, frozen=True, kw_only=True):
    position: AuditPosition = field(name="continue", default="")


class Operations:
    def __init__(self, fleet: Fleet, databases: Databases, *, version: str) -> None:
        self._fleet = fleet
        self._databases = databases
        self._version = version

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="GET", path=ROOT, id="kinds", tag="api", handler=self.kinds, answers={200: Json},
                summary="The kinds of objects, and the caller's identity",
            ),
            Operation(
                method="GET", path=f"{ROOT}/status", id="status", tag="status", handler=self.status,
                answers={200: Json}, summary="A summary of every app of the workspace and of every agent",
            ),
            Operation(
                method="GET", path=f"{ROOT}/agents", id="listAgents", tag="agents", handler=self.agents,
                answers={200: Items}, summary="Every agent: cursor, lag, heartbeat, breaker, held deletions",
            ),
            Operation(
                method="POST", path=f"{ROOT}/agents/{{cluster}}/{{shard}}/confirm-deletes", id="confirmDeletes",
                tag="agents", handler=self.confirm_deletes, answers={200: Json}, errors=(NotFound,),
                summary="Confirm the deletions that an agent holds back",
            ),
            *(
                Operation(
                    method="POST", path=f"{path}/sentinels/{{name}}/forget", id=f"forget{which}Sentinel",
                    tag="sentinels", handler=self.forget, answers={200: Json}, errors=(NotFound,),
                    summary="Wait no longer for a gateway to take its routes, until it is heard of again",
                )
                for path, which in ((ENVIRONMENT, ""), (ROOT, "Shared"))
            ),
            Operation(
                method="GET", path=f"{ROOT}/audit", id="listAudit", tag="audit", handler=self.audit,
                answers={200: Items},
                summary="The audit log of the workspace, newest first",
            ),
        ]  # fmt: skip

    async def kinds(self, call: Call) -> Json:
        who = call.caller.who
        return {
            "apiVersion": API_VERSION,
            "version": self._version,
            "fleet": self._databases.fleet.fleet,
            "you": {
                "name": who.actor,
                "workspace": who.workspace_id,
                "role": who.role,
                "token": call.caller.principal.token_id,
            },
            "kinds": [
                {"kind": kind.name, "plural": kind.plural, "scope": kind.scope, "order": position}
                for position, kind in enumerate(KINDS.values())
            ],
        }

    async def status(self, call: Call) -> Json:
        return await self._fleet.status(call.caller.who)

    async def agents(self, call: Call) -> Json:
        return {"items": await self._fleet.agents(call.caller.who)}

    async def confirm_deletes(self, call: Call) -> Json:
        cluster, shard = call.path["cluster"], call.path["shard"]
        if is_name(cluster) or is_name(shard):
            raise no_such("agent", f"{cluster}/{shard}")
        shards = await self._fleet.confirm_deletes(call.caller.who, cluster, shard)
        if not shards:
            raise no_such("agent", f"{cluster}/{shard}")
        return {"cluster": cluster, "shards": shards}

    async def forget(self, call: Call) -> Json:
        return {"pods": await self._fleet.forget_gateway(call.caller.who, ref_of(call, "Sentinel"))}

    async def audit(self, call: Call, query: ListedAudit) -> Json:
        found = await self._fleet.audit(call.caller.who, before=int(query.position or 0), limit=query.limit)
        return {"items": found, "continue": str(found[-1]["id"]) if len(found) == query.limit else ""}
