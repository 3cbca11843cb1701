"""What a container gets of the machine, as open files of mounts that are mounted nowhere: gathered with the rights of
the shim, before it enters the pod's namespaces.

As root, the owners of the container's own folders are shifted (idmapped mounts): user 0 of the machine's files is
user 0 of the pod. Other folders of the machine (``hostPath``) are not shifted, so that a pod's root is nobody there;
for a privileged container they are.
"""

from __future__ import annotations

import os
import stat

from shoal.node.runtime.process.shim import mounts, system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_GROUND_MEMORY = "/memory"


class Taken:
    """A mount on its way into the container."""

    def __init__(self, number: int, target: str, *, what: str = "", read_only: bool = False) -> None:
        self.number = number
        self.target = target
        self.what = what  # for messages
        self.read_only = read_only
        self.folder = stat.S_ISDIR(os.fstat(number).st_mode)


class Sources:
    """Everything that ``root.build`` puts together."""

    def __init__(self) -> None:
        self.layers: list[int] = []  # uppermost first
        self.writable = -1  # the folder of the root, or of what is written to it where there are layers
        self.etc = -1  # the machine's, where there are no layers
        self.etc_writable = -1
        self.system: list[Taken] = []  # read-only folders of the machine
        self.devices: list[Taken] = []
        self.volumes: list[Taken] = []
        self.host_sys = -1
        self.host_proc = -1
        self.shm = -1
        self.target_processes = -1  # the process namespace of the container that this one looks into


def gather(config: dict[str, Any], user: int) -> Sources:
    found = Sources()
    if config["pid_of"] > 0:
        found.target_processes = system.open_namespace(config["pid_of"], "pid")
    if config["foreign"]:
        system.unshare(system.NEWNS)
        system.mount("none", "/", flags=system.MS_REC | system.MS_PRIVATE)
    found.writable = mounts.taken(os.open(config["writable"], os.O_PATH | os.O_CLOEXEC))
    for path in config["layers"]:
        found.layers.append(_owned(mounts.taken(os.open(path, os.O_PATH | os.O_CLOEXEC)), user, system.ATTR_RDONLY))
    if config["etc"]:
        found.etc = mounts.taken(os.open(config["etc"], os.O_PATH | os.O_CLOEXEC))
        found.etc_writable = mounts.taken(os.open(config["etc_writable"], os.O_PATH | os.O_CLOEXEC))
    if config["pid_of"] < 0:
        found.host_proc = mounts.taken(os.open("/proc", os.O_PATH | os.O_CLOEXEC))
    if "net" not in config["kinds"]:
        found.host_sys = mounts.taken(os.open("/sys", os.O_PATH | os.O_CLOEXEC))
        system.change_mount(found.host_sys, system.ATTR_RDONLY)
    for name in _DEVICES:
        number = mounts.taken(os.open(f"/dev/{name}", os.O_PATH | os.O_CLOEXEC))
        found.devices.append(Taken(number, f"/dev/{name}"))
    opened = [_volume(each) for each in config["mounts"]]
    own = [mounts.is_own(number, config["covered"], config["sources"]) for number, _, _ in opened]
    kept = [(path, mounts.taken(os.open(path, os.O_PATH | os.O_CLOEXEC))) for path in config["programs"]]
    volumes = [_take(each, user) if mine else None for each, mine in zip(opened, own, strict=True)]
    if config["foreign"]:
        mounts.cover_folders([path for path in config["covered"] if os.path.isdir(path)], [])
    for place, (each, mine) in enumerate(zip(opened, own, strict=True)):
        if not mine:
            if not config["foreign"]:
                raise mounts.MountError(13, f"mounting {each[1][0]}: it leads out of the pod's volumes")
            volumes[place] = _take(each, user if config["privileged"] else -1)
    found.volumes = [each for each in volumes if each is not None]
    for path in config["system"]:
        number = mounts.taken(os.open(path, os.O_PATH | os.O_CLOEXEC))
        system.change_mount(number, system.ATTR_RDONLY | system.ATTR_NODEV)
        found.system.append(Taken(number, path))
    for path, number in kept:  # not shifted: who may mount could make them writable
        system.change_mount(number, system.ATTR_RDONLY | system.ATTR_NODEV)
        found.system.append(Taken(number, path))
    return found


def add_shared(config: dict[str, Any], found: Sources) -> None:
    """From the pod's mount namespace, in which this process is now: what its containers share."""
    found.shm = mounts.taken(os.open("/shm", os.O_PATH | os.O_CLOEXEC))
    for number, part, target, read_only in config["memory"]:
        volume = os.open(f"{_GROUND_MEMORY}/{number}", os.O_PATH | os.O_CLOEXEC)
        if part:
            inner = system.open_beneath(volume, part, os.O_PATH)
            os.close(volume)
            volume = inner
        found.volumes.append(Taken(mounts.taken(volume), target, what=target, read_only=read_only))
    if found.target_processes >= 0:
        system.join(found.target_processes)


def _volume(wanted: tuple[str, str, bool, str]) -> tuple[int, tuple[str, str, bool, str], str]:
    source, _, _, within = wanted
    return mounts.open_source(source, within), wanted, source


def _take(opened: tuple[int, tuple[str, str, bool, str], str], user: int) -> Taken:
    number, (source, target, read_only, _), _ = opened
    taken = _owned(mounts.taken(number), user, 0)
    return Taken(taken, target, what=source, read_only=read_only)


def _owned(number: int, user: int, attributes: int) -> int:
    """Show the owners of a mount's files as ids of the pod, where the file system can do that."""
    if user >= 0:
        try:
            system.change_mount(number, attributes, users=user)
        except OSError:
            pass  # NFS, 9p and the like: the pod sees other owners
        else:
            return number
    if attributes:
        system.change_mount(number, attributes)
    return number
