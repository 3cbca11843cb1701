"""Any input: the connection answers, resets or says goodbye, never sends more than the client's windows allow, and leaves
nothing behind."""

from __future__ import annotations

import asyncio
import struct

import hpack
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.apiserver.http import HttpServer
from shoal.apiserver.http2.connection import Http2Connection
from shoal.apiserver.http2.frames import (
    CONTINUATION,
    DATA,
    END_STREAM,
    GOAWAY,
    HEADER_BYTES,
    HEADERS,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    read_header,
)
from shoal.apiserver.messages import Answer, HttpLimits, LongResponse, Request, Response
from shoal.base.clock import FakeClock

STREAMS = st.integers(0, 9)
PATHS = ("/short", "/long", "/wait", "/fail", "/parts")


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = close

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    def get_write_buffer_size(self) -> int:
        return 0


def block(path: str, method: str, extra: list[tuple[str, str]]) -> bytes:
    """Without the encoder's table, so that blocks may be lost or repeated."""
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    return encoder.encode([(":method", method), (":scheme", "https"), (":path", path), *extra])


BLOCKS = st.builds(
    block,
    st.sampled_from(PATHS),
    st.sampled_from(["GET", "POST", "HEAD"]),
    st.lists(
        st.sampled_from([("content-length", "3"), ("expect", "100-continue"), ("te", "x"), ("a", "b")]), max_size=2
    ),
)
WORDS = st.sampled_from([0, 1, 10, 1000, 2**31 - 1]).map(struct.Struct(">I").pack)
SETTING = st.tuples(st.integers(0, 7), st.sampled_from([0, 1, 50, 16_384, 65_536, 2**31 - 1, 2**31]))
FRAMES = st.one_of(
    st.builds(frame, st.just(HEADERS), st.sampled_from([0, 1, 4, 5, 13, 37]), STREAMS, BLOCKS),
    st.builds(frame, st.just(HEADERS), st.just(5), STREAMS, BLOCKS),
    st.builds(frame, st.just(CONTINUATION), st.sampled_from([0, 4]), STREAMS, BLOCKS | st.just(b"")),
    st.builds(frame, st.just(DATA), st.sampled_from([0, 1, 8, 9]), STREAMS, st.binary(max_size=40)),
    st.builds(frame, st.just(WINDOW_UPDATE), st.just(0), STREAMS, WORDS),
    st.builds(frame, st.just(RST_STREAM), st.just(0), STREAMS, WORDS),
    st.builds(frame, st.just(PRIORITY), st.just(0), STREAMS, WORDS.map(lambda word: word + b"x")),
    st.builds(
        frame, st.just(SETTINGS), st.sampled_from([0, 0, 0, 1]), st.just(0),
        st.lists(SETTING, max_size=3).map(lambda found: b"".join(struct.pack(">HI", *one) for one in found)),
    ),
    st.builds(frame, st.integers(0, 12), st.integers(0, 255), STREAMS, st.binary(max_size=30)),
)  # fmt: skip


async def handler(request: Request) -> Answer:
    match request.path:
        case "/wait":
            await asyncio.get_running_loop().create_future()
        case "/fail":
            raise ValueError
        case "/parts":
            return Response(200, [b"x" * 90, b"", b"y" * 300])
        case "/long":
            answer = LongResponse(200, b"z" * 70_000)
            answer.on_sent = lambda: RELEASED.append(1)
            HELD.append(1)
            return answer
    return Response(200, b"short" + request.body)


HELD: list[int] = []
RELEASED: list[int] = []


class Windows:
    """What the client allows, counted from the same input."""

    def __init__(self) -> None:
        self.connection, self.initial = 65_535, 65_535
        self.streams: dict[int, int] = {}

    def sent_by_client(self, data: bytes) -> None:
        for kind, flags, stream, payload in frames_of(data):
            if kind == WINDOW_UPDATE and len(payload) == 4:
                word = struct.unpack(">I", payload)[0] & 0x7FFFFFFF
                if stream:
                    self.streams[stream] = self.streams.get(stream, self.initial) + word
                else:
                    self.connection += word
            elif kind == SETTINGS and not flags & 1 and len(payload) % 6 == 0:
                for name, value in struct.iter_unpack(">HI", payload):
                    if name == 4:
                        for number in list(self.streams):
                            self.streams[number] += max(0, value - self.initial)  # at most this much
                        self.initial = max(self.initial, value)

    def sent_by_server(self, data: bytes) -> None:
        sizes: dict[int, int] = {}
        for kind, _, stream, payload in frames_of(data):
            if kind == DATA:
                sizes[stream] = sizes.get(stream, 0) + len(payload)
        assert sum(sizes.values()) <= self.connection
        assert all(size <= self.streams.get(stream, self.initial) for stream, size in sizes.items())


def frames_of(data: bytes) -> list[tuple[int, int, int, bytes]]:
    found, at = [], 0
    while len(data) - at >= HEADER_BYTES:
        word, flags, stream = read_header(data, at)
        begin, at = at + HEADER_BYTES, at + HEADER_BYTES + (word >> 8)
        if at > len(data):
            break
        found.append((word & 0xFF, flags, stream & 0x7FFFFFFF, data[begin:at]))
    return found


async def run(pieces: list[bytes]) -> None:
    HELD.clear()
    RELEASED.clear()
    loop = asyncio.get_running_loop()
    problems: list[object] = []
    loop.set_exception_handler(lambda _, context: problems.append(context))
    clock = FakeClock()
    limits = HttpLimits(body_bytes=60, header_bytes=500)
    server = HttpServer(handler, lambda request, error: Response(500, b"x"), loop=loop, clock=clock, limits=limits)
    connection, transport, windows = Http2Connection(server), FakeTransport(), Windows()
    connection.connection_made(transport)
    for piece in pieces:
        connection.data_received(piece)
        await asyncio.sleep(0)
    connection.enforce_timeouts(clock.monotonic() + 1)
    for _ in range(5):
        await asyncio.sleep(0)
    windows.sent_by_client(b"".join(pieces)[len(PREFACE) :])
    sent = frames_of(bytes(transport.written))
    windows.sent_by_server(bytes(transport.written))
    assert sum(HEADER_BYTES + len(payload) for _, _, _, payload in sent) == len(transport.written)
    assert transport.closing is any(kind == GOAWAY for kind, _, _, _ in sent)
    ended = [stream for kind, flags, stream, _ in sent if kind in (DATA, HEADERS) and flags & END_STREAM]
    assert len(ended) == len(set(ended))
    connection.connection_lost(None)
    assert (len(HELD), server.pending_in, server.connections) == (len(RELEASED), 0, set())
    assert not problems
    await server.stop(grace_s=0)
    loop.set_exception_handler(None)


@given(st.lists(FRAMES, max_size=25), st.integers(1, 60))
@settings(deadline=None)
async def test_any_frames_are_answered_or_refused(frames: list[bytes], piece: int) -> None:
    data = PREFACE + frame(SETTINGS, 0, 0, b"") + b"".join(frames)
    await run([data[at : at + piece * 7] for at in range(0, len(data), piece * 7)])


@given(st.binary(max_size=300))
@settings(deadline=None)
async def test_any_octets_are_refused(data: bytes) -> None:
    await run([PREFACE + frame(SETTINGS, 0, 0, b"") + data])
