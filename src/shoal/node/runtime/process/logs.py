"""Reads a container's log, in CRI's format: from an instant on or the last lines, and following it as it grows.

The shim rotates the files while they are read. A file that is open keeps its content when it is renamed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from shoal.base.clock import Clock
from shoal.node.runtime.model import LogOptions, LogRecord, OutputStream

_FOLLOW_S = 0.05
_STREAMS = {b"stdout": OutputStream.STDOUT, b"stderr": OutputStream.STDERR}


@lru_cache(64)
def _second_ns(text: bytes) -> int:
    at = datetime.strptime(text.decode(), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    return int(at.timestamp()) * 1_000_000_000


def parse_line(line: bytes) -> LogRecord | None:
    """The record of a line without its newline; None if it is not in CRI's format."""
    parts = line.split(b" ", 3)
    if len(parts) < 4 or parts[1] not in _STREAMS:
        return None
    second, _, fraction = parts[0].rstrip(b"Z").partition(b".")
    try:
        at_ns = _second_ns(second) + int(fraction.ljust(9, b"0")[:9])
    except ValueError:
        return None
    partial = parts[2].startswith(b"P")
    return LogRecord(at_ns, _STREAMS[parts[1]], parts[3] if partial else parts[3] + b"\n", partial)


class _Part:
    """One open file of a log. ``read`` continues where the last one ended."""

    def __init__(self, path: Path, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.inode = os.fstat(self.fd).st_ino
        self._rest = b""

    def read(self) -> list[LogRecord]:
        """The next records; empty at the end of the file."""
        found: list[LogRecord] = []
        while not found:
            data = os.read(self.fd, self._block_bytes)
            if not data:
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            found = [record for record in map(parse_line, lines) if record is not None]
        return found

    def seek_lines_from_end(self, lines: int, matches: Callable[[LogRecord], bool]) -> int:
        """Seek to the start of the last ``lines`` matching lines. Return how many lines are missing."""
        begins = os.fstat(self.fd).st_size
        first = True
        for offset, line in self._backwards():
            record = parse_line(line)
            if record is None or not matches(record):
                continue
            if first or not record.partial:  # pieces belong to the line that ends after them
                if lines == 0:
                    os.lseek(self.fd, begins, os.SEEK_SET)
                    return 0
                lines -= 1
            begins, first = offset, False
        os.lseek(self.fd, begins if lines == 0 else 0, os.SEEK_SET)
        return lines

    def _backwards(self) -> Iterator[tuple[int, bytes]]:
        """Complete lines with their offsets, last line first."""
        position, carry = os.fstat(self.fd).st_size, b""
        while position > 0:
            size = min(self._block_bytes, position)
            position -= size
            block = os.pread(self.fd, size, position) + carry
            cut = block.find(b"\n") + 1 if position else 0
            carry, body = block[:cut], block[cut:]
            if position and not cut:
                carry, body = block, b""
            at = position + len(block)
            lines = body.split(b"\n")
            at -= len(lines.pop())  # an incomplete line
            for line in reversed(lines):
                at -= len(line) + 1
                yield at, line

    def close(self) -> None:
        os.close(self.fd)


def _paths(folder: Path) -> list[Path]:
    """The files of a log, newest first."""
    numbered = sorted(
        (each for each in folder.glob("log.*") if each.suffix[1:].isdigit()), key=lambda each: int(each.suffix[1:])
    )
    return [folder / "log", *numbered]


def _open_parts(
    folder: Path, options: LogOptions, matches: Callable[[LogRecord], bool], block_bytes: int
) -> list[_Part]:
    """The files to read, oldest first, each at the position where reading starts."""
    parts: list[_Part] = []
    missing = options.tail
    for path in _paths(folder):
        try:
            part = _Part(path, block_bytes)
        except FileNotFoundError:
            continue
        if any(part.inode == each.inode for each in parts):  # renamed by a rotation in between
            part.close()
            continue
        parts.append(part)
        if missing is not None:
            missing = part.seek_lines_from_end(missing, matches)
            if missing == 0:
                break
    parts.reverse()
    return parts


def _successor(folder: Path, inode: int, block_bytes: int) -> _Part | None:
    """The file that follows this one in time; None if this is the newest."""
    paths = _paths(folder)
    inodes: list[int] = []
    for path in paths:
        try:
            inodes.append(path.stat().st_ino)
        except FileNotFoundError:
            inodes.append(-1)
    if inode in inodes:
        position = inodes.index(inode)
        if position == 0:
            return None
        wanted = paths[position - 1]
    else:
        wanted = paths[-1]  # it was deleted by rotation: continue with the oldest file
    try:
        return _Part(wanted, block_bytes)
    except FileNotFoundError:
        return None


async def read_log(
    folder: Path,
    options: LogOptions,
    *,
    clock: Clock,
    ended: Callable[[], bool],
    closing: asyncio.Event,
    block_bytes: int = 1 << 18,
) -> AsyncIterator[tuple[LogRecord, ...]]:
    """Records of the log in ``folder``. Following stops at the end of the log once ``ended``, or on ``closing``."""

    def matches(record: LogRecord) -> bool:
        return record.at_ns >= options.since_ns and record.stream in options.streams

    parts = _open_parts(folder, options, matches, block_bytes)
    try:
        while not closing.is_set():
            over = ended()  # before reading, so that everything written until then is read
            while parts:
                while records := parts[0].read():
                    if found := tuple(filter(matches, records)):
                        yield found
                following = parts[1] if len(parts) > 1 else _successor(folder, parts[0].inode, block_bytes)
                if following is None:
                    break
                if len(parts) == 1:
                    parts.append(following)
                parts.pop(0).close()
            if over or not options.follow:
                return
            await clock.sleep(_FOLLOW_S)
            if not parts:
                parts = _open_parts(folder, options, matches, block_bytes)
    finally:
        for part in parts:
            part.close()
