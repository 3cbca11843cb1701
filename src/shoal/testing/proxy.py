"""A proxy in front of a server that breaks connections on request, or holds back what goes through them.

async with SocketProxy(postgres.socket) as proxy:
    url = postgres.url(database, host=proxy.folder)
    proxy.mute()          # requests arrive, answers do not
    proxy.deafen()        # nothing arrives
    proxy.cut()           # connections break, new ones work again
    proxy.refuse()        # connections break, new ones fail until ``heal``
    proxy.lead_to(path)   # connections break, new ones go to another socket (``SocketProxy`` only)
    proxy.half_open()     # the server's side is gone, and the client is not told
    proxy.drop()          # the next bytes in each direction are lost, later ones arrive
    proxy.duplicate()     # the next bytes in each direction arrive twice
    proxy.delay_s = 0.1   # every read is delayed this long, in both directions

``TcpProxy`` does the same for a port of this machine.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from shoal.testing.tally import TALLY

_PIECE_BYTES = 65536
_HOST = "127.0.0.1"
_CLOSE_S = 2.0


class FaultProxy:
    """The faults. Subclasses decide where a proxy listens and where it connects to."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._requests = asyncio.Event()
        self._answers = asyncio.Event()
        self._refusing = False
        self._held = 0
        self._far: set[asyncio.StreamWriter] = set()  # of the writers, those to the server
        self._half_open: set[asyncio.StreamWriter] = set()  # clients that are not told of the end
        self._next: dict[asyncio.Event, int] = {}  # how often the next bytes of a direction arrive
        self.delay_s = 0.0
        self.heal()

    @property
    def held(self) -> int:
        """The number of connections with data that are held back."""
        return self._held

    @property
    def connections(self) -> int:
        """The number of open connections through the proxy."""
        return len(self._writers) // 2

    async def _listen(self) -> asyncio.Server:
        raise NotImplementedError

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        self._server = await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        if self._serving:
            await asyncio.wait(self._serving, timeout=_CLOSE_S)

    def mute(self) -> None:
        TALLY.faults += 1
        self._answers.clear()

    def deafen(self) -> None:
        TALLY.faults += 1
        self._requests.clear()

    def refuse(self) -> None:
        TALLY.faults += 1
        self._refusing = True
        self.cut()

    def half_open(self) -> None:
        """End the connections to the server without a word to its clients, as a firewall does that forgets them. What
        clients send is lost. New connections work; ``cut`` ends the old ones."""
        TALLY.faults += 1
        self._half_open |= self._writers - self._far
        for writer in self._far:
            writer.transport.abort()

    def drop(self) -> None:
        TALLY.faults += 1
        self._next = {self._requests: 0, self._answers: 0}

    def duplicate(self) -> None:
        TALLY.faults += 1
        self._next = {self._requests: 2, self._answers: 2}

    def cut(self) -> None:
        """Break every connection. Data held back are lost; new connections work."""
        for writer in self._writers | self._half_open:
            writer.transport.abort()
        self._writers.clear()
        self._half_open.clear()
        self._requests.set()
        self._answers.set()

    def heal(self) -> None:
        self._refusing = False
        self.delay_s = 0.0
        self._next.clear()
        self._requests.set()
        self._answers.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            far_reader, far_writer = await self._dial()
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        self._far.add(far_writer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, far_writer, self._requests), name="proxy/requests")
                group.create_task(self._pump(far_reader, writer, self._answers), name="proxy/answers")
        finally:
            self._writers -= {writer, far_writer}
            self._far.discard(far_writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        try:
            while data := await reader.read(_PIECE_BYTES):
                self._held += 1
                try:
                    if self.delay_s:
                        await asyncio.sleep(self.delay_s)
                    await gate.wait()
                finally:
                    self._held -= 1
                writer.write(data * self._next.pop(gate, 1))
                await writer.drain()
        except OSError:
            pass
        finally:
            if writer not in self._half_open:
                writer.transport.abort()


class SocketProxy(FaultProxy):
    """A proxy in front of a Unix socket."""

    def __init__(self, target: Path) -> None:
        super().__init__()
        self._target = target
        self.folder = Path(tempfile.mkdtemp(prefix="shoal-proxy-"))

    def lead_to(self, target: Path) -> None:
        """Break every connection; new ones go to another socket, as after a failover."""
        self._target = target
        self.cut()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._serve, self.folder / self._target.name)

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self._target)


class TcpProxy(FaultProxy):
    """A proxy in front of a port of this machine; TLS passes through unchanged."""

    def __init__(self, target_port: int) -> None:
        super().__init__()
        self._target_port = target_port
        self.port = 0

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, _HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(_HOST, self._target_port)


class AnswerLosingProxy(TcpProxy):
    """Cuts the first connection that sends more than ``larger_than`` bytes, before an answer comes back: once ``until``
    has returned, or without it before the request reaches the server. Later connections work."""

    def __init__(self, target_port: int, *, larger_than: int, until: Callable[[], Awaitable[None]] | None) -> None:
        super().__init__(target_port)
        self._larger_than = larger_than
        self._until = until
        self._cutting: asyncio.Task[None] | None = None

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        seen = 0
        try:
            while data := await reader.read(_PIECE_BYTES):
                seen += len(data)
                if gate is self._requests and seen > self._larger_than and self._cutting is None:
                    self.mute()
                    self._cutting = asyncio.create_task(self._cut(), name="proxy/cut")
                if gate is self._requests and self._cutting is not None and self._until is None:
                    await self._cutting
                await gate.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()

    async def _cut(self) -> None:
        if self._until is not None:
            await self._until()
        self.cut()
