"""Response heads on the wire, and connections after an upgrade. Parts of ``apiserver.http``."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from typing import Protocol

from shoal.apiserver.messages import STATUS_LINES, Answer, Relay, ResponseStream, Upgrade

BODILESS = frozenset({204, 304})


class Heads:
    """Status line and headers up to the framing ones; cached, since a server sends few distinct ones."""

    __slots__ = ("_common", "_heads")

    def __init__(self, common: Sequence[tuple[bytes, bytes]]) -> None:
        """``common``: headers of all answers."""
        self._common = _lines(common)
        self._heads: dict[tuple[int, bytes], bytes] = {}

    def of(self, answer: Answer) -> bytes:
        if isinstance(answer, Upgrade) or (isinstance(answer, Relay) and answer.own_headers):
            return _status_line(answer.status) + _lines(answer.headers)
        key = (answer.status, answer.content_type)
        head = self._heads.get(key)
        if head is None:
            kind = b"Content-Type: " + answer.content_type + b"\r\n" if answer.content_type else b""
            head = self._heads[key] = _status_line(answer.status) + kind + self._common
        return head + _lines(answer.headers) if answer.headers else head


def _status_line(status: int) -> bytes:
    return STATUS_LINES.get(status) or b"HTTP/1.1 %d Status\r\n" % status


def _lines(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    return b"".join(name + b": " + value + b"\r\n" for name, value in headers)


def framing(stream: ResponseStream, method: str, *, old: bool) -> tuple[bytes, bool, bool]:
    """The header line that says where a stream's body ends, whether its pieces go out without frames, and whether it
    has a body at all. ``old``: for HTTP/1.0, which has no chunks; there the end of the connection is the end."""
    length = stream.length if isinstance(stream, Relay) else None
    line = b"" if length is None else b"Content-Length: %d\r\n" % length
    if method == "HEAD" or stream.status in BODILESS:
        return line, True, False
    if length is None and not old:
        return b"Transfer-Encoding: chunked\r\n", False, True
    return line, True, True


class _Connection(Protocol):
    """The parts of the HTTP connection that an upgraded one uses."""

    transport: asyncio.Transport | None
    writable: bool


class Handover:
    """The ``Wire`` of a connection that changed its protocol."""

    __slots__ = ("_connection", "_moved", "_quiet_since", "_reading", "upgrade")

    def __init__(self, connection: _Connection, upgrade: Upgrade) -> None:
        self._connection = connection
        self._reading = True
        self._moved = True  # bytes have come or gone since ``quiet_s`` was asked for
        self._quiet_since = 0.0
        self.upgrade = upgrade

    def begin(self, head: bytes, unread: Iterable[bytes]) -> None:
        """``unread``: input that already belongs to the new protocol."""
        transport = self._connection.transport
        assert transport is not None
        raw = transport.get_extra_info("socket")
        if raw is not None:  # nothing else detects that a silent client is gone
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        transport.write(head + b"\r\n")
        transport.resume_reading()
        self.upgrade.attach(self)
        for data in unread:
            self.upgrade.on_data(data)

    def on_data(self, data: bytes) -> None:
        self._moved = True
        self.upgrade.on_data(data)

    def quiet_s(self, now: float) -> float:
        """For how long no byte has come or gone. Called every now and then."""
        if self._moved:
            self._moved, self._quiet_since = False, now
        return now - self._quiet_since

    @property
    def writable(self) -> bool:
        return self._connection.writable

    def write(self, data: bytes) -> None:
        self._moved = True
        if self._connection.transport is not None:
            self._connection.transport.write(data)

    def hang_up(self) -> None:
        if self._connection.transport is not None:
            self._connection.transport.close()

    def pause(self) -> None:
        self._read(False)

    def resume(self) -> None:
        self._read(True)

    def _read(self, wanted: bool) -> None:
        transport = self._connection.transport
        if wanted is self._reading or transport is None or transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            transport.resume_reading()
        else:
            transport.pause_reading()
