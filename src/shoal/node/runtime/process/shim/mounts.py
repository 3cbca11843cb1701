"""The file system of a container: that of the machine, with the volumes mounted at their paths, and without the state
directories of Shoal: each is *covered* by an empty folder, in which only the container's own folders appear again.

A mount needs an existing file or folder as its mount point. If the machine has none, the parent folder is *mimicked*: a
tmpfs is mounted over it, all its entries are bind-mounted into the tmpfs, and the mount point is created there.
"""

from __future__ import annotations

import os
import stat

from . import system

_MANY = 5000  # a folder with more entries is not mimicked

Mount = tuple[str, str, bool, str]  # source, target, read-only, the folder that the source must not leave
Cover = tuple[list[str], list[str], list[str]]  # folders to cover, what is kept of them, where sources may be in them


class MountError(OSError):
    """A volume could not be mounted."""


def isolate(mode: str, hostname: str) -> None:
    """Create a mount namespace for this process; with mode ``user`` in a user namespace, which needs no root."""
    user, group = os.geteuid(), os.getegid()
    system.unshare(system.NEWNS | system.NEWUTS | (system.NEWUSER if mode == "user" else 0))
    if mode == "user":
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    system.mount("none", "/", flags=system.MS_REC | system.MS_PRIVATE)
    if hostname:
        system.set_hostname(hostname)


def _write(path: str, text: str) -> None:
    number = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    os.write(number, text.encode())
    os.close(number)


def mount_all(mounts: list[Mount], scratch: str, cover: Cover, hide_disks: bool) -> None:
    """Cover folders, then mount everything, outer paths first. ``scratch`` is an empty folder that is used
    meanwhile."""
    covered, kept, sources_inside = cover
    ordered = sorted(mounts, key=lambda each: each[1].count("/") if each[1] != "/" else 0)
    sources = [open_source(source, within) for source, _, _, within in ordered]
    # What is inside a covered folder is taken before it is covered, if it is the pod's; anything else after that, so
    # that a folder above a covered one brings its cover along.
    inside = [is_own(number, covered, sources_inside) for number in sources]
    sources = [taken(number) if before else number for number, before in zip(sources, inside, strict=True)]
    cover_folders(covered, kept)
    sources = [number if before else taken(number) for number, before in zip(sources, inside, strict=True)]
    os.makedirs(scratch, exist_ok=True)
    if hide_disks:
        _hide_disks()
    own: list[str] = []  # folders in which mount points can be created
    if any(nearest(os.path.realpath(target)) == "/" for _, target, _, _ in ordered):
        _new_root(scratch)
        own.append("/")
    for number, (source, target, read_only, _) in zip(sources, ordered, strict=True):
        place = os.path.realpath(target)
        try:
            make_room(place, stat.S_ISDIR(os.fstat(number).st_mode), own)
            system.place_mount(number, place)
            if read_only:
                _seal(place)
        except OSError as error:
            raise MountError(error.errno, f"mounting {source} at {target}: {error.strerror}") from None
        if not read_only:
            own.append(place)
    for number in sources:
        os.close(number)


def open_source(source: str, within: str = "") -> int:
    number = os.open(within or source, os.O_PATH | os.O_CLOEXEC)
    if not within:
        return number
    try:  # what the pod has made of the path since it was checked does not lead out of the volume
        return system.open_beneath(number, os.path.relpath(source, within), os.O_PATH)
    except OSError as error:
        raise MountError(error.errno, f"opening {source}: {error.strerror}") from None
    finally:
        os.close(number)


def is_own(number: int, covered: list[str], sources: list[str]) -> bool:
    """Whether the source is in a covered folder; raise MountError if it is there and not the pod's."""
    path = os.readlink(f"/proc/self/fd/{number}")
    if not any(is_inside(path, folder) for folder in covered):
        return False
    if not any(is_inside(path, own) for own in sources):
        raise MountError(13, f"mounting {path}: it is part of Shoal's state, which pods do not see")
    return True


def is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def taken(number: int) -> int:
    try:
        return system.take_mount(number)
    finally:
        os.close(number)


def cover_folders(folders: list[str], kept: list[str]) -> None:
    back = [(path, taken(open_source(path))) for path in kept]
    for folder in folders:
        system.mount("shoal", folder, "tmpfs", options="mode=711,size=1m")
    for path, number in back:
        os.makedirs(path, exist_ok=True)
        system.place_mount(number, path)
        os.close(number)


def _hide_disks() -> None:
    """Root could read every file of the machine from them."""
    with os.scandir("/dev") as found:
        disks = [each.path for each in found if stat.S_ISBLK(each.stat(follow_symlinks=False).st_mode)]
    for disk in disks:
        system.mount("/dev/null", disk, flags=system.MS_BIND)


def nearest(path: str) -> str:
    """The path itself or the nearest parent that exists."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def make_room(place: str, folder: bool, own: list[str]) -> None:
    near = nearest(place)
    if near != place:
        if not any(near == each or near.startswith(each + "/") for each in own):
            mimic(near)
            own.append(near)
        rest = place[len(near) :].lstrip("/")
        own.append(os.path.join(near, rest.partition("/")[0]))
        os.makedirs(place if folder else os.path.dirname(place), exist_ok=True)
        if not folder:
            touch(place)
    elif os.path.isdir(place) != folder:
        raise NotADirectoryError(20, "not a directory" if folder else "is a directory")


def touch(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def _seal(place: str) -> None:
    """Make a mount read-only and keep its other flags, which a user namespace may not remove."""
    flags = os.statvfs(place).f_flag & (2 | 4 | 8 | 1024 | 2048)  # nosuid, nodev, noexec, noatime, nodiratime
    if os.statvfs(place).f_flag & 4096:
        flags |= 1 << 21  # relatime
    system.mount("none", place, flags=system.MS_BIND | system.MS_REMOUNT | system.MS_RDONLY | flags)


def mimic(folder: str) -> None:
    below = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    mode = stat.S_IMODE(os.fstat(below).st_mode)
    system.mount("shoal", folder, "tmpfs", options=f"mode={mode:o}")
    bring_back(f"/proc/self/fd/{below}", folder)
    os.close(below)


def _new_root(scratch: str) -> None:
    system.mount("shoal", scratch, "tmpfs", options="mode=755")
    bring_back("/", scratch)
    system.pivot_root(scratch)


def bring_back(source: str, target: str, without: tuple[str, ...] = ()) -> None:
    """Mount every entry of a folder into another one."""
    names = [name for name in os.listdir(source) if name not in without]
    if len(names) > _MANY:
        raise OSError(7, f"the folder has more than {_MANY} entries")
    for name in names:
        old, new = os.path.join(source, name), os.path.join(target, name)
        kind = os.lstat(old).st_mode
        if stat.S_ISLNK(kind):
            os.symlink(os.readlink(old), new)
            continue
        if stat.S_ISDIR(kind):
            os.mkdir(new)
        else:
            touch(new)
        system.mount(old, new, flags=system.MS_BIND | system.MS_REC)
