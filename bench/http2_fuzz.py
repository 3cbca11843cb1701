"""Feeds malformed HTTP/2 to the parser of the ASGI front, and reports what it must never do.

    .venv/bin/python bench/http2_fuzz.py --inputs 10000000 --seed 1

An input is a connection: a preface, then frames that are valid, changed, cut, out of order, or random bytes, given in
pieces. The parser may accept it or refuse it with its own error. Any other exception, an input that takes more than 100
ms, or memory that grows ends the run with the seed and the number of the input; a crash ends the process, and the
last line of the file given by ``--progress`` says where.
"""

from __future__ import annotations

import argparse
import random
import resource
import struct
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import hpack
import zttp

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SLOWEST_S = 0.1
GROWTH_KB = 64 * 1024
_KINDS = range(11)
_EVERY = 100_000


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _heads() -> list[bytes]:
    encoder = hpack.Encoder()
    base = [(":method", "POST"), (":scheme", "https"), (":path", "/a?b=c"), (":authority", "x")]
    lists: list[Sequence[tuple[str, str]]] = [
        base, [*base, ("content-type", "application/proto"), ("te", "trailers")], [(":method", "GET"), *base[1:]],
        base[:2], [*base, (":late", "x")], [*base, ("Upper", "x")], [*base, ("connection", "close")],
        [*base, ("content-length", "5")], [*base, ("content-length", "x")], [*base, ("a", "b" * 4000)],
        [*base, *((f"h{n}", "v") for n in range(150))], [("x", "y")], [(":method", "CONNECT"), (":authority", "x")],
    ]  # fmt: skip
    made = [encoder.encode(headers) for headers in lists]
    return made + [hpack.Encoder().encode(headers, huffman=False) for headers in lists]


