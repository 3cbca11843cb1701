"""Linux system calls that ``os`` lacks in some supported Python versions."""

from __future__ import annotations

import ctypes
import os

NEWNS, NEWUTS, NEWUSER = 0x00020000, 0x04000000, 0x10000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
SIGKILL, SIGCHLD, _SIGNALS = 9, 17, 64
_SIG_BLOCK, _SIG_SETMASK = 0, 2
_PDEATHSIG, _CHILD_SUBREAPER = 1, 36

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def become_subreaper() -> None:
    """Make orphaned descendants children of this process instead of init."""
    _check(_libc.prctl(_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def die_with_parent() -> None:
    _check(_libc.prctl(_PDEATHSIG, SIGKILL, 0, 0, 0), "prctl")


def child_signals() -> int:
    """Block SIGCHLD and return a signalfd that is readable when a child has exited."""
    mask = _signal_set(SIGCHLD)
    _check(_libc.sigprocmask(_SIG_BLOCK, mask, None), "sigprocmask")
    found: int = _libc.signalfd(-1, mask, os.O_NONBLOCK | os.O_CLOEXEC)
    _check(found, "signalfd")
    return found


def default_signals() -> None:
    """Reset signal handlers and the signal mask, for the program that is executed next."""
    for number in range(1, _SIGNALS + 1):
        _libc.signal(number, ctypes.c_void_p(0))
    _check(_libc.sigprocmask(_SIG_SETMASK, _signal_set(), None), "sigprocmask")


def _signal_set(*numbers: int) -> ctypes.Array[ctypes.c_char]:
    mask = ctypes.create_string_buffer(128)
    _libc.sigemptyset(mask)
    for number in numbers:
        _libc.sigaddset(mask, number)
    return mask


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def enter(pid: int, *kinds: str) -> None:
    """Enter the namespaces of a process, in this order."""
    opened = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in kinds]
    for number in opened:
        _check(_libc.setns(number, 0), "setns")
        os.close(number)


def set_hostname(name: str) -> None:
    raw = name.encode()
    _check(_libc.sethostname(raw, len(raw)), "sethostname")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    raw = kind.encode() or None, ctypes.c_ulong(flags), options.encode() or None
    _check(_libc.mount(source.encode(), target.encode(), *raw), target)


def pivot_root(folder: str) -> None:
    """Make a mounted folder the root and detach the old root."""
    os.chdir(folder)
    _check(_libc.pivot_root(b".", b"."), folder)
    _check(_libc.umount2(b".", MNT_DETACH), folder)
    os.chdir("/")
