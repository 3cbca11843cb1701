"""An HTTP/2 client for a few calls and a few streams that stay open: one connection, in this event loop.

A process that runs for months beside users' workloads must stay small: a general HTTP library has threads and many
dependencies. This one knows a single peer, makes a connection when there is none, and lets a slow reader of one
stream slow down that stream and no other.

    link = Http2Link(Peer.of("https://control:8443", ca_pem))
    stream = await link.open([(":method", "POST"), (":path", "/x"), …])
    await stream.send(b"…", end=True)
    status, headers = await stream.head()
    while piece := await stream.receive(): …
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import H2Error, ProtocolError
from h2.settings import SettingCodes

from shoal.base import proxies
from shoal.errors import ShoalError

_CONNECT_S = 5.0
_KEEPALIVE_S = 5  # TCP's own: how long after the last sign of life it begins to ask, and how often
_KEEPALIVE_ASKS = 6
_STREAM_WINDOW_BYTES = 1 << 20  # unread, of one stream
_WINDOW_BYTES = 4 << 20  # unread, of all
_USUAL_WINDOW_BYTES = 65535
_UNSENT_BYTES = 256 << 10  # in the transport, before senders wait


class LinkError(ShoalError):
    """The peer cannot be reached, or the connection broke."""


class PeerReset(LinkError):
    """The peer reset one stream; ``code`` is HTTP/2's."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the peer reset the stream: {_code_name(code)}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Peer:
    """Where to connect to, and how to trust it."""

    host: str
    port: int
    authority: str
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, url: str, ca_pem: str = "") -> Peer:
        """``https`` with the certificates that may have signed the peer's; ``http`` without TLS."""
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        tls = None
        if secure:
            tls = ssl.create_default_context(cadata=ca_pem or None)
            tls.set_alpn_protocols(["h2"])
        port = parts.port or (443 if secure else 80)
        return cls(parts.hostname or "", port, parts.netloc.rpartition("@")[2], tls)

    @property
    def scheme(self) -> str:
        return "https" if self.tls is not None else "http"


