"""The private door of a running SQLite store: a Unix socket beside the file, for what another process may ask of it.

The process that serves a SQLite store holds its file alone. Whoever copies the store asks here for writes to stop
(``freeze``), reads the file, which does not change any more, and says in the end that the store was moved (``keep``). A
freeze lasts as long as the connection that asked for it, so a copy that ends in any other way, killed or crashed,
leaves the store as it was. The socket is the owner's alone, like the file.

One JSON object per line, ``{"do": "freeze" | "keep" | "thaw", "reason": text}``, each answered by
``{"error": text, "was": text}``: nothing when it was done, and why writes were refused before.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import orjson

from shoal.errors import ShoalError

_LONGEST_ADDRESS = 100  # bytes; the kernel's limit is 107 on Linux, 103 elsewhere
_ASK_S = 30.0  # a checkpoint may have much to write


class Freezable(Protocol):
    """A store that can stop writing. All raise ``ShoalError`` when it cannot be done now."""

    @property
    def frozen(self) -> str:
        """Why writes are refused; empty when they are not."""

    async def freeze(self, reason: str) -> None:
        """Refuse writes for ``reason`` and bring everything into the file; until ``release``."""

    def release(self) -> None:
        """End a freeze that was not kept."""

    async def keep(self, reason: str) -> None:
        """Refuse writes for ``reason`` from now on, also after a restart."""

    async def thaw(self) -> None:
        """Take writes again."""


class ControlSocket:
    """The door's inside. Constructing does nothing."""

    def __init__(self, path: Path, store: Freezable) -> None:
        self._path = path
        self._store = store
        self._server: asyncio.Server | None = None
        self._sessions: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Must only be called by the one who holds the store: a socket that is there is a dead process'."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._path.unlink(missing_ok=True)
            with _address(self._path) as address:
                listener.bind(address)
            self._path.chmod(0o600)  # before anybody is listened to
            self._server = await asyncio.start_unix_server(self._serve, sock=listener)
        except BaseException:
            listener.close()
            raise

    async def close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        self._server = None
        sessions = tuple(self._sessions)
        for session in sessions:
            session.cancel()
        await asyncio.gather(*sessions, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = asyncio.current_task()
        assert session is not None
        self._sessions.add(session)
        frozen = False
        try:
            while line := await reader.readline():
                error, was = "", self._store.frozen
                try:
                    asked = orjson.loads(line)
                    frozen = await self._do(str(asked["do"]), str(asked.get("reason", "")), frozen)
                except ShoalError as refused:
                    error = str(refused)
                except (ValueError, KeyError, TypeError, AttributeError):
                    error = "not understood"
                writer.write(orjson.dumps({"error": error, "was": was}) + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):  # gone, or a line without an end
            pass
        finally:
            self._sessions.discard(session)
            if frozen:
                self._store.release()
            writer.close()

    async def _do(self, what: str, reason: str, frozen: bool) -> bool:
        """Do what was asked; whether the session has a freeze of its own afterwards."""
        if what == "freeze":
            await self._store.freeze(reason)
            return True
        if what == "keep":
            if not frozen:
                raise ShoalError("there is nothing to keep: freeze first")
            await self._store.keep(reason)
            return False
        if what == "thaw":
            await self._store.thaw()
            return frozen
        raise ShoalError(f"cannot do {what!r}")


class Control:
    """The door's outside: one connection to the process that holds a store."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, path: Path) -> Control:
        with _address(path) as address:
            return cls(*await asyncio.open_unix_connection(address))

    async def ask(self, what: str, reason: str = "") -> str:
        """Why writes were refused before. ``ShoalError``: it was not done; ``ConnectionError``: nobody is there."""
        self._writer.write(orjson.dumps({"do": what, "reason": reason}) + b"\n")
        async with asyncio.timeout(_ASK_S):
            await self._writer.drain()
            line = await self._reader.readline()
        if not line:
            raise ConnectionResetError("the process that serves the store has closed the connection")
        answer = orjson.loads(line)
        if answer["error"]:
            raise ShoalError(answer["error"])
        return str(answer["was"])

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """A name for the socket that fits into an address, however deep its folder lies."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
