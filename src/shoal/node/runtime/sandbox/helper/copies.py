"""Copies the layers of an image into one folder, for kernels that do not stack them, with what overlayfs would show.

Runs inside the container's namespaces, as the root of its users; links are copied and never followed.
"""

from __future__ import annotations

import os
import stat

_PIECE = 1 << 20
_OPAQUE = "user.overlay.opaque"


def copy_layers(layers: list[str], target: str) -> None:
    """``layers``: the uppermost first."""
    os.makedirs(target, exist_ok=True)
    into = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for path in reversed(layers):
        source = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        _copy_folder(source, into, "", _Layer(into))
        os.close(source)
    os.close(into)


class _Layer:
    """Files of one layer with several names: the first of them below the open folder ``top``, by inode."""

    def __init__(self, top: int) -> None:
        self.top = top
        self.first: dict[int, str] = {}


def _copy_folder(source: int, target: int, path: str, layer: _Layer) -> None:
    if _is_opaque(source):
        _empty(target)
    for name in os.listdir(source):
        found = os.stat(name, dir_fd=source, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            _into_folder(source, target, (path, name), layer)
            continue
        _remove(target, name)
        if stat.S_ISCHR(found.st_mode):
            continue  # deleted in this layer
        if found.st_ino in layer.first:
            os.link(layer.first[found.st_ino], name, src_dir_fd=layer.top, dst_dir_fd=target, follow_symlinks=False)
            continue
        _copy(source, target, name, found)
        if found.st_nlink > 1:
            layer.first[found.st_ino] = path + name
    _like(os.fstat(source), target)


def _into_folder(source: int, target: int, place: tuple[str, str], layer: _Layer) -> None:
    path, name = place
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=target, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=target)
            os.mkdir(name, dir_fd=target)
    except FileNotFoundError:
        os.mkdir(name, dir_fd=target)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    inner, made = os.open(name, flags, dir_fd=source), os.open(name, flags, dir_fd=target)
    _copy_folder(inner, made, f"{path}{name}/", layer)
    os.close(inner)
    os.close(made)


def _copy(source: int, target: int, name: str, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        os.chown(name, found.st_uid, found.st_gid, dir_fd=target, follow_symlinks=False)
        return
    if stat.S_ISFIFO(found.st_mode):
        os.mkfifo(name, dir_fd=target)
    else:
        _copy_content(source, target, name)
    os.chown(name, found.st_uid, found.st_gid, dir_fd=target)
    os.chmod(name, stat.S_IMODE(found.st_mode), dir_fd=target)
    os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=target)


def _copy_content(source: int, target: int, name: str) -> None:
    reading = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=source)
    writing = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=target)
    while piece := os.read(reading, _PIECE):
        while piece:
            piece = piece[os.write(writing, piece) :]
    os.close(reading)
    os.close(writing)


def _like(found: os.stat_result, target: int) -> None:
    os.fchown(target, found.st_uid, found.st_gid)
    os.fchmod(target, stat.S_IMODE(found.st_mode))
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def _is_opaque(folder: int) -> bool:
    try:
        return os.getxattr(folder, _OPAQUE) == b"y"
    except OSError:
        return False


def _empty(folder: int) -> None:
    for name in os.listdir(folder):
        _remove(folder, name)


def _remove(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (21, 1):  # EISDIR, or EPERM on some file systems
            raise
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        _empty(inner)
        os.close(inner)
        os.rmdir(name, dir_fd=folder)
