"""File descriptors and the shim's socket on the event loop. File descriptors must be non-blocking."""

from __future__ import annotations

import asyncio
import marshal
import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shoal.node.runtime.model import NoSuchContainer

_ANSWER_BYTES = 65536
_MARSHAL = 2  # the version that all interpreters read


async def readable(files: Iterable[int], *others: asyncio.Future[Any]) -> list[int]:
    """Wait for readable files and return them; return an empty list if one of ``others`` is done first."""
    loop = asyncio.get_running_loop()
    files = tuple(files)
    found: list[int] = []
    woken = loop.create_future()

    def ready(fd: int) -> None:
        found.append(fd)
        loop.remove_reader(fd)
        if not woken.done():
            woken.set_result(None)

    for fd in files:
        loop.add_reader(fd, ready, fd)
    try:
        await asyncio.wait({woken, *others}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        woken.cancel()
        for fd in files:
            loop.remove_reader(fd)
    return found


async def write_all(fd: int, data: bytes) -> bool:
    """Write everything, waiting while the other side does not read; False if the other side is closed."""
    loop = asyncio.get_running_loop()
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            woken = loop.create_future()
            loop.add_writer(fd, _wake, woken)
            try:
                await woken
            finally:
                loop.remove_writer(fd)
        except OSError:
            return False
    return True


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Channel:
    """A connection to a shim: one request, and the lines of its answer."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._rest = b""

    @classmethod
    async def open(cls, folder: Path, request: Mapping[str, Any], files: Iterable[int] = ()) -> Channel:
        """Connect and send the request. Raises ``NoSuchContainer`` if the shim does not listen."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.setblocking(False)
        try:
            # through /proc, because the path of the socket may be too long
            place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            try:
                await asyncio.get_running_loop().sock_connect(made, f"/proc/self/fd/{place}/shim.sock")
            finally:
                os.close(place)
            channel = cls(made)
            await channel.send(request, files)
        except OSError as error:
            made.close()
            raise NoSuchContainer(f"the container in {folder.name} is not running: {error.strerror}") from error
        except BaseException:
            made.close()
            raise
        return channel

    async def send(self, request: Mapping[str, Any], files: Iterable[int] = ()) -> None:
        body = marshal.dumps(dict(request), _MARSHAL)
        data = len(body).to_bytes(4, "big") + body
        sent = socket.send_fds(self._socket, [data], tuple(files)) if files else 0
        await asyncio.get_running_loop().sock_sendall(self._socket, data[sent:])

    async def line(self) -> str:
        """The next line; empty at the end."""
        while b"\n" not in self._rest:
            try:
                data = await asyncio.get_running_loop().sock_recv(self._socket, _ANSWER_BYTES)
            except OSError:
                data = b""
            if not data:
                return ""
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace")

    def close(self) -> None:
        self._socket.close()


async def ask(folder: Path, **request: Any) -> str:
    """Send one request and return the line of its answer."""
    channel = await Channel.open(folder, request)
    try:
        return await channel.line()
    finally:
        channel.close()
