"""The proxy process of a cluster: ``python -m shoal.node.proxy.serve FOLDER`` returns once it runs in the background.

It outlives the cluster's process, as pods do, and goes on with the listeners that it was told last. One runs per
folder. It ends when it is told to, at SIGTERM, when its folder is deleted, or when for an hour no cluster's process and
no client has been there.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import orjson

from shoal.base.clock import Clock, RealClock
from shoal.base.local_routes import add_local, remove_local
from shoal.node.dns.model import unpack as unpack_names
from shoal.node.dns.server import PORT, DnsServer
from shoal.node.dns.table import NameTable
from shoal.node.policy.model import Rules
from shoal.node.policy.model import unpack as unpack_rules
from shoal.node.policy.packets import apply
from shoal.node.proxy import wire
from shoal.node.proxy.config import ProxyConfig
from shoal.node.proxy.model import InsideNetwork
from shoal.node.proxy.relays import LocalRelays
from shoal.node.proxy.sockets import InsideSockets

_LOOK_S = 1.0
_UNATTENDED_S = 3600.0


class ProxyServer:
    """Answers the cluster's process. Works in the current directory."""

    def __init__(self, relays: LocalRelays, clock: Clock) -> None:
        self._relays = relays
        self._clock = clock
        self._masters = 0
        self._used_s = clock.monotonic()  # when a cluster's process or a client was there last
        self._ending = asyncio.Event()
        self._shared: IPv4Network | None = None  # local as long as this process runs
        self._inside: InsideSockets | None = None
        self._dns: DnsServer | None = None
        self._names = NameTable()
        self._network = ""  # the network namespace of sandboxes in which this process listens

    async def run(self, ready: int) -> None:
        """Serve until told to end; writes to ``ready`` when it listens."""
        with suppress(FileNotFoundError):
            os.unlink(wire.SOCKET)
        server = await asyncio.start_unix_server(self._serve, wire.SOCKET, limit=wire.MAX_BYTES)
        own = os.stat(wire.SOCKET).st_ino
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._ending.set)
        os.write(ready, b"1")
        os.close(ready)
        while not self._ending.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._ending.wait()
            if not _is_there(own) or self._is_unattended() or await self._has_lost_its_network():
                break
        server.close()
        await self._relays.release()
        if self._dns is not None:
            await self._dns.close()
        if self._shared is not None:
            with suppress(OSError):
                remove_local(self._shared)
        if _is_there(own):
            os.unlink(wire.SOCKET)

    def _share(self, network: IPv4Network, clients: list[str]) -> dict[str, Any]:
        self._relays.admit(clients)
        try:
            add_local(network)
        except OSError as error:
            return _failure(error)
        self._shared = network
        return {}

    async def _enter(self, wanted: InsideNetwork) -> dict[str, Any]:
        """Work in the network of sandboxes from now on."""
        if self._inside is not None:
            return {}
        sockets = InsideSockets(Path(wanted.helper))
        try:
            self._network = await sockets.identity()
            await sockets.add_local(wanted.local)
            if wanted.dns:
                await self._answer_names(wanted, sockets)
        except OSError as error:
            sockets.close()
            return _failure(error)
        self._inside = sockets
        self._relays.gate.outside = wanted.api
        self._relays.use(sockets)
        return {}

    async def _answer_names(self, wanted: InsideNetwork, sockets: InsideSockets) -> None:
        gate = self._relays.gate
        self._names = NameTable(wanted.domain, reverse=wanted.reverse)
        dns = DnsServer(
            self._names, upstream=wanted.upstream,
            permit=lambda client, protocol: gate.rules.allow(client, wanted.dns, protocol, PORT),
        )  # fmt: skip
        datagrams = await sockets.open(socket.SOCK_DGRAM, wanted.dns)
        listener = await sockets.open(socket.SOCK_STREAM, wanted.dns)
        try:
            await dns.open(datagrams, listener, wanted.dns)
        except BaseException:
            datagrams.close()
            listener.close()
            raise
        self._dns = dns

    async def _enforce(self, rules: Rules) -> dict[str, Any]:
        self._relays.gate.rules = rules
        if self._inside is None:
            return {}
        try:
            with await self._inside.packet_filter() as kernel:
                await asyncio.to_thread(apply, kernel, rules)
        except OSError as error:
            return _failure(error)
        return {}

    async def _has_lost_its_network(self) -> bool:
        """Whether sandboxes have another network than the one in which this process listens: it ends then, and the
        cluster's process starts another one."""
        if self._inside is None:
            return False
        try:
            return await self._inside.identity() != self._network
        except OSError:
            return False  # the helper is away; its namespaces may be there

    def _is_unattended(self) -> bool:
        now_s = self._clock.monotonic()
        if self._masters or self._relays.connections:
            self._used_s = now_s
        return now_s - self._used_s > _UNATTENDED_S

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._masters += 1
        try:
            while line := await reader.readline():
                writer.write(orjson.dumps(await self._answer(*orjson.loads(line))) + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            pass  # the cluster's process is gone, or it is not one
        finally:
            self._masters -= 1
            writer.close()

    async def _answer(self, question: str, *said: Any) -> dict[str, Any]:
        match question:
            case "hello":
                return {"version": wire.VERSION}
            case "share":
                return self._share(IPv4Network(said[0]), said[1])
            case "inside":
                return await self._enter(wire.unpack_inside(said[0]))
            case "name":
                if said[1] is None:
                    self._names.remove((said[0][0], said[0][1]))
                else:
                    self._names.set(unpack_names(said[1]))
            case "keep_names":
                self._names.keep((namespace, name) for namespace, name in said[0])
            case "rules":
                return await self._enforce(unpack_rules(said[0]))
            case "open":
                try:
                    return {"port": await self._relays.open(wire.unpack(said[0]))}
                except OSError as error:
                    return _failure(error)
            case "close":
                await self._relays.close(wire.unpack_place(said[0]))
            case "keep":
                await self._relays.keep({wire.unpack_place(each) for each in said[0]})
            case "counts":
                return self._relays.counts
            case "end":
                self._ending.set()
            case _:
                raise ValueError(f"unknown question {question!r}")
        return {}


def _failure(error: OSError) -> dict[str, Any]:
    return {"errno": error.errno or 0, "error": error.strerror or str(error)}


def _is_there(inode: int) -> bool:
    try:
        return os.stat(wire.SOCKET).st_ino == inode
    except OSError:
        return False


def main(folder: str) -> int:
    os.chdir(folder)
    os.umask(0o077)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each connection has two files
    lock = os.open(wire.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0  # it runs already
    started, ready = os.pipe()
    if os.fork():
        os.close(ready)
        return 0 if os.read(started, 1) else 1
    os.close(started)
    os.setsid()
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    _run(ready)
    return 0


def _run(ready: int) -> None:
    from uvloop import run

    async def serve() -> None:
        clock, config = RealClock(), ProxyConfig()
        relays = LocalRelays(clock=clock, connections=config.connections, drain_s=config.drain_s)
        await ProxyServer(relays, clock).run(ready)

    run(serve())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
