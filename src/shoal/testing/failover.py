"""A PostgreSQL server with a standby that takes its place.

async with replicated_postgres() as postgres:
    url = await postgres.create_database()      # leads to whichever server is the primary
    await postgres.fail_over()                  # the primary is killed, the standby promoted, a new standby begins

Commits wait for the standby, so nothing that was acknowledged is lost; connections break, and transactions that were
not committed are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from shoal.testing.databases import PostgresServer, postgres_server
from shoal.testing.proxy import SocketProxy
from shoal.testing.tally import TALLY


class ReplicatedPostgres:
    """Made by ``replicated_postgres``."""

    def __init__(self, primary: PostgresServer, proxy: SocketProxy, servers: ExitStack) -> None:
        self.primary = primary
        self._proxy = proxy
        self._servers = servers
        self._standby = servers.enter_context(primary.standby())

    async def create_database(self) -> str:
        """An empty database; its URL leads to the primary of the moment."""
        made = await asyncio.to_thread(self.primary.create_database)
        name = made.removeprefix("postgresql://postgres@/").partition("?")[0]
        return self.primary.url(name, host=self._proxy.folder)

    async def fail_over(self) -> None:
        TALLY.faults += 1
        old, new = self.primary, self._standby
        await asyncio.to_thread(old.kill)
        self._proxy.cut()
        await asyncio.to_thread(new.promote)
        self._proxy.lead_to(new.socket)
        self.primary = new
        self._standby = await asyncio.to_thread(lambda: self._servers.enter_context(new.standby()))


@asynccontextmanager
async def replicated_postgres() -> AsyncIterator[ReplicatedPostgres]:
    with ExitStack() as servers:
        primary = await asyncio.to_thread(lambda: servers.enter_context(postgres_server()))
        async with SocketProxy(primary.socket) as proxy:
            yield await asyncio.to_thread(lambda: ReplicatedPostgres(primary, proxy, servers))
