"""The databases of the fleet: opening, transactions, reading, and the position in their sequence of changes.

SQLite has one writer at a time and readers beside it. PostgreSQL may serve any number of control planes. There too,
transactions with ``serial`` run one after the other, over all control planes: the row of the counter is their lock, so
what a transaction has read does not change before it commits. Other transactions run in parallel until they take a
number, and the database may undo them: ``run`` repeats such work.

When the database is unavailable, callers get ``errors.ServiceUnavailable`` within seconds. No process has to be
restarted when it is back.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

from sqlalchemy import select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.ids import Ids, new_token
from shoal.base.logs import get_logger
from shoal.base.supervision import SupervisedLoops
from shoal.control.database.connections import DatabaseTimeouts, Engines, make_engines
from shoal.control.database.database_time import DatabaseTime
from shoal.control.database.failures import DatabaseAway, Undone, Unsure
from shoal.control.database.migrate import migrate
from shoal.control.database.moments import SqliteReaders, rows_of, rows_of_sqlite
from shoal.control.database.position import Position
from shoal.control.database.rows import Ask
from shoal.control.database.statements import statements
from shoal.control.database.tables import FLEET, Counter, Desired
from shoal.control.database.transaction import Tx, TxSession
from shoal.control.database.upserts import insert_or_leave
from shoal.control.database.wakeups import Hints, PostgresHints, RedisHints, Wakeups
from shoal.errors import ConfigError

T = TypeVar("T")

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_COUNTER = "changes"
_POSITION = {
    dialect: text(f"SELECT incarnation, number, oldest, {now} AS at_ms FROM counters WHERE name = '{_COUNTER}'")
    for dialect, now in (
        ("sqlite", "0"), ("postgresql", "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"),
    )
}  # fmt: skip
_AGAIN = Backoff(base_s=0.02, cap_s=0.5)
# Of a history that is over. Versions of the new one are later, whatever their numbers, so nothing is applied yet.
_NOT_APPLIED = update(Desired).values(applied_number=0).execution_options(synchronize_session=False)

_log = get_logger("control.database")


class Database:
    """One database. Made by ``open``; everything is used from one event loop."""

    def __init__(
        self, engines: Engines, *, name: str, clock: Clock, ids: Ids, patience: DatabaseTimeouts, redis: bool
    ) -> None:
        self.name = name
        self.clock = clock
        self.time = DatabaseTime(clock)
        self.ids = ids
        self.fleet = ""
        self.signing_key = b""
        self.dialect = engines.dialect
        self._engines = engines
        self._patience = patience
        self._statements = statements(engines.dialect, notify=engines.dialect == "postgresql" and not redis)
        self._writers = asyncio.Semaphore(engines.writers)
        self._readers = asyncio.Semaphore(engines.readers)
        self._inside: set[asyncio.Task[Any] | None] = set()  # tasks that are in a transaction
        self._moments = SqliteReaders(name, engines.path) if engines.path is not None else None
        self._wakeups = Wakeups(clock)
        self._writes = Wakeups(clock)  # of this process, and numbered ones of others
        self._wakeups.on_heard = self._note_write
        self._hints: Hints | None = None
        self._loops = SupervisedLoops(clock)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        name: str = "main",
        clock: Clock,
        ids: Ids,
        events: str = "",
        fleet: str = "",
        patience: DatabaseTimeouts = DatabaseTimeouts(),  # noqa: B008 - frozen
    ) -> Self:
        """Connect, bring the tables to the newest revision, and listen for the changes of others.

        ``events`` is the URL of a Redis that carries hints in place of PostgreSQL. ``fleet`` is the id of the fleet
        that the database must belong to, if it is not its first."""
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} is not a valid database name: use up to 32 lower case letters, digits and dashes"
            )
        engines = make_engines(name, url, patience)
        database = cls(engines, name=name, clock=clock, ids=ids, patience=patience, redis=bool(events))
        try:
            await _reached(name, migrate(name, url, patience))
            await database._identify(fleet)
            await database.position()  # and its time
            database._listen(events)
        except BaseException:
            await database.close()
            raise
        return database

    async def close(self) -> None:
        if self._hints is not None:
            self._hints.end()
        await self._loops.stop()
        self._wakeups.hear(0)
        if self._moments is not None:
            self._moments.close()
        await self._engines.close()

    @asynccontextmanager
    async def transaction(
        self,
        *,
        actor: str = "system",
        by_user: bool = False,
        trace: str = "",
        correlation: str = "",
        serial: bool = True,
        short: bool = False,
    ) -> AsyncIterator[Tx]:
        """Committed when the block ends, undone when it raises.

        ``serial``: no other such transaction runs meanwhile, here or in another process. ``short``: its statements find
        their rows by an index, so with SQLite they run in the event loop; what names many rows still does not."""
        task = asyncio.current_task()
        if task in self._inside:
            raise RuntimeError("this task is already in a transaction; a second one would deadlock")
        async with _acquired(self._writers, self.name, self._patience.queue_s):
            self._inside.add(task)
            try:
                tx = await self._begin(actor, by_user, trace, correlation, serial=serial, short=short)
                try:
                    yield tx
                    await tx.finish()
                    await self._commit(tx)
                finally:
                    await tx.session.close()
            finally:
                self._inside.discard(task)

    async def run(
        self,
        work: Callable[[Tx], Awaitable[T]],
        *,
        attempts: int = 5,
        actor: str = "system",
        by_user: bool = False,
        trace: str = "",
        correlation: str = "",
        serial: bool = True,
        short: bool = False,
    ) -> T:
        """Do ``work`` in a transaction, and again when the database undid it or went away before the commit.

        ``work`` may run several times, so it must do nothing that is not undone with the transaction."""
        failures = 0
        while True:
            try:
                async with self.transaction(
                    actor=actor, by_user=by_user, trace=trace, correlation=correlation, serial=serial, short=short
                ) as tx:
                    return await work(tx)
            except DatabaseAway:
                failures += 1
                if failures >= attempts:
                    raise
                await asyncio.sleep(_AGAIN.bound_s(failures))

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncSession]:
        """For reading: everything read in the block is of one moment."""
        async with _acquired(self._readers, self.name, self._patience.queue_s):
            session = AsyncSession(self._engines.read, expire_on_commit=False, autoflush=False)
            try:
                await _reached(self.name, session.connection())
                yield session
            finally:
                await session.close()

    @asynccontextmanager
    async def moment(self) -> AsyncIterator[Ask]:
        """As ``reading``, for a few short statements that are made all the time. With SQLite they run in the event
        loop, so each must find its rows by an index, and nothing else may be waited for inside the block."""
        if self._moments is not None:
            with self._moments.open() as rows:
                yield rows
            return
        async with self.reading() as session:
            yield rows_of(session)

    async def position(self) -> Position:
        heard = self._wakeups.heard
        async with self.reading() as session:
            asked_at = self.clock.monotonic()
            (row,) = (await session.execute(_POSITION[self.dialect])).all()
        if row.at_ms:
            self.time.heard(row.at_ms, asked_at)
        self._wakeups.correct(row.number, heard)
        return Position(row.incarnation, row.number, row.oldest)

    async def new_incarnation(self, reason: str, *, after: int | None = None, above: int = 0) -> Position:
        """The history that agents know is not this database's: begin another one, so that all of them sync anew.

        ``after``: only if this is still the incarnation, so that of several who find out only one does it. ``above``:
        the new one must be later than this one too, which an agent has seen of the lost history."""
        async with self.transaction() as tx:
            counter = (await tx.session.execute(select(Counter).where(Counter.name == _COUNTER))).scalar_one()
            if after is None or counter.incarnation == after:
                number = await tx.number()
                before, counter.incarnation = counter.incarnation, max(counter.incarnation, above) + 1
                counter.oldest = number  # what came before belongs to the other history
                await tx.session.execute(_NOT_APPLIED)
                tx.audit(
                    workspace_id=FLEET, action="new_incarnation", kind="Database", object_id=self.name, name=self.name,
                    diff=[{"path": "incarnation", "before": before, "after": counter.incarnation,
                           "reason": reason}],
                )  # fmt: skip
                _log.warning("database starts a new incarnation", database=self.name, reason=reason)
        return await self.position()

    async def wait_for_change(self, after: int, timeout_s: float) -> None:
        """Until there may be a change with a higher number, or ``timeout_s`` have passed. A hint: look, and look
        again now and then in any case."""
        await self._wakeups.wait(after, timeout_s)

    @property
    def writes(self) -> int:
        """Counts commits of this process, with and without a number, and hints that others have committed."""
        return self._writes.known

    async def wait_for_write(self, after: int, timeout_s: float) -> None:
        """Until ``writes`` is higher, or ``timeout_s`` have passed. Other processes give no hint of what they write
        without a number: with PostgreSQL look again now and then in any case."""
        await self._writes.wait(after, timeout_s)

    def _note_write(self) -> None:
        self._writes.hear(self._writes.known + 1)

    async def _identify(self, fleet: str) -> None:
        """Make the row of the counter, or check that this is the database it is taken for."""
        async with self.transaction(serial=False) as tx:
            found = await tx.session.get(Counter, _COUNTER)
            if found is None:
                row = {
                    "name": _COUNTER, "incarnation": 1, "number": 0, "oldest": 0, "database": self.name,
                    "fleet": fleet or f"fleet-{self.ids.new_suffix(10)}", "signing_key": new_token().encode(),
                }  # fmt: skip
                await tx.session.execute(insert_or_leave(self.dialect, Counter, row))
                found = (await tx.session.execute(select(Counter).where(Counter.name == _COUNTER))).scalar_one()
        if found.database != self.name:
            raise ConfigError(
                f"database {self.name!r} was set up as {found.database!r}, and agents use that name: keep it"
            )
        if fleet and found.fleet != fleet:
            raise ConfigError(f"database {self.name!r} belongs to the fleet {found.fleet!r}, not to {fleet!r}")
        self.fleet, self.signing_key = found.fleet, found.signing_key

    def _listen(self, events: str) -> None:
        if events:
            channel = f"shoal:{self.fleet}:{self.name}:changes"
            self._hints = RedisHints(events, self._wakeups, channel=channel)
        elif self.dialect == "postgresql":
            self._hints = PostgresHints(self._engines.dsn, self._wakeups, name=self.name)
        if self._hints is not None:
            self._loops.start("control-database/hints", self._hints.run, detail=self.name)

    async def _begin(self, actor: str, by_user: bool, trace: str, correlation: str, *, serial: bool, short: bool) -> Tx:
        """A transaction that has reached the database. Nothing was done yet, so what fails is tried again."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience.begin_s
        failures = 0
        while True:
            session = TxSession(self._engines.write, expire_on_commit=False)
            try:
                connection = await _reached(self.name, session.connection())
                tx = Tx(
                    session, self._asking(session, connection, short=short), self._statements, dialect=self.dialect,
                    now=0, actor=actor, by_user=by_user, trace=trace, correlation=correlation,
                )  # fmt: skip
                if serial:
                    await tx.claim()
                tx.now = self.time.now_ms()
                return tx
            except BaseException as error:
                await session.close()
                if not isinstance(error, DatabaseAway) or loop.time() >= deadline:
                    raise
            failures += 1
            await asyncio.sleep(_AGAIN.bound_s(failures))

    def _asking(self, session: AsyncSession, connection: AsyncConnection, *, short: bool) -> Ask:
        if self.dialect != "sqlite":
            return rows_of(session)
        assert connection.sync_connection is not None
        driver: Any = connection.sync_connection.connection.driver_connection
        driver.direct = short
        return rows_of_sqlite(self.name, driver)

    async def _commit(self, tx: Tx) -> None:
        try:
            await AsyncSession.commit(tx.session)
        except Undone:
            raise
        except DatabaseAway as error:
            self._wakeups.hear(0)
            raise Unsure(self.name, error.message) from error
        if tx.taken:
            if tx.by_user and tx.correlation:
                _log.info("change committed", correlation=tx.correlation, actor=tx.actor, number=tx.taken)
            self._wakeups.hear(tx.taken)
            if self._hints is not None:
                self._hints.offer(tx.taken)
        else:
            self._note_write()


