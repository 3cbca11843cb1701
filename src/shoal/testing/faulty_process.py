"""A ``shoal`` process with a wrong clock and a disk that fails, both decided by the test while the process runs.

    faults = ProcessFaults(folder / "faults")
    server = start_server_process(folder / "state", "--port", "0", program=faults.program)
    faults.skew_s = -7200.0       # its clock is two hours behind from now on
    faults.fail_fsync()           # every fsync fails with EIO soon (``fsync_fails``), until the process ends

The test and the process share a file of 16 bytes. A failing fsync is a filter of the kernel (seccomp) for all threads
of the process, so the error is SQLite's own. It needs Linux on x86-64 or ARM 64.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import platform
import struct
import sys
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path

from shoal.base.clock import RealClock
from shoal.testing.tally import TALLY

_SIZE = 16  # the skew as a double, then a byte about fsync
_ASKED, _FAILS = 1, 2
_POLL_S = 0.01
_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ERRNO, _ALLOW = 0x00050000, 0x7FFF0000
_CALLS = {"x86_64": (74, 75, 317), "aarch64": (82, 83, 277)}  # fsync, fdatasync, seccomp


class ProcessFaults:
    """The test's side. One of them may be used for a process and those that follow it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.heal()

    @property
    def program(self) -> tuple[str, ...]:
        """What to run with Python in the place of ``-m shoal``."""
        return ("-m", "shoal.testing.faulty_process", str(self._path))

    @property
    def skew_s(self) -> float:
        skew_s: float = struct.unpack_from("d", self._path.read_bytes())[0]
        return skew_s

    @skew_s.setter
    def skew_s(self, value: float) -> None:
        TALLY.faults += 1
        self._write(0, struct.pack("d", value))

    def fail_fsync(self) -> None:
        TALLY.faults += 1
        self._write(8, bytes((_ASKED,)))

    @property
    def fsync_fails(self) -> bool:
        """Whether the process has begun to fail."""
        return self._path.read_bytes()[8] == _FAILS

    def heal(self) -> None:
        """The right time at once, and a disk that works for the next process."""
        if not self._path.exists():
            self._path.write_bytes(bytes(_SIZE))
        self._write(0, bytes(_SIZE))

    def _write(self, at: int, data: bytes) -> None:
        with self._path.open("r+b") as file:  # in place: the process has mapped it
            file.seek(at)
            file.write(data)


def _skew(shared: mmap.mmap) -> None:
    wall_s, now = RealClock.wall_s, RealClock.now

    def skew_s() -> float:
        found: float = struct.unpack_from("d", shared)[0]
        return found

    def wrong_wall_s(self: RealClock) -> float:
        return wall_s(self) + skew_s()

    def wrong_now(self: RealClock) -> datetime:
        return now(self) + timedelta(seconds=skew_s())

    for name, wrong in (("wall_s", wrong_wall_s), ("now", wrong_now)):
        setattr(RealClock, name, wrong)


def _fail_fsync_when_told(shared: mmap.mmap) -> None:
    while shared[8] != _ASKED:
        time.sleep(_POLL_S)
    _refuse_fsync()
    shared[8] = _FAILS


def _refuse_fsync() -> None:
    """From now on ``fsync`` and ``fdatasync`` of all threads of this process fail with EIO."""
    fsync, fdatasync, seccomp = _CALLS[platform.machine()]

    def step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
        return struct.pack("HBBI", code, then, otherwise, value)

    steps = (
        step(_LOAD, 0),  # the number of the call
        step(_JUMP_IF_EQUAL, fsync, 1, 0),
        step(_JUMP_IF_EQUAL, fdatasync, 0, 1),
        step(_RETURN, _ERRNO | errno.EIO),
        step(_RETURN, _ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(steps))
    given = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.syscall(seccomp, _SET_MODE_FILTER, _ALL_THREADS, given):
        raise OSError(ctypes.get_errno(), "the kernel does not take the filter")


def main() -> int:
    path, *arguments = sys.argv[1:]
    with Path(path).open("r+b") as file:
        shared = mmap.mmap(file.fileno(), _SIZE)
    _skew(shared)
    threading.Thread(target=_fail_fsync_when_told, args=(shared,), name="faults", daemon=True).start()

    from shoal.app.main import main as shoal

    return shoal(arguments)


if __name__ == "__main__":
    sys.exit(main())
