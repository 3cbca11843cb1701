"""Writes a container's log: lines in CRI's format in ``log``, rotated to ``log.1`` and up; higher numbers are older."""

from __future__ import annotations

import os
import time


class ContainerLog:
    """Writes the output of a container. Lines longer than ``line_bytes`` are cut into pieces."""

    def __init__(self, max_bytes: int, files: int, line_bytes: int = 16384) -> None:
        self._max_bytes = max_bytes
        self._files = files
        self._line_bytes = line_bytes
        self._open()
        self._rest: dict[str, bytes] = {}  # the incomplete last line, by stream
        self._second, self._prefix = -1, ""

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open("log", flags, 0o640)
        self._size = os.fstat(self._fd).st_size

    def write(self, stream: str, data: bytes) -> None:
        """Add output of a stream. Whole lines and pieces of long lines are written, an incomplete line is kept."""
        head, most = f"{self._now()} {stream} ".encode(), self._line_bytes
        lines = (self._rest.pop(stream, b"") + data).split(b"\n")
        last = lines.pop()
        written: list[bytes] = []
        for line in lines:
            while len(line) > most:
                written += (head, b"P ", line[:most], b"\n")
                line = line[most:]
            written += (head, b"F ", line, b"\n")
        while len(last) >= most:
            written += (head, b"P ", last[:most], b"\n")
            last = last[most:]
        if last:
            self._rest[stream] = last
        if written:
            self._append(b"".join(written))

    def end(self) -> None:
        """The streams have ended: write incomplete lines as pieces."""
        for stream, rest in sorted(self._rest.items()):
            self._append(f"{self._now()} {stream} P ".encode() + rest + b"\n")
        self._rest.clear()

    def _append(self, data: bytes) -> None:
        if self._size and self._size + len(data) > self._max_bytes:
            self._rotate()
        self._size += len(data)
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except OSError:  # the disk is full: the container goes on, its log has a gap
                return

    def _rotate(self) -> None:
        os.close(self._fd)
        names = ["log", *(f"log.{number}" for number in range(1, self._files))]
        for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
            if os.path.exists(newer):
                os.replace(newer, older)
        if len(names) == 1:
            os.unlink("log")
        self._open()

    def _now(self) -> str:
        second, nano = divmod(time.time_ns(), 1_000_000_000)
        if second != self._second:
            self._second, self._prefix = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._prefix}.{nano:09d}Z"
