"""Answers that are passed on from a backend: a body, a connection, and a body as messages of a WebSocket."""

from __future__ import annotations

import asyncio
import base64
from typing import Protocol

from shoal.apiserver.messages import Relay, Sink, Upgrade, Wire, frame
from shoal.apiserver.nodes.backend import Backend, Headers
from shoal.base.websocket import CloseCode, Decoder, Message, Opcode, WebSocketError, encode, encode_close


class BodyChange(Protocol):
    """Changes a body on its way, slice by slice."""

    pending: bool  # there is more to take
    failed: bool  # the body cannot be read

    def put(self, data: bytes) -> None: ...

    def take(self) -> bytes: ...

    def finish(self) -> bytes: ...


class BackendRelay(Relay):
    """A backend's body, chunk by chunk as it comes."""

    __slots__ = ("_answered", "_backend", "_change", "_changing", "_sink")

    def __init__(
        self,
        backend: Backend,
        status: int,
        content_type: bytes = b"",
        headers: Headers = (),
        *,
        length: int | None = None,
        own_headers: bool = False,
        change: BodyChange | None = None,
    ) -> None:
        super().__init__(status, content_type, headers, length=length, own_headers=own_headers)
        self._backend = backend
        self._change = change
        self._changing = False  # a slice is due
        self._answered = False  # everything has arrived, not everything is changed
        self._sink: Sink | None = None

    def attach(self, sink: Sink) -> None:
        self._sink = sink
        self._backend.attach(self)

    def on_writable(self) -> None:
        if self._change is not None and self._change.pending:
            self._change_later()
        else:
            self._backend.resume()

    def on_closed(self) -> None:
        self._sink = None
        self._backend.abort()
        self.ended()

    def on_answer(self, data: bytes) -> None:
        sink = self._sink
        if sink is None:
            return
        if self._change is not None:
            self._change.put(data)
            self._change_later()
            return
        sink.write(frame(data))
        if not sink.writable:
            self._backend.pause()

    def on_answered(self, problem: str) -> None:
        if self._sink is None:
            return
        if problem:
            self._end(abort=True)
        elif self._change is not None and self._change.pending:
            self._answered = True
        else:
            self._end()

    def on_room(self) -> None:
        """Do nothing: the backend sends the request's body."""

    def _change_later(self) -> None:
        """Change the next slice after other clients had their turn."""
        self._backend.pause()
        if not self._changing:
            self._changing = True
            asyncio.get_running_loop().call_soon(self._change_slice)

    def _change_slice(self) -> None:
        self._changing = False
        sink, change = self._sink, self._change
        if sink is None or change is None:
            return
        data = change.take()
        if change.failed:
            self._backend.abort()
            self._end(abort=True)
            return
        if data:
            sink.write(frame(data))
        if not change.pending and self._answered:
            self._end()
        elif sink.writable:
            self.on_writable()

    def _end(self, *, abort: bool = False) -> None:
        sink, self._sink = self._sink, None
        if sink is None:
            return
        if abort:
            sink.abort()
        else:
            rest = b"" if self._change is None else self._change.finish()
            if rest:
                sink.write(frame(rest))
            sink.end()
        self.ended()


class Tunnel(Upgrade):
    """Connects two connections: bytes pass unchanged, and when either side closes, both end."""

    __slots__ = ("_backend", "_wire")

    def __init__(self, backend: Backend, headers: Headers) -> None:
        super().__init__(headers)
        self._backend = backend
        self._wire: Wire | None = None

    def attach(self, wire: Wire) -> None:
        self._wire = wire
        self._backend.attach(self)

    def on_data(self, data: bytes) -> None:
        self._backend.write(data)
        if not self._backend.writable and self._wire is not None:
            self._wire.pause()

    def on_writable(self) -> None:
        self._backend.resume()

    def on_closed(self) -> None:
        self._wire = None
        self._backend.close()
        self.ended()

    def on_answer(self, data: bytes) -> None:
        wire = self._wire
        if wire is not None:
            wire.write(data)
            if not wire.writable:
                self._backend.pause()

    def on_answered(self, problem: str) -> None:
        if self._wire is not None:
            self._wire.hang_up()

    def on_room(self) -> None:
        if self._wire is not None:
            self._wire.resume()


class ServerSocket:
    """The server's end of a WebSocket on a connection that was handed over: answers pings, sends close frames."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._decoder = Decoder(server=True)
        self._closed = False

    def receive(self, data: bytes) -> list[Message]:
        """The client's data messages. When it closes or violates the protocol, the connection ends."""
        if self._closed:
            return []
        try:
            received = self._decoder.feed(data)
        except WebSocketError as error:
            self.close(error.code, str(error))
            return []
        found: list[Message] = []
        for message in received:
            if message.opcode is Opcode.PING:
                if self.wire.writable:  # a client that does not read gets no more answers
                    self.wire.write(encode(Opcode.PONG, message.data))
            elif message.opcode is Opcode.CLOSE:
                self.close()
                return found
            elif message.opcode is not Opcode.PONG:
                found.append(message)
        return found

    def send(self, data: bytes, *, text: bool = False) -> None:
        if not self._closed:
            self.wire.write(encode(Opcode.TEXT if text else Opcode.BINARY, data))

    def close(self, code: CloseCode = CloseCode.NORMAL, reason: str = "") -> None:
        if not self._closed:
            self._closed = True
            self.wire.write(encode_close(code, reason))
            self.wire.hang_up()


class SocketRelay(Upgrade):
    """A backend's body as messages of a WebSocket; messages from the client are ignored."""

    __slots__ = ("_backend", "_socket", "_text")

    def __init__(self, backend: Backend, headers: Headers, *, text: bool) -> None:
        """``text``: in base64."""
        super().__init__(headers)
        self._backend = backend
        self._text = text
        self._socket: ServerSocket | None = None

    def attach(self, wire: Wire) -> None:
        self._socket = ServerSocket(wire)
        self._socket.send(b"", text=self._text)  # confirms the upgrade to the client at once
        self._backend.attach(self)

    def on_data(self, data: bytes) -> None:
        if self._socket is not None:
            self._socket.receive(data)

    def on_writable(self) -> None:
        self._backend.resume()

    def on_closed(self) -> None:
        self._socket = None
        self._backend.abort()
        self.ended()

    def on_answer(self, data: bytes) -> None:
        socket = self._socket
        if socket is not None:
            socket.send(base64.b64encode(data) if self._text else data, text=self._text)
            if not socket.wire.writable:
                self._backend.pause()

    def on_answered(self, problem: str) -> None:
        if self._socket is not None:
            self._socket.close(CloseCode.INTERNAL if problem else CloseCode.NORMAL, problem)

    def on_room(self) -> None:
        """Nothing is sent to the backend."""
