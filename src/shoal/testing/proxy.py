"""A proxy in front of a server's Unix socket that breaks connections when told to.

async with SocketProxy(postgres.socket) as proxy:
    url = postgres.url(database, host=proxy.folder)
    proxy.mute()          # requests arrive, answers do not
    proxy.deafen()        # nothing arrives
    proxy.cut()           # connections break, new ones work again
    proxy.refuse()        # and new ones do not, until ``heal``
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

_PIECE_BYTES = 65536


class SocketProxy:
    def __init__(self, target: Path) -> None:
        self._target = target
        self.folder = Path(tempfile.mkdtemp(prefix="shoal-proxy-"))
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._requests = asyncio.Event()
        self._answers = asyncio.Event()
        self._refusing = False
        self.heal()

    async def __aenter__(self) -> SocketProxy:
        self._server = await asyncio.start_unix_server(self._serve, self.folder / self._target.name)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        shutil.rmtree(self.folder, ignore_errors=True)

    def mute(self) -> None:
        self._answers.clear()

    def deafen(self) -> None:
        self._requests.clear()

    def refuse(self) -> None:
        self._refusing = True
        self.cut()

    def cut(self) -> None:
        """Break every connection. What was held back is lost; later connections are as good as new."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        self._requests.set()
        self._answers.set()

    def heal(self) -> None:
        self._refusing = False
        self._requests.set()
        self._answers.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_unix_connection(self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, far_writer, self._requests), name="proxy/requests")
                group.create_task(self._pump(far_reader, writer, self._answers), name="proxy/answers")
        finally:
            self._writers -= {writer, far_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        try:
            while data := await reader.read(_PIECE_BYTES):
                await gate.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()
