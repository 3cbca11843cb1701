"""The reflector: keeps a cache equal to the server's objects, through every kind of failure.

    list ──▶ watch ──(ends, breaks)──▶ watch again from the last revision ──▶ …
     ▲                                      │
     └──────────────(410: too old)──────────┘

The initial list is a watch that starts with the existing objects (WatchList) if the server supports it, else it is read
in pages. The reflector is the cache's only writer: one task and one stream. Events are applied before their revision is
recorded, so that a resumed watch may repeat but never skip events; the cache ignores known versions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.deadline import Limit, within
from shoal.base.logs import get_logger
from shoal.client import EVERYTHING, Disconnected, ResourceClient, Scope, TransportError, WatchEvent
from shoal.client.watch import ADDED, BOOKMARK, DELETED, MODIFIED
from shoal.errors import (
    ApiError,
    BadRequest,
    ConfigError,
    Expired,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    UnsupportedMediaType,
)
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Cache
from shoal.reconcile.keys import ObjectKey, key_of

# Status codes with which servers refuse a WatchList.
_REFUSALS = (BadRequest, Invalid, MethodNotAllowed, NotAcceptable, UnsupportedMediaType)
_SHORT_S = 1.0  # a watch that ends this soon without an event counts as a failure

log = get_logger("reconcile.reflector")


class InitialEventsUnsupported(Exception):
    """The server does not support WatchList."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorConfig:
    """Settings of a reflector."""

    watch_list: bool = True  # use WatchList if the server supports it
    page: int = 500
    watch_s: int = 300  # a watch lasts this long up to twice as long, so that not all end together
    grace_s: float = 30.0  # after this the connection counts as dead
    initial_idle_s: float = (
        10.0  # without an event for this long before the closing bookmark, the server ignored the option
    )
    backoff: Backoff = Backoff(base_s=0.8, cap_s=30.0)
    healthy_s: float = 120.0  # a session that lasts this long resets the failure count

    def __post_init__(self) -> None:
        if self.watch_s < 1:
            raise ConfigError(f"reflector.watch_s is {self.watch_s}: must be 1 or more")
        if self.page < 0:
            raise ConfigError(f"reflector.page is {self.page}: must be 0 (all at once) or more")


