"""SPDY/3.1 as far as Kubernetes uses it: many streams on one connection, for exec and port-forward. Pure: bytes in,
events out.

``SpdyConnection`` is the server's side of a connection. It answers pings, keeps track of which streams are open in
which direction and rejects protocol violations; the owner of the socket feeds ``receive`` and sends
the output of ``outgoing``. Streams have no flow control: no Kubernetes client uses it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from shoal.errors import ShoalError

PROTOCOL = "SPDY/3.1"
FRAME_LIMIT = 16 * 1024 * 1024 - 1  # the maximum of its length field
_HEADER_LIMIT = 64 * 1024  # of all headers of a stream
_STREAM_LIMIT = 4096
_PIECE = 32 * 1024  # of data in one frame: streams take turns
_VERSION = 3
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _HEADERS, _WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9
_FIN, _UNIDIRECTIONAL = 1, 2
PROTOCOL_ERROR, INVALID_STREAM, REFUSED_STREAM, CANCEL, INTERNAL_ERROR = 1, 2, 3, 5, 6

_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow "
    "authorization cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range content-type date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status"
)
_PAIRS = (b"200 OK", b"version", b"HTTP/1.1", b"url", b"public", b"set-cookie", b"keep-alive", b"origin")
_TAIL = (
    b"100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    b"203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    b"404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    b"Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    b"chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    b"publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
# both sides start their compression of headers from this text (SPDY/3, section 2.6.10.1)
DICTIONARY = (
    b"".join(len(word).to_bytes(4, "big") + word for word in (*(w.encode() for w in _WORDS.split()), *_PAIRS)) + _TAIL
)


class SpdyError(ShoalError):
    """The other side violated the protocol; the connection cannot be used any more."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The other side has opened a stream and waits for ``accept``, or for ``reset``."""

    stream: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Data:
    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Finished:
    """The other side ended its direction of a stream."""

    stream: int


@dataclass(frozen=True, slots=True)
class Reset:
    """A stream is gone, in both directions."""

    stream: int


@dataclass(frozen=True, slots=True)
class GoneAway:
    """The other side opens no more streams."""


Event = Opened | Data | Finished | Reset | GoneAway


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame on the wire; ``kind`` is 0 for data, whose ``stream`` is set."""

    kind: int
    flags: int
    payload: bytes
    stream: int = 0


class Framer:
    """Cuts a stream of bytes into frames."""

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self._buffer = bytearray()
        self._limit = limit

    def feed(self, data: bytes) -> list[Frame]:
        buffer = self._buffer
        buffer += data
        found: list[Frame] = []
        start = 0
        while len(buffer) - start >= 8:
            size = int.from_bytes(buffer[start + 5 : start + 8], "big")
            if size > self._limit:
                raise SpdyError(f"a frame is longer than {self._limit} bytes")
            end = start + 8 + size
            if len(buffer) < end:
                break
            found.append(_frame(bytes(buffer[start : start + 8]), bytes(buffer[start + 8 : end])))
            start = end
        del buffer[:start]
        return found


def _frame(head: bytes, payload: bytes) -> Frame:
    word = int.from_bytes(head[:4], "big")
    if not word >> 31:
        return Frame(0, head[4], payload, word)
    version = word >> 16 & 0x7FFF
    if version != _VERSION:
        raise SpdyError(f"SPDY version {version} is not supported")
    return Frame(word & 0xFFFF, head[4], payload)


def control_frame(kind: int, flags: int, payload: bytes) -> bytes:
    head = (0x80000000 | _VERSION << 16 | kind).to_bytes(4, "big")
    return head + bytes((flags,)) + len(payload).to_bytes(3, "big") + payload


def data_frame(stream: int, data: bytes, *, fin: bool = False) -> bytes:
    return stream.to_bytes(4, "big") + bytes((_FIN if fin else 0,)) + len(data).to_bytes(3, "big") + data


class HeaderPacker:
    """Compresses header blocks; one for all that a connection sends."""

    def __init__(self) -> None:
        self._zlib = zlib.compressobj(zdict=DICTIONARY)

    def pack(self, headers: Mapping[str, str]) -> bytes:
        block = [len(headers).to_bytes(4, "big")]
        for name, value in headers.items():
            for part in (name.lower().encode(), value.encode()):
                block += (len(part).to_bytes(4, "big"), part)
        return self._zlib.compress(b"".join(block)) + self._zlib.flush(zlib.Z_SYNC_FLUSH)


class HeaderUnpacker:
    """Reads header blocks; one for all that a connection receives."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(zdict=DICTIONARY)

    def unpack(self, packed: bytes) -> dict[str, str]:
        """The headers with names in lower case; of several values of one name the first."""
        try:
            block = self._zlib.decompress(packed, _HEADER_LIMIT)
        except zlib.error as error:
            raise SpdyError(f"invalid headers: {error}") from None
        if self._zlib.unconsumed_tail:
            raise SpdyError(f"headers are longer than {_HEADER_LIMIT} bytes")
        return _headers(block)


