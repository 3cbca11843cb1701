"""The hub of the cluster service: follows the changes of every database and keeps the streams of this process.

    database ──changes──▶ index ──dirty keys──▶ sessions ──▶ agents
                            ▲                       │
                            └── hello: from the cursor, or a full sync

The databases are the source of truth: a process reads everything from them when it starts, and any number of processes
can do so. When the hub finds that a database went back, it begins a new incarnation of it and ends the streams, so that
every agent starts again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.supervision import supervise
from shoal.base.tasks import run_all
from shoal.control.database.engine import Database, Databases
from shoal.control.database.position import Position
from shoal.control.service.config import ServiceConfig
from shoal.control.service.desired.index import DesiredEntry, DesiredIndex
from shoal.control.service.desired.marks import MarkedChange
from shoal.control.service.desired.queries import ChangedRow, queries
from shoal.control.service.desired.reported import Reported
from shoal.control.service.metrics import ServiceMetrics
from shoal.control.service.stream.opened import OpenStream, fenced
from shoal.control.service.stream.protocol import FullSync, Resume, WentBack, decide
from shoal.errors import ServiceUnavailable
from shoal.sync.keys import Place
from shoal.sync.versions import Cursor, decode_cursor

_CHANGES = 1000  # read at once; streams run in between
_PAGE = 5_000
_BACKOFF = Backoff(base_s=0.1, cap_s=2.0, floor_s=0.05)
_CATCH_UP_S = 10.0
_PRUNE_EVERY_S = 300.0

_log = get_logger("control.service.hub")


class Hub:
    """``run`` follows the changes until it is cancelled."""

    def __init__(
        self,
        databases: Databases,
        config: ServiceConfig,
        metrics: ServiceMetrics,
        reported: Reported,
        *,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self._databases = databases
        self._config = config
        self._metrics = metrics
        self._reported = reported
        self._clock = clock
        self._random = random
        self._keys = {database.name: database.signing_key for database in databases.all}
        self.index = DesiredIndex(self._keys)
        self.streams: set[OpenStream] = set()
        self.broken: dict[Place, int] = {}
        """Places whose streams have all ended here, and when in milliseconds. An agent may be connected elsewhere."""
        self._stopping: ConnectError | None = None
        self._moved = asyncio.Condition()
        self._ready: dict[str, asyncio.Event] = {database.name: asyncio.Event() for database in databases.all}
        self._looking = asyncio.Lock()
        self._looked: dict[str, tuple[int, int]] = {}
        self._looked_at = float("-inf")
        self._judging = asyncio.Lock()  # one at a time decides that a database went back

    def use(self, config: ServiceConfig) -> None:
        """Replace the settings."""
        self._config = config

    def stop(self, error: ConnectError) -> None:
        """Every stream ends with this error, those too that come before the listener is closed."""
        self._stopping = error
        self.end_all("stopping", error)

    async def run(self) -> None:
        self._stopping = None
        parts: dict[str, Any] = {
            f"control-tail/{one.name}": supervise(
                "control-tail", partial(self._follow, one), clock=self._clock, detail=one.name,
                ready=self._ready[one.name].is_set,
            )
            for one in self._databases.all
        }  # fmt: skip
        parts["control-prune"] = supervise("control-prune", self._prune, clock=self._clock)
        await run_all(parts)

    async def ready(self) -> None:
        """Return once the index is loaded."""
        while not self._is_ready:  # while one was waited for, another may have begun to load anew
            for event in self._ready.values():
                await event.wait()

    @property
    def _is_ready(self) -> bool:
        return all(event.is_set() for event in self._ready.values())

    async def begin(self, cursor_text: str) -> Resume | FullSync:
        """How a stream that brings this cursor begins. ``BadCursor`` changes nothing."""
        cursor = decode_cursor(cursor_text, self._keys)
        async with asyncio.timeout(_CATCH_UP_S):
            while True:
                await self.ready()
                how = decide(cursor, self.index.positions)
                if isinstance(how, Resume):
                    strayed = await self._strayed(cursor)
                    if strayed is None:
                        return how
                    await self._begin_anew(strayed, cursor)
                    continue
                if isinstance(how, FullSync):
                    await self.catch_up()
                    how = decide(cursor, self.index.positions)  # perhaps another history has begun meanwhile
                    if isinstance(how, FullSync):
                        return how
                    continue
                await self._look_ahead(how, cursor.positions[how.database])

    async def catch_up(self) -> None:
        """Return once the index has everything that was committed before this call, and is whole."""
        asked_at = self._clock.monotonic()
        await self.ready()
        async with self._looking:
            if self._looked_at < asked_at:  # of many who ask at once, one or two look
                began = self._clock.monotonic()
                self._looked = {one.name: _moment(await one.position()) for one in self._databases.all}
                self._looked_at = began
            looked = self._looked
        while True:
            for name, moment in looked.items():
                await self._until(name, moment)
            if self._is_ready:
                return
            await self.ready()

    async def _until(self, database: str, seen: tuple[int, int]) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: _moment(self.index.positions[database]) >= seen)

    def open(self, stream: OpenStream) -> None:
        if self._stopping is not None:  # it came while the others were ended
            stream.end("stopping", self._stopping)
        self.streams.add(stream)
        self.broken.pop(stream.place, None)
        self._metrics.streams.labels(stream.stream).inc()

    def close(self, stream: OpenStream) -> None:
        if stream in self.streams:
            self.streams.discard(stream)
            if not any(one.place == stream.place for one in self.streams):
                self.broken[stream.place] = self._databases.fleet.time.now_ms()
            self._metrics.streams.labels(stream.stream).inc(-1)
            self._metrics.ended.labels(stream.stream, stream.reason).inc()

    def fence(self, place: Place, epoch: int) -> None:
        """A newer agent speaks for the place: streams of older epochs end."""
        for stream in [one for one in self.streams if one.place == place and one.epoch < epoch]:
            stream.end("fenced", fenced(place, stream.epoch, epoch))

    def revoke(self, token_ids: set[str]) -> None:
        if not token_ids:
            return
        for stream in [one for one in self.streams if one.token_id in token_ids]:
            stream.end("revoked", ConnectError(Code.UNAUTHENTICATED, "the token was revoked or has expired"))

    def replaced(self, working: Mapping[str, frozenset[str]]) -> None:
        """Streams opened with a text of these tokens that is not among the digests that still work."""
        if not working:
            return
        for stream in [one for one in self.streams if one.digest and one.token_id in working]:
            if stream.digest not in working[stream.token_id]:
                stream.end("revoked", ConnectError(Code.UNAUTHENTICATED, "the token was rotated"))

    def end_all(self, reason: str, error: ConnectError) -> None:
        for stream in list(self.streams):
            stream.end(reason, error)

    async def _look_ahead(self, found: WentBack, seen: tuple[int, int]) -> None:
        """A cursor is ahead of the index: either this process is a moment behind, or the database went back."""
        database = self._databases.named(found.database)
        assert database is not None
        position = await database.position()
        if _moment(position) >= seen:
            await self._until(database.name, seen)
            return
        async with self._judging:
            position = await database.position()
            if _moment(position) < seen:
                await self._begin_incarnation(database, position, "an agent", "cursor", found.incarnation)
                self._ready[database.name].clear()
                await self._load(database)

    async def _strayed(self, cursor: Cursor) -> Database | None:
        """A database with a different change at the cursor: it was restored, and has passed the cursor since."""
        for database in self._databases.all:
            mark, at = cursor.marks.get(database.name, ""), cursor.positions.get(database.name)
            if mark and at is not None:
                known = await self._mark(database, at[1])
                if known and known != mark:
                    return database
        return None

    async def _mark(self, database: Database, number: int) -> str:
        """Of the last change up to a number; empty when it was forgotten."""
        known = self.index.marks[database.name].at(number)
        if known:
            return known
        async with database.moment() as ask:
            rows = await ask(queries(database.dialect).last_change, {"number": number})
        return rows[0].mark if rows else ""

    async def _look_back(self, database: Database) -> None:
        """The database was away: when it is back it may be another one, and further than we were."""
        at = self.index.positions[database.name]
        known = self.index.marks[database.name].at(at.number)
        async with database.moment() as ask:
            rows = await ask(queries(database.dialect).last_change, {"number": at.number})
        if known and rows and rows[0].mark != known:
            position = await database.position()
            if position.incarnation == at.incarnation:
                await self._begin_incarnation(database, position, "this control plane", "mark", at.incarnation)
            self._ready[database.name].clear()

    async def _begin_anew(self, database: Database, cursor: Cursor) -> None:
        incarnation, number = cursor.positions[database.name]
        async with self._judging:
            position = await database.position()
            if position.incarnation == incarnation:  # else another process has found out
                who = f"an agent that has seen {number} of another history"
                await self._begin_incarnation(database, position, who, "mark", incarnation)
                self._ready[database.name].clear()
                await self._load(database)

    async def _begin_incarnation(self, database: Database, at: Position, who: str, by: str, above: int) -> None:
        self._metrics.incarnations.labels(by).inc()
        reason = f"the database is older than before (a restored backup?): {who} has seen changes after {at.number}"
        await database.new_incarnation(reason, after=at.incarnation, above=above)

    async def _follow(self, database: Database) -> None:
        failures = 0
        self._ready[database.name].clear()  # after an error it is not known what the index has taken in
        while True:
            try:
                async with self._judging:
                    if not self._ready[database.name].is_set():
                        await self._load(database)
                    elif failures:
                        await self._look_back(database)
                if await self._step(database):
                    number = self.index.positions[database.name].number
                    await database.wait_for_change(number, self._config.poll_s)
                failures = 0
            except ServiceUnavailable as error:
                failures += 1
                _log.warning("changes cannot be read now", database=database.name, error=str(error))
                await self._clock.sleep(_BACKOFF.delay_s(failures, self._random))

    async def _load(self, database: Database) -> None:
        """Read what is desired now. The position is read first: what changes meanwhile is read again by the tail."""
        position = await database.position()
        self.end_all_of(database.name)
        self.index.restart(database.name, Position(position.incarnation, 0, position.oldest))
        statement = queries(database.dialect).index
        places: dict[tuple[str, str], Place] = {}
        count = 0
        async with database.reading() as session:
            result = await session.stream(statement.clause)
            async for page in result.partitions(_PAGE):
                for row in map(statement.make, page):
                    place = places.setdefault((row.cluster_id, row.shard), Place(row.cluster_id, row.shard))
                    entry = DesiredEntry(database.name, row.number, row.action, bool(row.by_user), row.gone_at > 0)
                    self.index.put(place, row.stream, row.key, entry)
                    self._reported.put(place, row.stream, row.key, row.fingerprint)
                count += len(page)
                await asyncio.sleep(0)
        async with database.moment() as ask:
            for change in await ask(queries(database.dialect).last_change, {"number": position.number}):
                self.index.marks[database.name].put(change)
        await self._set_position(database.name, position)
        self._ready[database.name].set()
        _log.info("desired state loaded", database=database.name, objects=count, number=position.number)

    def end_all_of(self, database: str) -> None:
        """Streams that began with another history of a database."""
        if database in self.index.positions:
            message = f"the database {database} has started a new incarnation: connect again"
            self.end_all("incarnation", ConnectError(Code.ABORTED, message))

    async def _step(self, database: Database) -> bool:
        """Take in the next changes; True when there were no more."""
        known = self.index.positions[database.name]
        statements = queries(database.dialect)
        async with database.moment() as ask:
            (position,) = await ask(statements.position, {})
            rows: Sequence[ChangedRow] = ()
            if _moment(position) > _moment(known):
                rows = await ask(statements.changes, {"after": known.number, "limit": _CHANGES})
        if self.index.positions[database.name] is not known:
            return False  # it was loaded anew meanwhile
        if position.incarnation == known.incarnation and position.number < known.number:
            async with self._judging:
                above = known.incarnation
                await self._begin_incarnation(database, position, "this control plane", "tail", above)
                self._ready[database.name].clear()
            return False
        if position.incarnation != known.incarnation or known.number < position.oldest:
            self._ready[database.name].clear()  # another history, or changes were forgotten before we saw them
            return False
        if position.number == known.number:
            if position.oldest != known.oldest:
                await self._set_position(database.name, position)
            return True
        marks = self.index.marks[database.name]
        for row in rows:
            place = Place(row.cluster_id, row.shard)
            marks.put(MarkedChange(row.change, row.created_at, row.cluster_id, row.shard, row.key))
            self._metrics.changes.labels(row.stream).inc()
            if row.number is None:
                self.index.forget(place, row.stream, row.key)
            else:
                entry = DesiredEntry(database.name, row.number, row.action, bool(row.by_user), row.gone_at > 0)
                self.index.put(place, row.stream, row.key, entry)
        complete = len(rows) < _CHANGES
        last = rows[-1].change if rows else 0
        number = max(position.number, last) if complete else last
        await self._set_position(database.name, Position(position.incarnation, number, position.oldest))
        if not complete:
            await asyncio.sleep(0)
        return complete

    async def _set_position(self, database: str, position: Position) -> None:
        self.index.moved(database, position)
        async with self._moved:
            self._moved.notify_all()

    async def _prune(self) -> None:
        while True:
            await self._clock.sleep(_PRUNE_EVERY_S)
            self.index.prune()


def _moment(position: Position) -> tuple[int, int]:
    return position.incarnation, position.number