class Http2Link:
    """Calls to one peer over one connection, which is reopened when it broke or the peer closes it."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._connection: _Connection | None = None
        self._dial_lock = asyncio.Lock()
        self._closed = False

    async def open(self, headers: Sequence[tuple[str, str]]) -> Http2Stream:
        """A new stream; ``LinkError`` when no connection can be made. Scheme and authority are added."""
        while True:
            connection = await self._connected()
            if await connection.has_room():
                named = [*headers, (":scheme", self.peer.scheme), (":authority", self.peer.authority)]
                return connection.open(sorted(named, key=lambda header: header[0][0] != ":"))

    async def _connected(self) -> _Connection:
        async with self._dial_lock:
            self._check_open()
            if self._connection is None or not self._connection.usable:
                self._connection = made = await _dial(self.peer)
                try:
                    self._check_open()
                except LinkError:
                    made.shut()
                    raise
            return self._connection

    def _check_open(self) -> None:
        if self._closed:
            raise LinkError("the link is closed")

    async def close(self) -> None:
        """Close the connection; open streams end with an error."""
        self._closed = True
        if self._connection is not None:
            self._connection.shut()
            await self._connection.gone.wait()


class Http2Stream:
    """One request and its answer. Not for two readers or two writers at the same time."""

    def __init__(self, connection: _Connection, id_: int) -> None:
        self._connection = connection
        self._id = id_
        self._wake = asyncio.Event()  # something arrived, or may be sent
        self._parts: deque[tuple[bytes, int]] = deque()  # with what they took of the window
        self._head: tuple[int, dict[str, str]] | None = None
        self._sent_all = False
        self._ended = False
        self._error: LinkError | None = None

    async def send(self, data: bytes, *, end: bool = False) -> None:
        """Waits while the peer, or the connection, is behind. ``LinkError`` when the stream is over; what the peer has
        answered before can still be received."""
        view = memoryview(data)
        while view or end:
            self._check()
            room = self._connection.room(self._id)
            if view and not room:
                await self._wait()
                continue
            piece, view = view[:room], view[room:]
            last = end and not view
            self._sent_all = self._sent_all or last
            self._connection.send(self._id, bytes(piece), last)
            if last:
                return
        await self._connection.flushed.wait()

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers, names in lower case."""
        while self._head is None:
            self._check()
            await self._wait()
        return self._head

    async def receive(self) -> bytes:
        """The next piece of the answer; nothing at its end."""
        while not self._parts:
            if self._ended:
                return b""
            self._check()
            await self._wait()
        data, taken = self._parts.popleft()
        self._connection.consumed(self._id, taken)
        return data

    def close(self) -> None:
        """Close the stream, and reset it if it has not ended; safe to call more than once."""
        for _, taken in self._parts:
            self._connection.consumed(self._id, taken)
        self._parts.clear()
        self._connection.forget(self._id, reset=not (self._ended and self._sent_all) and self._error is None)
        if self._error is None:
            self._error = LinkError("the stream was closed")
        self._wake.set()

    def abandon(self, error: LinkError) -> None:
        """End the stream with an error, which its waiters get."""
        self._connection.forget(self._id, reset=True)
        self.failed(error)

    # the connection tells

    def answered(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        self._head = int(found.pop(":status", "0")), found
        self._wake.set()

    def received(self, data: bytes, taken: int) -> None:
        self._parts.append((data, taken))
        self._wake.set()

    def ended(self) -> None:
        self._ended = True
        self._wake.set()

    def failed(self, error: LinkError) -> None:
        self._error = self._error or error
        self._wake.set()

    def may_send(self) -> None:
        self._wake.set()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _wait(self) -> None:
        self._wake.clear()
        await self._wake.wait()


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None, validate_inbound_headers=False))
        self._transport: asyncio.Transport | None = None
        self._streams: dict[int, Http2Stream] = {}
        self._usable = True
        self._freed = asyncio.Event()  # a stream ended
        self.flushed = asyncio.Event()
        self.flushed.set()
        self.gone = asyncio.Event()

    @property
    def usable(self) -> bool:
        return self._usable and not self.gone.is_set()

    async def has_room(self) -> bool:
        """Wait for a free stream. False when this connection accepts no more streams."""
        while self.usable and self._h2.open_outbound_streams >= self._h2.remote_settings.max_concurrent_streams:
            self._freed.clear()
            await self._freed.wait()
        return self.usable

    def open(self, headers: Sequence[tuple[str, str]]) -> Http2Stream:
        try:
            id_ = self._h2.get_next_available_stream_id()
            self._h2.send_headers(id_, headers)
        except H2Error as error:
            self._usable = False
            raise LinkError(f"the connection accepts no more streams: {error}") from error
        self._streams[id_] = stream = Http2Stream(self, id_)
        self._flush()
        return stream

    def room(self, id_: int) -> int:
        """How many bytes may be sent now."""
        try:
            return min(self._h2.local_flow_control_window(id_), self._h2.max_outbound_frame_size)
        except H2Error as error:
            raise LinkError(f"the stream has ended: {error}") from error

    def send(self, id_: int, data: bytes, end: bool) -> None:
        try:
            self._h2.send_data(id_, data, end_stream=end)
        except H2Error as error:
            raise LinkError(f"the stream has ended: {error}") from error
        self._flush()

    def consumed(self, id_: int, taken: int) -> None:
        if taken and not self.gone.is_set():
            with suppress(H2Error):  # the peer has ended the connection
                self._h2.acknowledge_received_data(taken, id_)
            self._flush()

    def forget(self, id_: int, *, reset: bool) -> None:
        if self._streams.pop(id_, None) is None:
            return
        if reset and not self.gone.is_set():
            with suppress(H2Error):  # it ended at the same moment
                self._h2.reset_stream(id_, ErrorCodes.CANCEL)
            self._flush()
        self._freed.set()

    def shut(self) -> None:
        """Send GOAWAY and close."""
        self._usable = False
        if self._transport is None or self.gone.is_set():
            return
        with suppress(H2Error):  # when the connection is already closed
            self._h2.close_connection()
        self._flush()
        self._fail(LinkError("the connection was closed"))
        self._transport.abort()

    # the event loop calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it
        self._transport.set_write_buffer_limits(_UNSENT_BYTES)
        self._h2.initiate_connection()
        self._h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW_BYTES, SettingCodes.ENABLE_PUSH: 0})
        self._h2.increment_flow_control_window(_WINDOW_BYTES - _USUAL_WINDOW_BYTES)
        self._flush()

    def data_received(self, data: bytes) -> None:
        try:
            events = self._h2.receive_data(data)
        except ProtocolError as error:
            self._flush()
            self._give_up(LinkError(f"HTTP/2 protocol error by the peer: {error}"))
            return
        for event in events:
            self._handle(event)
        self._flush()

    def pause_writing(self) -> None:
        self.flushed.clear()

    def resume_writing(self) -> None:
        self.flushed.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._usable = False
        self.gone.set()
        self.flushed.set()
        self._fail(LinkError(f"the connection broke: {error or 'the peer closed it'}"))

    def _handle(self, event: Event) -> None:
        match event:
            case ResponseReceived():
                if (stream := self._of(event.stream_id)) is not None:
                    stream.answered(cast("Sequence[tuple[bytes, bytes]]", event.headers))
            case DataReceived():
                taken = event.flow_controlled_length or 0
                if (stream := self._of(event.stream_id)) is not None and event.data:
                    stream.received(event.data, taken)
                else:
                    self.consumed(event.stream_id or 0, taken)
            case StreamEnded():
                if (stream := self._of(event.stream_id)) is not None:
                    stream.ended()
                self._freed.set()
            case StreamReset():
                if (stream := self._of(event.stream_id)) is not None:
                    stream.failed(PeerReset(int(event.error_code or 0)))
                self._freed.set()
            case WindowUpdated():
                if event.stream_id:
                    if (stream := self._of(event.stream_id)) is not None:
                        stream.may_send()
                else:
                    self._all_may_send()
            case RemoteSettingsChanged():
                if SettingCodes.INITIAL_WINDOW_SIZE in event.changed_settings:
                    self._all_may_send()
                self._freed.set()
            case ConnectionTerminated():  # the library lets nothing go on after it
                why = _code_name(int(event.error_code or 0))
                self._give_up(LinkError(f"the peer ended the connection: {why}"))
            case _:
                pass  # pings and settings are answered by the library

    def _of(self, id_: int | None) -> Http2Stream | None:
        return self._streams.get(id_ or 0)

    def _all_may_send(self) -> None:
        for stream in self._streams.values():
            stream.may_send()

    def _give_up(self, error: LinkError) -> None:
        self._usable = False
        self._fail(error)
        if self._transport is not None:
            self._transport.close()

    def _fail(self, error: LinkError) -> None:
        self._freed.set()
        for stream in list(self._streams.values()):
            stream.failed(error)

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


