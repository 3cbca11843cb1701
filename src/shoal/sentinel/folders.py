"""Temporary folders of gateways, for sockets: removed at the end, and, after a gateway that was killed, by others.

Whoever has a folder holds its lock.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX, _LOCKED = "shoal-gw-", "locked"
_LETTERS = 8  # that mkdtemp adds
_SHORT = Path("/tmp")  # noqa: S108  (only for a folder of our own in it)


@contextmanager
def gateway_folder(room: int) -> Iterator[Path]:
    """A folder whose path has at most ``room`` bytes, while the block runs."""
    place = Path(tempfile.gettempdir())
    if len(os.fsencode(place)) + len("/") + len(_PREFIX) + _LETTERS > room:
        place = _SHORT
    remove_left_folders((place,))
    made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    held = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        (made / _LOCKED).touch()
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(held)


def remove_left_folders(places: tuple[Path, ...] | None = None) -> None:
    """Remove folders of gateways that have ended without removing them."""
    for place in dict.fromkeys(places or (Path(tempfile.gettempdir()), _SHORT)):
        for folder in place.glob(f"{_PREFIX}*"):
            with suppress(OSError):  # of another user, or removed meanwhile
                if folder.lstat().st_uid == os.getuid() and not _is_held(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _is_held(folder: Path) -> bool:
    looked = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if not (folder / _LOCKED).exists():
            return True  # its gateway is about to lock it
        fcntl.flock(looked, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(looked)
    return False
