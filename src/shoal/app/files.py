"""The directory of a process: private, and locked while a process owns it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from shoal.base.files import PRIVATE_FILE, holder_of, own_private_dir
from shoal.errors import ConfigError


def make_private_dir(path: Path) -> None:
    """Create the state directory ``path``, and what is missing above it, for its owner only; an existing one is closed
    to others. Raise ConfigError if it cannot be made or belongs to another user."""
    try:
        own_private_dir(path)
    except OSError as error:
        raise ConfigError(f"dir is {str(path)!r}: {error.strerror}; choose another with --dir") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"dir is {str(path)!r}: not writable; choose another with --dir")


class DirectoryLock:
    """Held by the one process that owns a directory; the system releases it however the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> DirectoryLock:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            pid = holder_of(self._path)
            raise ConfigError(
                f"dir is {str(self._path.parent)!r}: already in use by process {pid or 'unknown'}; "
                f"stop it with `shoal down --dir {self._path.parent}`, or choose another directory"
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The file stays: removing it would let two processes lock two files of one name.
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._descriptor = -1
