"""Housekeeping in the database: saying that this server lives and how far it is, and deleting what nobody needs.

Each server deletes what its own rings have let go of. Another server may have done so before, then nothing is found;
one that ends early leaves rows behind, and whoever loads the log next finds them. Nothing above the slowest live server
is deleted: that one may still have to read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import asyncpg

from shoal.store.postgres.link import AWAY, Link

BEAT_S = 1.0
_ALIVE = timedelta(seconds=30)  # a server that has not been heard of for so long loads everything anew when it returns
_FORGET_ROWS = 512  # are worth a statement
_FORGET_MOST = 2000
_FORGET_BEATS = 10  # after so many, fewer are

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
_FORGET = "SELECT shoal.forget($1, $2, $3, $4, $5, $6)"


async def register(connection: asyncpg.Connection, server: str) -> None:
    """Before loading: what is written from now on is kept for this server."""
    await connection.execute(_REGISTER, server)


class Keeper:
    def __init__(self, link: Link, server: str, revision: Callable[[], int]) -> None:
        self._link = link
        self._server = server
        self._revision = revision
        self._superseded: list[int] = []
        self._floors: Mapping[str, int] = {}
        self._lock = asyncio.Lock()
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
        """Return when everything is gone that was to be forgotten."""
        while self._superseded:
            if not await self._forget_some():
                await asyncio.sleep(BEAT_S / 10)  # another server is at it, or has not come so far

    async def leave(self) -> None:
        """Delete what can be deleted at once, and the name of this server."""
        while self._superseded and await self._forget_some():
            pass
        await (await self._link.get()).execute("DELETE FROM shoal.server WHERE id = $1", self._server)

    async def _forget_some(self) -> bool:
        """One statement; whether it made a difference."""
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
