"""A failover loses connections, and nothing that was committed."""

from __future__ import annotations

import asyncpg
import pytest

from shoal.testing.failover import replicated_postgres


async def test_what_was_committed_is_there_after_each_failover_and_connections_end() -> None:
    async with replicated_postgres() as postgres:
        url = await postgres.create_database()
        before = await asyncpg.connect(url)
        await before.execute("CREATE TABLE rows (number int)")
        for number in range(2):
            await before.execute("INSERT INTO rows VALUES ($1)", number)
            primary = postgres.primary
            await postgres.fail_over()
            assert not primary.running and postgres.primary is not primary
            with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)):
                await before.execute("INSERT INTO rows VALUES (9)")
            before = await asyncpg.connect(url)
            assert await before.fetchval("SELECT count(*) FROM rows") == number + 1
        await before.close()
