"""Asks the fork server of this machine, where one runs: its socket stands in the environment."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.errors import ShoalError
from shoal.node.forks.server import MESSAGE_BYTES

VARIABLE = "SHOAL_FORK_SERVER"
_ANSWER_S = 5.0


class ForkRefused(ShoalError):
    """There is no fork server, or it cannot fork this one: execute the program."""


@dataclass(frozen=True, slots=True)
class ForkClient:
    """``path`` is that of the server's socket; without one it refuses everything."""

    path: Path | None = None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> ForkClient:
        return cls(Path(environ[VARIABLE]) if environ.get(VARIABLE) else None)

    async def fork(
        self, function: str, arguments: Sequence[str], files: Sequence[int], environ: Mapping[str, str] | None = None
    ) -> int:
        """The pid of a new process, which calls the function. It is no child of this process. Raises ForkRefused."""
        connection = self._connected()
        try:
            answer = await _ask(connection, _message(function, arguments, environ), files)
            return int(answer["pid"])
        finally:
            connection.close()

    async def call(
        self, function: str, arguments: Sequence[str], files: Sequence[int], environ: Mapping[str, str] | None = None
    ) -> int:
        """As ``fork``; the exit code of the process once it has ended."""
        connection = self._connected()
        try:
            await _ask(connection, _message(function, arguments, environ, wait=True), files)
            return int((await _received(connection))["ended"])
        finally:
            connection.close()

    def _connected(self) -> socket.socket:
        if self.path is None:
            raise ForkRefused("there is no fork server")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.setblocking(False)
        try:
            folder = os.open(self.path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:  # paths of sockets may have 107 bytes only
                connection.connect(f"/proc/self/fd/{folder}/{self.path.name}")
            finally:
                os.close(folder)
        except OSError as error:
            connection.close()
            raise ForkRefused(f"the fork server is away: {error}") from error
        return connection


NO_FORKS = ForkClient()


def _message(
    function: str, arguments: Sequence[str], environ: Mapping[str, str] | None, *, wait: bool = False
) -> bytes:
    asked = {"function": function, "arguments": list(arguments), "environ": dict(environ or {}), "wait": wait}
    return json.dumps(asked).encode()


async def _ask(connection: socket.socket, message: bytes, files: Sequence[int]) -> dict[str, Any]:
    try:
        socket.send_fds(connection, [message], files)
    except OSError as error:
        raise ForkRefused(f"the fork server is away: {error}") from error
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await _received(connection)
    except TimeoutError:
        raise ForkRefused(f"the fork server did not answer within {_ANSWER_S:g} s") from None


async def _received(connection: socket.socket) -> dict[str, Any]:
    try:
        raw = await asyncio.get_running_loop().sock_recv(connection, MESSAGE_BYTES)
    except OSError as error:
        raise ForkRefused(f"the fork server is away: {error}") from error
    if not raw:
        raise ForkRefused("the fork server has ended")
    answer: dict[str, Any] = json.loads(raw)
    if "error" in answer:
        raise ForkRefused(answer["error"])
    return answer
