"""Reading a container's log: parts in CRI's format, the oldest first, from an instant or from so many lines before the
end, and further as it grows. Parts are renamed while they are read; an open file stays what it was.
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

_BLOCK_BYTES = 1 << 18
_FOLLOW_S = 0.05
_STREAMS = {b"stdout": OutputStream.STDOUT, b"stderr": OutputStream.STDERR}


@lru_cache(64)
def _second_ns(text: bytes) -> int:
    at = datetime.strptime(text.decode(), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    return int(at.timestamp()) * 1_000_000_000


def parse_line(line: bytes) -> LogRecord | None:
    """A line of the file, without its end; None for what is none."""
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
    """One open file of a log, read from where the last reading ended."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.inode = os.fstat(self.fd).st_ino
        self._rest = b""

    def read(self) -> list[LogRecord]:
        """The next records; none at the end of what there is."""
        found: list[LogRecord] = []
        while not found:
            data = os.read(self.fd, _BLOCK_BYTES)
            if not data:
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            found = [record for record in map(parse_line, lines) if record is not None]
        return found

    def seek_lines_from_end(self, lines: int, matches: Callable[[LogRecord], bool]) -> int:
        """Go to where the last ``lines`` matching lines begin; how many are missing if there are fewer."""
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
        """Whole lines with their offsets, the last one first."""
        position, carry = os.fstat(self.fd).st_size, b""
        while position > 0:
            size = min(_BLOCK_BYTES, position)
            position -= size
            block = os.pread(self.fd, size, position) + carry
            cut = block.find(b"\n") + 1 if position else 0
            carry, body = block[:cut], block[cut:]
            if position and not cut:
                carry, body = block, b""
            at = position + len(block)
            lines = body.split(b"\n")
            at -= len(lines.pop())  # what follows the last end of line is not complete
            for line in reversed(lines):
                at -= len(line) + 1
                yield at, line

    def close(self) -> None:
        os.close(self.fd)


def _paths(folder: Path) -> list[Path]:
    """The parts of a log, the newest first."""
    numbered = sorted(
        (each for each in folder.glob("log.*") if each.suffix[1:].isdigit()), key=lambda each: int(each.suffix[1:])
    )
    return [folder / "log", *numbered]


def _open_parts(folder: Path, options: LogOptions, matches: Callable[[LogRecord], bool]) -> list[_Part]:
    """The parts to read, the oldest first, each at the place where reading begins."""
    parts: list[_Part] = []
    missing = options.tail
    for path in _paths(folder):
        try:
            part = _Part(path)
        except FileNotFoundError:
            continue
        if any(part.inode == each.inode for each in parts):  # it was renamed meanwhile
            part.close()
            continue
        parts.append(part)
        if missing is not None:
            missing = part.seek_lines_from_end(missing, matches)
            if missing == 0:
                break
    parts.reverse()
    return parts


def _successor(folder: Path, inode: int) -> _Part | None:
    """The part that was begun after this one; None when it is the newest."""
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
        wanted = paths[-1]  # it has been deleted: go on with the oldest that is left
    try:
        return _Part(wanted)
    except FileNotFoundError:
        return None


async def read_log(
    folder: Path, options: LogOptions, *, clock: Clock, ended: Callable[[], bool], closing: asyncio.Event
) -> AsyncIterator[tuple[LogRecord, ...]]:
    """Records of the log in ``folder``. Following goes on until ``ended`` and the end of the log, or ``closing``."""

    def matches(record: LogRecord) -> bool:
        return record.at_ns >= options.since_ns and record.stream in options.streams

    parts = _open_parts(folder, options, matches)
    try:
        while not closing.is_set():
            over = ended()  # asked before reading: what was written until then is read below
            while parts:
                while records := parts[0].read():
                    if found := tuple(filter(matches, records)):
                        yield found
                following = parts[1] if len(parts) > 1 else _successor(folder, parts[0].inode)
                if following is None:
                    break
                if len(parts) == 1:
                    parts.append(following)
                parts.pop(0).close()
            if over or not options.follow:
                return
            await clock.sleep(_FOLLOW_S)
            if not parts:
                parts = _open_parts(folder, options, matches)
    finally:
        for part in parts:
            part.close()