class Inputs:
    """Makes inputs from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._heads = _heads()
        self._makers: list[Callable[[], bytes]] = [
            self._headers, self._headers, self._headers, self._data, self._data, self._settings, self._window,
            self._reset, self._ping, self._continuation, self._goaway, self._priority, self._any, self._noise,
        ]  # fmt: skip

    def next(self) -> list[bytes]:
        """An input, in pieces."""
        pick = self._random.random
        frames = [choice() for choice in self._random.choices(self._makers, k=1 + int(pick() * 6))]
        text = b"".join(frames)
        roll = pick()
        if roll < 0.5 and text:
            text = self._changed(text)
        start = PREFACE if pick() < 0.95 else PREFACE[: int(pick() * 24)]
        if pick() < 0.7:
            start += frame(4, 0, 0, b"")
        whole = start + text
        if pick() < 0.6:
            return [whole]
        cut = int(pick() * len(whole))
        return [whole[:cut], whole[cut:]]

    def _changed(self, text: bytes) -> bytes:
        found, pick = bytearray(text), self._random.random
        for _ in range(1 + int(pick() * 4)):
            at, roll = int(pick() * len(found)), pick()
            if not found:
                break
            if roll < 0.6:
                found[at] = int(pick() * 256)
            elif roll < 0.75:
                del found[at : at + 1 + int(pick() * 8)]
            elif roll < 0.9:
                found[at:at] = self._random.randbytes(1 + int(pick() * 8))
            else:
                found = found[: at + 1]
        return bytes(found)

    def _stream(self) -> int:
        roll = self._random.random()
        if roll < 0.8:
            return 1 + 2 * int(self._random.random() * 5)
        return (0, 2, 0x7FFFFFFF, 0xFFFFFFFF)[int(roll * 1000) % 4]

    def _headers(self) -> bytes:
        flags = (0x4, 0x5, 0x0, 0x1, 0xC, 0x24, 0x2C)[int(self._random.random() * 7)]
        head = self._heads[int(self._random.random() * len(self._heads))]
        if flags & 0x20:
            head = self._random.randbytes(5) + head
        if flags & 0x8:
            head = bytes((int(self._random.random() * 256),)) + head
        return frame(1, flags, self._stream(), head)

    def _data(self) -> bytes:
        return frame(
            0, int(self._random.random() * 16), self._stream(), b"d" * int(self._random.random() ** 4 * 17_000)
        )

    def _settings(self) -> bytes:
        pick = self._random.random
        pairs = b"".join(
            struct.pack(">HI", int(pick() * 10), int(pick() * 2**32) if pick() < 0.5 else int(pick() * 70_000))
            for _ in range(int(pick() * 4))
        )
        return frame(4, int(pick() < 0.2), 0 if pick() < 0.9 else 1, pairs)

    def _window(self) -> bytes:
        return frame(8, 0, 0 if self._random.random() < 0.5 else self._stream(), self._random.randbytes(4))

    def _reset(self) -> bytes:
        return frame(3, 0, self._stream(), self._random.randbytes(4))

    def _ping(self) -> bytes:
        return frame(6, int(self._random.random() * 2), 0, self._random.randbytes(8))

    def _continuation(self) -> bytes:
        head = self._heads[int(self._random.random() * len(self._heads))]
        return frame(9, 0x4 if self._random.random() < 0.5 else 0, self._stream(), head)

    def _goaway(self) -> bytes:
        return frame(7, 0, 0, self._random.randbytes(8 + int(self._random.random() * 8)))

    def _priority(self) -> bytes:
        return frame(2, 0, self._stream(), self._random.randbytes(5))

    def _any(self) -> bytes:
        size = int(self._random.random() ** 3 * 300)
        kind = _KINDS[int(self._random.random() * 11)] if self._random.random() < 0.8 else 0xFA
        return frame(kind, int(self._random.random() * 256), self._stream(), self._random.randbytes(size))

    def _noise(self) -> bytes:
        return self._random.randbytes(1 + int(self._random.random() * 60))


def feed(pieces: Sequence[bytes]) -> bool:
    """Whether the parser accepted an input. Answers every request, as a server does."""
    connection = zttp.Connection(zttp.SERVER, protocol=zttp.HTTP2)
    connection.initiate_connection()
    try:
        for piece in pieces:
            if not piece:
                continue
            connection.receive_data(piece)
            while True:
                event = connection.next_event()
                if event is zttp.NEED_DATA or event is zttp.CONNECTION_CLOSED:
                    break
                if isinstance(event, zttp.Request):
                    list(event.headers)
                    stream = connection.stream(event.stream_id)
                    stream.send_response(200, [(b"a", b"b")])
                    stream.send_data(b"x" * 100)
                    stream.end_message()
            connection.data_to_send()
    except zttp.RemoteProtocolError:
        return False
    except zttp.LocalProtocolError:  # the stream was reset by the peer meanwhile
        return False
    return True


def memory_kb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


def run(inputs: int, seed: int, progress: Path | None = None) -> str:
    """Returns what was found; raises on the first fault."""
    source, accepted, slowest = Inputs(seed), 0, 0.0
    began, base_kb = time.monotonic(), 0
    for number in range(inputs):
        pieces = source.next()
        at = time.perf_counter()
        try:
            accepted += feed(pieces)
        except Exception as error:
            raise SystemExit(f"seed {seed}, input {number}: {error!r}: {pieces!r}") from error
        took = time.perf_counter() - at
        slowest = max(slowest, took)
        if took > SLOWEST_S and sum(map(len, pieces)) < 100_000 and _again(pieces) > SLOWEST_S:
            raise SystemExit(f"seed {seed}, input {number}: took {took:.3f} s: {pieces!r}")
        if number % _EVERY == 0:
            if number == _EVERY:
                base_kb = memory_kb()
            if number > _EVERY and memory_kb() - base_kb > GROWTH_KB:
                raise SystemExit(f"seed {seed}, input {number}: memory grew from {base_kb} to {memory_kb()} KB")
            if progress is not None:
                progress.write_text(f"seed {seed}, input {number}, {time.monotonic() - began:.0f} s\n")
    return (
        f"{inputs} inputs, seed {seed}, {accepted} accepted, slowest {slowest * 1000:.1f} ms, "
        f"memory {base_kb} to {memory_kb()} KB, {time.monotonic() - began:.0f} s"
    )


def _again(pieces: Sequence[bytes]) -> float:
    """The time without the load of others."""
    best = float("inf")
    for _ in range(5):
        at = time.perf_counter()
        feed(pieces)
        best = min(best, time.perf_counter() - at)
    return best


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--inputs", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--progress", type=Path)
    given = options.parse_args()
    sys.stdout.write(run(given.inputs, given.seed, given.progress) + "\n")
