"""Exec, attach and port-forward over WebSocket: copies bytes between channels and the runtime."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from shoal.base import websocket
from shoal.base.http1.server import ServerRequest
from shoal.base.tasks import OwnedTasks, beside
from shoal.base.websocket import Channel, CloseCode, Decoder, Message, Opcode, WebSocketError
from shoal.errors import BadRequest
from shoal.node.runtime.model import OutputStream, PodConnection, RuntimeSession, SessionOptions

_PIECE = 32 * 1024


class Socket:
    """A WebSocket on an upgraded connection. Answers pings by itself."""

    def __init__(self, request: ServerRequest, subprotocol: str) -> None:
        self._request = request
        self._decoder = Decoder(server=True)
        self._waiting: deque[Message] = deque()
        self._sending = asyncio.Lock()  # pieces of two channels must not mix
        self.subprotocol = subprotocol
        self.closed = False

    async def send(self, channel: int, data: bytes) -> None:
        await self._write(websocket.encode_channel(channel, data, self.subprotocol))

    async def receive(self) -> tuple[int, bytes] | None:
        """The next message's channel and data; None when the client has closed."""
        while True:
            while self._waiting:
                message = self._waiting.popleft()
                if message.opcode is Opcode.PING:
                    await self._write(websocket.encode(Opcode.PONG, message.data))
                elif message.opcode is Opcode.CLOSE:
                    return None
                elif message.opcode is not Opcode.PONG:
                    return websocket.decode_channel(message, self.subprotocol)
            data, self._request.rest = self._request.rest, b""
            data = data or await self._request.reader.read(65536)
            if not data:
                return None
            self._waiting += self._decoder.feed(data)

    async def close(self, code: CloseCode = CloseCode.NORMAL, reason: str = "") -> None:
        if not self.closed:
            self.closed = True
            with suppress(OSError):
                await self._write(websocket.encode_close(code, reason))

    async def _write(self, data: bytes) -> None:
        async with self._sending:
            self._request.writer.write(data)
            await self._request.writer.drain()


async def accept(request: ServerRequest, supported: Sequence[str]) -> Socket:
    """Upgrade a request to a WebSocket; raises ``BadRequest`` for an invalid handshake or unknown protocol."""
    headers = request.headers
    if headers.get("upgrade", "").lower() != "websocket":
        raise BadRequest("you must specify at least 1 of stdin, stdout, stderr over a WebSocket connection")
    key = headers.get("sec-websocket-key", "")
    if not websocket.is_key(key) or headers.get("sec-websocket-version") != "13":
        raise BadRequest("the WebSocket handshake is not valid")
    wanted = websocket.offered(headers.get("sec-websocket-protocol", ""))
    chosen = websocket.choose(wanted, supported) if wanted else websocket.V1
    if chosen is None:
        raise BadRequest(f"unable to negotiate a protocol: client supports {wanted}, server supports {list(supported)}")
    answer = {"upgrade": "websocket", "sec-websocket-accept": websocket.accept_key(key)}
    if wanted:
        answer["sec-websocket-protocol"] = chosen
    await request.switch(answer)
    return Socket(request, chosen)


async def copy_session(socket: Socket, session: RuntimeSession, options: SessionOptions) -> None:
    """Copy between a session and a client until the command exits or the client disconnects; then send the exit."""
    tasks = OwnedTasks()
    outgoing = tasks.start(_output(socket, session), name="session/output", awaited=True)
    incoming = tasks.start(_input(socket, session, options), name="session/input", awaited=True)
    try:
        await asyncio.wait({outgoing, incoming}, return_when=asyncio.FIRST_COMPLETED)
        if not outgoing.done():
            return  # the client disconnected, or sent invalid data
        outgoing.result()
        status = websocket.exit_status(await session.wait())
        await socket.send(Channel.ERROR, websocket.error_message(status, socket.subprotocol))
        await socket.close()
    except WebSocketError as error:
        await socket.close(error.code, str(error))
    except (ConnectionError, OSError):
        pass
    finally:
        await tasks.close()
        await session.close()
        await socket.close(CloseCode.GOING_AWAY)


async def _output(socket: Socket, session: RuntimeSession) -> None:
    async for stream, data in session.output():
        channel = Channel.STDERR if stream is OutputStream.STDERR else Channel.STDOUT
        for start in range(0, len(data), _PIECE):
            await socket.send(channel, data[start : start + _PIECE])


async def _input(socket: Socket, session: RuntimeSession, options: SessionOptions) -> None:
    while (received := await socket.receive()) is not None:
        channel, data = received
        if channel == Channel.STDIN and options.stdin:
            if data:
                await session.write(data)
        elif channel == Channel.RESIZE:
            size = websocket.decode_size(data)
            if size is not None:
                await session.resize(*size)
        elif channel == Channel.CLOSE and data[:1] == bytes((Channel.STDIN,)):
            await session.close_input()


Connect = Callable[[int], Awaitable[PodConnection]]


async def forward(socket: Socket, ports: Sequence[int], connect: Connect) -> None:
    """Forward ports: the i-th port has channel 2i for data and 2i + 1 for errors; both start with the port number."""
    links: dict[int, PodConnection] = {}
    tasks = OwnedTasks()
    copies: list[asyncio.Task[None]] = []
    try:
        for number, port in enumerate(ports):
            head = port.to_bytes(2, "little")
            await socket.send(2 * number, head)
            await socket.send(2 * number + 1, head)
            try:
                links[number] = await connect(port)
            except (OSError, ValueError) as error:
                await socket.send(2 * number + 1, f"error forwarding port {port} to pod: {error}".encode())
                continue
            copy = _copy(socket, 2 * number, links[number])
            copies.append(tasks.start(copy, name=f"forward/{port}"))
        if copies:
            await _serve(socket, links, copies)
    except WebSocketError as error:
        await socket.close(error.code, str(error))
    except (ConnectionError, OSError):
        pass
    finally:
        await tasks.close()
        for link in links.values():
            await link.close()
        await socket.close()


async def _serve(socket: Socket, links: dict[int, PodConnection], copies: list[asyncio.Task[None]]) -> None:
    """Copy until the client disconnects or all connections have ended."""
    async with beside(_to_pod(socket, links), name="forward/input") as incoming:
        running = set(copies)
        while running and not incoming.done():
            done, _ = await asyncio.wait({incoming, *running}, return_when=asyncio.FIRST_COMPLETED)
            running -= done
        if incoming.done():
            incoming.result()


async def _to_pod(socket: Socket, links: dict[int, PodConnection]) -> None:
    while (received := await socket.receive()) is not None:
        channel, data = received
        link = links.get(channel // 2)
        if link is None or channel % 2:
            continue
        if data:
            await link.write(data)
        else:
            await link.write_eof()


async def _copy(socket: Socket, channel: int, link: PodConnection) -> None:
    while data := await link.read(_PIECE):
        await socket.send(channel, data)
