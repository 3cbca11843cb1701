"""Rollouts of an app, and of the gateways of an environment: where they are, what was decided, and what people do to
them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct

from shoal.base.asgi_common import Application
from shoal.control.api.answers import applied_answer
from shoal.control.api.documents import APPLIED, Items, Json
from shoal.control.api.events import status_fingerprint
from shoal.control.api.looks import looks, unless_away
from shoal.control.api.objects import ENVIRONMENT, PROJECT, Objects, writable
from shoal.control.api.parameters import CHANGING, Call, ref_of
from shoal.control.database.engine import Databases
from shoal.control.domain.fleet import Fleet
from shoal.control.rollout.commands import COMMANDS
from shoal.errors import BadRequest, Conflict, NotFound, TooManyRequests
from shoal.rest.answers import RestAnswer
from shoal.rest.operations import Operation
from shoal.rest.streams import RestStreams, event

_PATHS = {"App": f"{ENVIRONMENT}/apps/{{name}}", "Environment": f"{PROJECT}/environments/{{name}}"}
_OF = {"App": "an app", "Environment": "the gateways of an environment"}
_IDS = {"App": "", "Environment": "Gateway"}  # in ids of operations: getRollout, getGatewayRollout
_SAYS = {
    "pause": "Stay at the step that is under way",
    "resume": "End a pause, approve a step that waits for approval, or go on after a failure that froze it",
    "skip": "Leave out the rest of the step that is under way",
    "promote": "Leave out all steps that are left; regions still go in their waves",
    "abort": "Give all requests back to the stable revision, in all regions at once",
}


class Told(Struct, forbid_unknown_fields=True):
    """Why, for the decisions of the rollout."""

    reason: Annotated[str, Meta(max_length=1000)] = ""


class OneRollout(Struct, frozen=True, kw_only=True):
    number: Annotated[int, Meta(ge=0, description="Which rollout of the app, from 1; 0: the newest")] = 0


class RolloutPaths:
    def __init__(self, fleet: Fleet, objects: Objects, databases: Databases, streams: RestStreams) -> None:
        self._fleet = fleet
        self._objects = objects
        self._databases = databases
        self._streams = streams

    def operations(self) -> list[Operation]:
        return [each for kind in _PATHS for each in self._operations_of(kind)]

    def _operations_of(self, kind: str) -> list[Operation]:
        of, word = _OF[kind], _IDS[kind]

        def at(method: str, path: str, verb: str, summary: str, handler: Any, **more: Any) -> Operation:
            id_ = f"{verb}{word}Rollout" + ("s" if verb == "list" else "")
            return Operation(
                method=method, path=f"{_PATHS[kind]}/{path}", id=id_, tag="rollouts", summary=summary,
                handler=partial(handler, kind), **{"errors": (NotFound,), "answers": {200: Json}, **more},
            )  # fmt: skip

        changing = (BadRequest, NotFound, Conflict)
        return [
            at("GET", "rollouts", "list", f"The rollouts of {of}, newest first", self.list_, answers={200: Items}),
            at("GET", "rollout", "get", f"A rollout of {of}: its steps, regions, numbers and decisions", self.get),
            at("GET", "rollout/watch", "watch", f"The newest rollout of {of} now and after each change, as server-sent "
               "events", self.watch, answers={200: str}, media="text/event-stream", errors=(NotFound, TooManyRequests)),
            *(
                at("POST", f"rollout/{verb}", verb, _SAYS[verb], partial(self.command, verb), errors=changing)
                for verb in COMMANDS
            ),
            at("POST", "rollout/retry", "retry", "Apply the revision again that the last rollout took back",
               self.retry, answers={200: APPLIED[kind]}, errors=CHANGING),
            at("POST", "rollout/undo", "undo", "Go back to the revision that the last rollout began from",
               self.undo, answers={200: APPLIED[kind]}, errors=CHANGING),
        ]  # fmt: skip

    async def list_(self, kind: str, call: Call) -> Json:
        return {"items": await self._fleet.rollouts(call.caller.who, ref_of(call, kind))}

    async def get(self, kind: str, call: Call, query: OneRollout) -> Json:
        return await self._fleet.rollout(call.caller.who, ref_of(call, kind), query.number)

    async def watch(self, kind: str, call: Call) -> Application:
        who, ref = call.caller.who, ref_of(call, kind)
        first = await self._fleet.rollout(who, ref)
        database = self._databases.of(who.workspace_id)

        async def parts() -> AsyncGenerator[bytes, None]:
            sent = status_fingerprint(first)
            yield event("rollout", first)
            async with aclosing(looks(database, self._streams.clock)) as moments:
                async for _ in moments:
                    shown = await unless_away(lambda: self._fleet.rollout(who, ref))
                    found = sent if shown is None else status_fingerprint(shown)
                    yield event("rollout", shown) if found != sent else b""
                    sent = found

        return self._streams.events(call.request.token, parts(), "rollouts")

    async def command(self, verb: str, kind: str, call: Call, body: Told) -> Json:
        return await self._fleet.command_rollout(call.caller.who, ref_of(call, kind), verb, reason=body.reason)

    async def retry(self, kind: str, call: Call, body: Told) -> RestAnswer:
        return await self._again(kind, call, "retry", body.reason)

    async def undo(self, kind: str, call: Call, body: Told) -> RestAnswer:
        return await self._again(kind, call, "undo", body.reason)

    async def _again(self, kind: str, call: Call, verb: str, reason: str) -> RestAnswer:
        """Apply an earlier revision; what it replaces needs no steps to go back to."""
        ref = ref_of(call, kind)
        spec_of = await self._fleet.spec_again(call.caller.who, ref, verb)

        def again(found: Json) -> Json:
            base = writable(found)
            return {**base, "spec": spec_of(base["spec"])}

        why = f"{verb}: {reason}" if reason else ""
        edited = await self._objects.change(call, ref, again, forced=True, is_hurried=verb == "undo", why=why)
        return applied_answer(edited)
