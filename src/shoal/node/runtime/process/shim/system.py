"""Linux system calls that ``os`` lacks in some supported Python versions."""

from __future__ import annotations

import ctypes
import os
import sys

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE = 1, 32, 4096, 16384, 1 << 18, 1 << 19
MNT_DETACH = 2
SIGKILL, SIGCHLD, _SIGNALS = 9, 17, 64
_SIG_BLOCK, _SIG_SETMASK = 0, 2
_PDEATHSIG, _SET_DUMPABLE, _CAPBSET_DROP, _CHILD_SUBREAPER = 1, 4, 24, 36
_CAPABILITY_VERSION = 0x20080522  # the third: sets of 64 bits
# Capabilities with which root could undo what hides files from it: read by handle, make or use devices, load code into
# the kernel, trace processes, mount. The numbers are the kernel's.
_UNDOING = (2, 16, 17, 19, 21, 22, 27, 38, 39, 40)
_OPEN_TREE, _MOVE_MOUNT, _OPENAT2 = 428, 429, 437
_NO_MAGICLINKS, _BENEATH, _RACED = 2, 8, 11  # of openat2: resolve flags; the error if a folder was moved meanwhile
_TRIES = 100
_FSOPEN, _FSCONFIG, _FSMOUNT, _MOUNT_SETATTR = 430, 431, 432, 442
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC, ATTR_IDMAP = 1, 2, 4, 8, 0x00100000
_OPEN_TREE_CLONE, _AT_EMPTY_PATH, _AT_RECURSIVE, _MOVE_EMPTY_PATH, _AT_FDCWD = 1, 0x1000, 0x8000, 4, -100
_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446
_MAKE_CHAR, _MAKE_BLOCK, _REFER = 1 << 6, 1 << 11, 1 << 13
_PATH_BENEATH = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def become_subreaper(on: bool = True) -> None:
    """Make orphaned descendants children of this process instead of init; or no longer."""
    _check(_libc.prctl(_CHILD_SUBREAPER, int(on), 0, 0, 0), "prctl")


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
    opened = [open_namespace(pid, kind) for kind in kinds]
    for number in opened:
        join(number)
        os.close(number)


def open_namespace(pid: int | str, kind: str) -> int:
    return os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


def join(number: int) -> None:
    """Enter the namespace of an open file."""
    _check(_libc.setns(number, 0), "setns")


def set_hostname(name: str) -> None:
    raw = name.encode()
    _check(_libc.sethostname(raw, len(raw)), "sethostname")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    raw = kind.encode() or None, ctypes.c_ulong(flags), options.encode() or None
    _check(_libc.mount(source.encode(), target.encode(), *raw), target)


def open_beneath(folder: int, path: str, flags: int) -> int:
    """Open a path below an open folder. Symbolic links are followed only as long as they stay below it: otherwise it
    raises OSError EXDEV, whatever is changed there meanwhile."""
    how = b"".join(each.to_bytes(8, sys.byteorder) for each in (flags | os.O_CLOEXEC, 0, _NO_MAGICLINKS | _BENEATH))
    found = -1
    for _ in range(_TRIES):
        found = _libc.syscall(_OPENAT2, folder, path.encode(), how, ctypes.c_size_t(len(how)))
        if found >= 0 or ctypes.get_errno() != _RACED:
            break
    _check(found, path)
    return found