async def _dial(peer: Peer) -> _Connection:
    loop = asyncio.get_running_loop()
    proxy = proxies.for_host(peer.host, peer.port) if peer.tls is not None else None
    name = peer.host if peer.tls is not None else None
    try:
        async with asyncio.timeout(_CONNECT_S):
            if proxy is None:
                transport, connection = await loop.create_connection(
                    _Connection, peer.host, peer.port, ssl=peer.tls, server_hostname=name
                )
            else:
                through = await proxies.tunnel(proxy, peer.host, peer.port)
                transport, connection = await loop.create_connection(
                    _Connection, sock=through, ssl=peer.tls, server_hostname=name
                )
    except TimeoutError:
        raise LinkError(f"no connection to {peer.authority} within {_CONNECT_S:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise LinkError(f"the certificate of {peer.authority} is not trusted: {error.verify_message}") from None
    except OSError as error:
        raise LinkError(f"no connection to {peer.authority}: {error}") from None
    secured = transport.get_extra_info("ssl_object")
    if secured is not None and secured.selected_alpn_protocol() != "h2":
        transport.abort()
        raise LinkError(f"{peer.authority} does not speak HTTP/2")
    _keep_alive(transport.get_extra_info("socket"))
    return connection


def _keep_alive(used: socket.socket | None) -> None:
    """TCP notices within half a minute that the peer's machine is gone."""
    if used is None:
        return
    used.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {"TCP_KEEPIDLE": _KEEPALIVE_S, "TCP_KEEPINTVL": _KEEPALIVE_S, "TCP_KEEPCNT": _KEEPALIVE_ASKS}
    for option, value in options.items():
        if hasattr(socket, option):
            used.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _code_name(code: int) -> str:
    try:
        return ErrorCodes(code).name
    except ValueError:
        return f"error {code}"
