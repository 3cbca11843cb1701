"""Files with secrets or state: readable by their owner only, replaced in one step, on disk when the call returns.

All such files are written here. A temporary file has a name that cannot be guessed and must not exist before, so that
a user who may write the directory cannot prepare it. After a rename the directory is synced too: without that a power
failure may bring the old file back.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shoal.base.ids import new_token
from shoal.errors import ConfigError

PRIVATE_FILE = 0o600
PRIVATE_DIR = 0o700
_OTHERS = 0o077
_COMPANIONS = ("-wal", "-shm", "-journal")  # of a SQLite file; SQLite gives new ones the mode of the file


def make_private_dirs(path: Path) -> None:
    """Create ``path`` and the directories above it that are missing, all for their owner only (``mkdir(parents=True)``
    would leave those above open to others). Existing ones are left as they are."""
    if not path.parent.exists():
        make_private_dirs(path.parent)
    path.mkdir(mode=PRIVATE_DIR, exist_ok=True)


def own_private_dir(path: Path, shown: str = "") -> None:
    """Create the state directory ``path`` if it is missing and close it to others. Raise ConfigError if it belongs to
    another user, who could replace every file in it, or is meant to be shared. ``shown`` begins the message."""
    shown = shown or f"dir is {str(path)!r}"
    make_private_dirs(path)
    found, link = path.stat(), path.lstat()
    user = os.geteuid()
    if found.st_uid != user or link.st_uid not in (user, 0):
        owner = found.st_uid if found.st_uid != user else link.st_uid
        raise ConfigError(
            f"{shown}: it belongs to user {owner}, and this process runs as user {user}; run as its owner, take it "
            f"over with `chown {user} {path}`, or choose another"
        )
    if found.st_mode & stat.S_ISVTX:
        raise ConfigError(f"{shown}: all users share it (mode {stat.S_IMODE(found.st_mode):04o}); choose one below it")
    if found.st_mode & _OTHERS:
        path.chmod(PRIVATE_DIR)


def write_private(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace ``path`` in one step; only its owner can read it, from the first byte on. Threads and processes may do
    this at the same time: one of them is last. A file that does not matter after a power failure need not be
    ``durable``."""
    with _temporary(path, content, durable=durable) as temporary:
        temporary.replace(path)
    if durable:
        sync_dir(path.parent)


def create_private(path: Path, content: bytes) -> bool:
    """Create ``path`` with all of its content. Return False, and change nothing, if it exists."""
    with _temporary(path, content, durable=True) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
    sync_dir(path.parent)
    return True


def link_to(path: Path, target: Path | str) -> None:
    """Make ``path`` a symbolic link to ``target``, in one step if it is one already."""
    temporary = _beside(path)
    temporary.symlink_to(target)
    try:
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise


def close_to_others(path: Path) -> None:
    """Before SQLite opens ``path``: create it if it is missing, and make it and its companions readable by their owner
    only."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE))
    for each in (path, *(Path(f"{path}{suffix}") for suffix in _COMPANIONS)):
        with suppress(FileNotFoundError):
            if stat.S_IMODE(each.stat().st_mode) & _OTHERS:
                each.chmod(PRIVATE_FILE)


def sync_dir(path: Path) -> None:
    """Wait until the names in the directory ``path`` are on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def holder_of(path: Path) -> int | None:
    """The process that holds the lock at ``path`` now, or None. A file left by a dead process counts as free."""
    import fcntl  # not on every system; the libraries do not lock

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        content = os.read(descriptor, 32).strip()
        return int(content) if content.isdigit() else None
    finally:
        os.close(descriptor)
    return None


@contextmanager
def _temporary(path: Path, content: bytes, *, durable: bool) -> Iterator[Path]:
    """A file beside ``path`` with this content; removed at the end if it is still there."""
    temporary = _beside(path)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(descriptor)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{new_token(8)}")
