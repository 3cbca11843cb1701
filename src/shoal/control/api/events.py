"""What happens, as it happens: the events of a workspace, and the status of its apps whenever it changes.

Events are numbered, but where several transactions write at the same time a lower number may become visible after a
higher one. So a follower looks again at the numbers of the last seconds, and sends each once.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import orjson
from starlette.responses import Response

from shoal.base.clock import Clock
from shoal.control.api import openapi as describe
from shoal.control.api.answers import json_answer
from shoal.control.api.calls import Call, Operation, Parameter, bad_fields, bad_query
from shoal.control.api.gate import ApiMetrics
from shoal.control.api.objects import ENVIRONMENT, ROOT
from shoal.control.api.streams import Streams, event
from shoal.control.database.engine import Database, Databases
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.kinds.checks import is_name
from shoal.control.domain.model import Ref
from shoal.control.domain.objects import workspace_of
from shoal.control.domain.specs import KINDS
from shoal.errors import FieldError, ServiceUnavailable, invalid, not_supported, required

LOOK_S = 1.0  # without a hint
REST_S = 0.1  # between two looks, however many hints there are
SETTLED_S = 5.0  # no transaction that writes an event takes longer
BATCH = 200
_FROM_THE_BEGINNING = -1
_AGES = frozenset({"age", "lastHeartbeat", "lag", "lag_seconds", "cursor"})
_LONGEST_NUMBER = 18
_without_durations = re.compile(rb"[0-9][0-9.]* s\b")

_FOLLOW = Parameter("follow", {"type": "boolean"}, "Go on as a stream of server-sent events")
_AFTER = Parameter("after", {"type": "integer", "minimum": 0}, "Only events after this id, oldest first")
_OF = (
    Parameter("kind", {"type": "string", "enum": list(KINDS)}, "Only of this kind; with name, of this object"),
    Parameter("name", {"type": "string"}, "Only of this object"),
    Parameter("project", {"type": "string"}, "The project of that object"),
    Parameter("environment", {"type": "string"}, "The environment of that object"),
)


class Events:
    def __init__(self, fleet: Fleet, databases: Databases, streams: Streams, metrics: ApiMetrics) -> None:
        self._fleet = fleet
        self._databases = databases
        self._streams = streams
        self._metrics = metrics

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="GET", path=f"{ROOT}/events", id="listEvents", tag="events", handler=self.events,
                answers={200: "Items"}, errors=(400, 404, 429),
                parameters=(_FOLLOW, _AFTER, describe.LIMIT, *_OF, describe.LAST_EVENT_ID),
                summary="What happened lately; with follow=true a stream of server-sent events",
            ),
            Operation(
                method="GET", path=f"{ROOT}/watch/status", id="watchStatus", tag="watch", handler=self.watch_all,
                answers={200: "EventStream"}, media="text/event-stream", errors=(429,),
                summary="The status of the workspace now and after each change, as server-sent events",
            ),
            Operation(
                method="GET", path=f"{ENVIRONMENT}/apps/{{name}}/watch", id="watchApp", tag="watch",
                handler=self.watch_app, answers={200: "EventStream"}, media="text/event-stream", errors=(404, 429),
                summary="The status of an app now and after each change, as server-sent events",
            ),
        ]  # fmt: skip

    async def events(self, call: Call) -> Response:
        ref, limit = _object(call), call.limit()
        after = _last_event(call) or call.integer("after", 0, 0, 2**53)
        first = await self._fleet.events(call.who, ref, after=after, limit=limit)
        if not call.flag("follow"):
            last = str(first[-1]["id"]) if first else ""
            return json_answer({"items": first, "continue": last if after and len(first) == limit else ""})
        database = self._databases.of(workspace_of(ref.kind, call.who.workspace_id) if ref else call.who.workspace_id)

        async def more(position: int) -> list[dict[str, Any]]:
            return await self._fleet.events(call.who, ref, after=position or _FROM_THE_BEGINNING, limit=BATCH)

        follower = Follower(more, self._streams.clock, after=after)
        return self._streams.answer(
            call, self._follow(follower, first, database), self._metrics.streams.labels("events")
        )

    async def watch_all(self, call: Call) -> Response:
        return await self._watch(call, None)

    async def watch_app(self, call: Call) -> Response:
        return await self._watch(call, call.ref("App"))

    async def _watch(self, call: Call, ref: Ref | None) -> Response:
        first = await self._fleet.status(call.who, ref)
        database = self._databases.of(call.who.workspace_id)

        async def parts() -> AsyncGenerator[bytes, None]:
            sent = _fingerprint(first)
            yield event("status", first)
            async with aclosing(self._looks(database)) as looks:
                async for _ in looks:
                    shown = await self._unless_away(lambda: self._fleet.status(call.who, ref))
                    found = sent if shown is None else _fingerprint(shown)
                    yield event("status", shown) if found != sent else b""
                    sent = found

        return self._streams.answer(call, parts(), self._metrics.streams.labels("status"))

    async def _follow(
        self, follower: Follower, first: list[dict[str, Any]], database: Database
    ) -> AsyncGenerator[bytes, None]:
        yield _encoded(follower.taken(first))
        async with aclosing(self._looks(database)) as looks:
            async for _ in looks:
                follower.behind = True
                while follower.behind:
                    found = await self._unless_away(follower.look)
                    yield _encoded(found or [])
                    if found is None:
                        break

    async def _looks(self, database: Database) -> AsyncGenerator[None, None]:
        """When there may be something new: after a hint, and now and then in any case."""
        clock = self._streams.clock
        while True:
            position = await self._unless_away(database.position)
            yield
            await clock.sleep(REST_S)
            if position is None:
                await clock.sleep(LOOK_S)
            else:
                await database.wait_for_change(position.number, LOOK_S)

    @staticmethod
    async def _unless_away(ask: Callable[[], Any]) -> Any:
        """A stream outlives the database: it is quiet meanwhile."""
        try:
            return await ask()
        except ServiceUnavailable:
            return None


class Follower:
    """Which events were sent. ``more`` reads those after a number, in order."""

    def __init__(self, more: Callable[[int], Any], clock: Clock, *, after: int) -> None:
        self.behind = False  # there was more than one look brings
        self._more = more
        self._clock = clock
        self._settled = after  # nothing new comes up to here
        self._seen: dict[int, float] = {}  # those beyond it that were sent, and when they were seen

    def taken(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The first rows, which the caller has read."""
        if rows and not self._settled:
            self._settled = rows[0]["id"] - 1
        return self._fresh(rows)

    async def look(self) -> list[dict[str, Any]]:
        self._settle()
        rows = await self._more(self._settled)
        # A full batch of what was sent before would hide what comes after it.
        self.behind = len(rows) >= BATCH
        fresh = self._fresh(rows)
        if self.behind and not fresh:
            self._settled = rows[-1]["id"]
        return fresh

    def _fresh(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        fresh = [row for row in rows if row["id"] not in self._seen]
        now = self._clock.monotonic()
        self._seen |= {row["id"]: now for row in fresh}
        return fresh

    def _settle(self) -> None:
        long_ago = self._clock.monotonic() - SETTLED_S
        settled = [id_ for id_, seen_at in self._seen.items() if seen_at <= long_ago]
        if settled:
            self._settled = max(self._settled, *settled)
            self._seen = {id_: at for id_, at in self._seen.items() if id_ > self._settled}


def _encoded(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(event("event", row, row["id"]) for row in rows)


def _last_event(call: Call) -> int:
    found = call.request.headers.get("last-event-id", "")
    if not found:
        return 0
    if not found.isdecimal() or len(found) > _LONGEST_NUMBER:
        raise bad_fields([invalid("Last-Event-ID", found[:32], "must be the id of an event")])
    return int(found)


def _object(call: Call) -> Ref | None:
    """The object that the query names, if it names one."""
    names = {name: call.text(name) for name in ("kind", "name", "project", "environment")}
    if not any(names.values()):
        return None
    errors: list[FieldError] = [
        required(f"query.{name}", "to name an object") for name in ("kind", "name") if not names[name]
    ]
    if errors:
        raise bad_fields(errors)
    if names["kind"] not in KINDS:
        raise bad_query(not_supported("kind", names["kind"], KINDS))
    for name in ("name", "project", "environment"):
        for fault in is_name(names[name]) if names[name] else ():
            raise bad_query(invalid(name, names[name], fault))
    return Ref(names["kind"], names["name"], names["project"], names["environment"])


def _fingerprint(value: Any) -> bytes:
    """Of everything but how long ago it was."""
    return _without_durations.sub(b"", orjson.dumps(_timeless(value), option=orjson.OPT_SORT_KEYS))


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(each) for key, each in value.items() if key not in _AGES}
    if isinstance(value, list):
        return [_timeless(each) for each in value]
    return value
