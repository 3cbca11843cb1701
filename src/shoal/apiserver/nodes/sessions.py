"""Sessions of clients that speak SPDY, on a connection of its own or inside a WebSocket, forwarded to kubelets.

Kubelets are spoken to over WebSockets with channels. A command's streams become the channels of one; each connection
of a port-forward becomes one of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Protocol

from shoal.apiserver.messages import Upgrade, Wire
from shoal.apiserver.nodes.backend import Headers
from shoal.apiserver.nodes.relay import ServerSocket
from shoal.apiserver.nodes.sockets import KubeletSocket
from shoal.base import spdy
from shoal.base.clock import Clock
from shoal.base.spdy import Data, Event, Finished, Opened, SpdyError
from shoal.base.spdy import Reset as StreamReset
from shoal.base.tasks import OwnedTasks
from shoal.base.websocket import Channel, CloseCode, Opcode
from shoal.errors import ShoalError

_OPENING_S = 30.0  # for a client to open the streams that it has announced
_CHANNELS = {
    "stdin": Channel.STDIN, "stdout": Channel.STDOUT, "stderr": Channel.STDERR, "error": Channel.ERROR,
    "resize": Channel.RESIZE,
}  # fmt: skip
_DATA, _ERROR = 0, 1  # channels of a port-forward
_PORT_BYTES = 2  # each of them begins with the port


class Carrier(Protocol):
    """How SPDY travels."""

    def unwrap(self, data: bytes) -> bytes: ...

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class Plain:
    """SPDY directly on the connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def unwrap(self, data: bytes) -> bytes:
        return data

    def write(self, data: bytes) -> None:
        self._wire.write(data)

    def close(self) -> None:
        self._wire.hang_up()


class InSocket:
    """SPDY in the messages of a WebSocket."""

    def __init__(self, wire: Wire) -> None:
        self._socket = ServerSocket(wire)

    def unwrap(self, data: bytes) -> bytes:
        messages = self._socket.receive(data)
        if any(message.opcode is not Opcode.BINARY for message in messages):
            self._socket.close(CloseCode.INVALID_DATA, "only binary messages are supported")
            return b""
        return b"".join(message.data for message in messages)

    def write(self, data: bytes) -> None:
        self._socket.send(data)

    def close(self) -> None:
        self._socket.close()


class SpdySession(Upgrade):
    """The common part of both kinds of sessions: the connection to the client."""

    __slots__ = ("_carrier", "_carry", "_session", "_wire")

    def __init__(self, headers: Headers, carry: Callable[[Wire], Carrier]) -> None:
        super().__init__(headers)
        self._carry = carry
        self._session = spdy.SpdyConnection()
        self._carrier: Carrier | None = None
        self._wire: Wire | None = None

    def attach(self, wire: Wire) -> None:
        self._wire = wire
        self._carrier = self._carry(wire)

    def on_data(self, data: bytes) -> None:
        if self._carrier is None:
            return
        try:
            events = self._session.receive(self._carrier.unwrap(data))
        except SpdyError:
            self.end()
            return
        for event in events:
            self.on_event(event)
        # a client that makes the server answer, and does not read the answers, is not heard any more
        unread = self.flush() and self.full
        if self._wire is not None and (unread or self.holds_back()):
            self._wire.pause()

    def flush(self) -> bool:
        """Send what is due; return whether there was anything."""
        out = self._session.outgoing()
        if out and self._carrier is not None:
            self._carrier.write(out)
        return bool(out)

    def on_writable(self) -> None:
        """The client keeps up again."""
        self.on_room()

    def end(self) -> None:
        """End the session and close the connection to the client."""
        if self._carrier is not None:
            self._session.go_away()
            self.flush()
            self._carrier.close()

    def on_closed(self) -> None:
        self._carrier = self._wire = None
        self.release()
        self.ended()

    @property
    def full(self) -> bool:
        """Whether the client does not keep up."""
        return self._wire is not None and not self._wire.writable

    def on_room(self) -> None:
        """A kubelet, or the client, keeps up again."""
        if self._wire is not None and not self.holds_back() and not self.full:
            self._wire.resume()

    def on_event(self, event: Event) -> None:
        raise NotImplementedError

    def holds_back(self) -> bool:
        """Whether a kubelet does not keep up."""
        raise NotImplementedError

    def release(self) -> None:
        """The client disconnected: close the connections to kubelets."""
        raise NotImplementedError


