"""A database connection that reconnects when it breaks, and the classification of its errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import asyncpg

from shoal.base.backoff import Backoff
from shoal.base.logs import get_logger

# Every database error is retried until the time limit: none is worth ending a process that still serves reads.
AWAY = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

_BACKOFF = Backoff(base_s=0.05, cap_s=1.0, floor_s=0.02)
_log = get_logger("store")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTimeouts:
    """Time limits."""

    limit_s: float = 10.0  # total for a write or a fresh read
    connect_s: float = 3.0
    statement_s: float = 3.0  # for a statement, or the wait for another server's batch; then it is retried


class PostgresLink:
    """At most one connection, opened on demand. Used by one task at a time."""

    def __init__(
        self,
        url: str,
        name: str,
        timeouts: LinkTimeouts,
        prepare: Callable[[asyncpg.Connection], Awaitable[None]],
        settings: dict[str, str] | None = None,
    ) -> None:
        """``prepare`` runs on every new connection before it is used."""
        self._url = url
        self._name = name
        self._timeouts = timeouts
        self._prepare = prepare
        limit_ms = str(round(timeouts.statement_s * 1000))
        self._settings = {
            "application_name": f"shoal {name}",
            "jit": "off",  # compiling costs more than any statement here
            "plan_cache_mode": "force_generic_plan",  # plans are made once
            "enable_seqscan": "off",  # and must not depend on the tables having been empty then
            "enable_hashjoin": "off",
            "enable_mergejoin": "off",
            "lock_timeout": limit_ms,
            "statement_timeout": limit_ms,
            **(settings or {}),
        }
        self._connection: asyncpg.Connection | None = None
        self._failures = 0

    async def get(self) -> asyncpg.Connection:
        """The connection; raises one of AWAY if none can be opened."""
        connection = self._connection
        if connection is not None and not connection.is_closed():
            return connection
        async with asyncio.timeout(self._timeouts.connect_s):
            connection = await asyncpg.connect(
                self._url, server_settings=self._settings, timeout=self._timeouts.connect_s
            )
            self._connection = connection
            try:
                await self._prepare(connection)
            except BaseException:
                self.drop()
                raise
        if self._failures:
            _log.info("the database is available again", connection=self._name)
        self._failures = 0
        return connection

    def drop(self) -> None:
        """Close the connection, even in the middle of a statement."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def pause(self, error: BaseException) -> None:
        """Wait after a failure; the next ``get`` reconnects if necessary."""
        self._failures += 1
        if self._failures == 1:
            _log.warning(
                "the database is unavailable", connection=self._name, reason=str(error) or type(error).__name__
            )
        # No jitter: a server has few connections, and the first one back matters.
        await asyncio.sleep(_BACKOFF.bound_s(self._failures))

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            try:
                await connection.close(timeout=self._timeouts.connect_s)
            except AWAY:
                connection.terminate()
