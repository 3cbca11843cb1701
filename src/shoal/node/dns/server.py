"""Answers questions at an address, by UDP and TCP; those about other names may go to the machine's own servers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from shoal.base.tasks import OwnedTasks
from shoal.node.dns import codec
from shoal.node.dns.codec import BadMessage, Question
from shoal.node.dns.table import NameTable

PORT = 53
_UPSTREAM_S = 3.0
_IDLE_S = 10.0
_CONNECTIONS = 256
_FORWARDED = 256  # questions at a time
_RESOLVERS = Path("/etc/resolv.conf")

Permit = Callable[[str, str], bool]  # the client's address, the protocol


class DnsServer(asyncio.DatagramProtocol):
    """``permit`` says who may ask; others get no answer. With ``upstream`` the machine's servers are asked too."""

    def __init__(self, table: NameTable, *, permit: Permit, upstream: bool) -> None:
        self._table = table
        self._permit = permit
        self._upstream = resolvers() if upstream else ()
        self._transport: asyncio.DatagramTransport | None = None
        self._server: asyncio.Server | None = None
        self._tasks = OwnedTasks()
        self._connections = 0
        self._forwarded = 0

    async def open(self, datagrams: socket.socket, listener: socket.socket, address: str) -> None:
        """Answer on these sockets, at the address; raises ``OSError``."""
        loop = asyncio.get_running_loop()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        datagrams.bind((address, PORT))
        listener.bind((address, PORT))
        await loop.create_datagram_endpoint(lambda: self, sock=datagrams)
        self._server = await asyncio.start_server(self._serve, sock=listener)

    async def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        if self._server is not None:
            self._server.close()
        await self._tasks.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if not self._permit(addr[0], "UDP"):
            return
        made = self._own_answer(data, by_udp=True)
        if isinstance(made, bytes) and self._transport is not None:
            self._transport.sendto(made, addr)
        elif isinstance(made, Question) and self._forwarded < _FORWARDED:
            self._tasks.start(self._pass_on(data, addr), name="dns/upstream")

    async def _pass_on(self, data: bytes, client: Any) -> None:
        answer = await self._ask(data)
        if answer is not None and self._transport is not None:
            self._transport.sendto(answer, client)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        if self._connections >= _CONNECTIONS or not peer or not self._permit(peer[0], "TCP"):
            writer.transport.abort()
            return
        self._connections += 1
        try:
            while True:
                async with asyncio.timeout(_IDLE_S):
                    length = int.from_bytes(await reader.readexactly(2), "big")
                    data = await reader.readexactly(length)
                made = self._own_answer(data, by_udp=False)
                answer = await self._ask(data) if isinstance(made, Question) else made
                if answer is None:
                    return
                writer.write(len(answer).to_bytes(2, "big") + answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError, TimeoutError):
            pass
        finally:
            self._connections -= 1
            writer.close()

    def _own_answer(self, data: bytes, *, by_udp: bool) -> bytes | Question | None:
        """The answer; the question itself if others have to be asked."""
        try:
            question = codec.parse(data)
        except BadMessage as bad:
            return codec.refusal(data, bad.rcode)
        found = self._table.answer(question.name, question.type)
        if found is None:
            if self._upstream:
                return question
            found = codec.Answer(codec.REFUSED)
        limit = question.udp_bytes if by_udp else None
        return codec.encode(question, found, limit=limit, recursion=bool(self._upstream))

    async def _ask(self, data: bytes) -> bytes | None:
        """Ask the machine's servers, one after the other."""
        self._forwarded += 1
        try:
            for address in self._upstream:
                try:
                    async with asyncio.timeout(_UPSTREAM_S):
                        answer = await _exchange(data, address)
                except (OSError, TimeoutError):
                    continue
                return answer
            return codec.refusal(data, codec.SERVFAIL)
        finally:
            self._forwarded -= 1


async def _exchange(data: bytes, address: str) -> bytes:
    """Ask one server, with a port of its own so that nobody guesses it."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.setblocking(False)
        await loop.sock_connect(made, (address, PORT))
        await loop.sock_sendall(made, data)
        while True:
            answer = await loop.sock_recv(made, 65535)
            if answer[:2] == data[:2]:
                return answer


def resolvers(path: Path = _RESOLVERS) -> tuple[str, ...]:
    """The servers that this machine asks."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return ()
    fields = (line.split() for line in lines)
    return tuple(each[1] for each in fields if len(each) > 1 and each[0] == "nameserver")[:3]
