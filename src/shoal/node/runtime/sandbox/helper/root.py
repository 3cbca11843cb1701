"""Builds the root of a container from what was gathered, in a mount namespace of its own.

Mounts that the kernel only allows while it sees the machine's ``/proc`` and ``/sys`` are made first. Then the new root
becomes the root, and the rest is placed: links in an image lead nowhere else from there.
"""

from __future__ import annotations

import os

from shoal.node.runtime.process.shim import mounts, system

from . import copies, files
from .sources import Sources, Taken

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_USUAL = system.ATTR_NOSUID | system.ATTR_NODEV | system.ATTR_NOEXEC
_READ_ONLY = ("/proc/sys", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sysrq-trigger")
_EMPTY_FILES = ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/latency_stats", "/proc/sched_debug")
_EMPTY_FOLDERS = ("/proc/acpi", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap")
_LINKS = (
    ("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"), ("ptmx", "pts/ptmx"),
)  # fmt: skip
_OPEN_FOLDERS = (("tmp", 0o1777), ("run", 0o755), ("var", 0o755), ("var/tmp", 0o1777), ("root", 0o755))
_NO_OVERLAY = (1, 19, 22, 38, 95)  # EPERM, ENODEV, EINVAL, ENOSYS, EOPNOTSUPP
_MOST_OPTION = 255  # bytes of one option of a new mount
_MS_NODEV = 4
_READ_ONLY_FILE_SYSTEM = (30, 13, 1)  # EROFS, EACCES, EPERM


def build(config: dict[str, Any], found: Sources) -> None:
    """Make the container's root and enter it."""
    own_network = "net" in config["kinds"]
    proc = found.host_proc if found.host_proc >= 0 else system.new_mount("proc", None, _USUAL)
    sys = found.host_sys if not own_network else system.new_mount("sysfs", None, _USUAL | system.ATTR_RDONLY)
    terminals = system.new_mount("devpts", {"newinstance": "", "ptmxmode": "0666", "mode": "0620"}, 2 | 8)
    queues = _queues() if "ipc" in config["kinds"] else -1
    etc = _layered_etc(found) if found.etc >= 0 else -1
    top = _layered(config, found) if found.layers else found.writable
    system.place_mount(top, "/new")
    system.pivot_root("/new")
    for name, mode in _OPEN_FOLDERS:
        _make_folder(name, mode)
    for path, target in config["links"]:
        _link(path, target)
    if etc >= 0:
        os.makedirs("/etc", exist_ok=True)
        system.place_mount(etc, "/etc")
    for each in found.system:
        _place(each)
    for number, path in ((proc, "/proc"), (sys, "/sys")):
        os.makedirs(path, exist_ok=True)
        system.place_mount(number, path)
    _devices(found, terminals, queues)
    if config["highest_pid"] and config["pid_of"] == 0:
        _limit_processes(config["highest_pid"])
    if config["masked"]:
        _mask()
    for path, text in config["files"]:
        _write(path, text)
    for path in config["image_volumes"]:
        _keep_writable(path)
    for each in sorted(found.volumes, key=lambda each: each.target.count("/") if each.target != "/" else 0):
        _place(each)
    if config["read_only_root"]:
        if config["make_cwd"]:
            os.makedirs(config["cwd"], exist_ok=True)
        root = os.open("/", os.O_PATH | os.O_CLOEXEC)
        system.change_mount(root, system.ATTR_RDONLY, whole=False)
        os.close(root)


def _limit_processes(highest: int) -> None:
    """Since Linux 6.14 every process namespace has a highest pid of its own, which limits the number of processes where
    no control group does."""
    try:
        files.write("/proc/sys/kernel/pid_max", str(highest))
    except OSError:
        pass


def _queues() -> int:
    try:
        return system.new_mount("mqueue", None, _USUAL)
    except OSError:  # a kernel without them
        return -1


def _layered(config: dict[str, Any], found: Sources) -> int:
    """The layers of an image under what the container writes, or copied into it where there is no overlay."""
    below = []
    for number, layer in enumerate(found.layers):
        place = f"/stage/{number}"
        os.makedirs(place, exist_ok=True)
        system.place_mount(layer, place)
        below.append(place)
    os.makedirs("/stage/writable", exist_ok=True)
    system.place_mount(found.writable, "/stage/writable")
    if config["overlay"]:
        try:
            return _overlay(":".join(below), "/stage/writable")
        except OSError as error:
            if error.errno not in _NO_OVERLAY:
                raise
    copies.copy_layers(below, "/stage/writable/upper")
    return mounts.taken(os.open("/stage/writable/upper", os.O_PATH | os.O_CLOEXEC))


def _layered_etc(found: Sources) -> int:
    for name, number in (("etc", found.etc), ("etc-writable", found.etc_writable)):
        os.makedirs(f"/stage/{name}", exist_ok=True)
        system.place_mount(number, f"/stage/{name}")
    try:
        return _overlay("/stage/etc", "/stage/etc-writable")
    except OSError:  # a kernel that allows no overlay here, or a part of /etc is a mount of its own
        return _imitated_etc()


def _imitated_etc() -> int:
    """A small file system with every entry of ``/etc`` mounted into it."""
    made = system.new_mount("tmpfs", {"mode": "755", "size": "4m"}, system.ATTR_NOSUID | system.ATTR_NODEV)
    os.makedirs("/stage/made", exist_ok=True)
    system.place_mount(made, "/stage/made")
    mounts.bring_back("/stage/etc", "/stage/made", (*os.listdir("/stage/etc-writable/upper"), "mtab"))
    for name in os.listdir("/stage/etc-writable/upper"):
        _write(f"/stage/made/{name}", files.read_all(f"/stage/etc-writable/upper/{name}"))
    return mounts.taken(os.open("/stage/made", os.O_PATH | os.O_CLOEXEC))


def _overlay(below: str, writable: str) -> int:
    for name in ("upper", "work"):
        os.makedirs(f"{writable}/{name}", exist_ok=True)
    if len(below) > _MOST_OPTION:  # more layers than one option of a new mount can name
        os.makedirs("/stage/stacked", exist_ok=True)
        text = f"lowerdir={below},upperdir={writable}/upper,workdir={writable}/work,userxattr"
        system.mount("overlay", "/stage/stacked", "overlay", _MS_NODEV, text)
        return mounts.taken(os.open("/stage/stacked", os.O_PATH | os.O_CLOEXEC))
    options = {"lowerdir": below, "upperdir": f"{writable}/upper", "workdir": f"{writable}/work", "userxattr": ""}
    return system.new_mount("overlay", options, system.ATTR_NODEV)


def _make_folder(path: str, mode: int) -> None:
    try:
        os.mkdir(path, mode)
        os.chmod(path, mode)
    except FileExistsError:
        pass


def _link(path: str, target: str) -> None:
    try:
        os.symlink(target, path)
    except FileExistsError:
        pass


def _place(each: Taken) -> None:
    place = os.path.realpath(each.target)
    try:
        _make_place(place, each.folder)
        if each.read_only:
            system.change_mount(each.number, system.ATTR_RDONLY)
        system.place_mount(each.number, place)
    except OSError as error:
        text = f"mounting {each.what or place} at {each.target}: {error.strerror}"
        raise mounts.MountError(error.errno, text) from None
    os.close(each.number)


def _make_place(place: str, folder: bool) -> None:
    try:
        os.makedirs(place if folder else os.path.dirname(place), exist_ok=True)
        if not folder and not os.path.lexists(place):
            mounts.touch(place)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in _READ_ONLY_FILE_SYSTEM:
            raise
        mounts.make_room(place, folder, [])
    if os.path.isdir(place) != folder:
        raise NotADirectoryError(20, "not a directory" if folder else "is a directory")


def _devices(found: Sources, terminals: int, queues: int) -> None:
    os.makedirs("/dev", exist_ok=True)
    made = system.new_mount("tmpfs", {"mode": "755", "size": "64k"}, system.ATTR_NOSUID | system.ATTR_NOEXEC)
    system.place_mount(made, "/dev")
    for each in found.devices:
        mounts.touch(each.target)
        system.place_mount(each.number, each.target)
        os.close(each.number)
    for name, number in (("pts", terminals), ("shm", found.shm), ("mqueue", queues)):
        if number >= 0:
            os.mkdir(f"/dev/{name}")
            system.place_mount(number, f"/dev/{name}")
    for name, target in _LINKS:
        os.symlink(target, f"/dev/{name}")


def _mask() -> None:
    """Hide or protect what of ``/proc`` and ``/sys`` belongs to the machine."""
    for path in _READ_ONLY:
        _again(path, path, system.ATTR_RDONLY)
    for path in _EMPTY_FILES:
        _again("/dev/null", path, 0)
    for path in _EMPTY_FOLDERS:
        if os.path.isdir(path):
            system.place_mount(system.new_mount("tmpfs", {"size": "4k", "mode": "555"}, _USUAL | 1), path)


def _again(source: str, path: str, attributes: int) -> None:
    if not os.path.exists(path):
        return
    number = mounts.taken(os.open(source, os.O_PATH | os.O_CLOEXEC))
    if attributes:
        system.change_mount(number, attributes)
    system.place_mount(number, path)


def _keep_writable(path: str) -> None:
    """A volume of the image is a mount of its own, so that a read-only root leaves it writable."""
    place = os.path.realpath(path)
    os.makedirs(place, exist_ok=True)
    system.place_mount(mounts.taken(os.open(place, os.O_PATH | os.O_CLOEXEC)), place)


def _write(path: str, text: str) -> None:
    """Write a file of the pod; an image may have a link in its place."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.islink(path):
        os.unlink(path)
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    os.write(number, text.encode())
    os.close(number)
