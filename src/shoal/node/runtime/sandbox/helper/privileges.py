"""Rights of a container's program: capabilities, no_new_privs, and a filter of system calls."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
_CAPBSET_DROP, _SET_SECCOMP, _SET_DUMPABLE, _SET_NO_NEW_PRIVS, _FILTER = 24, 22, 4, 38, 2
_KEYCTL, _JOIN_KEYRING = {"x86_64": 250, "aarch64": 219}, 1
_CAPABILITIES = 64
_VERSION_3 = 0x20080522
_INVALID = 22


def _prctl(what: int, *values: int) -> None:
    words = [ctypes.c_ulong(each) for each in (*values, *([0] * (4 - len(values))))]
    if _libc.prctl(what, *words) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "prctl")


def hide_from_others() -> None:
    """Nobody may look into this process or trace it until it runs another program."""
    _prctl(_SET_DUMPABLE, 0)


def forbid_new_privileges() -> None:
    _prctl(_SET_NO_NEW_PRIVS, 1)


def keep_only(capabilities: list[int]) -> None:
    """Remove all other capabilities from the bounding set, so that no program gets them again."""
    for number in range(_CAPABILITIES):
        if number in capabilities:
            continue
        try:
            _prctl(_CAPBSET_DROP, number)
        except OSError as error:
            if error.errno == _INVALID:  # the kernel has no more
                return
            raise


def hold_only(capabilities: list[int]) -> None:
    """Give up all other capabilities, and pass none on to programs beyond those of their user."""
    held = sum(1 << number for number in capabilities)
    header = _VERSION_3.to_bytes(4, "little") + bytes(4)
    low, high = held & 0xFFFFFFFF, held >> 32
    words = (low, low, 0, high, high, 0)  # effective, permitted, inheritable; twice 32 of them
    data = b"".join(each.to_bytes(4, "little") for each in words)
    if _libc.capset(header, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "capset")


def filter_calls(program: bytes) -> None:
    """Install a filter, eight bytes per instruction. Needs no_new_privs or CAP_SYS_ADMIN."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    made = Program(len(program) // 8, program)
    if _libc.prctl(_SET_SECCOMP, ctypes.c_ulong(_FILTER), ctypes.byref(made), ctypes.c_ulong(0), ctypes.c_ulong(0)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "seccomp")


def new_keyring() -> None:
    """A session keyring of its own; without one, the container would share the one of who started the cluster."""
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        _libc.syscall(number, _JOIN_KEYRING, None)
