"""Disks that are full, and files as a power cut leaves them.

with small_disk(folder, size_mb=8) as disk:      # a file system of its own; raises CannotMount if it may not
    ...                                          # use disk.path until writes are refused
    disk.resize(64)                              # space again

tear(path, random)                               # half of a write that was never acknowledged, at the end of a file

An fsync that fails is a fault of a process: ``shoal.testing.faulty_process``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from shoal.testing.tally import TALLY

_MOST_BYTES = 8192  # two pages of SQLite


class CannotMount(Exception):
    """This user may not mount a file system here."""


@dataclass(frozen=True, slots=True)
class SmallDisk:
    path: Path

    def resize(self, size_mb: int) -> None:
        """Make the file system larger or smaller, with everything that is on it."""
        subprocess.run(["mount", "-o", f"remount,size={size_mb}m", str(self.path)], check=True)


@contextmanager
def small_disk(folder: Path, *, size_mb: int) -> Iterator[SmallDisk]:
    """A file system in memory, mounted at ``folder``, which is made if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise CannotMount("the program mount is missing") from error
    if done.returncode:
        raise CannotMount(done.stderr.strip())
    TALLY.faults += 1
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def tear(path: Path, random: Random) -> int:
    """Append what a power cut may leave of a write that was on its way: repeated older bytes, random bytes, or zeros.

    Call it while the owner of the file does not run. Returns the number of bytes.
    """
    TALLY.faults += 1
    size = random.randint(1, _MOST_BYTES)
    content = path.read_bytes()
    match random.randrange(3):
        case 0 if content:
            at = random.randrange(len(content))
            left = content[at : at + size]
        case 1:
            left = random.randbytes(size)
        case _:
            left = bytes(size)
    with path.open("ab") as file:
        file.write(left)
    return len(left)
