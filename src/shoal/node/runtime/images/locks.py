"""Locks between everything that uses one folder of images: nodes, clusters' processes and commands."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from shoal.base.clock import Clock
from shoal.base.files import PRIVATE_FILE

_POLL_S = 0.05


@asynccontextmanager
async def locked(path: Path, clock: Clock, *, shared: bool = False) -> AsyncIterator[None]:
    """Hold the lock at ``path``, alone or with others that share it; waits while that cannot be, because of this
    process or another one."""
    number = _opened(path)
    try:
        while not _taken(number, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
            await clock.sleep(_POLL_S)
        yield
    finally:
        os.close(number)


@contextmanager
def locked_now(path: Path) -> Iterator[bool]:
    """Try to hold the lock; False if another one has it."""
    number = _opened(path)
    try:
        yield _taken(number, fcntl.LOCK_EX)
    finally:
        os.close(number)


@contextmanager
def locked_shortly(path: Path) -> Iterator[None]:
    """Hold a lock that is only held for changes of a small file: blocks until it is free."""
    number = _opened(path)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)


def _taken(number: int, kind: int) -> bool:
    try:
        fcntl.flock(number, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
