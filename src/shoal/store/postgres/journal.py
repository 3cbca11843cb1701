"""The PostgreSQL journal: any number of servers on one log.

The database checks and numbers every batch (``shoal.store.postgres.schema``). Each server publishes all batches in the
same order (``feed``): its own from memory, those of others with the responses to its own, by Redis (``hints``), by
notification, or by polling (``follow``). Correctness does not depend on which of these is fastest.

While the database is unavailable, reads and watches continue from memory; writes and fresh reads wait for a while and
then fail with StoreUnavailable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import asyncpg

from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.base.supervision import SupervisedLoops
from shoal.base.tasks import OwnedTasks
from shoal.errors import ConfigError
from shoal.store.journal import Loaded, Replica, Result, Transaction
from shoal.store.model import Event
from shoal.store.postgres.feed import Feed, OwnBatch
from shoal.store.postgres.follow import GAP_S, LogFollower, LogSnapshot, load
from shoal.store.postgres.hints import Hints
from shoal.store.postgres.housekeeping import BEAT_S, Housekeeper, register
from shoal.store.postgres.link import AWAY, LinkTimeouts, PostgresLink
from shoal.store.postgres.rows import AttrsOf, LogRow
from shoal.store.postgres.schema import install
from shoal.store.postgres.sealing import REFRESH_S, EventKeys
from shoal.store.postgres.writer import PostgresWriter
from shoal.store.urls import shown

# Retrying does not help: the user, the password or the name of the database is wrong.
_HOPELESS = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ClientConfigurationError,
)
_KEY_BEATS = round(REFRESH_S / BEAT_S)
_INTERVAL_S = 0.2
_INTERVAL_HINTED_S = 0.5  # when Redis carries the events


class PostgresJournal:
    shared = True

    def __init__(
        self,
        url: str,
        attrs_of: AttrsOf,
        *,
        events: str = "",
        timeouts: LinkTimeouts | None = None,
        ids: Ids | None = None,
    ) -> None:
        self._url = url
        self._attrs_of = attrs_of
        self._events = events
        self._timeouts = timeouts or LinkTimeouts()
        self._ids = ids or Ids()
        self._server = self._ids.new_uid()
        self._tasks = OwnedTasks()
        self._loops = SupervisedLoops(RealClock())
        self._hints: Hints | None = None
        self._keys = EventKeys()

    @property
    def size_bytes(self) -> int:
        return self._keeper.size_bytes

    async def open(self, replica: Replica) -> Loaded:
        feed = self._feed = Feed(replica, self._attrs_of, self._published)
        self._follow_link = PostgresLink(self._url, "follower", self._timeouts, self._prepare_follower)
        self._follower = LogFollower(
            self._follow_link, feed, replica, self._attrs_of, self._timeouts, self._ids,
            interval_s=_INTERVAL_HINTED_S if self._events else _INTERVAL_S, on_loaded=self._loaded,
            notified_delay_s=self._notified_delay_s,
        )  # fmt: skip
        self._keep_link = PostgresLink(self._url, "keeper", self._timeouts, _nothing, {"synchronous_commit": "off"})
        self._keeper = Housekeeper(self._keep_link, self._server, lambda: feed.revision, self._keep_keys)
        self._writer = PostgresWriter(
            self._url, feed, self._follower, self._timeouts, self._ids, lambda: self._keeper.others > 0
        )
        if self._events:
            self._hints = Hints(
                self._events,
                keys=self._keys,
                incarnation=lambda: self._follower.incarnation,
                known=lambda: feed.revision,
                wanted=lambda: self._keeper.others > 0,
                on_batch=self._hinted,
            )
        try:
            async with asyncio.timeout(self._timeouts.limit_s + self._timeouts.connect_s):
                snapshot = await self._first_load()
        except BaseException as error:
            await self._close_links()
            if isinstance(error, AWAY):
                reason = str(error) or type(error).__name__
                raise ConfigError(f"store {shown(self._url)} cannot be used: {reason}") from error
            raise
        self._follower.begin(snapshot)
        self._tasks.start(self._follower.run(), name="store-follower")  # an unknown error in it ends the store
        self._loops.start("store-keeper", self._keeper.run)
        if self._hints is not None:
            self._loops.start("store-hints", self._hints.run)
        return snapshot.loaded

    async def commit(self, batch: Sequence[Transaction]) -> Sequence[Result]:
        return await self._writer.commit(batch)

    async def newest(self) -> int:
        return await self._follower.newest()

    def forget(self, revisions: Sequence[int], floors: Mapping[str, int]) -> None:
        self._keeper.forget(revisions, floors)

    async def settle(self) -> None:
        try:
            async with asyncio.timeout(self._timeouts.limit_s):
                await self._keeper.settle()
        except AWAY:
            pass  # the keeper continues it

    async def close(self) -> None:
        if self._hints is not None:
            self._hints.end()
        await self._loops.stop()
        await self._tasks.close()
        try:
            async with asyncio.timeout(self._timeouts.connect_s):
                await self._keeper.leave()
        except AWAY:
            pass  # other servers notice the silence, and the next load deletes the rest
        await self._close_links()

    async def _first_load(self) -> LogSnapshot:
        deadline_s = asyncio.get_running_loop().time() + self._timeouts.limit_s
        while True:
            try:
                connection = await self._follow_link.get()
                await register(connection, self._server)
                if self._hints is not None:
                    await self._keys.refresh(connection)
                return await load(connection, self._attrs_of)
            except _HOPELESS:
                raise
            except AWAY as error:
                if asyncio.get_running_loop().time() > deadline_s:
                    raise
                self._follow_link.drop()
                await self._follow_link.pause(error)

    async def _prepare_follower(self, connection: asyncpg.Connection) -> None:
        await install(connection, self._ids.new_uid())
        await self._follower.prepare(connection)

    async def _keep_keys(self, beats: int, connection: asyncpg.Connection) -> None:
        if self._hints is not None and (self._keys.stale or beats % _KEY_BEATS == 0):
            await self._keys.refresh(connection)

    def _loaded(self, snapshot: LogSnapshot) -> None:
        self._keeper.forget(snapshot.superseded, {})

    def _published(self, batch: OwnBatch, prior: int, events: Sequence[Event]) -> None:
        if self._hints is not None:
            self._hints.offer(prior, batch.mark, events)

    def _hinted(self, newest: int, rows: Sequence[LogRow] | None) -> None:
        if rows:
            self._feed.hint(rows)
        self._follower.fetch_up_to(newest, 0.0 if rows == [] else GAP_S)

    def _notified_delay_s(self) -> float:
        return GAP_S if self._hints is not None and self._hints.listening else 0.0

    async def _close_links(self) -> None:
        await self._writer.close()
        await self._keep_link.close()
        await self._follow_link.close()


async def _nothing(connection: asyncpg.Connection) -> None:
    return None
