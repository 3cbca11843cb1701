"""The log on disk: a bounded buffer, a thread that writes it, and files that are rotated by size and removed by
number and age.

The server never waits for the disk here. When the buffer is full, or the disk is, events are lost, counted and
logged from time to time; requests go on.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.errors import ConfigError

FLUSH_S = 0.1
MAX_RECORDS = 10_000
MAX_BYTES = 32 * 1024 * 1024
_BATCH = 500  # lines per write: the event loop runs in between
_REPORT_S = 60.0
_MODE = 0o600
_STOP_S = 5.0

_log = get_logger("audit")


class Sized(Protocol):
    @property
    def size(self) -> int: ...


T = TypeVar("T", bound=Sized)


class LogWriter(Generic[T]):
    """Writes records, encoded by ``encode``, to ``path``. ``put`` is for one thread, the event loop's."""

    def __init__(
        self,
        path: Path,
        encode: Callable[[T], bytes],
        *,
        clock: Clock,
        max_bytes: int,
        max_backups: int,
        max_age_days: int,
    ) -> None:
        self.path = path
        self.written = 0
        self.overflowed = 0  # lost because the buffer was full
        self.failed = 0  # lost because they could not be written
        self._encode = encode
        self._clock = clock
        self._max_bytes = max_bytes
        self._max_backups = max_backups
        self._max_age = timedelta(days=max_age_days)
        self._queue: deque[T] = deque()
        self._taken = 0  # bytes that came in, written by the loop's thread alone
        self._done = 0  # bytes that went out, written by the writer's alone
        self._file = -1
        self._size = 0
        self._reported_s = -_REPORT_S
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit-log", daemon=True)

    def start(self) -> None:
        """Open the file, so that a bad path fails at startup, and start the writer thread."""
        try:
            self._open()
        except OSError as error:
            raise ConfigError(f"audit_log is {str(self.path)!r}: {error.strerror}; use a writable path") from None
        self._thread.start()

    def put(self, record: T) -> None:
        size = record.size
        if len(self._queue) >= MAX_RECORDS or self._taken - self._done + size > MAX_BYTES:
            self.overflowed += 1
            return
        self._taken += size
        self._queue.append(record)

    def stop(self) -> None:
        """Write the remaining events and close the file."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_S)

    # -- the writer's thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.wait(FLUSH_S):
            self.flush()
        self.flush()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def flush(self) -> None:
        """Write the buffered events; called by the writer's thread only."""
        while self._queue:
            lines: list[bytes] = []
            size = 0
            while self._queue and len(lines) < _BATCH:
                record = self._queue.popleft()
                size += record.size
                try:
                    lines.append(self._encode(record))
                except Exception as error:  # one bad record must not stop the log
                    self.failed += 1
                    self._report(error)
            try:
                self._write(b"".join(lines))
                self.written += len(lines)
            except OSError as error:
                self.failed += len(lines)
                self._report(error)
            self._done += size

    def _write(self, data: bytes) -> None:
        if self._file < 0:
            self._open()
        if self._size and self._size + len(data) > self._max_bytes:
            self._rotate()
        start = self._size
        try:
            while data:
                count = os.write(self._file, data)
                self._size += count
                data = data[count:]
        except OSError:
            # the disk is full: remove the partial line
            os.ftruncate(self._file, start)
            self._size = start
            raise

    def _open(self) -> None:
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        self._size = os.fstat(self._file).st_size

    def _rotate(self) -> None:
        os.close(self._file)
        self._file = -1
        stamp = self._clock.now().strftime("%Y-%m-%dT%H-%M-%S.%f")
        os.rename(self.path, self.path.with_name(f"{self.path.stem}-{stamp}{self.path.suffix}"))
        self._prune()
        self._open()

    def _prune(self) -> None:
        """Remove old files: those over the number, those over the age."""
        backups = sorted(self.path.parent.glob(f"{self.path.stem}-????-??-??T*{self.path.suffix}"), reverse=True)
        doomed = set(backups[self._max_backups :]) if self._max_backups else set()
        if self._max_age:
            oldest = (self._clock.now() - self._max_age).timestamp()
            doomed |= {path for path in backups if path.stat().st_mtime < oldest}
        for path in doomed:
            path.unlink(missing_ok=True)

    def _report(self, error: Exception) -> None:
        now = self._clock.monotonic()
        if now - self._reported_s >= _REPORT_S:
            self._reported_s = now
            _log.error("audit events lost", error=error, path=str(self.path), lost=self.failed)