class CommandSession(SpdySession):
    """Exec and attach: the client opens a stream for each channel. Nothing is read from the kubelet until it has."""

    __slots__ = ("_expected", "_socket", "_streams", "_timer")

    def __init__(
        self,
        headers: Headers,
        carry: Callable[[Wire], Carrier],
        socket: KubeletSocket,
        expected: Collection[int],
        clock: Clock,
    ) -> None:
        super().__init__(headers, carry)
        self._socket = socket
        self._expected = frozenset(expected)  # channels
        self._streams: dict[int, int] = {}  # channel -> stream
        self._timer = clock.call_later(_OPENING_S, self.end)

    def holds_back(self) -> bool:
        return not self._socket.writable

    def release(self) -> None:
        self._timer.cancel()
        self._socket.close()

    def on_writable(self) -> None:
        super().on_writable()
        self._socket.resume()

    def on_event(self, event: Event) -> None:
        if isinstance(event, Opened):
            self._open(event)
        elif isinstance(event, Data):
            channel = self._channel_of(event.stream)
            if channel in (Channel.STDIN, Channel.RESIZE):
                self._socket.send(channel, event.data)
        elif isinstance(event, Finished) and self._channel_of(event.stream) == Channel.STDIN:
            if self._socket.can_close_channels:
                self._socket.send(Channel.CLOSE, bytes((Channel.STDIN,)))

    def _open(self, event: Opened) -> None:
        channel = _CHANNELS.get(event.headers.get("streamtype", "").lower())
        if channel is None or channel in self._streams:
            self._session.reset(event.stream, spdy.REFUSED_STREAM)
            return
        waited = not self._expected <= self._streams.keys()
        self._streams[channel] = event.stream
        self._session.accept(event.stream)
        if waited and self._expected <= self._streams.keys():
            self._timer.cancel()
            self.flush()
            self._socket.attach(self)

    def _channel_of(self, stream: int) -> int:
        return next((channel for channel, each in self._streams.items() if each == stream), -1)

    def on_message(self, channel: int, data: bytes) -> None:
        stream = self._streams.get(channel)
        if stream is not None:
            self._session.send(stream, data)
            self.flush()
        if self.full:
            self._socket.pause()

    def on_gone(self, problem: str) -> None:
        for stream in self._streams.values():
            self._session.finish(stream)
        self.end()


class _Link:
    """One connection of a port-forward: the client's two streams and the kubelet's socket."""

    def __init__(self, session: ForwardSession, port: str) -> None:
        self.session = session
        self.port = port
        self.data = 0  # streams of the client
        self.error = 0
        self.socket: KubeletSocket | None = None
        self.opening: asyncio.Task[None] | None = None
        self._waiting: list[bytes] = []  # from the client, until the socket is there; empty bytes are the end
        self._heads = {_DATA: _PORT_BYTES, _ERROR: _PORT_BYTES}  # of which so much is yet to come

    @property
    def holds_back(self) -> bool:
        return (self.socket is None and bool(self._waiting)) or (self.socket is not None and not self.socket.writable)

    def from_client(self, data: bytes) -> None:
        """Forward data to the pod; empty data ends it."""
        if self.socket is None:
            self._waiting.append(data)
        else:
            self.socket.send(_DATA, data)

    def connected(self, socket: KubeletSocket) -> None:
        self.socket = socket
        socket.attach(self)
        waiting, self._waiting = self._waiting, []
        for data in waiting:
            socket.send(_DATA, data)
        self.session.on_room()

    def on_message(self, channel: int, data: bytes) -> None:
        head = self._heads.get(channel, 0)
        if head:
            self._heads[channel] = max(0, head - len(data))
            data = data[head:]
        if data:
            self.session.from_pod(self, channel, data)

    def on_gone(self, problem: str) -> None:
        self.session.link_ended(self, problem)

    def on_room(self) -> None:
        self.session.on_room()

    def close(self) -> None:
        if self.opening is not None:
            self.opening.cancel()
        if self.socket is not None:
            self.socket.close()


