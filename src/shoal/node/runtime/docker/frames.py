"""Parsers of the engine's streams.

frames      a header of 8 bytes (stream, 0, 0, 0, length as 32 bits) and the data; with a terminal only the data
log lines   one per frame, or one per line with a terminal: ``TIME SPACE DATA``
JSON lines  progress of pulls, and events
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import orjson

from shoal.errors import ShoalError
from shoal.node.runtime.model import LogRecord, OutputStream

_HEAD_BYTES = 8
_STREAMS = {0: OutputStream.STDOUT, 1: OutputStream.STDOUT, 2: OutputStream.STDERR}
_SYSTEM = 3  # an error of the engine in the middle of a stream


class BadFrame(ShoalError):
    """The stream does not have the expected format."""


class Frames:
    """Splits a stream into standard output and standard error."""

    def __init__(self, *, terminal: bool) -> None:
        self._terminal = terminal
        self._rest = bytearray()

    def feed(self, data: bytes, *, whole: bool = False) -> Iterator[tuple[OutputStream, bytes]]:
        """The data of frames, in parts as it arrives; with ``whole``, each frame once it is complete."""
        if self._terminal:
            if data:
                yield OutputStream.STDOUT, data
            return
        self._rest += data
        while len(self._rest) >= _HEAD_BYTES:
            kind, length = self._rest[0], int.from_bytes(self._rest[4:8])
            stream = _STREAMS.get(kind)
            if stream is None and kind != _SYSTEM or any(self._rest[1:4]):
                raise BadFrame(f"the engine sent a stream without frames: {bytes(self._rest[:64])!r}")
            have = len(self._rest) - _HEAD_BYTES
            if have < length and (whole or have == 0 or stream is None):
                return
            piece = bytes(self._rest[_HEAD_BYTES : _HEAD_BYTES + length])
            if have < length:  # the rest of the frame gets a header of its own
                self._rest[:] = bytes((kind, 0, 0, 0)) + (length - have).to_bytes(4)
            else:
                del self._rest[: _HEAD_BYTES + length]
            if stream is None:
                raise BadFrame(piece.decode(errors="replace"))
            if piece:
                yield stream, piece


class LogLines:
    """Records of a log with timestamps."""

    def __init__(self, *, terminal: bool) -> None:
        self._frames = Frames(terminal=terminal)
        self._terminal = terminal
        self._line = b""

    def feed(self, data: bytes) -> Iterator[LogRecord]:
        for stream, piece in self._frames.feed(data, whole=True):
            if not self._terminal:
                yield log_record(stream, piece)
                continue
            *lines, self._line = (self._line + piece).split(b"\n")
            for line in lines:
                yield log_record(stream, line + b"\n")

    def end(self) -> Iterator[LogRecord]:
        """The last line, if it has no newline."""
        if self._line:
            yield log_record(OutputStream.STDOUT, self._line)
            self._line = b""


def log_record(stream: OutputStream, text: bytes) -> LogRecord:
    stamp, space, data = text.partition(b" ")
    at_ns = instant_ns(stamp.decode("ascii", "replace")) if space or stamp.endswith(b"\n") else 0
    if at_ns == 0:
        data = text
    elif not space:  # an empty line whose separating space was trimmed
        data = b"\n"
    return LogRecord(at_ns, stream, data, partial=not data.endswith(b"\n"))


def instant_ns(text: str) -> int:
    """Nanoseconds since 1970 of a timestamp of the engine; 0 if it is empty or invalid."""
    text = text.strip()
    head, point, rest = text.partition(".")
    digits = rest
    zone = ""
    if point:
        count = next((at for at, each in enumerate(rest) if not each.isdigit()), len(rest))
        digits, zone = rest[:count], rest[count:]
    try:
        seconds = datetime.fromisoformat(head + zone).timestamp()
    except (ValueError, OverflowError):
        return 0
    if seconds <= 0 or not _has_zone(head + zone):
        return 0
    return int(seconds) * 1_000_000_000 + int((digits if point else "0")[:9].ljust(9, "0") or 0)


def _has_zone(text: str) -> bool:
    return text.endswith("Z") or "+" in text[10:] or "-" in text[10:]


def instant(text: str) -> float | None:
    """Seconds since 1970 of a timestamp of the engine; None if it is empty or invalid."""
    found = instant_ns(text)
    return found / 1e9 if found else None


class JsonLines:
    """JSON objects, one per line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield from _decoded(line)

    def end(self) -> Iterator[dict[str, Any]]:
        line, self._rest = self._rest, b""
        yield from _decoded(line)


def _decoded(line: bytes) -> Iterator[dict[str, Any]]:
    if not line.strip():
        return
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise BadFrame(f"the engine sent a line that is not JSON: {line[:200]!r}") from None
    if isinstance(found, dict):
        yield found
