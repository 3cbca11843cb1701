"""The control socket of a running SQLite store: a Unix socket beside the file, for commands of other processes.

The process that serves a SQLite store has exclusive use of its file. A copy stops writes through the socket
(``freeze``), reads the file, which no longer changes, and finally marks the store as moved (``keep``). A freeze ends
with the connection that requested it, so a copy that is killed or crashes leaves the store as it was. Only the owner
can use the socket, like the file. A backup asks for a ``snapshot``: a copy of the file, written to a path while the
store goes on.

A request is one line of JSON, ``{"do": "freeze" | "keep" | "thaw" | "snapshot", "reason": text, "path": text}``. The
response is ``{"error": text, "was": text}``: ``error`` is empty on success, ``was`` is why writes were refused before.
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
_ASK_S = 30.0  # a checkpoint can take long
SNAPSHOT_S = 3600.0


class Freezable(Protocol):
    """A store that can stop writing. All methods raise ``ShoalError`` when they cannot run now."""

    @property
    def frozen(self) -> str:
        """Why writes are refused; empty if they are accepted."""

    async def freeze(self, reason: str) -> None:
        """Refuse writes for ``reason`` until ``release``, and write everything into the file."""

    def release(self) -> None:
        """End a freeze that was not kept."""

    async def keep(self, reason: str) -> None:
        """Refuse writes for ``reason`` permanently, also after a restart."""

    async def thaw(self) -> None:
        """Accept writes again."""

    async def snapshot(self, path: Path) -> None:
        """Write a consistent copy of the file to ``path``; writes continue meanwhile."""


class ControlSocket:
    """The server of the socket; ``open`` starts it."""

    def __init__(self, path: Path, store: Freezable) -> None:
        self._path = path
        self._store = store
        self._server: asyncio.Server | None = None
        self._sessions: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Called only by the process that holds the store: an existing socket belongs to a dead process."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._path.unlink(missing_ok=True)
            with _address(self._path) as address:
                listener.bind(address)
            self._path.chmod(0o600)  # before it accepts connections
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
                    if asked["do"] == "snapshot":
                        await self._store.snapshot(Path(asked["path"]))
                    else:
                        frozen = await self._do(str(asked["do"]), str(asked.get("reason", "")), frozen)
                except ShoalError as refused:
                    error = str(refused)
                except (ValueError, KeyError, TypeError, AttributeError):
                    error = "invalid request: expected one line of JSON"
                writer.write(orjson.dumps({"error": error, "was": was}) + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):  # disconnected, or the line is too long
            pass
        except asyncio.CancelledError:  # by ``close``; asyncio reports a handler that ends as cancelled as an error
            pass
        finally:
            self._sessions.discard(session)
            if frozen:
                self._store.release()
            writer.close()

    async def _do(self, what: str, reason: str, frozen: bool) -> bool:
        """Run a command; return whether the session holds a freeze afterwards."""
        if what == "freeze":
            await self._store.freeze(reason)
            return True
        if what == "keep":
            if not frozen:
                raise ShoalError("nothing to keep: freeze the store first")
            await self._store.keep(reason)
            return False
        if what == "thaw":
            await self._store.thaw()
            return frozen
        raise ShoalError(f"unknown command {what!r}: use freeze, keep, thaw or snapshot")


class Control:
    """The client of the socket: one connection to the process that holds a store."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, path: Path) -> Control:
        with _address(path) as address:
            return cls(*await asyncio.open_unix_connection(address))

    async def ask(self, what: str, reason: str = "", *, path: str = "", timeout_s: float = _ASK_S) -> str:
        """Run a command; return why writes were refused before. Raises ``ShoalError`` if it failed, ``ConnectionError``
        if the process is gone."""
        self._writer.write(orjson.dumps({"do": what, "reason": reason, "path": path}) + b"\n")
        async with asyncio.timeout(timeout_s):
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
    """An address of the socket within the kernel's length limit, however long its path is."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
