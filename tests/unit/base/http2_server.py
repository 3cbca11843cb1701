"""An HTTP/2 server for tests that does exactly what it is told: written with the other half of the library."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset, WindowUpdated
from h2.settings import SettingCodes


@dataclass(slots=True, eq=False)
class Call:
    """One stream as the server sees it."""

    server: Server
    id: int
    headers: dict[str, str]
    body: bytearray = field(default_factory=bytearray)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False
    reset: bool = False
    sent: int = 0

    @property
    def path(self) -> str:
        return self.headers[":path"]

    def answer(self, status: int = 200, *, end: bool = False, **headers: str) -> None:
        named = [(name.replace("_", "-"), value) for name, value in headers.items()]
        self.server.h2.send_headers(self.id, [(":status", str(status)), *named], end_stream=end)
        self.server.flush()

    async def send(self, data: bytes, *, end: bool = False) -> None:
        """Waits while the client takes no more."""
        while data:
            room = min(self.server.h2.local_flow_control_window(self.id), 16384)
            if not room:
                self.changed.clear()
                await self.changed.wait()
                continue
            piece, data = data[:room], data[room:]
            self.server.h2.send_data(self.id, piece)
            self.sent += len(piece)
            self.server.flush()
        if end:
            self.server.h2.end_stream(self.id)
            self.server.flush()

    def give_up(self, code: int) -> None:
        self.server.h2.reset_stream(self.id, code)
        self.server.flush()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()


Handler = Callable[[Call], Awaitable[None]]


class Server(asyncio.Protocol):
    """One connection of it. ``acknowledges``: gives back the window for what it was sent."""

    def __init__(self, handler: Handler, made: list[Server], *, acknowledges: bool, streams: int) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=False))
        self.handler = handler
        self.acknowledges = acknowledges
        self.streams = streams
        self.calls: dict[int, Call] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.left = False
        self.ended = False
        made.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.h2.initiate_connection()
        self.h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: self.streams})
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True

    def data_received(self, data: bytes) -> None:
        if self.left:
            return  # the client has not read the goodbye yet
        for event in self.h2.receive_data(data):
            if isinstance(event, RequestReceived):
                call = Call(self, event.stream_id, {str(n): str(v) for n, v in _text(event.headers)})
                self.calls[event.stream_id] = call
                task = asyncio.create_task(self._handle(call), name=call.path)
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
            elif isinstance(event, DataReceived):
                self.calls[event.stream_id].body += event.data
                if self.acknowledges:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, StreamEnded):
                self.calls[event.stream_id].ended = True
            elif isinstance(event, StreamReset):
                self.calls[event.stream_id].reset = True
            elif isinstance(event, WindowUpdated):
                pass
            for call in self.calls.values():
                call.changed.set()
        self.flush()

    async def _handle(self, call: Call) -> None:
        await self.handler(call)

    def flush(self) -> None:
        self.transport.write(self.h2.data_to_send())

    def goaway(self) -> None:
        self.left = True
        self.h2.close_connection()
        self.flush()


def _text(headers: object) -> list[tuple[str, str]]:
    return [(_plain(name), _plain(value)) for name, value in headers]  # type: ignore[attr-defined]


def _plain(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@asynccontextmanager
async def serving(
    handler: Handler, *, acknowledges: bool = True, streams: int = 100
) -> AsyncIterator[tuple[str, list[Server]]]:
    """Its address and the connections it has been made."""
    made: list[Server] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Server(handler, made, acknowledges=acknowledges, streams=streams), "127.0.0.1", 0
    )
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", made
    finally:
        server.close()
        for one in made:
            for task in list(one.tasks):
                task.cancel()
            await asyncio.gather(*one.tasks, return_exceptions=True)
            one.transport.abort()
        await server.wait_closed()
        await asyncio.sleep(0)