class ForwardSession(SpdySession):
    """Port-forward: for each connection the client opens an error stream and a data stream with the same request id."""

    __slots__ = ("_by_stream", "_links", "_open", "_tasks")

    def __init__(
        self,
        headers: Headers,
        carry: Callable[[Wire], Carrier],
        open_port: Callable[[str], Awaitable[KubeletSocket]],
    ) -> None:
        super().__init__(headers, carry)
        self._open = open_port
        self._tasks = OwnedTasks()
        self._links: dict[str, _Link] = {}  # by request id
        self._by_stream: dict[int, _Link] = {}

    def holds_back(self) -> bool:
        return any(link.holds_back for link in self._links.values())

    def release(self) -> None:
        for link in list(self._links.values()):
            link.close()
        self._links.clear()
        self._by_stream.clear()

    def on_writable(self) -> None:
        super().on_writable()
        for link in self._links.values():
            if link.socket is not None:
                link.socket.resume()

    def on_event(self, event: Event) -> None:
        if isinstance(event, Opened):
            self._opened(event)
            return
        if not isinstance(event, Data | Finished | StreamReset):
            return
        link = self._by_stream.get(event.stream)
        if link is None or event.stream != link.data:
            return
        if isinstance(event, StreamReset):
            link.close()
            self._forget(link)
        else:
            link.from_client(event.data if isinstance(event, Data) else b"")

    def _opened(self, event: Opened) -> None:
        kind, port = event.headers.get("streamtype", "").lower(), event.headers.get("port", "")
        # clients without request ids open the error stream first
        request = event.headers.get("requestid") or str(event.stream - 2 if kind == "data" else event.stream)
        known = self._links.get(request)
        if kind not in ("data", "error") or not _is_port(port) or (known is not None and getattr(known, kind)):
            self._session.reset(event.stream, spdy.REFUSED_STREAM)
            return
        link = known or _Link(self, port)
        self._links[request] = self._by_stream[event.stream] = link
        setattr(link, kind, event.stream)
        self._session.accept(event.stream)
        if link.data and link.error:
            link.opening = self._tasks.start(self._connect(link), name=f"port-forward/{port}")

    async def _connect(self, link: _Link) -> None:
        try:
            socket = await self._open(link.port)
        except (ShoalError, OSError) as error:
            self.link_ended(link, str(error))
            return
        except Exception:
            self.link_ended(link, "internal error")
            raise
        if self._wire is None:
            socket.close()
        else:
            link.connected(socket)

    def from_pod(self, link: _Link, channel: int, data: bytes) -> None:
        self._session.send(link.data if channel == _DATA else link.error, data)
        self.flush()
        if self.full and link.socket is not None:
            link.socket.pause()

    def link_ended(self, link: _Link, problem: str) -> None:
        if problem:
            self._session.send(link.error, f"error forwarding port {link.port} to pod: {problem}".encode())
        self._session.finish(link.error)
        self._session.finish(link.data)
        self._forget(link)
        self.flush()
        self.on_room()

    def _forget(self, link: _Link) -> None:
        self._by_stream.pop(link.data, None)
        self._by_stream.pop(link.error, None)
        for request in [key for key, each in self._links.items() if each is link]:
            with suppress(KeyError):
                del self._links[request]


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text[:6]) < 65536 and len(text) < 6
