"""Housekeeping in the database: heartbeat and position of this server, and deletion of old rows.

Each server deletes the rows that its own rings have dropped. If another server was faster, nothing is found; if a
server ends early, the next server to load the log deletes its rows. Nothing above the slowest live server is deleted,
because that server may still have to read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

import asyncpg

from shoal.store.postgres.link import AWAY, PostgresLink

BEAT_S = 1.0
_ALIVE = timedelta(seconds=30)  # a server that was silent for this long reloads everything when it returns
_FORGET_ROWS = 512  # rows that are worth a statement
_FORGET_MOST = 2000
_FORGET_BEATS = 10  # after so many, fewer are
_SIZE_BEATS = 30  # between two looks at the size of the tables

_BEAT = """
WITH me AS (
    INSERT INTO shoal.server AS s (id, revision, seen) VALUES ($1, $2, clock_timestamp())
    ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, seen = excluded.seen
), gone AS (
    DELETE FROM shoal.server WHERE seen < clock_timestamp() - 10 * $3::interval
)
SELECT count(*) FROM shoal.server WHERE id <> $1 AND seen > clock_timestamp() - $3::interval
"""
_REGISTER = """
INSERT INTO shoal.server (id, revision, seen) SELECT $1, revision, clock_timestamp() FROM shoal.counter
ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, seen = excluded.seen
"""
_SIZE = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = 'shoal' AND c.relkind = 'r'
"""
_FORGET = "SELECT shoal.forget($1, $2, $3, $4, $5, $6)"


async def register(connection: asyncpg.Connection, server: str) -> None:
    """Call before loading: later writes are then kept for this server."""
    await connection.execute(_REGISTER, server)


class Housekeeper:
    def __init__(
        self,
        link: PostgresLink,
        server: str,
        revision: Callable[[], int],
        on_beat: Callable[[int, asyncpg.Connection], Awaitable[None]],
    ) -> None:
        """``on_beat`` is called with the number of the heartbeat."""
        self._on_beat = on_beat
        self._link = link
        self._server = server
        self._revision = revision
        self._superseded: list[int] = []
        self._floors: Mapping[str, int] = {}
        self._lock = asyncio.Lock()
        self.size_bytes = 0  # of the tables
        self.others = 1  # live servers besides this one; one too many is better than one too few

    def forget(self, revisions: Sequence[int], floors: Mapping[str, int]) -> None:
        self._superseded += revisions
        self._floors = {**self._floors, **floors}

    async def run(self) -> None:
        beats = 0
        while True:
            try:
                async with self._lock:
                    connection = await self._link.get()
                    self.others = await connection.fetchval(_BEAT, self._server, self._revision(), _ALIVE)
                    if beats % _SIZE_BEATS == 0:
                        self.size_bytes = await connection.fetchval(_SIZE)
                    await self._on_beat(beats, connection)
                beats += 1
                least = 1 if beats % _FORGET_BEATS == 0 else _FORGET_ROWS
                while len(self._superseded) >= least and await self._forget_some():
                    pass
            except AWAY as error:
                self._link.drop()
                await self._link.pause(error)
                continue
            await asyncio.sleep(BEAT_S)

    async def settle(self) -> None:
        """Return when all rows to forget are deleted."""
        while self._superseded:
            if not await self._forget_some():
                await asyncio.sleep(BEAT_S / 10)  # another server is deleting, or has not read these rows yet

    async def leave(self) -> None:
        """Delete the rows that can be deleted now, and this server's row."""
        while self._superseded and await self._forget_some():
            pass
        await (await self._link.get()).execute("DELETE FROM shoal.server WHERE id = $1", self._server)

    async def _forget_some(self) -> bool:
        """Run one statement; return whether it deleted anything."""
        async with self._lock:
            some = self._superseded[:_FORGET_MOST]
            connection = await self._link.get()
            through = await connection.fetchval(
                _FORGET, self._server, self._revision(), some, list(self._floors), list(self._floors.values()), _ALIVE
            )
            if through is None:
                return False
            kept = [revision for revision in some if revision > through]
            self._superseded[: len(some)] = kept
            return len(kept) < len(some)
