"""Commits batches over one connection, and resolves batches whose response is lost.

A batch is retried until the database has decided it or the time limit is reached. When a connection breaks, its batch
may or may not have been committed, or may still be. So the next connection first terminates the old session and takes
its lock, and only then looks for the batch's mark in the log. If it is there, the batch was committed; otherwise it is
sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import asyncpg

from shoal.base.ids import Ids
from shoal.store.journal import Result, Transaction
from shoal.store.model import StoreReadOnly, StoreUnavailable
from shoal.store.postgres.encode import Encoded, encode
from shoal.store.postgres.feed import Feed, HistoryChanged, OwnBatch
from shoal.store.postgres.follow import LogFollower, new_mark, whole_batches
from shoal.store.postgres.link import AWAY, LinkTimeouts, PostgresLink
from shoal.store.postgres.rows import LogRow
from shoal.store.postgres.schema import LOCK_WRITER

COMMIT = f"SELECT * FROM shoal.commit_batch({', '.join(f'${n}' for n in range(1, 24))})"
_END_OLD_SESSION = """
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND classid = $1 AND objid = $2 AND objsubid = 2 AND granted AND pid <> pg_backend_pid()
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_LOCK_SESSION = "SELECT pg_advisory_lock($1, $2)"


class PostgresWriter:
    def __init__(
        self, url: str, feed: Feed, follower: LogFollower, timeouts: LinkTimeouts, ids: Ids, notify: Callable[[], bool]
    ) -> None:
        """``notify`` returns whether other servers listen for notifications."""
        self._feed = feed
        self._follower = follower
        self._timeouts = timeouts
        self._ids = ids
        self._number = new_mark(ids) & 0x7FFFFFFF
        self._link = PostgresLink(url, "writer", timeouts, self._prepare)
        self._failing_since_s: float | None = None
        self._notify = notify

    async def close(self) -> None:
        await self._link.close()

    async def commit(self, transactions: Sequence[Transaction]) -> Sequence[Result]:
        encoded = encode(transactions)
        begun_s = asyncio.get_running_loop().time()
        since_s = begun_s if self._failing_since_s is None else self._failing_since_s
        batch = OwnBatch(transactions, new_mark(self._ids))
        self._feed.sent(batch)
        try:
            results = await self._commit(batch, encoded, since_s + self._timeouts.limit_s)
        except StoreUnavailable as error:
            self._failing_since_s = since_s
            return [error] * len(transactions)
        finally:
            self._feed.given_up(batch)
        self._failing_since_s = None
        return results

    async def _commit(self, batch: OwnBatch, encoded: Encoded, deadline_s: float) -> Sequence[Result]:
        in_doubt = False
        while not batch.answer.done():
            sent = False
            try:
                connection = await self._link.get()
                if in_doubt:
                    await self._follower.newest()
                    in_doubt = False
                    continue
                sent = True
                records = await self._send(batch, encoded)
            except AWAY as error:
                # An error reported on a connection that stays open means that the batch was rolled back.
                if sent and (connection.is_closed() or not isinstance(error, asyncpg.PostgresError)):
                    in_doubt = True
                    self._link.drop()
                await self._failed(error, deadline_s)
                continue
            refused = await self._decided(batch, records, deadline_s)
            if refused is not None:
                return refused
        return batch.answer.result()

    async def _send(self, batch: OwnBatch, encoded: Encoded) -> Sequence[asyncpg.Record]:
        feed = self._feed
        records: Sequence[asyncpg.Record] = await self._statement.fetch(
            self._follower.incarnation, feed.revision, feed.mark, batch.mark, self._notify(),
            encoded.op_ends, encoded.rq_ends, *encoded.ops, *encoded.rqs, timeout=self._timeouts.statement_s + 1.0,
        )  # fmt: skip
        return records

    async def _decided(
        self, batch: OwnBatch, records: Sequence[asyncpg.Record], deadline_s: float
    ) -> Sequence[Result] | None:
        """Process the database's response; return a result if it refused the whole batch. If the batch is still
        undecided after this, it must be sent again."""
        status, base, newest = records[0][:3]
        if status == "frozen":
            return [StoreReadOnly(records[0]["resource"])] * len(batch.transactions)
        if status == "history":
            self._feed.given_up(batch)
            await self._follower.newest()
            self._feed.sent(batch)
            return None
        try:
            if len(records) > 1:
                self._feed.read(whole_batches([LogRow(*record[3:]) for record in records[1:]], base))
            self._feed.committed(batch, base, newest)
        except HistoryChanged:
            pass  # the follower will read the same rows
        if not batch.answer.done():
            self._follower.fetch_up_to(newest)
            try:
                async with asyncio.timeout_at(deadline_s):
                    await batch.answer
            except TimeoutError:
                raise StoreUnavailable("the database does not return the rows before this write") from None
        return None

    async def _failed(self, error: BaseException, deadline_s: float) -> None:
        """Wait before the next attempt; return StoreUnavailable if that one might end too late. An attempt is never
        aborted from here: the database times it out itself, so that it cannot be committed after it was refused."""
        await self._link.pause(error)
        if asyncio.get_running_loop().time() + self._timeouts.statement_s > deadline_s:
            raise StoreUnavailable(str(error) or "the database does not accept writes")

    async def _prepare(self, connection: asyncpg.Connection) -> None:
        await connection.execute(_END_OLD_SESSION, LOCK_WRITER, self._number)
        await connection.execute(_LOCK_SESSION, LOCK_WRITER, self._number)
        self._statement = await connection.prepare(COMMIT)
        self._follower.own_session = connection.get_server_pid()
