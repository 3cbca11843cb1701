"""The flow control gate: assigns each request a level and flow, and lets it run, queues it or rejects it.

A server is one event loop, so its scarce resource is the loop's time; seats only matter for requests that wait for
a commit. The gate distributes both. In each iteration of the loop limited levels may work for a *slice*; a request that
comes later in it, or finds its level's seats taken, waits in its level's fair queues. At the next iteration the level
with the least service per share runs first: a controller's request passes a storm of others.

Token buckets count only requests that had to wait. A user alone on a server never meets them; a user who keeps it
busy beyond their rate gets 429 before the body is parsed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from shoal.apiserver.flow.buckets import Buckets
from shoal.apiserver.flow.config import FlowConfig
from shoal.apiserver.flow.levels import Level, divide
from shoal.apiserver.flow.schemas import Digest, Schema, in_order
from shoal.apiserver.flow.ticket import Ticket
from shoal.base.clock import Clock, Timer
from shoal.kube.kinds import bootstrap_flowcontrol
from shoal.store import Event, Store

LEVELS = "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io"
SCHEMAS = "flowschemas.flowcontrol.apiserver.k8s.io"
CACHE_LIMIT = 20_000
MAX_LIST_SEATS = 10
_OBJECTS_PER_SEAT = 100
_SWEEP_S = 1.0
_MUTATING = frozenset({"create", "update", "patch", "delete", "deletecollection"})

Key = tuple[Any, ...]


class FlowMatch:
    """The flow of a kind of request: one user's verb on one resource in one namespace."""

    __slots__ = ("flow", "head", "level", "mutating", "schema", "user")

    def __init__(self, user: str, schema: Schema, level: Level, flow: str, mutating: bool) -> None:
        self.user = user
        self.schema = schema
        self.level = level
        self.flow = flow
        self.mutating = mutating
        self.head = b"X-Kubernetes-PF-FlowSchema-UID: %b\r\nX-Kubernetes-PF-PriorityLevel-UID: %b\r\n" % (
            schema.uid.encode(),
            level.uid.encode(),
        )  # as in the response headers


