"""What is not an object: the kinds there are, the workspace at a glance, agents, the audit."""

from __future__ import annotations

from starlette.responses import Response

from shoal.control.api import openapi as describe
from shoal.control.api.answers import json_answer
from shoal.control.api.calls import Call, Operation, bad_query, no_such
from shoal.control.api.objects import ROOT
from shoal.control.database.engine import Databases
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.kinds.checks import is_name
from shoal.control.domain.model import API_VERSION
from shoal.control.domain.specs import KINDS
from shoal.errors import invalid


class Operations:
    def __init__(self, fleet: Fleet, databases: Databases, *, version: str) -> None:
        self._fleet = fleet
        self._databases = databases
        self._version = version

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="GET", path=ROOT, id="kinds", tag="api", handler=self.kinds, answers={200: "Anything"},
                summary="The kinds of objects, and who you are",
            ),
            Operation(
                method="GET", path=f"{ROOT}/status", id="status", tag="status", handler=self.status,
                answers={200: "Anything"}, summary="Every app of the workspace and every agent, in short",
            ),
            Operation(
                method="GET", path=f"{ROOT}/agents", id="listAgents", tag="agents", handler=self.agents,
                answers={200: "Items"}, summary="Every agent: cursor, lag, heartbeat, breaker, held deletions",
            ),
            Operation(
                method="POST", path=f"{ROOT}/agents/{{cluster}}/{{shard}}/confirm-deletes", id="confirmDeletes",
                tag="agents", handler=self.confirm_deletes, answers={200: "Anything"}, errors=(404,),
                summary="Agree to the deletions that an agent holds back",
            ),
            Operation(
                method="GET", path=f"{ROOT}/audit", id="listAudit", tag="audit", handler=self.audit,
                answers={200: "Items"}, parameters=(describe.LIMIT, describe.CONTINUE),
                summary="Who changed what in the workspace, newest first",
            ),
        ]  # fmt: skip

    async def kinds(self, call: Call) -> Response:
        return json_answer(
            {
                "apiVersion": API_VERSION,
                "version": self._version,
                "fleet": self._databases.fleet.fleet,
                "you": {
                    "name": call.who.actor,
                    "workspace": call.who.workspace_id,
                    "role": call.who.role,
                    "token": call.principal.token_id,
                },
                "kinds": [
                    {"kind": kind.name, "plural": kind.plural, "scope": kind.scope, "order": position}
                    for position, kind in enumerate(KINDS.values())
                ],
            }
        )

    async def status(self, call: Call) -> Response:
        return json_answer(await self._fleet.status(call.who))

    async def agents(self, call: Call) -> Response:
        return json_answer({"items": await self._fleet.agents(call.who)})

    async def confirm_deletes(self, call: Call) -> Response:
        cluster, shard = call.name("cluster"), call.name("shard")
        if is_name(cluster) or is_name(shard):
            raise no_such("agent", f"{cluster}/{shard}")
        shards = await self._fleet.confirm_deletes(call.who, cluster, shard)
        if not shards:
            raise no_such("agent", f"{cluster}/{shard}")
        return json_answer({"cluster": cluster, "shards": shards})

    async def audit(self, call: Call) -> Response:
        position, limit = call.position(), call.limit()
        if position and not (position.isdecimal() and len(position) < 19):
            raise bad_query(invalid("continue", position, "is no position in a list: use the one of the last page"))
        found = await self._fleet.audit(call.who, before=int(position or 0), limit=limit)
        return json_answer({"items": found, "continue": str(found[-1]["id"]) if len(found) == limit else ""})