def take_mount(number: int) -> int:
    """A file for a copy of the mounts at an open file or folder, which is mounted nowhere yet."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH | _AT_RECURSIVE
    found: int = _libc.syscall(_OPEN_TREE, number, b"", flags)
    _check(found, "open_tree")
    return found


def place_mount(number: int, target: str) -> None:
    """Mount what ``take_mount`` has taken; it can be placed once."""
    _check(_libc.syscall(_MOVE_MOUNT, number, b"", _AT_FDCWD, target.encode(), _MOVE_EMPTY_PATH), target)


def new_mount(kind: str, options: dict[str, str] | None = None, attributes: int = 0) -> int:
    """A file for a new file system, which is mounted nowhere yet; ``attributes`` are those of ``change_mount``."""
    opened = _libc.syscall(_FSOPEN, kind.encode(), 1)
    _check(opened, kind)
    try:
        for name, value in (options or {}).items():
            if value:
                _check(_libc.syscall(_FSCONFIG, opened, 1, name.encode(), value.encode(), 0), f"{kind}: {name}={value}")
            else:
                _check(_libc.syscall(_FSCONFIG, opened, 0, name.encode(), None, 0), f"{kind}: {name}")
        _check(_libc.syscall(_FSCONFIG, opened, 6, None, None, 0), kind)
        found: int = _libc.syscall(_FSMOUNT, opened, 1, attributes)
        _check(found, kind)
        return found
    finally:
        os.close(opened)


def change_mount(number: int, attributes: int, *, users: int = -1, whole: bool = True) -> None:
    """Set attributes of a mount by its file, with those below it if ``whole``. ``users``: a user namespace; the ids of
    files are then seen as ids of that namespace."""
    if users >= 0:
        attributes |= ATTR_IDMAP
    words = (attributes, 0, 0, max(users, 0))
    raw = b"".join(each.to_bytes(8, sys.byteorder) for each in words)
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if whole else 0)
    _check(_libc.syscall(_MOUNT_SETATTR, number, b"", flags, raw, ctypes.c_size_t(len(raw))), "mount_setattr")


def pivot_root(folder: str) -> None:
    """Make a mounted folder the root and detach the old root."""
    os.chdir(folder)
    _check(_libc.pivot_root(b".", b"."), folder)
    _check(_libc.umount2(b".", MNT_DETACH), folder)
    os.chdir("/")


def drop_capabilities() -> None:
    """Take the capabilities that would undo the isolation from the programs that are executed next."""
    for number in _UNDOING:
        if _libc.prctl(_CAPBSET_DROP, number, 0, 0, 0) < 0 and ctypes.get_errno() != 22:  # unknown to this kernel
            _check(-1, "prctl")


def keep_rights_of_exec() -> None:
    """Give up the capabilities that executing a program would take from this process, and let it look into its own
    ``/proc`` again, as a program that was executed can."""
    permitted, bounding, ambient = _capabilities("CapPrm"), _capabilities("CapBnd"), _capabilities("CapAmb")
    kept = permitted & bounding if os.geteuid() == 0 else permitted & ambient
    inherited = _capabilities("CapInh")
    header = b"".join(each.to_bytes(4, sys.byteorder) for each in (_CAPABILITY_VERSION, 0))
    words = (each >> shift & 0xFFFFFFFF for shift in (0, 32) for each in (kept, kept, inherited))
    _check(_libc.capset(header, b"".join(word.to_bytes(4, sys.byteorder) for word in words)), "capset")
    _check(_libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0), "prctl")


def _capabilities(name: str) -> int:
    """A set of capabilities of this process, by its name in ``/proc``."""
    with open("/proc/self/status", "rb") as status:
        return next((int(line.split()[1], 16) for line in status if line.startswith(name.encode() + b":")), 0)


def has_landlock() -> bool:
    """Whether the kernel has Landlock, of a version that can allow renames between folders."""
    version: int = _libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    return version >= 2


def enter_domain() -> None:
    """Put this process and its children into a Landlock domain of their own, if the kernel has Landlock. From then on
    they cannot look into processes outside it (``/proc/PID/root``, ``environ``, ``mem``), mount or unmount, or make
    devices; nothing else changes."""
    if not has_landlock():
        return
    handled = ctypes.c_uint64(_MAKE_CHAR | _MAKE_BLOCK | _REFER)
    rules = _libc.syscall(_LANDLOCK_CREATE, ctypes.byref(handled), ctypes.c_size_t(8), 0)
    _check(rules, "landlock_create_ruleset")
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    allowed = _REFER.to_bytes(8, sys.byteorder) + root.to_bytes(4, sys.byteorder)
    _check(_libc.syscall(_LANDLOCK_ADD_RULE, rules, _PATH_BENEATH, allowed, 0), "landlock_add_rule")
    _check(_libc.syscall(_LANDLOCK_RESTRICT, rules, 0), "landlock_restrict_self")
    os.close(root)
    os.close(rules)
