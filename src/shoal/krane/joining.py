"""The join file of a running agent: read again only when the file was replaced, so that its token can be rotated."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.base.logs import get_logger
from shoal.krane.config import JoinFile, read_join_file

log = get_logger("krane")


class JoinFileReader:
    """Called for the join file as it is now. While it cannot be read, what it said last counts."""

    def __init__(self, path: Path) -> None:
        """``ConfigError`` when there is nothing to begin with."""
        self._path = path
        self._last = read_join_file(path)
        self._seen: tuple[int, ...] = ()  # of what, is found out before it is read, in case it is replaced meanwhile
        self()

    def __call__(self) -> JoinFile:
        try:
            found = _identity(self._path)
            if found != self._seen:
                self._last = read_join_file(self._path)
                self._seen = found
        except Exception as error:
            log.warning(
                "the join file cannot be read; keeping its last contents", path=str(self._path), reason=str(error)
            )
        return self._last


def _identity(path: Path) -> tuple[int, ...]:
    """Of the content, near enough: a file that is written again has another."""
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