class Databases:
    """All databases of the fleet. The first holds what belongs to the fleet itself; a workspace is in one of them."""

    def __init__(self, databases: Iterable[Database], workspaces: Mapping[str, str] | None = None) -> None:
        """``workspaces``: which database a workspace is in, by names; the first one if it is not there."""
        self.all = tuple(databases)
        self._named = {database.name: database for database in self.all}
        if not self.all:
            raise ConfigError("no database is configured: give at least one")
        if len(self._named) != len(self.all):
            raise ConfigError("two databases have the same name")
        self._workspaces = dict(workspaces or {})
        for workspace, name in self._workspaces.items():
            if name not in self._named:
                known = ", ".join(sorted(self._named))
                raise ConfigError(f"workspace {workspace!r} is in the database {name!r}: use one of {known}")

    @classmethod
    async def open(
        cls,
        urls: Mapping[str, str],
        *,
        clock: Clock,
        ids: Ids,
        workspaces: Mapping[str, str] | None = None,
        events: str = "",
    ) -> Self:
        """``urls`` by name, the fleet's own first."""
        opened: list[Database] = []
        try:
            for name, url in urls.items():
                fleet = opened[0].fleet if opened else ""
                opened.append(await Database.open(url, name=name, clock=clock, ids=ids, events=events, fleet=fleet))
            return cls(opened, workspaces)
        except BaseException:
            for database in opened:
                await database.close()
            raise

    async def close(self) -> None:
        for database in self.all:
            await database.close()

    @property
    def fleet(self) -> Database:
        return self.all[0]

    def of(self, workspace_id: str) -> Database:
        name = self._workspaces.get(workspace_id)
        return self.fleet if name is None else self._named[name]

    def named(self, name: str) -> Database | None:
        return self._named.get(name)


@asynccontextmanager
async def _acquired(places: asyncio.Semaphore, database: str, limit_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(limit_s):
            await places.acquire()
    except TimeoutError:
        raise DatabaseAway(database, f"every connection has been in use for {limit_s:g} s") from None
    try:
        yield
    finally:
        places.release()


async def _reached(database: str, connecting: Awaitable[T]) -> T:
    """What fails before there is a connection does not pass SQLAlchemy's listener."""
    try:
        return await connecting
    except (OSError, TimeoutError) as error:
        raise DatabaseAway(database, str(error) or type(error).__name__) from error
