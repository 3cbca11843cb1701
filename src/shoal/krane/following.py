"""Follows the desired state: one supervisor owns the stream of a controller and executes the commands of its machine.

It connects, reads, backs off and connects again. Two tasks run beside it: one makes received items durable, and only
then lets the cursor advance; the other looks for keys that a complete sync did not name. Neither delays the reading.
Only a full inbox does, on purpose.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from typing import Literal, assert_never

from shoal.base.tasks import run_all
from shoal.errors import ApiError, BadRequest, Forbidden, NotFound, ServiceUnavailable, Unauthorized
from shoal.krane.context import ControllerContext
from shoal.krane.model import Fenced, Live, NextAddress
from shoal.krane.protocol import Command, FindAbsent, Save, Send, Sync, Take, is_removal
from shoal.wire.fleet.v1 import cluster_pb as pb

Connection = Literal["connecting", "watching", "unauthorized", "fenced", "stopped"]

_ASK_PARALLEL = 10
_SYNCS_KEPT = 16
_EVENT_NAMES = frozenset({"welcome", "sync_begin", "item", "sync_keys", "sync_end", "progress", "digest"})


class _Outgoing:
    """The requests to send on one connection: one writer, and only the newest acknowledgement."""

    def __init__(self) -> None:
        self._waiting: deque[pb.WatchRequest] = deque()
        self._changed = asyncio.Event()
        self._closed = False

    def put(self, request: pb.WatchRequest) -> None:
        last = self._waiting[-1].request if self._waiting else None
        if last is not None and request.request is not None and last.field == request.request.field == "received":
            self._waiting.pop()
        self._waiting.append(request)
        self._changed.set()

    def close(self) -> None:
        self._closed = True
        self._changed.set()

    async def requests(self) -> AsyncIterator[pb.WatchRequest]:
        while not self._closed:
            while self._waiting and not self._closed:
                yield self._waiting.popleft()
            self._changed.clear()
            if not self._waiting and not self._closed:
                await self._changed.wait()


class Follower:
    """``connected`` is called for every welcome."""

    def __init__(self, context: ControllerContext, *, connected: Callable[[], None]) -> None:
        self._context = context
        self._connected = connected
        self._outgoing: _Outgoing | None = None
        self._cursor: str | None = None  # to be saved
        self._unsaved = asyncio.Event()
        self._syncs: deque[Sync] = deque()  # complete ones to be compared with the cluster
        self._synced = asyncio.Event()
        self._sync_began_s = 0.0
        self._withheld: set[str] = set()  # deletions that came while only observing: judged together, with the absent
        self.state: Connection = "connecting"
        self.reason = ""  # why there is no connection, for people
        self.cache_error = ""

    async def run(self) -> None:
        name = self._context.stream
        try:
            await run_all(
                {
                    f"{name}/watch": self._supervise(),
                    f"{name}/save": self._save_loop(),
                    f"{name}/absent": self._absent_loop(),
                }
            )
        finally:
            self.state = "stopped"

    async def take(self, item: pb.Item) -> bool:
        """A state that came by another way than the stream; True when it was news."""
        commands = self._context.machine.learned(item)
        await self._do(commands)
        return bool(commands)

    async def ask_again(self, keys: Iterable[str]) -> None:
        """Have the buckets of these keys sent whole."""
        await self._do(self._context.machine.ask_again(keys))

    def changed_cache(self) -> None:
        """Something in the cache is not on disk yet."""
        self._unsaved.set()

    # the stream

    async def _supervise(self) -> None:
        context = self._context
        failures = 0
        while True:
            await context.session.joined.wait()
            await context.guard.until_allowed()
            welcomed = elsewhere = False
            try:
                async with aclosing(self._events()) as events:
                    async for event in events:
                        if event.event is not None and event.event.field == "welcome":
                            welcomed = True
                            self._welcomed(event.event.value)
                        self._note(event)
                        await self._do(context.machine.receive(event))
                self._lost("connecting", "unavailable", "the control plane ended the stream")
            except Fenced as error:
                context.session.end()
                self._lost("fenced", "fenced", str(error))
                return
            except (Unauthorized, Forbidden) as error:
                self._lost("unauthorized", "unauthorized", str(error))
            except BadRequest as error:
                if not welcomed and "cursor" in str(error):
                    context.machine.cursor_refused()
                    self._cursor = None
                self._lost("connecting", "refused", str(error))
            except ApiError as error:
                self._lost("connecting", "unavailable", str(error))
                elsewhere = isinstance(error, NextAddress)
            finally:
                context.machine.disconnect()
            if elsewhere and not welcomed:
                continue
            failures = 1 if welcomed else failures + 1
            await context.clock.sleep(context.backoff().delay_s(failures, context.random))

    async def _events(self) -> AsyncGenerator[pb.WatchEvent, None]:
        context = self._context
        outgoing = self._outgoing = _Outgoing()
        await self._do(context.machine.connect(context.session.identity))
        events = context.plane.watch(context.stream, outgoing.requests())
        try:
            async with aclosing(events):
                yield await self._first(events)
                async for event in events:
                    yield event
        finally:
            outgoing.close()
            self._outgoing = None

    async def _first(self, events: AsyncIterator[pb.WatchEvent]) -> pb.WatchEvent:
        with self._context.calling():
            first = await anext(events, None)
            if first is None:
                raise ServiceUnavailable("the control plane ended the stream before it began")
        return first

    def _welcomed(self, welcome: pb.Welcome) -> None:
        self.state, self.reason = "watching", ""
        context = self._context
        context.metrics.connections.labels(context.stream, "ok").inc()
        if welcome.observe_only:
            self._syncs.clear()  # of another history: only the full sync that follows can end the observing
        if welcome.resumed:
            context.log.info("watching", resumed=True)
        else:
            context.log.info("watching after a full sync", why=welcome.reason, observe_only=welcome.observe_only)
        self._connected()

    def _lost(self, state: Connection, result: str, reason: str) -> None:
        context = self._context
        context.metrics.connections.labels(context.stream, result).inc()
        if (state, reason) != (self.state, self.reason):
            context.log.warning("not connected to the control plane", state=state, reason=reason)
        self.state, self.reason = state, reason

    def _note(self, event: pb.WatchEvent) -> None:
        context = self._context
        field = event.event.field if event.event is not None else ""
        context.metrics.events.labels(context.stream, field if field in _EVENT_NAMES else "other").inc()
        if field == "sync_begin":
            self._sync_began_s = context.clock.monotonic()

    async def _do(self, commands: list[Command]) -> None:
        context = self._context
        for command in commands:
            match command:
                case Send(request):
                    if self._outgoing is not None:
                        self._outgoing.put(request)
                case Take(item):
                    self._withhold(item)
                    context.cache.put(item)
                    self._unsaved.set()
                    context.hop("received", item.committed_ms)
                    context.key_state.came(item, context.now_ms())
                    if not context.inbox.offer(item):
                        await context.inbox.put(item)  # reading stops until there is room
                case Save(cursor):
                    self._cursor = cursor
                    self._unsaved.set()
                case FindAbsent(sync):
                    self._sync_ended(sync)
                case _:
                    assert_never(command)

    def _withhold(self, item: pb.Item) -> None:
        """While only observing, deletions wait to be judged together."""
        context = self._context
        if context.machine.observe_only and is_removal(item):
            item.by_user = False  # the wish is of another history, and may be older than what it would remove
            if _is_delete(item) and context.may_be_there(item.key):
                self._withheld.add(item.key)
                self._hold(item.key)

    # durability

    async def _save_loop(self) -> None:
        context = self._context
        failures = 0
        while True:
            await self._unsaved.wait()
            self._unsaved.clear()
            cursor = self._cursor
            try:
                await context.cache.save(cursor)
            except OSError as error:
                failures += 1
                self.cache_error = str(error)
                context.log.error("the cache cannot be written; the cursor stays", error=error)
                self._unsaved.set()
                await context.clock.sleep(context.backoff().delay_s(failures, context.random))
                continue
            failures, self.cache_error = 0, ""
            if cursor is not None and cursor != context.machine.cursor:
                await self._do(context.machine.saved(cursor))

    # absence

    def _sync_ended(self, sync: Sync) -> None:
        context = self._context
        kind = "full" if sync.full else "buckets"
        context.metrics.syncs.labels(context.stream, kind).inc()
        context.metrics.sync_s.labels(context.stream).observe(context.clock.monotonic() - self._sync_began_s)
        if sync.full:
            self._syncs.clear()  # what they did not name, this one does not name either
        elif len(self._syncs) >= _SYNCS_KEPT:
            return  # the next digest finds it again; a full sync that waits is not found again
        self._syncs.append(sync)
        self._synced.set()

    async def _absent_loop(self) -> None:
        context = self._context
        while True:
            await self._synced.wait()
            self._synced.clear()
            failures = 0
            while self._syncs:
                sync = self._syncs[0]
                if await self._compare(sync):
                    failures = 0
                    if self._syncs and self._syncs[0] is sync:
                        self._syncs.popleft()
                else:
                    failures += 1
                    await context.clock.sleep(context.backoff().delay_s(failures, context.random))

    async def _compare(self, sync: Sync) -> bool:
        """Remove what the sync did not name and the control plane does not know. False when not all could be asked."""
        context = self._context
        try:
            live = await context.live()
        except ServiceUnavailable as error:
            context.log.warning("absent objects cannot be determined yet", reason=str(error))
            return False
        versions = {key: found.version for key, found in live.items()}
        suspects = context.machine.suspects(sync, versions)
        answers = await self._ask_all(suspects)
        for answer in answers.values():
            if answer is not None:
                await self.take(answer)
        complete = len(answers) == len(suspects)
        if not any(one is sync for one in self._syncs):
            return True  # another one has taken its place meanwhile
        if complete or not context.machine.observe_only:
            await self._remove(sync, [key for key, answer in answers.items() if answer is None], live)
        return complete

    async def _ask_all(self, keys: list[str]) -> dict[str, pb.Item | None]:
        """What the control plane says of each key, None when it does not know it; without those it did not answer."""
        answers: dict[str, pb.Item | None] = {}
        rest = iter(keys)

        async def ask_some() -> None:
            for key in rest:
                try:
                    answers[key] = await self._context.ask(key)
                except NotFound:
                    answers[key] = None
                except ApiError as error:
                    self._context.log.warning(
                        "reading an object from the control plane failed", key=key, reason=str(error)
                    )
                    return

        if keys:
            parallel = min(_ASK_PARALLEL, len(keys))
            await run_all({f"{self._context.stream}/ask/{n}": ask_some() for n in range(parallel)})
        return answers

    def _judge(self) -> list[pb.Item]:
        """Observing is over: the deletions withheld meanwhile, to be held or done together."""
        context = self._context
        context.machine.observe_only = False
        keys, self._withheld = sorted(self._withheld), set()
        items = [item for key in keys if (item := context.cache.get(key)) is not None and is_removal(item)]
        for item in items:
            context.brake.forget(item.key)
            context.cache.unhold(item.key)
        return items

    def _hold(self, key: str) -> None:
        self._context.brake.hold(key, self._context.clock.wall_s())
        self._context.cache.hold(key)
        self._unsaved.set()

    async def _remove(self, sync: Sync, keys: list[str], live: dict[str, Live]) -> None:
        context = self._context
        now_s = context.clock.wall_s()
        versions = {key: found.version for key, found in live.items()}
        withheld = self._judge() if sync.full else []
        there = sum(key in live for key in keys) + len(withheld)
        hold = there > context.brake.room(now_s, len(context.cache))  # all wait, not only those past the limit
        for item in withheld:
            if hold:
                self._hold(item.key)
            else:
                await context.inbox.put(item)
        for key in keys:
            found = live.get(key)
            where = pb.Delete(namespace=found.namespace, name=found.name) if found is not None else pb.Delete()
            commands = context.machine.absent(sync, key, versions, where)
            if commands:
                context.metrics.corrections.labels(context.stream, "absent").inc()
                context.log.warning("the control plane does not know an object; removing it", key=key, held=hold)
                if hold and found is not None:
                    self._hold(key)
            await self._do(commands)


def _is_delete(item: pb.Item) -> bool:
    return item.action is not None and item.action.field == "delete"
