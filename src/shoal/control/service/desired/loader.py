"""Loads desired state in batches that serve all sessions.

A session requests keys. Those that were already rendered at that version come from the cache. The others are read from
the database together with the keys that other sessions request at the same time, users' changes first. A failure
affects its keys only: an unavailable database or key service means *later*, never *skip*; a row that can never be
rendered is *broken*, counted and logged.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from shoal.base.logs import get_logger
from shoal.control.database.engine import Database, Databases
from shoal.control.database.moments import rows_of
from shoal.control.database.rows import Ask
from shoal.control.domain.model import Sealer
from shoal.control.service.desired import render
from shoal.control.service.desired.directory import Directory
from shoal.control.service.desired.index import DesiredEntry, DesiredIndex
from shoal.control.service.desired.model import DesiredRow, Failure, Loaded
from shoal.control.service.desired.queries import queries
from shoal.control.service.desired.reading import RENDERED, Reading, Where, desired_rows
from shoal.control.service.desired.states import StateCache
from shoal.control.service.metrics import ServiceMetrics
from shoal.errors import ShoalError
from shoal.sync.keys import Place, stream_of
from shoal.sync.versions import Version
from shoal.wire.fleet.v1 import cluster_pb as pb

_BATCH = 500  # rows of one round of reading
_DEPLOYMENTS = "deployment/"
_AROUND = 500  # bytes of the entry around an encoded object

_log = get_logger("control.service.desired")

Result = Loaded | Failure | None


@dataclass(slots=True)
class _Cached:
    loaded: Loaded
    incarnation: int
    public_key: bytes  # of the agent that the secrets in it are wrapped for
    cost: int  # in bytes, about


class Loader:
    """``run`` must be running for what is not in memory."""

    def __init__(
        self,
        databases: Databases,
        index: DesiredIndex,
        directory: Directory,
        sealer: Sealer,
        metrics: ServiceMetrics,
        *,
        cache_bytes: int,
    ) -> None:
        self._databases = databases
        self._index = index
        self._directory = directory
        self._sealer = sealer
        self._cache_bytes = cache_bytes
        self._cached: OrderedDict[Where, _Cached] = OrderedDict()
        self._cached_bytes = 0
        self._urgent: dict[Where, _PendingLoad] = {}
        self._calm: dict[Where, _PendingLoad] = {}
        self._states = StateCache()
        self._asked = asyncio.Event()
        self._counts = {name: metrics.loads.labels(name) for name in ("hit", "read", "gone", "later", "broken")}

    def request(
        self, place: Place, keys: Iterable[str], done: Callable[[dict[str, Result]], None], *, urgent: bool = False
    ) -> dict[str, Result] | None:
        """The state of each key of the place as it is now, or why not; None when ``done`` will be called with it."""
        found: dict[str, Result] = {}
        missing: dict[str, _PendingLoad] = {}
        for key in keys:
            cached = self._fresh(place, key)
            if cached is not None:
                self._counts["hit"].inc()
                found[key] = cached.loaded
            else:
                missing[key] = self._pending((place, key), urgent=urgent)
        if not missing:
            return found
        self._wait(_Waiter(found, missing, done))
        return None

    async def item(self, place: Place, key: str) -> pb.Item | None:
        """One object, read from the database even when it is in memory: None when there is no such row."""
        answer: asyncio.Future[dict[str, Result]] = asyncio.get_running_loop().create_future()
        pending = {key: self._pending((place, key), urgent=True)}
        self._wait(_Waiter({}, pending, lambda found: None if answer.done() else answer.set_result(found)))
        result = (await answer)[key]
        if result is None:
            return None
        if isinstance(result, Failure):
            raise LoadFailed(key, result)
        event = pb.WatchEvent.from_binary(result.data).event
        assert event is not None and event.field == "item"
        return event.value

    async def run(self) -> None:
        self._asked.set()
        while True:
            await self._asked.wait()
            self._asked.clear()
            while batch := self._next_batch():
                try:
                    await self._round(batch)
                finally:
                    for asked in batch.values():  # a round that failed or was cancelled leaves no caller waiting
                        asked.settle(Failure.LATER)

    def _fresh(self, place: Place, key: str) -> _Cached | None:
        cached = self._cached.get((place, key))
        if cached is None:
            return None
        entry = self._index.of(place, stream_of(key)).entries.get(key)
        if entry is None or entry.number > cached.loaded.number:
            return None
        if cached.public_key != self._directory.public_key(place):
            return None
        if cached.incarnation != self._index.positions[entry.database].incarnation:
            return None
        self._cached.move_to_end((place, key))
        return cached

    def _pending(self, where: Where, *, urgent: bool) -> _PendingLoad:
        pending = self._urgent.get(where) or self._calm.get(where)
        if pending is None:
            pending = _PendingLoad()
            (self._urgent if urgent else self._calm)[where] = pending
        elif urgent and where in self._calm:
            self._urgent[where] = self._calm.pop(where)
        return pending

    def _wait(self, waiter: _Waiter) -> None:
        for pending in waiter.asked.values():
            pending.waiting.append(waiter)
        self._asked.set()

    def _next_batch(self) -> dict[Where, _PendingLoad]:
        """Later requests for the key start a new read: the one in progress may be too old for them."""
        batch: dict[Where, _PendingLoad] = {}
        for queue in (self._urgent, self._calm):
            for where in list(queue)[: _BATCH - len(batch)]:
                batch[where] = queue.pop(where)
            if batch and queue is self._urgent:
                break  # what users wait for is not held up by the rest of a batch
        return batch

    async def _round(self, batch: Mapping[Where, _PendingLoad]) -> None:
        rest = set(batch)
        before = {(place, key): self._entry(place, key) for place, key in rest}
        for database in self._databases.all:
            asked = [where for where in rest if (known := before[where]) is None or known.database == database.name]
            if not asked:
                continue
            results = await self._try_to_read(database, asked)
            for where, result in results.items():
                rest.discard(where)
                self._count(result)
                batch[where].settle(result)
        for place, key in rest:
            if self._entry(place, key) is not before[place, key]:
                self._count(Failure.LATER)  # it was made while we read: that reading is too old
                batch[place, key].settle(Failure.LATER)
                continue
            self._index.forget(place, stream_of(key), key)
            self._count(None)
            batch[place, key].settle(None)

    def _entry(self, place: Place, key: str) -> DesiredEntry | None:
        return self._index.of(place, stream_of(key)).entries.get(key)

    def _count(self, result: Result) -> None:
        name = "gone" if result is None else result.value if isinstance(result, Failure) else "read"
        self._counts[name].inc()

    async def _try_to_read(self, database: Database, asked: list[Where]) -> dict[Where, Result]:
        """As ``_read``; what cannot be read is tried again later. An unexpected error is that of one key: each is then
        read alone, so that the others do not wait for ever."""
        try:
            return await self._read(database, asked)
        except ShoalError as error:
            _log.warning("desired state cannot be read now", database=database.name, error=str(error))
        except Exception as error:
            if len(asked) > 1:
                results: dict[Where, Result] = {}
                for where in asked:
                    results |= await self._try_to_read(database, [where])
                return results
            place, key = asked[0]
            _log.error("reading desired state failed", key=key, place=str(place), error=error)
        return dict.fromkeys(asked, Failure.LATER)

    async def _read(self, database: Database, asked: list[Where]) -> dict[Where, Result]:
        """What of ``asked`` is in this database."""
        incarnation = self._index.positions[database.name].incarnation
        rows, reading = await self._read_once(database, asked)
        if reading.unknown_regions:  # another task has just created one
            await self._directory.refresh_places(reading.began)
            rows, reading = await self._read_once(database, asked)
        results: dict[Where, Result] = {}
        for count, (where, row) in enumerate(rows.items(), 1):
            if count % RENDERED == 0:
                await asyncio.sleep(0)  # a large batch must not delay the others
            state = reading.found.get(where)
            if isinstance(state, Failure):
                results[where] = state
                continue
            version = Version(database.name, incarnation, row.number)
            results[where] = self._keep(where, row, version, state, reading.public_key(where[0]))
        return results

    async def _read_once(self, database: Database, asked: list[Where]) -> tuple[dict[Where, DesiredRow], Reading]:
        regions = await self._directory.regions()
        statements = queries(database.dialect)

        async def read(ask: Ask, session: AsyncSession | None) -> tuple[dict[Where, DesiredRow], Reading]:
            reading = Reading(ask, session, statements, self._directory, self._sealer, regions, self._states)
            rows = await desired_rows(ask, statements, asked)
            reading.found = await reading.states({where: row for where, row in rows.items() if row.action == "apply"})
            return rows, reading

        if all(key.startswith(_DEPLOYMENTS) for _, key in asked):
            async with database.moment() as ask:
                rows, reading = await read(ask, None)
        else:
            async with database.reading() as session:
                rows, reading = await read(rows_of(session), session)
        reading.found |= await reading.deployments()  # may ask for keys, so not while the database waits
        reading.found |= await reading.gateways() | await reading.secure_routes()
        return rows, reading

    def _keep(
        self, where: Where, row: DesiredRow, version: Version, state: render.State | None, public_key: bytes
    ) -> Result:
        place, key = where
        try:
            data = render.item_event(render.item_bytes(row, version, state))
            loaded = Loaded(row.number, data, row.committed_at, row.trace)
        except (ValueError, KeyError, TypeError) as error:
            _log.error("a row cannot be rendered for agents", key=key, place=str(place), error=error)
            return Failure.BROKEN
        self._uncache(where)
        cost = len(loaded.data) + _AROUND
        self._cached[where] = _Cached(loaded, version.incarnation, public_key, cost)
        self._cached_bytes += cost
        while self._cached_bytes > self._cache_bytes and len(self._cached) > 1:
            self._uncache(next(iter(self._cached)))
        known = self._entry(place, key)
        gone = row.gone_at > 0
        if known is None or gone or (known.database, known.number) != (version.database, row.number):
            entry = DesiredEntry(version.database, row.number, row.action, bool(row.by_user), gone)
            self._index.put(place, stream_of(key), key, entry)
        return loaded

    def _uncache(self, where: Where) -> None:
        cached = self._cached.pop(where, None)
        if cached is not None:
            self._cached_bytes -= cached.cost


class LoadFailed(ShoalError):
    """A key could not be loaded now."""

    def __init__(self, key: str, failure: Failure) -> None:
        super().__init__(f"{key} cannot be loaded: {failure.value}")
        self.failure = failure


class _PendingLoad:
    """A key with waiting callers: one read serves all that ask before it begins."""

    __slots__ = ("done", "result", "waiting")

    def __init__(self) -> None:
        self.done = False
        self.result: Result = None
        self.waiting: list[_Waiter] = []

    def settle(self, result: Result) -> None:
        """The first result counts."""
        if self.done:
            return
        self.done, self.result = True, result
        for waiter in self.waiting:
            waiter.left -= 1
            if not waiter.left:
                waiter.done(waiter.all_found())
        self.waiting.clear()


class _Waiter:
    """Called once, when the last of its keys is there: a future per key would cost an iteration of the event loop for
    each."""

    __slots__ = ("_found", "asked", "done", "left")

    def __init__(
        self, found: dict[str, Result], asked: Mapping[str, _PendingLoad], done: Callable[[dict[str, Result]], None]
    ) -> None:
        self._found = found
        self.asked = asked
        self.done = done
        self.left = len(asked)

    def all_found(self) -> dict[str, Result]:
        return self._found | {key: asked.result for key, asked in self.asked.items()}
