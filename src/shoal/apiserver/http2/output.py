"""The sending half of an HTTP/2 connection: frames on their way out, within the client's windows.

Small answers and events are queued as they are. Long answers wait with their streams, which take turns, a frame each.
All that is written in one turn of the loop goes out together.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from shoal.apiserver.connection import SLICE, ClientConnection
from shoal.apiserver.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW,
    FRAME_BYTES,
    HEADER_BYTES,
    HEADERS,
    frame,
    head,
)
from shoal.apiserver.http2.heads import ResponseHeads
from shoal.apiserver.messages import Answer, LongResponse, RefusedRequest, Request, Response, unframed

if TYPE_CHECKING:
    from shoal.apiserver.http import HttpServer
    from shoal.apiserver.http2.stream import Http2Stream

_CROWDED = 256 * 1024  # octets that wait for the transport; then streams wait as well


class Http2Output(ClientConnection):
    """What the connection sends."""

    __slots__ = (
        "_closed", "_crowded", "_flush_due", "_heads", "_initial_window", "_leaving", "_out", "_out_size", "_sending",
        "_since", "_streams", "_window",
    )  # fmt: skip

    def __init__(self, server: HttpServer) -> None:
        super().__init__(server)
        self._heads = ResponseHeads(server.common_headers)
        self._streams: dict[int, Http2Stream] = {}
        self._window = FIRST_WINDOW  # octets that the client still takes
        self._initial_window = FIRST_WINDOW  # of each stream
        self._out: deque[bytes | memoryview] = deque()  # not yet handed to the transport
        self._out_size = 0
        self._sending: dict[int, Http2Stream] = {}  # streams with pending data, in the order of their turns
        self._flush_due = False
        self._crowded = False  # a stream was told to wait
        self._leaving = False  # GOAWAY is sent: no new streams
        self._closed = False  # nothing more is read
        self._since = server.tick  # idle since

    def _flushed(self) -> None:
        """Output was handed to the transport outside of a turn of the input."""
        raise NotImplementedError

    def answered_at_once(self, number: int, request: Request, answer: Answer) -> bool:
        """Send an answer that is whole and fits into the windows."""
        if not isinstance(answer, Response) or isinstance(answer, (RefusedRequest, LongResponse)):
            return False
        body, end = answer.body, answer.end
        if not isinstance(body, bytes) or request.method == "HEAD":
            return False
        length = len(body) + len(end)
        if not 0 < length <= min(FRAME_BYTES, self._window, self._initial_window):
            return False
        block = self._heads.of(answer, length)
        if len(block) > FRAME_BYTES:
            self._emit_block(number, block, end=False)
            block = b""
        else:
            block = head(HEADERS, END_HEADERS, number, len(block)) + block
        self._window -= length
        out = self._out
        block += head(DATA, END_STREAM, number, length)
        out.append(block)
        out.append(body)
        if end:
            out.append(end)
        self._out_size += len(block) + length
        self._since = self.server.tick
        if self._out_size > SLICE:
            self._flush()
        else:
            self._flush_later()
        return True

    def emit(self, data: bytes) -> None:
        """Send frames in this turn of the loop, together with others."""
        self._out.append(data)
        self._out_size += len(data)
        self._flush_later()

    def emit_head(self, number: int, answer: Answer, length: int | None, *, end: bool) -> None:
        self._emit_block(number, self._heads.of(answer, length), end=end)

    def _emit_block(self, number: int, block: bytes, *, end: bool) -> None:
        kind, flags = HEADERS, END_STREAM if end else 0
        while len(block) > FRAME_BYTES:
            self.emit(frame(kind, flags, number, block[:FRAME_BYTES]))
            block, kind, flags = block[FRAME_BYTES:], CONTINUATION, 0
        self.emit(frame(kind, flags | END_HEADERS, number, block))

    def emit_data(self, stream: Http2Stream, data: bytes) -> bool:
        """Send a part of a stream, if it fits into the windows."""
        size = len(data)
        if size > self._window or size > stream.window:
            return False
        stream.window -= size
        self._window -= size
        self._out.append(head(DATA, 0, stream.number, size))
        self._out.append(data)  # shared with other watchers of the same events
        self._out_size += size + HEADER_BYTES
        self._flush_later()
        return True

    def emit_end(self, stream: Http2Stream) -> None:
        self.emit(frame(DATA, END_STREAM, stream.number, b""))

    def unframed(self, data: bytes) -> bytes:
        """The data of one chunk of HTTP/1.1. Watchers of a group are given the same one after the other."""
        server = self.server
        if server.last_chunk is not data:
            server.last_chunk, server.last_data = data, unframed(data)
        return server.last_data

    def queue(self, stream: Http2Stream) -> None:
        """A stream has more than can be sent at once."""
        self._sending[stream.number] = stream
        self._flush_later()

    def has_room(self) -> bool:
        """Whether streams may write; they are told when they may again."""
        if self._out_size < _CROWDED and not self._closed:
            return True
        self._crowded = True
        return False

    def _flush_later(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self.server.loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._flush_due = False
        self._flush()
        self._flushed()

    def _flush(self) -> None:
        """Hand output to the transport, slice by slice, while the client keeps up."""
        out, transport = self._out, self.transport
        if transport is None:
            return
        while self.writable:
            if self._out_size < SLICE and self._sending:
                self._fill()
            if not out:
                break
            if self._out_size <= SLICE:
                data = b"".join(out)
                out.clear()
                self._out_size = 0
            else:
                data = self._slice()
            transport.write(data)
        if self._crowded and self._out_size < SLICE:
            self._crowded = False
            self.server.loop.call_soon(self._tell_streams)
        if not out and (self._closed or (self._leaving and not self._streams)):
            transport.close()

    def _slice(self) -> bytes:
        out, parts, size = self._out, [], 0
        while out and size < SLICE:
            part = out.popleft()
            parts.append(part)
            size += len(part)
        self._out_size -= size
        return b"".join(parts)

    def _fill(self) -> None:
        """Take from the streams that wait, in turn, a frame of each."""
        sending = self._sending
        while sending and self._out_size < SLICE and self._window > 0:
            number, stream = next(iter(sending.items()))
            del sending[number]
            room = min(FRAME_BYTES, self._window, stream.window)
            if room <= 0:
                continue  # until its window is larger
            data, last = stream.take(room)
            self._window -= len(data)
            self._out.append(head(DATA, END_STREAM if last else 0, number, len(data)))
            self._out.append(data)
            self._out_size += HEADER_BYTES + len(data)
            if stream.behind:
                sending[number] = stream
            else:
                stream.sent()

    def _tell_streams(self) -> None:
        for stream in list(self._streams.values()):
            stream.tell_writable()
