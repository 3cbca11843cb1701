"""The default filter of system calls for containers, as a program of the kernel's packet filter (BPF); pure.

It refuses what the default profiles of other runtimes refuse: calls that reach the machine rather than the container
(kernel modules, clocks, swap, keyrings, tracing by bpf and perf), new user namespaces, and calls that are newer than
the last one known here. Refused calls fail with EPERM, unknown ones and ``clone3`` with ENOSYS, so that programs use
what they used before. Calls through another architecture's table end the program.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF: ld, jeq, jge, jset, ret
_ALLOW, _FAIL, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENT_AT = 0, 4, 16
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NEW_TIME = 0x80
_VSOCK = 40
_OLD_PERSONALITIES = 0xFFFFFFFF ^ 0x0020008
_LAST_KNOWN = 467  # open_tree_attr
_X32 = 0x40000000

# Calls without a place in a container, by their numbers on x86_64 and aarch64; -1: the architecture has no such call
_REFUSED: Mapping[str, tuple[int, int]] = {
    "acct": (163, 89), "add_key": (248, 217), "bpf": (321, 280), "clock_adjtime": (305, 266),
    "clock_settime": (227, 112), "create_module": (174, -1), "delete_module": (176, 106), "finit_module": (313, 273),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433),
    "get_kernel_syms": (177, -1), "init_module": (175, 105), "ioperm": (173, -1), "iopl": (172, -1),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_uring_setup": (425, 425),
    "kexec_file_load": (320, 294), "kexec_load": (246, 104), "keyctl": (250, 219), "lookup_dcookie": (212, 18),
    "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429), "move_pages": (279, 239),
    "name_to_handle_at": (303, 264), "nfsservctl": (180, 42), "open_by_handle_at": (304, 265),
    "open_tree": (428, 428), "open_tree_attr": (467, 467), "perf_event_open": (298, 241), "pivot_root": (155, 41),
    "query_module": (178, -1), "quotactl": (179, 60), "quotactl_fd": (443, 443), "reboot": (169, 142),
    "request_key": (249, 218), "setns": (308, 268), "settimeofday": (164, 170), "swapoff": (168, 225),
    "swapon": (167, 224), "_sysctl": (156, -1), "sysfs": (139, -1), "syslog": (103, 116), "umount2": (166, 39),
    "userfaultfd": (323, 282), "uselib": (134, -1), "ustat": (136, -1), "vhangup": (153, 58),
}  # fmt: skip
# Calls of the table that a capability of the container allows
_WITH_CAPABILITY: Mapping[str, tuple[str, ...]] = {
    "SYS_ADMIN": (
        "bpf", "fsconfig", "fsmount", "fsopen", "fspick", "lookup_dcookie", "mount", "mount_setattr", "move_mount",
        "open_tree", "open_tree_attr", "perf_event_open", "pivot_root", "quotactl", "quotactl_fd", "setns", "syslog",
        "umount2",
    ),
    "SYSLOG": ("syslog",),
    "BPF": ("bpf",),
    "PERFMON": ("perf_event_open",),
    "DAC_READ_SEARCH": ("open_by_handle_at", "name_to_handle_at"),
    "SYS_BOOT": ("reboot", "kexec_load", "kexec_file_load"),
    "SYS_TIME": ("settimeofday", "clock_settime", "clock_adjtime"),
    "SYS_PACCT": ("acct",),
    "SYS_TTY_CONFIG": ("vhangup",),
    "SYS_NICE": ("move_pages",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Architecture:
    """How a machine numbers its calls."""

    column: int  # of ``_REFUSED``
    audit: int  # as the filter sees it
    unshare: int
    clone: int
    clone3: int
    socket: int
    personality: int


ARCHITECTURES: Mapping[str, Architecture] = {
    "x86_64": Architecture(0, 0xC000003E, 272, 56, 435, 41, 135),
    "aarch64": Architecture(1, 0xC00000B7, 97, 220, 435, 198, 92),
}


def default_filter(machine: str, capabilities: frozenset[str] = frozenset()) -> bytes:
    """The filter for a container with these capabilities, or empty on a machine whose calls are not known here."""
    kind = ARCHITECTURES.get(machine)
    if kind is None:
        return b""
    allowed = {call for name, calls in _WITH_CAPABILITY.items() if name in capabilities for call in calls}
    refused = sorted(numbers[kind.column] for call, numbers in _REFUSED.items() if call not in allowed)
    rules: list[bytes] = [
        _statement(_LOAD, _ARCHITECTURE_AT),
        _jump(_EQUAL, kind.audit, 1, 0),
        _statement(_RETURN, _KILL),
        _statement(_LOAD, _NUMBER_AT),
        *_when(_AT_LEAST, _LAST_KNOWN + 1, _FAIL | _ENOSYS),  # those of x32 are above it too
    ]
    for number in refused:
        if number >= 0:
            rules += _when(_EQUAL, number, _FAIL | _EPERM)
    if "SYS_ADMIN" not in capabilities:
        rules += _when(_EQUAL, kind.clone3, _FAIL | _ENOSYS)  # its flags are in memory, where no filter can look
        rules += _with_argument(kind.clone, _when(_ANY_OF, _NEW_NAMESPACES, _FAIL | _EPERM))
        rules += _with_argument(kind.unshare, _when(_ANY_OF, _NEW_NAMESPACES | _NEW_TIME, _FAIL | _EPERM))
    rules += _with_argument(kind.socket, _when(_EQUAL, _VSOCK, _FAIL | _EAFNOSUPPORT))
    rules += _with_argument(kind.personality, _personalities())
    return b"".join([*rules, _statement(_RETURN, _ALLOW)])


def _personalities() -> list[bytes]:
    """Ask for the personality, be a usual program, or one with a usual number for the kernel's version."""
    return [
        _jump(_EQUAL, 0xFFFFFFFF, 2, 0),
        *_when(_ANY_OF, _OLD_PERSONALITIES, _FAIL | _EPERM),
    ]


def _statement(code: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, 0, 0, value)


def _jump(code: int, value: int, yes: int, no: int) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _when(code: int, value: int, result: int) -> list[bytes]:
    """If the loaded word compares, end with this result."""
    return [_jump(code, value, 0, 1), _statement(_RETURN, result)]


def _with_argument(number: int, rules: list[bytes]) -> list[bytes]:
    """Rules on the first argument of one call; the number is loaded again after them."""
    inner = [_statement(_LOAD, _ARGUMENT_AT), *rules, _statement(_LOAD, _NUMBER_AT)]
    return [_jump(_EQUAL, number, 0, len(inner)), *inner]
