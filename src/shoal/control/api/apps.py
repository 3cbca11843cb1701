"""What only some kinds have: the revisions, instances and moves of an app, and a new key for an ApiKey."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from shoal.control.api import openapi as describe
from shoal.control.api.answers import applied_answer, json_answer
from shoal.control.api.bodies import read_object
from shoal.control.api.calls import Call, Operation, bad_fields
from shoal.control.api.objects import ENVIRONMENT, Objects, writable
from shoal.control.domain.fields import Reader
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.kinds.app import MAX_REPLICAS
from shoal.control.domain.kinds.checks import is_name
from shoal.errors import FieldError, not_found, required

_APP = f"{ENVIRONMENT}/apps/{{name}}"
_KEY = f"{ENVIRONMENT}/apikeys/{{name}}"


class Apps:
    def __init__(self, fleet: Fleet, objects: Objects) -> None:
        self._fleet = fleet
        self._objects = objects

    def operations(self) -> list[Operation]:
        def app(method: str, what: str, summary: str, handler: Any, answer: str = "Items", **more: Any) -> Operation:
            return Operation(
                method=method, path=f"{_APP}/{what}", id=f"{what}App", tag="apps", summary=summary, handler=handler,
                answers={200: answer}, **more,
            )  # fmt: skip

        changing = (400, 404, 409, 412, 413, 415)
        once = (describe.DRY_RUN, describe.IF_MATCH)
        return [
            app("GET", "deployments", "The revisions of an app, newest first", self.deployments,
                parameters=(describe.LIMIT,), errors=(404,)),
            app("GET", "instances", "What runs of an app, everywhere", self.instances, errors=(404,)),
            app("GET", "explain", "Why an app is where it is, and why it is not ready", self.explain, "Anything",
                errors=(404,)),
            app("POST", "move", "Move an app to another cluster of a region: the new place becomes ready first",
                self.move, "AppApplied", body="Move", parameters=(describe.DRY_RUN,), errors=changing),
            app("POST", "scale", "Change how many instances run, in one region or in all", self.scale, "AppApplied",
                body="Scale", parameters=once, errors=changing),
            app("POST", "stop", "Stop an app everywhere", self.stop, "AppApplied", parameters=once, errors=changing),
            app("POST", "start", "Start a stopped app", self.start, "AppApplied", parameters=once, errors=changing),
            Operation(
                method="POST", path=f"{_KEY}/rotate", id="rotateApiKey", tag="apikeys", handler=self.rotate,
                summary="A new key in place of the old one, which ends at once; shown in this answer only",
                answers={200: "ApiKeyApplied"}, errors=(404,),
            ),
        ]  # fmt: skip

    async def deployments(self, call: Call) -> Response:
        found = await self._fleet.history(call.who, call.ref("App"), limit=call.limit())
        return json_answer({"items": found["revisions"]})

    async def instances(self, call: Call) -> Response:
        return json_answer({"items": await self._fleet.instances(call.who, call.ref("App"))})

    async def explain(self, call: Call) -> Response:
        return json_answer(await self._fleet.explain(call.who, call.ref("App")))

    async def move(self, call: Call) -> Response:
        ref = call.ref("App")
        errors: list[FieldError] = []
        body = Reader(await read_object(call.request), "", errors)
        region, cluster = (body.text(name, need=True, check=is_name) for name in ("region", "cluster"))
        shard = body.text("shard", check=is_name)
        body.close()
        if errors:
            raise bad_fields(errors)
        moved = await self._fleet.move(call.who, ref, region, cluster, shard, dry_run=call.flag("dryRun"))
        return applied_answer(moved)

    async def scale(self, call: Call) -> Response:
        ref = call.ref("App")
        errors: list[FieldError] = []
        body = Reader(await read_object(call.request), "", errors)
        if not body.has("replicas"):
            errors.append(required("replicas"))
        replicas, region = body.integer("replicas", 0, 0, MAX_REPLICAS), body.text("region", check=is_name)
        body.close()
        if errors:
            raise bad_fields(errors)

        def scaled(found: dict[str, Any]) -> dict[str, Any]:
            rows = found["spec"].get("topology") or []
            if region and not any(row["region"] == region for row in rows):
                raise bad_fields([not_found("region", region)])
            topology = [{**row, "replicas": replicas} if region in ("", row["region"]) else row for row in rows]
            return _with(found, topology=topology)

        return applied_answer(await self._objects.edit(call, ref, scaled))

    async def stop(self, call: Call) -> Response:
        edited = await self._objects.edit(call, call.ref("App"), lambda found: _with(found, desired="stopped"))
        return applied_answer(edited)

    async def start(self, call: Call) -> Response:
        edited = await self._objects.edit(call, call.ref("App"), lambda found: _with(found, desired="running"))
        return applied_answer(edited)

    async def rotate(self, call: Call) -> Response:
        return applied_answer(await self._fleet.rotate_key(call.who, call.ref("ApiKey")))


def _with(found: dict[str, Any], **spec: Any) -> dict[str, Any]:
    base = writable(found)
    return {**base, "spec": {**base["spec"], **spec}}
