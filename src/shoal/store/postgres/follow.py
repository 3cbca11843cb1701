"""Follows the log of the database: writes of other servers, the counter, and changes of history.

One task and one connection. It polls at an interval, at once when a caller waits for a fresh revision, and soon after a
hint of rows that have not arrived otherwise. One query answers all of it from one snapshot: the counter, and the rows
of the log that this server has not seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import asyncpg

from shoal.base.ids import Ids
from shoal.base.logs import get_logger
from shoal.store.journal import Loaded, Replica
from shoal.store.model import StoreClosed, StoreUnavailable
from shoal.store.postgres.feed import Feed, HistoryChanged
from shoal.store.postgres.link import AWAY, LinkTimeouts, PostgresLink
from shoal.store.postgres.rows import COLUMNS, AttrsOf, LogRow, StoreHistory
from shoal.store.postgres.schema import CHANNEL

GAP_S = 0.02  # missing rows are fetched after this delay
_CHUNK = 2000  # rows per statement
_LOAD_CHUNK = 1000
# A new incarnation starts this far above every seen revision, so that no revision of the lost history is reused.
JUMP = 1_000_000

CATCH_UP = f"""
SELECT c.revision, c.mark, c.incarnation, {COLUMNS} FROM shoal.counter c
LEFT JOIN LATERAL (SELECT * FROM shoal.log WHERE revision > $1 ORDER BY revision LIMIT $2) l ON true
"""
_COUNTER = "SELECT revision, mark, incarnation FROM shoal.counter"
_FLOORS = "SELECT resource, revision FROM shoal.floor"
_ROWS = f"SELECT {COLUMNS} FROM shoal.log l WHERE l.revision > $1 ORDER BY l.revision LIMIT $2"
_NEW_INCARNATION = """
UPDATE shoal.counter SET incarnation = $2, mark = $3, revision = greatest(revision, $4) + $5 WHERE incarnation = $1
"""

_log = get_logger("store")


class LogSnapshot(NamedTuple):
    """A whole log, as read from the database."""

    loaded: Loaded
    mark: int
    superseded: Sequence[int]


async def load(connection: asyncpg.Connection, attrs_of: AttrsOf) -> LogSnapshot:
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        revision, mark, incarnation = await connection.fetchrow(_COUNTER)
        floors: dict[str, int] = dict(await connection.fetch(_FLOORS))
        history = StoreHistory(floors, attrs_of)
        after = 0
        while rows := await connection.fetch(_ROWS, after, _LOAD_CHUNK):
            for row in rows:
                history.add(LogRow(*row))
            after = rows[-1][0]
    loaded = Loaded(
        entries=history.entries, events=history.events, floors=floors, revision=revision, incarnation=incarnation
    )
    return LogSnapshot(loaded, mark, history.superseded)


class LogFollower:
    def __init__(
        self,
        link: PostgresLink,
        feed: Feed,
        replica: Replica,
        attrs_of: AttrsOf,
        timeouts: LinkTimeouts,
        ids: Ids,
        *,
        interval_s: float,
        on_loaded: Callable[[LogSnapshot], None],
        notified_delay_s: Callable[[], float],
    ) -> None:
        """``notified_delay_s`` is how long a notification waits for the events to arrive by a faster way."""
        self._link = link
        self._feed = feed
        self._replica = replica
        self._attrs_of = attrs_of
        self._timeouts = timeouts
        self._ids = ids
        self._interval_s = interval_s
        self._on_loaded = on_loaded
        self.incarnation = ""
        self._waiters: list[asyncio.Future[int]] = []
        self._wake = asyncio.Event()
        self._announced = 0  # the newest revision named by hints
        self._soon: asyncio.TimerHandle | None = None
        self._ended = False
        self.own_session = 0  # own notifications are ignored
        self._notified_delay_s = notified_delay_s

    def begin(self, snapshot: LogSnapshot) -> None:
        self.incarnation = snapshot.loaded.incarnation
        self._announced = 0
        self._feed.begin(snapshot.loaded.revision, snapshot.mark)
        self._on_loaded(snapshot)

    async def newest(self) -> int:
        """The counter, read after this call, once everything up to it is visible here. Calls before the query is sent
        share it."""
        if self._ended:
            raise StoreClosed
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[int] = loop.create_future()
        self._waiters.append(waiter)
        self._wake.set()
        # a timer and not asyncio.timeout: requests are not tasks
        timer = loop.call_later(self._timeouts.limit_s, _give_up, waiter)
        try:
            return await waiter
        finally:
            timer.cancel()

    def fetch_up_to(self, revision: int, delay_s: float = 0.0) -> None:
        """Fetch the revision unless it arrives otherwise within ``delay_s``."""
        self._announced = max(self._announced, revision)
        if self._announced <= self._feed.revision:
            return
        if delay_s <= 0.0:
            self._wake.set()
        elif self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(delay_s, self._due, self._feed.revision)

    def _due(self, known: int) -> None:
        self._soon = None
        if self._feed.revision == known:
            self._wake.set()
        else:  # rows arrive otherwise, so they may continue to
            self.fetch_up_to(self._announced, GAP_S)

    async def run(self) -> None:
        waiters: list[asyncio.Future[int]] = []
        try:
            while True:
                await self._until_due()
                waiters, self._waiters = self._waiters, []
                try:
                    newest = await self._catch_up(await self._link.get())
                except AWAY as error:
                    self._waiters[:0] = waiters
                    self._link.drop()
                    await self._link.pause(error)
                    self._wake.set()
                    continue
                for waiter in waiters:
                    if not waiter.done():
                        waiter.set_result(newest)
        except Exception as error:
            self._replica.fail(error)
        finally:
            self._ended = True
            for waiter in (*waiters, *self._waiters):
                if not waiter.done():
                    waiter.set_exception(StoreClosed())

    async def _until_due(self) -> None:
        if not self._wake.is_set():
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
        self._wake.clear()

    async def prepare(self, connection: asyncpg.Connection) -> None:
        """Run by the link on a new connection: the first statement also checks that the database still has our
        history."""
        self._statement = await connection.prepare(CATCH_UP)
        await connection.add_listener(CHANNEL, self._on_notify)

    def _on_notify(self, connection: object, pid: int, channel: str, payload: object) -> None:
        try:
            revision = int(str(payload))
        except ValueError:
            return
        if pid != self.own_session:
            self.fetch_up_to(revision, self._notified_delay_s())

    async def _catch_up(self, connection: asyncpg.Connection) -> int:
        while True:
            try:
                return await self._read_on()
            except HistoryChanged as changed:
                await self._reload(connection, changed)

    async def _read_on(self) -> int:
        feed, chunk = self._feed, _CHUNK
        newest = 0
        while True:
            known, known_mark = feed.revision, feed.mark
            records = await self._statement.fetch(known, chunk, timeout=self._timeouts.statement_s)
            revision, mark, incarnation = records[0][:3]
            newest = newest or revision
            if incarnation != self.incarnation:
                raise HistoryChanged("another incarnation")
            if revision < known or (revision == known and mark != known_mark):
                raise HistoryChanged(f"the counter is at {revision}, this server has seen {known}", rewound=True)
            if revision == known:
                return newest
            rows = [LogRow(*record[3:]) for record in records if record[3] is not None]
            complete = len(rows) < chunk
            if complete and (not rows or rows[-1].revision != revision):
                raise HistoryChanged("the log has dropped rows that this server has not read")
            whole = whole_batches(rows, revision)
            if not whole:
                chunk *= 2
            feed.read(whole)
            if feed.revision >= newest:
                return newest

    async def _reload(self, connection: asyncpg.Connection, changed: HistoryChanged) -> None:
        revision, _, incarnation = await connection.fetchrow(_COUNTER)
        seen = self._feed.revision
        if revision < seen or (changed.rewound and incarnation == self.incarnation):
            # Only the first of several servers changes the row; the others find another incarnation, and a higher
            # number than theirs.
            await connection.execute(
                _NEW_INCARNATION, incarnation, self._ids.new_uid(), new_mark(self._ids), seen, JUMP
            )
        _log.warning("reloading the database", reason=str(changed), revision=seen)
        snapshot = await load(connection, self._attrs_of)
        if snapshot.loaded.revision < self._feed.revision:
            raise HistoryChanged("the counter went back again", rewound=True)
        self.begin(snapshot)
        self._replica.reset(snapshot.loaded)


def whole_batches(rows: Sequence[LogRow], through: int) -> Sequence[LogRow]:
    """The rows without the last batch, if rows up to ``through`` have not been read: it may be incomplete."""
    if not rows or rows[-1].revision >= through:
        return rows
    return [row for row in rows if row.mark != rows[-1].mark]


def new_mark(ids: Ids) -> int:
    """48 random bits: enough to distinguish a batch from those at its place in another history."""
    return int(ids.new_uid()[-12:], 16)


def _give_up(waiter: asyncio.Future[int]) -> None:
    if not waiter.done():
        waiter.set_exception(StoreUnavailable("the database does not respond"))
