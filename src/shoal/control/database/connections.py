"""Connections to one database: how they are made, how many there are, how long anything may take on them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from shoal.base.files import close_to_others, make_private_dirs
from shoal.control.database import failures, sqlite
from shoal.errors import ConfigError

_SQLITE = re.compile(r"sqlite:///(?P<path>.+)")
_POSTGRES = re.compile(r"postgres(?:ql)?://.*", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseTimeouts:
    """How long to wait for what."""

    connect_s: float = 3.0
    statement_s: float = 5.0  # also for the transactions before this one
    idle_s: float = 10.0  # between the statements of a transaction; then PostgreSQL undoes it
    queue_s: float = 10.0  # for a connection of ours to become free
    begin_s: float = 2.0  # transactions that begin do not notice a database outage shorter than this


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """``write`` and ``read`` may be the same."""

    dialect: str  # sqlite or postgresql
    write: AsyncEngine
    read: AsyncEngine
    writers: int  # how many transactions at a time
    readers: int
    path: Path | None = None  # of SQLite
    dsn: str = ""  # of PostgreSQL

    async def close(self) -> None:
        await self.write.dispose()
        await self.read.dispose()


def make_engines(name: str, url: str, patience: DatabaseTimeouts) -> Engines:
    if found := _SQLITE.fullmatch(url):
        return _sqlite(name, Path(found["path"]), patience)
    if _POSTGRES.fullmatch(url):
        return _postgres(name, url, patience)
    scheme = url.partition(":")[0]
    raise ConfigError(f"database {name!r} has the URL {scheme}:…: use sqlite:///PATH or postgresql://…")


def _sqlite(name: str, path: Path, patience: DatabaseTimeouts) -> Engines:
    readers = 4

    pragmas = (
        f"busy_timeout = {round(patience.statement_s * 1000)}",
        "synchronous = FULL",
        "foreign_keys = ON",
        "temp_store = MEMORY",
    )

    def make(begin: str, size: int, *more: str) -> AsyncEngine:
        engine = create_async_engine(
            f"sqlite+aiosqlite:///{path}",
            async_creator=lambda: sqlite.connect(path, (*pragmas, *more)),
            pool_size=size,
            max_overflow=0,
            pool_timeout=patience.queue_s,
            json_deserializer=orjson.loads,
        )

        @event.listens_for(engine.sync_engine, "begin")
        def begins(connection: Any) -> None:
            connection.exec_driver_sql(begin)

        event.listen(engine.sync_engine, "handle_error", failures.listener(name))
        return engine

    return Engines(
        dialect="sqlite",
        write=make("BEGIN IMMEDIATE", 1),
        read=make("BEGIN", readers, "query_only = ON"),
        writers=1,
        readers=readers,
        path=path,
    )


def create_file(path: Path) -> None:
    """A file for SQLite that only its owner can read: keys are in it."""
    make_private_dirs(path.parent)
    close_to_others(path)


def server_settings(name: str, patience: DatabaseTimeouts) -> dict[str, str]:
    limit_ms = str(round(patience.statement_s * 1000))
    return {
        "application_name": f"shoal control {name}",
        "jit": "off",  # compiling costs more than any statement here
        "lock_timeout": limit_ms,
        "statement_timeout": limit_ms,
        # A process that hangs inside a transaction holds the counter, and with it every other process.
        "idle_in_transaction_session_timeout": str(round(patience.idle_s * 1000)),
    }


def _postgres(name: str, url: str, patience: DatabaseTimeouts) -> Engines:
    writers, readers = 4, 8
    dsn = re.sub(r"^postgres(ql)?://", "postgresql://", url)

    import asyncpg

    async def connect() -> asyncpg.Connection:
        return await asyncpg.connect(
            dsn,
            timeout=patience.connect_s,
            # a little more than the server's limit, because the server's error has more detail
            command_timeout=patience.statement_s + 0.5,
            server_settings=server_settings(name, patience),
        )

    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=connect,
        pool_size=writers + readers,
        max_overflow=0,
        pool_timeout=patience.queue_s,
        json_deserializer=orjson.loads,
    )

    @event.listens_for(engine.sync_engine, "checkout")
    def checkout(connection: Any, _record: Any, _proxy: Any) -> None:
        if connection.driver_connection.is_closed():  # the server closed it while it was idle: take another
            raise DisconnectionError("the server closed the connection")

    event.listen(engine.sync_engine, "handle_error", failures.listener(name))
    read = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    return Engines(dialect="postgresql", write=engine, read=read, writers=writers, readers=readers, dsn=dsn)
