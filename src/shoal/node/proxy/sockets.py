"""Where the sockets of the proxy are: on this machine, or in the network namespace of a cluster's sandboxes.

The helper of the sandboxes opens sockets in there, and sends them. They stay there, whoever uses them, so one process
can listen on one side and connect on the other. A few are kept ready: the helper takes a process for each request.
"""

from __future__ import annotations

import asyncio
import marshal
import os
import socket
from collections.abc import Iterable
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Protocol

from shoal.base.local_routes import add_local

_HELPER = "helper.sock"
_MARSHAL = 2
_ANSWER_S = 5.0
_ATTEMPTS = 2
_READY = 16  # sockets of each kind
_NETFILTER = 12


class Sockets(Protocol):
    async def open(self, kind: int, address: str, *, outside: bool = False) -> socket.socket:
        """A new socket, not blocking, with which one can listen at an address or connect to it; raises ``OSError``."""


class MachineSockets:
    """All on this machine."""

    async def open(self, kind: int, address: str, *, outside: bool = False) -> socket.socket:
        made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
        made.setblocking(False)
        return made


class InsideSockets:
    """In the network namespace of sandboxes; those for ``outside`` are on this machine."""

    def __init__(self, helper: Path) -> None:
        self._helper = helper
        self._machine = MachineSockets()
        self._ready: dict[int, list[socket.socket]] = {}
        self._link: socket.socket | None = None
        self._asking = asyncio.Lock()

    async def open(self, kind: int, address: str, *, outside: bool = False) -> socket.socket:
        if outside:
            return await self._machine.open(kind, address)
        if ":" in address:
            raise OSError(97, "sandboxes have no IPv6 addresses")
        async with self._asking:
            ready = self._ready.setdefault(kind, [])
            if not ready:
                ready += await asyncio.to_thread(self._opened, socket.AF_INET, kind, 0, _READY)
            made = ready.pop()
        made.setblocking(False)
        return made

    async def identity(self) -> str:
        """Of the network namespace: another one when all sandboxes and their helper had ended."""
        async with self._asking:
            words, _ = await asyncio.to_thread(self._ask, {"do": "network"})
            return words

    async def add_local(self, ranges: Iterable[str]) -> None:
        async with self._asking:
            (kernel,) = await asyncio.to_thread(
                self._opened, socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE, 1
            )
        with kernel:
            for each in ranges:
                add_local(IPv4Network(each), kernel)

    async def packet_filter(self) -> socket.socket:
        """A socket to the packet filter of the namespace."""
        async with self._asking:
            (made,) = await asyncio.to_thread(self._opened, socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER, 1)
            return made

    def _opened(self, family: int, kind: int, protocol: int, count: int) -> list[socket.socket]:
        request = {"do": "socket", "pod": "", "family": int(family), "type": int(kind), "count": count}
        _, files = self._ask({**request, "protocol": protocol})
        return [socket.socket(fileno=number) for number in files]

    def _ask(self, request: dict[str, Any]) -> tuple[str, list[int]]:
        for attempt in range(_ATTEMPTS):
            try:
                return self._asked(request)
            except OSError:  # the helper may have been replaced
                self.close()
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def _asked(self, request: dict[str, Any]) -> tuple[str, list[int]]:
        link = self._link = self._link or _dial(self._helper)
        body = marshal.dumps(request, _MARSHAL)
        link.sendall(len(body).to_bytes(4, "big") + body)
        line, files = b"", []
        while not line.endswith(b"\n"):
            data, numbers, _, _ = socket.recv_fds(link, 65536, 64)
            files += numbers
            if not data:
                raise OSError(32, "the helper of sandboxes has ended")
            line += data
        for number in files:
            os.set_inheritable(number, False)
        word, _, rest = line[:-1].decode(errors="replace").partition(" ")
        if word != "ok":
            raise OSError(5, f"the helper of sandboxes: {rest}")
        return rest, files

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


def _dial(folder: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(_ANSWER_S)
    place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:  # by way of the open folder, because paths of sockets may have 107 bytes only
        made.connect(f"/proc/self/fd/{place}/{_HELPER}")
    except BaseException:
        made.close()
        raise
    finally:
        os.close(place)
    return made
