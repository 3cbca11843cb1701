"""The database decides a batch exactly as memory does: ``commit_batch`` against ``decide``, on random batches."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.store.journal import Transaction, decide
from shoal.store.model import Absent, At, Attrs, Delete, Entry, EventType, Exists, Fence, Key, Put
from shoal.store.postgres.encode import encode
from shoal.store.postgres.link import LinkTimeouts, PostgresLink
from shoal.store.postgres.rows import COLUMNS, LogRow, bare
from shoal.store.postgres.schema import install
from shoal.store.postgres.writer import COMMIT
from shoal.testing.databases import shared_postgres

INCARNATION = "here"
KEYS = [Key(resource, "", name) for resource in ("pods", "nodes") for name in "abc"]
ODD = [Key("pods", "", "zero\0"), Key("pods", "", "half\ud800"), Key("pods", "", "long" * 1000), Key("pods", "ü", "ü")]

_key = st.sampled_from(KEYS) | st.sampled_from(KEYS) | st.sampled_from(KEYS) | st.sampled_from(ODD)
_fence = st.sampled_from(["", "me/1", "you/2", "zero\0", "half\ud800"])
_value = st.binary(max_size=12)
_put = st.builds(lambda k, v, h, f: Put(k, v, min(h, len(v)), Attrs(fence=f)), _key, _value, st.integers(0, 12), _fence)
_op = _put | _put | st.builds(Delete, _key)
# A revision that is that of the key now (None), near the newest, or impossible.
_at = st.tuples(_key, st.none() | st.none() | st.integers(-3, 6) | st.sampled_from([-(2**70), 2**63, 2**63 - 1]))
_require = st.builds(Absent, _key) | st.builds(Exists, _key) | st.builds(Fence, _key, _fence) | _at
_transaction = st.tuples(st.lists(_op, max_size=4), st.lists(_require, max_size=2))
_batches = st.lists(st.lists(_transaction, min_size=1, max_size=8), min_size=1, max_size=5)


class Database:
    """A connection as a writer has it, and a model of what should be in the database."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.model: dict[Key, Entry] = {}
        self.revision = self.mark = 0
        self.runner.run(self._connect())

    async def _connect(self) -> None:
        async def prepare(connection: asyncpg.Connection) -> None:
            await install(connection, INCARNATION)
            self.statement = await connection.prepare(COMMIT)

        self.link = PostgresLink(shared_postgres().create_database(), "test", LinkTimeouts(), prepare)
        self.connection = await self.link.get()

    def close(self) -> None:
        self.runner.run(self.link.close())
        self.runner.close()

    def check(self, batch: list[Any]) -> None:
        transactions = [Transaction(ops, [self._require(r) for r in requires]) for ops, requires in batch]
        results, events = decide(transactions, self.model.get, self.revision)
        base, prior = self.revision, self.mark
        mark = prior + 1 if events else prior
        status, newest, rows, current = self.runner.run(self._commit(transactions, prior + 1))
        assert status == "done" and newest == base + len(events), results
        expected = [
            LogRow(
                event.entry.revision,
                mark,
                prior if event.entry.revision == base + 1 else mark,
                event.entry.created,
                0 if event.type is EventType.DELETED else event.entry.hole,
                *event.entry.key,
                None
                if event.type is EventType.DELETED
                else bare(event.entry.value, event.entry.hole, event.entry.revision),
            )
            for event in events
        ]
        assert rows == expected
        for event in events:
            if event.type is EventType.DELETED:
                del self.model[event.entry.key]
            else:
                self.model[event.entry.key] = event.entry
        assert current == {
            (*key, entry.revision, entry.created, entry.attrs.fence.encode("utf-8", "surrogatepass"))
            for key, entry in self.model.items()
        }
        self.revision, self.mark = newest, mark

    def _require(self, require: Any) -> Any:
        if not isinstance(require, tuple):
            return require
        key, offset = require
        if offset is None:
            return At(key, self.model[key].revision if key in self.model else 1)
        return At(key, self.revision + offset)

    async def _commit(self, batch: list[Transaction], mark: int) -> Any:
        encoded = encode(batch)
        known = self.revision, self.mark
        (record,) = await self.statement.fetch(
            INCARNATION, *known, mark, False, encoded.op_ends, encoded.rq_ends, *encoded.ops, *encoded.rqs
        )
        rows = await self.connection.fetch(
            f"SELECT {COLUMNS} FROM shoal.log l WHERE revision > $1 ORDER BY revision", self.revision
        )
        current = await self.connection.fetch("SELECT * FROM shoal.current")
        return record[0], record[2], [LogRow(*row) for row in rows], {tuple(row) for row in current}


def test_the_database_decides_every_batch_as_memory_does() -> None:
    database = Database()
    try:

        @settings(max_examples=150, deadline=None)
        @given(batches=_batches)
        def check(batches: list[Any]) -> None:
            for batch in batches:
                database.check(batch)

        check()
        assert database.revision > 50, "some batches were fine"
    finally:
        database.close()