def _headers(block: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    count, place = _number(block, 0), 4
    for _ in range(count):
        parts = []
        for _ in range(2):
            size = _number(block, place)
            place += 4 + size
            if place > len(block):
                raise SpdyError("headers are truncated")
            parts.append(block[place - size : place].decode("utf-8", "replace"))
        found.setdefault(parts[0].lower(), parts[1].partition("\x00")[0])
    return found


def _number(block: bytes, place: int) -> int:
    if place + 4 > len(block):
        raise SpdyError("headers are truncated")
    return int.from_bytes(block[place : place + 4], "big")


@dataclass(slots=True)
class _Stream:
    receiving: bool = True
    sending: bool = False  # not before it is accepted
    accepted: bool = False


class SpdyConnection:
    """The server's side of a connection. Output is gathered until ``outgoing`` is called."""

    def __init__(self) -> None:
        self._framer = Framer()
        self._packer = HeaderPacker()
        self._unpacker = HeaderUnpacker()
        self._streams: dict[int, _Stream] = {}
        self._last = 0  # the highest stream that the other side has opened
        self._out: list[bytes] = []

    def receive(self, data: bytes) -> list[Event]:
        """The events in ``data``. After ``SpdyError`` the connection cannot be used."""
        events: list[Event] = []
        for frame in self._framer.feed(data):
            if frame.kind == 0:
                self._on_data(frame, events)
            else:
                self._on_control(frame, events)
        return events

    def outgoing(self) -> bytes:
        """The bytes to send."""
        out, self._out = b"".join(self._out), []
        return out

    def accept(self, stream: int) -> None:
        """Answer an ``Opened``."""
        known = self._streams.get(stream)
        if known is not None and not known.accepted:
            known.accepted = known.sending = True
            self._out.append(control_frame(_SYN_REPLY, 0, stream.to_bytes(4, "big") + self._packer.pack({})))

    def send(self, stream: int, data: bytes) -> None:
        """Data on a stream; dropped when it is no longer open."""
        known = self._streams.get(stream)
        if known is None or not known.sending:
            return
        for start in range(0, len(data), _PIECE):
            self._out.append(data_frame(stream, data[start : start + _PIECE]))

    def finish(self, stream: int) -> None:
        """Nothing more is sent on a stream."""
        known = self._streams.get(stream)
        if known is not None and known.sending:
            known.sending = False
            self._out.append(data_frame(stream, b"", fin=True))
            self._forget(stream, known)

    def reset(self, stream: int, status: int = CANCEL) -> None:
        """End a stream in both directions."""
        if self._streams.pop(stream, None) is not None:
            self._out.append(_reset(stream, status))

    def go_away(self) -> None:
        """Announce the end of the connection."""
        self._out.append(control_frame(_GOAWAY, 0, self._last.to_bytes(4, "big") + bytes(4)))

    def _on_data(self, frame: Frame, events: list[Event]) -> None:
        known = self._streams.get(frame.stream)
        if known is None or not known.receiving:
            if frame.stream > self._last or not frame.stream:
                raise SpdyError(f"data on stream {frame.stream}, which was never opened")
            return  # on its way when we ended the stream
        if frame.payload:
            events.append(Data(frame.stream, frame.payload))
        if frame.flags & _FIN:
            self._end_receiving(frame.stream, known, events)

    def _on_control(self, frame: Frame, events: list[Event]) -> None:
        payload = frame.payload
        if frame.kind == _SYN_STREAM:
            self._on_open(frame, events)
        elif frame.kind == _PING:
            if len(payload) != 4:
                raise SpdyError("a ping frame has the wrong size")
            if payload[3] & 1:  # odd ids are the client's, even ones the server's
                self._out.append(control_frame(_PING, 0, payload))
        elif frame.kind == _RST_STREAM:
            if len(payload) != 8:
                raise SpdyError("a reset frame has the wrong size")
            stream = int.from_bytes(payload[:4], "big")
            if self._streams.pop(stream, None) is not None:
                events.append(Reset(stream))
        elif frame.kind == _HEADERS:
            self._unpacker.unpack(payload[4:])  # not used, but the compression state depends on them
            known = self._streams.get(int.from_bytes(payload[:4], "big"))
            if known is not None and frame.flags & _FIN:
                self._end_receiving(int.from_bytes(payload[:4], "big"), known, events)
        elif frame.kind == _GOAWAY:
            events.append(GoneAway())
        elif frame.kind == _SYN_REPLY:
            raise SpdyError("a reply to a stream that this side did not open")

    def _on_open(self, frame: Frame, events: list[Event]) -> None:
        if len(frame.payload) < 10:
            raise SpdyError("a SYN_STREAM frame is truncated")
        stream = int.from_bytes(frame.payload[:4], "big") & 0x7FFFFFFF
        headers = self._unpacker.unpack(frame.payload[10:])
        if stream % 2 == 0 or stream <= self._last:
            raise SpdyError(f"stream {stream} cannot be opened after stream {self._last}")
        self._last = stream
        if len(self._streams) >= _STREAM_LIMIT:
            self._out.append(_reset(stream, REFUSED_STREAM))
            return
        known = self._streams[stream] = _Stream()
        events.append(Opened(stream, headers))
        if frame.flags & _FIN:
            self._end_receiving(stream, known, events)

    def _end_receiving(self, stream: int, known: _Stream, events: list[Event]) -> None:
        known.receiving = False
        events.append(Finished(stream))
        if known.accepted:
            self._forget(stream, known)

    def _forget(self, stream: int, known: _Stream) -> None:
        if not known.receiving and not known.sending:
            self._streams.pop(stream, None)


def _reset(stream: int, status: int) -> bytes:
    return control_frame(_RST_STREAM, 0, stream.to_bytes(4, "big") + status.to_bytes(4, "big"))
