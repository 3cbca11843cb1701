"""Streams of events of a workspace, and of the status of its apps whenever it changes.

Events are numbered, but where several transactions write at the same time a lower number may become visible after a
higher one. So a follower reads the numbers of the last seconds again, and sends each event once.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Annotated, Any

import orjson
from msgspec import Meta, Struct, field

from shoal.base.asgi_common import Application
from shoal.base.clock import Clock
from shoal.control.api.documents import Items, Json
from shoal.control.api.looks import looks, unless_away
from shoal.control.api.objects import ENVIRONMENT, ROOT
from shoal.control.api.parameters import Call, Limited, ref_of
from shoal.control.database.engine import Database, Databases
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.kinds.checks import is_name
from shoal.control.domain.model import Actor, ObjectRef
from shoal.control.domain.objects import workspace_of
from shoal.control.domain.specs import KINDS
from shoal.errors import (
    BadRequest,
    FieldError,
    NotFound,
    TooManyRequests,
    invalid,
    not_supported,
    required,
)
from shoal.rest.answers import bad_fields, bad_query
from shoal.rest.api import CORRELATION_PATTERN, is_correlation
from shoal.rest.operations import Operation
from shoal.rest.streams import RestStreams, event

SETTLED_S = 5.0  # no transaction that writes an event takes longer
BATCH = 200
_FROM_THE_BEGINNING = -1
_AGES = frozenset({"age", "lastHeartbeat", "lag", "lag_seconds", "cursor"})
_LONGEST_NUMBER = 18
_without_durations = re.compile(rb"[0-9][0-9.]* s\b")


class ListedEvents(Limited, frozen=True, kw_only=True):
    follow: Annotated[bool, Meta(description="Follow events as a stream of server-sent events")] = False
    after: Annotated[int, Meta(ge=0, le=2**53, description="Only events after this id, oldest first")] = 0
    kind: Annotated[
        str, Meta(description="With name: only of this object", extra_json_schema={"enum": list(KINDS)})
    ] = ""  # fmt: skip
    name: Annotated[str, Meta(description="Only of this object")] = ""
    correlation: Annotated[
        str,
        Meta(description="The steps of everything that the request with this correlation id led to, with times",
             extra_json_schema={"pattern": f"^({CORRELATION_PATTERN})?$"}),
    ] = ""  # fmt: skip
    project: Annotated[str, Meta(description="The project of that object")] = ""
    environment: Annotated[str, Meta(description="The environment of that object")] = ""


class WatchedStatus(Struct, frozen=True, kw_only=True):
    refresh: Annotated[
        float, Meta(ge=0, le=3600, description="Also send the status this often, in seconds, for its ages; 0: never")
    ] = 0.0  # fmt: skip


class LastEvent(Struct, frozen=True):
    id: Annotated[str | None, Meta(description="The id of the last event that was received")] = field(
        name="Last-Event-ID", default=None
    )


class Events:
    def __init__(self, fleet: Fleet, databases: Databases, streams: RestStreams) -> None:
        self._fleet = fleet
        self._databases = databases
        self._streams = streams

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="GET", path=f"{ROOT}/events", id="listEvents", tag="events", handler=self.events,
                answers={200: Items}, errors=(BadRequest, NotFound, TooManyRequests),
                summary="Recent events; with follow=true a stream of server-sent events",
            ),
            Operation(
                method="GET", path=f"{ROOT}/watch/status", id="watchStatus", tag="watch", handler=self.watch_all,
                answers={200: str}, media="text/event-stream", errors=(TooManyRequests,),
                summary="The status of the workspace now and after each change, as server-sent events",
            ),
            Operation(
                method="GET", path=f"{ENVIRONMENT}/apps/{{name}}/watch", id="watchApp", tag="watch",
                handler=self.watch_app, answers={200: str}, media="text/event-stream",
                errors=(NotFound, TooManyRequests),
                summary="The status of an app now and after each change, as server-sent events",
            ),
        ]  # fmt: skip

    async def events(self, call: Call, query: ListedEvents, headers: LastEvent) -> Json | Application:
        if query.correlation:
            return await self._timeline(call, query)
        who, ref, limit = call.caller.who, _object(query), query.limit
        after = _last_event(headers) or query.after
        first = await self._fleet.events(who, ref, after=after, limit=limit)
        if not query.follow:
            last = str(first[-1]["id"]) if first else ""
            return {"items": first, "continue": last if after and len(first) == limit else ""}
        database = self._databases.of(workspace_of(ref.kind, who.workspace_id) if ref else who.workspace_id)

        async def more(position: int) -> list[Json]:
            return await self._fleet.events(who, ref, after=position or _FROM_THE_BEGINNING, limit=BATCH)

        follower = Follower(more, self._streams.clock, after=after)
        return self._streams.events(call.request.token, self._follow(follower, first, database), "events")

    async def _timeline(self, call: Call, query: ListedEvents) -> Json | Application:
        correlation, who = _correlation(query), call.caller.who
        first = await self._fleet.timeline(who, correlation)
        if not query.follow:
            return {"items": first, "continue": ""}
        return self._streams.events(call.request.token, self._steps(who, correlation, first), "events")

    async def _steps(self, who: Actor, correlation: str, first: list[Json]) -> AsyncGenerator[bytes, None]:
        """Each step once. They have no ids: a client that comes back is told all of them."""
        sent: set[bytes] = set()
        async with aclosing(looks(self._databases.of(who.workspace_id), self._streams.clock)) as moments:
            async for _ in moments:
                found = first or await unless_away(lambda: self._fleet.timeline(who, correlation)) or []
                first = []
                fresh = [step for step in found if step["reason"] != "Waiting" and _print(step) not in sent]
                sent.update(_print(step) for step in fresh)
                yield b"".join(event("event", step) for step in fresh)

    async def watch_all(self, call: Call, query: WatchedStatus) -> Application:
        return await self._watch(call, None, query.refresh)

    async def watch_app(self, call: Call, query: WatchedStatus) -> Application:
        return await self._watch(call, ref_of(call, "App"), query.refresh)

    async def _watch(self, call: Call, ref: ObjectRef | None, refresh_s: float) -> Application:
        who = call.caller.who
        first = await self._fleet.status(who, ref)
        database, clock = self._databases.of(who.workspace_id), self._streams.clock

        async def parts() -> AsyncGenerator[bytes, None]:
            sent, sent_s = status_fingerprint(first), clock.monotonic()
            yield event("status", first)
            async with aclosing(looks(database, self._streams.clock)) as moments:
                async for _ in moments:
                    shown = await unless_away(lambda: self._fleet.status(who, ref))
                    found = sent if shown is None else status_fingerprint(shown)
                    due = refresh_s > 0 and shown is not None and clock.monotonic() >= sent_s + refresh_s
                    if found != sent or due:
                        sent, sent_s = found, clock.monotonic()
                        yield event("status", shown)
                    else:
                        yield b""

        return self._streams.events(call.request.token, parts(), "status")

    async def _follow(
        self, follower: Follower, first: list[dict[str, Any]], database: Database
    ) -> AsyncGenerator[bytes, None]:
        yield _encoded(follower.taken(first))
        async with aclosing(looks(database, self._streams.clock)) as moments:
            async for _ in moments:
                follower.behind = True
                while follower.behind:
                    found = await unless_away(follower.look)
                    yield _encoded(found or [])
                    if found is None:
                        break


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


def _last_event(headers: LastEvent) -> int:
    found = headers.id or ""
    if not found:
        return 0
    if not found.isdecimal() or len(found) > _LONGEST_NUMBER:
        raise bad_fields([invalid("Last-Event-ID", found[:32], "must be the id of an event")])
    return int(found)


def _print(step: Json) -> bytes:
    return orjson.dumps(step)


def _correlation(query: ListedEvents) -> str:
    if query.kind or query.name or query.project or query.environment or query.after:
        raise bad_query(invalid("correlation", query.correlation, "cannot be combined with an object or after"))
    if not is_correlation(query.correlation):
        raise bad_query(invalid("correlation", query.correlation[:80], f"must match {CORRELATION_PATTERN}"))
    return query.correlation


def _object(query: ListedEvents) -> ObjectRef | None:
    """The object that the query names, if it names one."""
    names = {"name": query.name, "project": query.project, "environment": query.environment}
    if not query.kind and not any(names.values()):
        return None
    errors: list[FieldError] = [
        required(f"query.{name}", "to name an object")
        for name, value in (("kind", query.kind), ("name", query.name))
        if not value
    ]
    if errors:
        raise bad_fields(errors)
    if query.kind not in KINDS:
        raise bad_query(not_supported("kind", query.kind, KINDS))
    for name, value in names.items():
        for fault in is_name(value) if value else ():
            raise bad_query(invalid(name, value, fault))
    return ObjectRef(query.kind, query.name, query.project, query.environment)


def status_fingerprint(value: Any) -> bytes:
    """Of everything but how long ago it was."""
    return _without_durations.sub(b"", orjson.dumps(_timeless(value), option=orjson.OPT_SORT_KEYS))


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(each) for key, each in value.items() if key not in _AGES}
    if isinstance(value, list):
        return [_timeless(each) for each in value]
    return value
