"""What only some kinds have: the revisions, instances and moves of an app, and a new key for an ApiKey."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from shoal.control.api.answers import applied_answer
from shoal.control.api.documents import APPLIED, Items, Json
from shoal.control.api.objects import ENVIRONMENT, PROJECT, Objects, writable
from shoal.control.api.parameters import CHANGING, Call, DryRun, Limited, Name, ref_of
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.kinds.app import MAX_REPLICAS
from shoal.control.domain.plan import RESTARTS, spec_of_revision
from shoal.errors import NotFound, invalid, not_found, required
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
    """How many instances run, in one region or in all; ``min`` and ``max`` where an autoscaler decides."""

    replicas: Annotated[int, Meta(ge=0, le=MAX_REPLICAS)] | UnsetType = UNSET
    min: Annotated[int, Meta(ge=1, le=MAX_REPLICAS)] | UnsetType = UNSET
    max: Annotated[int, Meta(ge=1, le=MAX_REPLICAS)] | UnsetType = UNSET
    region: Name | UnsetType = UNSET


class Rollback(Struct, forbid_unknown_fields=True):
    """To which revision; without one, to the last that was ready before the newest."""

    to: Annotated[int, Meta(ge=1)] | UnsetType = UNSET


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
            app("POST", "rollback", "Make a new revision that is like an earlier one; how many and where stay",
                self.rollback, applied, errors=CHANGING),
            app("POST", "stop", "Stop an app everywhere", self.stop, applied, errors=CHANGING),
            app("POST", "start", "Start a stopped app", self.start, applied, errors=CHANGING),
            app("POST", "restart", "Make a new revision like the newest one, whose instances replace the old ones",
                self.restart, applied, errors=CHANGING),
            Operation(
                method="GET", path=f"{PROJECT}/environments/{{name}}/explain", id="explainEnvironment",
                tag="environments", handler=self.explain_environment, answers={200: Json}, errors=(NotFound,),
                summary="What the gateways of an environment lack, and why their rollout waits or went back",
            ),
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

    async def explain_environment(self, call: Call) -> Json:
        return await self._fleet.explain(call.caller.who, ref_of(call, "Environment"))

    async def move(self, call: Call, query: DryRun, body: Move) -> RestAnswer:
        ref = ref_of(call, "App")
        moved = await self._fleet.move(
            call.caller.who, ref, body.region, body.cluster, body.shard or "", dry_run=query.dry_run
        )  # fmt: skip
        return applied_answer(moved)

    async def scale(self, call: Call, query: DryRun, headers: IfMatch, body: Scale) -> RestAnswer:
        skipped: list[str] = []

        def scaled(found: Json) -> Json:
            skipped.clear()
            return _with(found, topology=_scaled(found["spec"], body, skipped))

        applied = await self._objects.edit(call, ref_of(call, "App"), query, headers, scaled)
        notes = [f"autoscaled in {', '.join(skipped)}: replicas has no effect there; use min and max"]
        return applied_answer(replace(applied, warnings=[*applied.warnings, *notes]) if skipped else applied)

    async def rollback(self, call: Call, query: DryRun, headers: IfMatch, body: Rollback) -> RestAnswer:
        ref = ref_of(call, "App")
        known = (await self._fleet.history(call.caller.who, ref))["revisions"]
        template = _earlier(known, body.to if isinstance(body.to, int) else 0)["template"]

        def back(found: Json) -> Json:
            base = writable(found)
            return {**base, "spec": spec_of_revision(base["spec"], template)}

        edited = await self._objects.edit(call, ref, query, headers, back, forced=True, is_hurried=True)
        return applied_answer(edited)

    async def stop(self, call: Call, query: DryRun, headers: IfMatch) -> RestAnswer:
        return await self._wanted(call, query, headers, "stopped")

    async def start(self, call: Call, query: DryRun, headers: IfMatch) -> RestAnswer:
        return await self._wanted(call, query, headers, "running")

    async def restart(self, call: Call, query: DryRun, headers: IfMatch) -> RestAnswer:
        ref = ref_of(call, "App")

        known = (await self._fleet.history(call.caller.who, ref, limit=1))["revisions"]
        count = int(known[0]["template"].get(RESTARTS) or 0) if known else 0
        edited = await self._objects.edit(
            call, ref, query, headers, lambda found: _with(found, restarts=count + 1), is_hurried=True
        )
        return applied_answer(edited)

    async def _wanted(self, call: Call, query: DryRun, headers: IfMatch, desired: str) -> RestAnswer:
        ref = ref_of(call, "App")
        edited = await self._objects.edit(call, ref, query, headers, lambda found: _with(found, desired=desired))
        return applied_answer(edited)

    async def rotate(self, call: Call) -> RestAnswer:
        return applied_answer(await self._fleet.rotate_key(call.caller.who, ref_of(call, "ApiKey")))


def _with(found: dict[str, Any], **spec: Any) -> dict[str, Any]:
    base = writable(found)
    return {**base, "spec": {**base["spec"], **spec}}


def _scaled(spec: dict[str, Any], body: Scale, skipped: list[str]) -> list[dict[str, Any]]:
    """The topology with other numbers; regions whose autoscaler ignores them are named in ``skipped``."""
    rows = spec.get("topology") or []
    chosen = [row["region"] for row in rows if body.region in (UNSET, row["region"])]
    if body.region and not chosen:
        raise bad_fields([not_found("region", body.region)])
    scaling: Json = {row["region"]: row.get("autoscaling") or spec.get("autoscaling") or {} for row in rows}
    bounds = {name: value for name, value in (("min", body.min), ("max", body.max)) if value is not UNSET}
    autoscaled = [region for region in chosen if scaling[region]]
    if not bounds and body.replicas is UNSET:
        raise bad_fields([required("replicas", "or min and max where an autoscaler decides")])
    if bounds and not autoscaled:
        name, value = next(iter(bounds.items()))
        raise bad_fields([invalid(name, value, "has no effect: not autoscaled; use replicas, or set autoscaling")])
    if not bounds and len(autoscaled) == len(chosen) and chosen:
        now = ", ".join(
            f"{region} between {scaling[region].get('min', 1)} and {_most(scaling[region])}" for region in autoscaled
        )
        raise bad_fields([invalid("replicas", body.replicas, f"has no effect: autoscaled in {now}; use min and max")])
    if body.replicas is not UNSET:
        skipped += autoscaled
    changed = []
    for row in rows:
        region = row["region"]
        if region in autoscaled and bounds:
            row = {**row, "autoscaling": {**scaling[region], **bounds}}
        elif region in chosen and region not in autoscaled and body.replicas is not UNSET:
            row = {**row, "replicas": body.replicas}
        changed.append(row)
    return changed


def _most(scaling: dict[str, Any]) -> int:
    return int(scaling.get("max") or scaling.get("min") or 1)


def _earlier(revisions: list[dict[str, Any]], number: int) -> dict[str, Any]:
    """The revision to go back to; ``revisions`` are newest first."""
    if number:
        found = next((each for each in revisions if each["revision"] == number), None)
        if found is None:
            known = ", ".join(str(each["revision"]) for each in revisions)
            raise bad_fields([invalid("to", number, f"not a revision of this app (existing: {known})")])
        return found
    ready = [each for each in revisions[1:] if each["readyAt"]]
    if not ready:
        raise bad_fields([required("to", "no earlier revision of this app was ever ready")])
    return ready[0]