class FlowGate:
    """Flow control of one server."""

    def __init__(self, config: FlowConfig, clock: Clock) -> None:
        self.config = config
        self.waiting = 0
        self.in_flight = [0, 0]  # reads, writes
        self.levels: dict[str, Level] = {}
        self.schemas: list[Schema] = []
        self._clock = clock
        self._now = clock.monotonic
        self._slice_s = config.slice_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._matches: dict[Key, FlowMatch] = {}
        self._users = Buckets(config.requests_per_second, config.burst)
        self._flows = Buckets(config.flow_requests_per_second, config.flow_burst)
        self._armed = False  # ``_run_queued`` is scheduled on the loop
        self._slice_began = 0.0
        self._virtual = 0.0  # virtual time of the level that was served last
        self._behind = False  # the last slice left work: the loop's time is the bottleneck, not seats
        self._retired: list[Level] = []  # removed, but with requests in them
        self._sweeper: Timer | None = None
        self._mandatory = {
            kind: {obj["metadata"]["name"]: obj for obj in made if obj["metadata"]["name"] in wanted}
            for wanted in (bootstrap_flowcontrol.MANDATORY,)
            for kind, made in (
                ("levels", bootstrap_flowcontrol.priority_levels()),
                ("schemas", bootstrap_flowcontrol.flow_schemas()),
            )
        }
        self.configure((), ())

    # -- configuration ---------------------------------------------------------------------------------------------

    def follow(self, store: Store) -> None:
        """Take levels and schemas from the store, now and whenever they change."""

        def reload(_: Sequence[Event] = ()) -> None:
            self.configure(*([orjson.loads(e.value) for e in store.range(name).entries] for name in (LEVELS, SCHEMAS)))

        store.subscribe(LEVELS, reload)
        store.subscribe(SCHEMAS, reload)
        reload()

    def configure(self, levels: Iterable[dict[str, Any]], schemas: Iterable[dict[str, Any]]) -> None:
        """Take these settings. The mandatory objects count even while they are missing."""
        wanted = self._mandatory["levels"] | {obj["metadata"]["name"]: obj for obj in levels}
        self._retired = [level for level in self._retired if level.waiting]
        for name in [name for name in self.levels if name not in wanted]:
            self._retired.append(self.levels.pop(name))
        for name, obj in wanted.items():
            level = self.levels.get(name)
            if level is None:
                level = self.levels[name] = Level(name)
            level.configure(obj)
            level.metered = name not in self.config.unmetered_levels
        divide(self.levels.values(), self.config.seats)
        known = {schema.name: schema for schema in self.schemas}
        made = self._mandatory["schemas"] | {obj["metadata"]["name"]: obj for obj in schemas}
        self.schemas = in_order([Schema(obj) for obj in made.values()])
        for schema in self.schemas:
            if schema.name in known:
                before = known[schema.name]
                schema.dispatched, schema.rejected = before.dispatched, before.rejected
        self._matches.clear()
        if self.waiting:
            self._arm()

    # -- which flow ------------------------------------------------------------------------------------------------

    def match(self, key: Key) -> FlowMatch:
        """The level and flow of a request. ``key`` is (user, groups, verb, group, resource, subresource, namespace), or
        (user, groups, verb, path) for a request about no resource."""
        return self._matches.get(key) or self._classify(key)

    def _classify(self, key: Key) -> FlowMatch:
        user, groups, verb = key[:3]
        if len(key) == 4:
            digest = Digest(user, groups, verb, path=key[3])
        else:
            group, resource, subresource, namespace = key[3:]
            digest = Digest(
                user, groups, verb, group, f"{resource}/{subresource}" if subresource else resource, namespace
            )
        schema = next((s for s in self.schemas if s.level_name in self.levels and s.matches(digest)), None)
        if schema is None:  # a user without the groups that all users have
            schema = next(s for s in self.schemas if s.name == "catch-all")
        level = self.levels.get(schema.level_name) or self.levels["catch-all"]
        match = FlowMatch(user, schema, level, schema.flow_of(digest), verb in _MUTATING)
        if len(self._matches) >= CACHE_LIMIT:
            self._matches.clear()
        self._matches[key] = match
        return match

    # -- in and out ------------------------------------------------------------------------------------------------

    def enter(self, match: FlowMatch, width: int = 1) -> bool:
        """Take seats if the request may run at once. Every True must be followed by ``leave``."""
        level = match.level
        if not level.exempt:
            if level.waiting or not (level.used < level.nominal or self._can_borrow(level)):
                return False
            if not self._armed:
                self._arm()
            elif self._now() - self._slice_began > self._slice_s:
                return False
        level.used += width
        match.schema.dispatched += 1
        self.in_flight[match.mutating] += 1
        return True

    async def queued(self, match: FlowMatch, width: int = 1) -> bool:
        """After ``enter`` returned False: wait until the request may run. Return False when it is rejected; after True,
        call ``leave``."""
        now = self._now()
        level = match.level
        if level.metered and not (self._users.take(match.user, 1, now) and self._flows.take(match.flow, 1, now)):
            return self._refuse(match, "rate-limit")
        ticket = Ticket(self._running_loop(), match.flow, match.schema.name, width, now)
        if not level.waiting:
            level.served = max(level.served, self._virtual)  # idle time gives no credit
        if not level.add(ticket):
            return self._refuse(match, "concurrency-limit" if level.reject else "queue-full")
        self.waiting += 1
        self._arm()
        if self._sweeper is None:
            self._sweeper = self._clock.call_later(_SWEEP_S, self._sweep)
        try:
            in_time = await ticket
        except BaseException:
            if ticket.give_up():
                self._gave_up(level, ticket)
            raise
        if not in_time:
            return self._refuse(match, "time-out")
        match.schema.dispatched += 1
        self.in_flight[match.mutating] += 1
        return True

    def leave(self, match: FlowMatch, width: int = 1) -> None:
        """Give back the seats of a finished request."""
        match.level.used -= width
        self.in_flight[match.mutating] -= 1
        if self.waiting and not self._armed:
            self._arm()

    @staticmethod
    def list_width(count: int) -> int:
        """Seats of a request that reads ``count`` objects."""
        return min(MAX_LIST_SEATS, 1 + count // _OBJECTS_PER_SEAT)

    @staticmethod
    def _refuse(match: FlowMatch, reason: str) -> bool:
        rejected = match.schema.rejected
        rejected[reason] = rejected.get(reason, 0) + 1
        return False

    def _gave_up(self, level: Level, ticket: Ticket) -> None:
        level.left(ticket)
        self.waiting -= 1
        if self.waiting:
            self._arm()

    # -- slices ----------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._slice_began = self._now()
            self._running_loop().call_soon(self._run_queued)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def _run_queued(self) -> None:
        """Run queued requests for a slice of time; then let the loop read new input."""
        self._armed = self._behind = False
        if not self.waiting:
            return
        began = now = self._now()
        while self.waiting and now - began <= self._slice_s:
            level = self._next_level()
            if level is None:
                return  # all seats are taken: ``leave`` schedules the next slice
            found = level.next()
            if found is None:
                return  # the remaining requests are being cancelled, and schedule the next slice then
            queue, ticket = found
            self.waiting -= 1
            level.used += ticket.width
            self._virtual = level.served
            ticket.call()
            before, now = now, self._now()
            level.charge(queue, now - before)
        if self.waiting:
            self._behind = True
            self._arm()

    def _next_level(self) -> Level | None:
        """Among levels with waiting requests and a free seat, the one with the least service per share."""
        best: Level | None = None
        for level in (*self.levels.values(), *self._retired):
            if level.waiting and (best is None or level.served < best.served) and self._has_seat(level):
                best = level
        return best

    def _has_seat(self, level: Level) -> bool:
        return level.exempt or level.used < max(1, level.nominal) or self._can_borrow(level)

    def _can_borrow(self, level: Level) -> bool:
        if self._behind or not level.may_borrow():
            return False
        levels = self.levels.values()
        return sum(each.borrowed for each in levels) < sum(each.lendable for each in levels if each is not level)

    def _sweep(self) -> None:
        """Reject requests that have waited too long."""
        self._sweeper = None
        oldest = self._now() - self.config.queue_wait_s
        for level in [*self.levels.values(), *self._retired]:
            if level.waiting:
                for ticket in level.tickets():
                    if ticket.since < oldest:
                        self._gave_up(level, ticket)
                        ticket.expire()
        if self.waiting:
            self._sweeper = self._clock.call_later(_SWEEP_S, self._sweep)
