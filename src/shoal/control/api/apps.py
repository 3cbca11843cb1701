"""What only some kinds have: the revisions, instances and moves of an app, and a new key for an ApiKey."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from shoal.control.api.answers import applied_answer
from shoal.control.api.documents import APPLIED, Items, Json
from shoal.control.api.objects import ENVIRONMENT, Objects, writable
from shoal.control.api.parameters import CHANGING, Call, DryRun, Limited, Name, ref_of
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.kinds.app import MAX_REPLICAS
from shoal.errors import NotFound, not_found
from shoal.rest.answers import RestAnswer, bad_fields
from shoal.rest.conditions import IfMatch
from shoal.rest.operations import Operation

_APP = f"{ENVIRONMENT}/apps/{{name}}"
_KEY = f"{ENVIRONMENT}/apikeys/{{name}}"


class Move(Struct, forbid_unknown_fields=True):
    """The target of a move; without a shard, placement chooses one."""

    region: Name
    cluster: Name
    shard: Name | UnsetType = UNSET


class Scale(Struct, forbid_unknown_fields=True):
    """How many instances run, in one region or in all."""

    replicas: Annotated[int, Meta(ge=0, le=MAX_REPLICAS)]
    region: Name | UnsetType = UNSET


class Apps:
    def __init__(self, fleet: Fleet, objects: Objects) -> None:
        self._fleet = fleet
        self._objects = objects

    def operations(self) -> list[Operation]:
        def app(method: str, what: str, summary: str, handler: Any, answer: Any = Items, **more: Any) -> Operation:
            return Operation(
                method=method, path=f"{_APP}/{what}", id=f"{what}App", tag="apps", summary=summary, handler=handler,
                answers={200: answer}, **{"errors": (NotFound,), **more},
            )  # fmt: skip

        applied = APPLIED["App"]
        return [
            app("GET", "deployments", "The revisions of an app, newest first", self.deployments),
            app("GET", "instances", "The instances of an app in all regions", self.instances),
            app("GET", "explain", "Why an app was placed where it is, and why it is not ready", self.explain, Json),
            app("POST", "move", "Move an app to another cluster of a region; the old place ends when the new is ready",
                self.move, applied, errors=CHANGING),
            app("POST", "scale", "Change how many instances run, in one region or in all", self.scale, applied,
                errors=CHANGING),
            app("POST", "stop", "Stop an app everywhere", self.stop, applied, errors=CHANGING),
            app("POST", "start", "Start a stopped app", self.start, applied, errors=CHANGING),
            Operation(
                method="POST", path=f"{_KEY}/rotate", id="rotateApiKey", tag="apikeys", handler=self.rotate,
                summary="Replace the key; the old one ends at once, the new one is shown in this answer only",
                answers={200: APPLIED["ApiKey"]}, errors=(NotFound,),
            ),
        ]  # fmt: skip

    async def deployments(self, call: Call, query: Limited) -> Json:
        found = await self._fleet.history(call.caller.who, ref_of(call, "App"), limit=query.limit)
        return {"items": found["revisions"]}

    async def instances(self, call: Call) -> Json:
        return {"items": await self._fleet.instances(call.caller.who, ref_of(call, "App"))}

    async def explain(self, call: Call) -> Json:
        return await self._fleet.explain(call.caller.who, ref_of(call, "App"))

    async def move(self, call: Call, query: DryRun, body: Move) -> RestAnswer:
        ref = ref_of(call, "App")
        moved = await self._fleet.move(
            call.caller.who, ref, body.region, body.cluster, body.shard or "", dry_run=query.dry_run
        )  # fmt: skip
        return applied_answer(moved)

    async def scale(self, call: Call, query: DryRun, headers: IfMatch, body: Scale) -> RestAnswer:
        def scaled(found: Json) -> Json:
            rows = found["spec"].get("topology") or []
            if body.region and not any(row["region"] == body.region for row in rows):
                raise bad_fields([not_found("region", body.region)])
            topology = [
                {**row, "replicas": body.replicas} if body.region in (UNSET, row["region"]) else row for row in rows
            ]
            return _with(found, topology=topology)

        return applied_answer(await self._objects.edit(call, ref_of(call, "App"), query, headers, scaled))

    async def stop(self, call: Call, query: DryRun, headers: IfMatch) -> RestAnswer:
        return await self._wanted(call, query, headers, "stopped")

    async def start(self, call: Call, query: DryRun, headers: IfMatch) -> RestAnswer:
        return await self._wanted(call, query, headers, "running")

    async def _wanted(self, call: Call, query: DryRun, headers: IfMatch, desired: str) -> RestAnswer:
        ref = ref_of(call, "App")
        edited = await self._objects.edit(call, ref, query, headers, lambda found: _with(found, desired=desired))
        return applied_answer(edited)

    async def rotate(self, call: Call) -> RestAnswer:
        return applied_answer(await self._fleet.rotate_key(call.caller.who, ref_of(call, "ApiKey")))


def _with(found: dict[str, Any], **spec: Any) -> dict[str, Any]:
    base = writable(found)
    return {**base, "spec": {**base["spec"], **spec}}