class Reflector:
    """Feeds one cache from one resource. The owner runs ``run`` as a task."""

    def __init__(
        self,
        resource: ResourceClient,
        cache: Cache,
        *,
        clock: Clock,
        random: Callable[[], float],
        scope: Scope = EVERYTHING,
        config: ReflectorConfig | None = None,
    ) -> None:
        self._resource = resource
        self._cache = cache
        self._clock = clock
        self._random = random
        self._scope = scope
        self._config = config or ReflectorConfig()
        self._must_list = True
        self._watch_list = self._config.watch_list
        self._broken_initials = 0  # in a row
        self._told = ""  # why the watch fails, as last logged
        self._applied = 0  # events and bookmarks of the current session
        self._log = log.bind(resource=resource.type.qualified)
        # facts for health reports and tests
        self.lists = 0
        self.failures = 0  # in a row
        self.last_error: Exception | None = None
        self.watching = False

    async def run(self) -> None:
        """List, watch, and start again whenever that ends. Runs until cancelled."""
        while True:
            started = self._clock.monotonic()
            self._applied = 0
            error: Exception | None = None
            try:
                await self._session()
            except Exception as failure:
                error = failure
            finally:
                self.watching = False
            delay_s = self._end_session(error, self._clock.monotonic() - started)
            await self._clock.sleep(delay_s)

    def _end_session(self, error: Exception | None, lasted_s: float) -> float:
        """Process the end of a session; return the delay before the next."""
        if lasted_s >= self._config.healthy_s:
            self.failures, self._told = 0, ""
        self.last_error = error
        if error is None and (self._applied or lasted_s >= _SHORT_S):
            self.failures, self._told = 0, ""
            return 0.0
        self.failures += 1
        delay_s = self._config.backoff.delay_s(self.failures, self._random)
        if isinstance(error, Expired):
            self._must_list = True
            self._log.info("the revision is too old, listing again", revision=self._cache.resource_version)
            return 0.0 if self.failures == 1 else delay_s
        if isinstance(error, ApiError | TransportError) or error is None:
            self._tell(error, delay_s, broke=bool(self._applied) or lasted_s >= _SHORT_S)
        else:
            self._log.error("the watch failed unexpectedly", error=error)
        asked_s = error.retry_after_s if isinstance(error, ApiError) else None
        return max(delay_s, float(asked_s or 0))

    def _tell(self, error: Exception | None, delay_s: float, *, broke: bool) -> None:
        """An outage is one line, however often it is tried again and however many watch: a stream that broke is opened
        again soon, and a client whose requests fail has said so."""
        reason = str(error or "it ended at once")
        known = reason == self._told
        if isinstance(error, TransportError):
            known = known or self.failures == 1 or broke or error.told
        say = self._log.debug if known else self._log.warning
        self._told = reason if not known else self._told
        say("the watch failed", reason=reason, delay_s=round(delay_s, 3))

    async def _session(self) -> None:
        if self._must_list and self._watch_list and self._broken_initials < 2:
            try:
                await self._list_and_watch()
                return
            except InitialEventsUnsupported as why:
                self._watch_list = False
                self._log.debug("the server has no watch lists, listing instead", reason=str(why))
        if self._must_list:
            listed = await self._resource.list(self._scope, limit=self._config.page)
            self._replace(listed.items, listed.resource_version)
        await self._watch()

    def _replace(self, objects: Iterable[Obj], resource_version: str, *, shaped: bool = False) -> None:
        self._cache.replace(objects, resource_version, shaped=shaped)
        self.lists += 1
        self._must_list = False
        self._broken_initials = 0

    def _timeout_s(self) -> int:
        return int(self._config.watch_s * (1.0 + self._random()))

    async def _watch(self) -> None:
        timeout_s = self._timeout_s()
        watch = await self._resource.watch(
            self._scope, resource_version=self._cache.resource_version, timeout_s=timeout_s
        )
        async with watch:
            self.watching = True
            await self._follow(watch.batches(), timeout_s)

    async def _follow(self, batches: AsyncIterator[list[WatchEvent]], timeout_s: int) -> None:
        """Apply events until the stream ends."""
        try:
            async with within(self._clock, timeout_s + self._config.grace_s):
                async for batch in batches:
                    self._apply(batch)
        except TimeoutError:
            raise Disconnected("the watch exceeded its timeout: the connection is dead") from None

    async def _list_and_watch(self) -> None:
        """List and watch with one stream."""
        timeout_s = self._timeout_s()
        try:
            watch = await self._resource.watch(self._scope, initial_events=True, timeout_s=timeout_s)
        except _REFUSALS as refusal:
            raise InitialEventsUnsupported(refusal.message) from refusal
        async with watch:
            batches = watch.batches()
            rest = await self._initial(batches)
            self.watching = True
            self._apply(rest)
            await self._follow(batches, timeout_s)

    async def _initial(self, batches: AsyncIterator[list[WatchEvent]]) -> list[WatchEvent]:
        """Collect objects up to the closing bookmark and put them into the cache; return the events after it in the
        same chunk."""
        self._broken_initials += 1
        objects: dict[ObjectKey, Obj] = {}
        try:
            async with within(self._clock, self._config.initial_idle_s) as limit:
                async for batch in batches:
                    rest = self._gather(batch, objects, limit)
                    if rest is not None:
                        return rest
        except TimeoutError:
            raise InitialEventsUnsupported("no bookmark ended the initial events") from None
        except (*_REFUSALS, InternalError) as refusal:  # the latter where the server's storage cannot do it
            raise InitialEventsUnsupported(refusal.message) from refusal
        raise Disconnected("the watch ended before it had sent all objects")

    def _gather(self, batch: list[WatchEvent], objects: dict[ObjectKey, Obj], limit: Limit) -> list[WatchEvent] | None:
        for position, event in enumerate(batch):
            if event.type == BOOKMARK:
                if event.ends_initial:
                    self._replace(objects.values(), event.resource_version, shaped=True)
                    return batch[position + 1 :]
            elif event.type == DELETED:
                objects.pop(key_of(event.object), None)
            else:
                objects[key_of(event.object)] = self._cache.shaped(event.object)
                limit.restart(self._config.initial_idle_s)
        return None

    def _apply(self, batch: list[WatchEvent]) -> None:
        cache = self._cache
        for event in batch:
            kind = event.type
            if kind in (ADDED, MODIFIED):
                cache.upsert(event.object)
            elif kind == DELETED:
                cache.remove(event.object)
            elif kind != BOOKMARK:
                raise Disconnected(f"the watch sent an event of unknown type {kind!r}")
            cache.observe(event.resource_version)  # after applying it: a resumed watch may repeat, never skip
            self._applied += 1
