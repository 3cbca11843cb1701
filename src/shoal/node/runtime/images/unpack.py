"""Unpacks one layer into an open folder, in pure Python, without trusting the archive.

Every path is walked from the folder with ``openat`` and without following links, so nothing is written or read outside
it, whatever earlier entries have made. What is deleted in lower layers is marked as overlayfs in a user namespace reads
it: a character device 0:0 for an entry, the attribute ``user.overlay.opaque`` for a folder. An archive that is refused
leaves a folder that the caller deletes.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from shoal.node.runtime.images.compression import Reader, Refused
from shoal.node.runtime.images.limits import LayerLimits

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WHITEOUT, _OPAQUE, _OTHER_MARKS = ".wh.", ".wh..wh..opq", ".wh..wh."
_OPAQUE_ATTRIBUTE = "user.overlay.opaque"
_EXTENDED = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_CAPABILITY = "SCHILY.xattr.security.capability"
_HEADERS = 64  # extended headers of the longest size in one layer
_MOST_DEPTH = 256
_PIECE = 1 << 20
_MOST_NOTED = 20


@dataclass(slots=True)
class Unpacked:
    """What a layer has brought."""

    diff_id: str = ""
    size_bytes: int = 0
    entries: int = 0
    capabilities: list[str] = field(default_factory=list)  # files that had some, which are not kept


def unpack(packed: BinaryIO, folder: int, limits: LayerLimits, *, owners: int) -> Unpacked:
    """Unpack an archive, compressed or not, into an empty open folder. ``owners``: how many users there are; with one
    everything is left to the own user. Raises ``Refused``, or ``OSError`` if the machine cannot do it."""
    reader = Reader(packed, limits)
    unpacker = _Unpacker(folder, limits, owners)
    try:
        try:
            with tarfile.open(
                fileobj=cast(BinaryIO, reader), mode="r|", tarinfo=_entries(limits), encoding="utf-8",
                errors="surrogateescape",
            ) as archive:  # fmt: skip
                for entry in archive:
                    unpacker.add(entry, archive)
                    archive.members = []  # type: ignore[attr-defined]  # it would keep all
        except tarfile.ReadError as error:
            if str(error) != "empty file":
                raise Refused(f"the layer is not a valid tar archive: {error}") from error
        except (tarfile.TarError, RecursionError, UnicodeError, ValueError, OverflowError) as error:
            raise Refused(f"the layer is not a valid tar archive: {error}") from error
        unpacker.finish()
        while reader.read(_PIECE):
            pass
    except (zlib.error, EOFError) as error:
        raise Refused(f"the layer is damaged: {error}") from error
    finally:
        unpacker.close()
    found = unpacker.found
    found.diff_id = f"sha256:{reader.digest()}"
    return found


def _entries(limits: LayerLimits) -> type[tarfile.TarInfo]:
    """Headers of one archive. tarfile reads extended ones into memory whatever their size, and takes a damaged one for
    the end: both are refused here."""
    left = limits.header_bytes * _HEADERS

    class Entry(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, buf: Any, encoding: str, errors: str) -> Any:
            nonlocal left
            try:
                found = super().frombuf(buf, encoding, errors)
            except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]
                raise Refused(f"the layer is damaged: {error}") from error
            if found.size < 0:
                raise Refused(f"entry {found.name!r} has a negative size")
            if found.type in _EXTENDED:
                left -= found.size
                if found.size > limits.header_bytes or left < 0:
                    raise Refused(f"the layer has headers of {found.size} bytes; the limit is {limits.header_bytes}")
            elif found.type == tarfile.GNUTYPE_SPARSE:
                raise Refused(f"entry {found.name!r} is a sparse file, which is not supported")
            return found

    return Entry


class _Unpacker:
    def __init__(self, folder: int, limits: LayerLimits, owners: int) -> None:
        self._top = folder
        self._limits = limits
        self._owners = owners
        self._folders: dict[tuple[str, ...], tarfile.TarInfo] = {}  # their rights are set at the end
        self._parent: tuple[tuple[str, ...], int] = ((), os.open(".", os.O_RDONLY | _FOLDER, dir_fd=folder))
        self.found = Unpacked()

    def close(self) -> None:
        os.close(self._parent[1])

    def add(self, entry: tarfile.TarInfo, archive: tarfile.TarFile) -> None:
        path = parts_of(entry.name, "entry")
        if _CAPABILITY in entry.pax_headers and len(self.found.capabilities) < _MOST_NOTED:
            self.found.capabilities.append(entry.name)
        self._count()
        if not path:
            if not entry.isdir():
                raise Refused(f"entry {entry.name!r} names the layer itself and is not a folder")
            self._folders[path] = entry
            return
        try:
            self._place(path, entry, archive)
        except OSError as error:
            if error.errno in (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ):
                raise Refused(f"entry {_shown(entry.name)} cannot be made: {error.strerror}") from error
            raise

    def _place(self, path: tuple[str, ...], entry: tarfile.TarInfo, archive: tarfile.TarFile) -> None:
        name = path[-1]
        parent = self._open_parent(path[:-1], entry.name)
        if name.startswith(_WHITEOUT):
            self._delete_below(parent, name, entry)
        elif entry.isdir():
            self._make_folder(parent, name)
            self._folders[path] = entry
        elif entry.isreg():
            if entry.issparse():
                raise Refused(f"entry {entry.name!r} is a sparse file, which is not supported")
            self._make_room(parent, path)
            self._write(parent, name, entry, archive)
        elif entry.issym():
            check_link(path, entry.linkname)
            self._make_room(parent, path)
            os.symlink(entry.linkname, name, dir_fd=parent)
            self._own(lambda user, group: os.chown(name, user, group, dir_fd=parent, follow_symlinks=False), entry)
            _set_time(name, entry, parent)
        elif entry.islnk():
            self._link(parent, path, entry)
        elif entry.isfifo():
            self._make_room(parent, path)
            os.mkfifo(name, 0o600, dir_fd=parent)
            self._own(lambda user, group: os.chown(name, user, group, dir_fd=parent, follow_symlinks=False), entry)
            os.chmod(name, entry.mode & 0o7777, dir_fd=parent)  # made here, in a folder that only we write
        elif entry.isdev():
            raise Refused(f"entry {entry.name!r} is a device; layers with devices are not allowed")
        else:
            raise Refused(f"entry {entry.name!r} has the unknown type {entry.type!r}")

    # folders

    def _open_parent(self, path: tuple[str, ...], name: str) -> int:
        """The open folder, made where it is missing. The last one stays open for the entries that follow."""
        if path == self._parent[0]:
            return self._parent[1]
        number = os.open(".", os.O_RDONLY | _FOLDER, dir_fd=self._top)
        try:
            for depth, part in enumerate(path):
                inner = self._step(number, part, name, path[: depth + 1])
                os.close(number)
                number = inner
        except BaseException:
            os.close(number)
            raise
        os.close(self._parent[1])
        self._parent = (path, number)
        return number

    def _step(self, number: int, part: str, name: str, path: tuple[str, ...]) -> int:
        try:
            return os.open(part, os.O_RDONLY | _FOLDER, dir_fd=number)
        except FileNotFoundError:
            self._count()
            os.mkdir(part, 0o755, dir_fd=number)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            found = os.stat(part, dir_fd=number, follow_symlinks=False)
            if not _is_whiteout(found):
                what = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "not a folder"
                raise Refused(f"entry {_shown(name)} leads through {'/'.join(path)!r}, which is {what}") from None
            self._make_folder(number, part)
        return os.open(part, os.O_RDONLY | _FOLDER, dir_fd=number)

    def _make_folder(self, parent: int, name: str) -> None:
        """A folder that may exist. One that replaces a deleted one shows nothing of lower layers."""
        try:
            os.mkdir(name, 0o755, dir_fd=parent)
            return
        except FileExistsError:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            return
        os.unlink(name, dir_fd=parent)
        os.mkdir(name, 0o755, dir_fd=parent)
        if _is_whiteout(found):
            self._make_opaque(parent, name)

    def _make_room(self, parent: int, path: tuple[str, ...]) -> None:
        """A later entry replaces an earlier one of that name."""
        name = path[-1]
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(found.st_mode):
            shutil.rmtree(name, dir_fd=parent)
            self._folders = {each: entry for each, entry in self._folders.items() if each[: len(path)] != path}
        else:
            os.unlink(name, dir_fd=parent)

    def _make_opaque(self, parent: int, name: str) -> None:
        number = os.open(name, os.O_RDONLY | _FOLDER, dir_fd=parent)
        try:
            os.setxattr(number, _OPAQUE_ATTRIBUTE, b"y")
        finally:
            os.close(number)

    def _delete_below(self, parent: int, name: str, entry: tarfile.TarInfo) -> None:
        """A mark that deletes what lower layers have; what this layer has stays, also if it came before."""
        if name == _OPAQUE:
            self._make_opaque(parent, ".")
            return
        if name.startswith(_OTHER_MARKS):
            return  # notes of a storage driver
        target = name.removeprefix(_WHITEOUT)
        if target in ("", ".", ".."):
            raise Refused(f"entry {_shown(entry.name)} deletes nothing that a layer could have")
        try:
            found = os.stat(target, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            os.mknod(target, stat.S_IFCHR, os.makedev(0, 0), dir_fd=parent)
        else:
            if stat.S_ISDIR(found.st_mode):
                self._make_opaque(parent, target)

    # files

    def _write(self, parent: int, name: str, entry: tarfile.TarInfo, archive: tarfile.TarFile) -> None:
        if self.found.size_bytes + entry.size > self._limits.bytes:
            raise Refused(f"the layer has more than {self._limits.bytes} bytes unpacked, which is the limit")
        self.found.size_bytes += entry.size
        content = archive.extractfile(entry)
        number = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent
        )
        try:
            left = entry.size
            while left and content is not None:
                piece = content.read(min(_PIECE, left))
                if not piece:
                    raise Refused(f"the layer ends inside of {_shown(entry.name)}")
                left -= len(piece)
                while piece:
                    piece = piece[os.write(number, piece) :]
            self._own(lambda user, group: os.fchown(number, user, group), entry)
            os.fchmod(number, entry.mode & 0o7777)
            os.utime(number, (_time(entry), _time(entry)))
        finally:
            os.close(number)

    def _link(self, parent: int, path: tuple[str, ...], entry: tarfile.TarInfo) -> None:
        target = parts_of(entry.linkname, f"the hard link {_shown(entry.name)} to")
        if target == path:
            return
        missing = f"the hard link {_shown(entry.name)} leads to {_shown(entry.linkname)}, which is not in this layer"
        if not target:
            raise Refused(missing)
        number = os.open(".", os.O_RDONLY | _FOLDER, dir_fd=self._top)
        try:
            for part in target[:-1]:
                inner = os.open(part, os.O_RDONLY | _FOLDER, dir_fd=number)
                os.close(number)
                number = inner
            found = os.stat(target[-1], dir_fd=number, follow_symlinks=False)
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
                raise Refused(missing)
            if path == target[: len(path)]:
                raise Refused(f"the hard link {_shown(entry.name)} would replace what it leads to")
            self._make_room(parent, path)
            os.link(target[-1], path[-1], src_dir_fd=number, dst_dir_fd=parent, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                raise Refused(missing) from None
            raise
        finally:
            os.close(number)

    # rights

    def finish(self) -> None:
        """Set the rights of folders, the deepest first: before, they must be writable."""
        for path in sorted(self._folders, key=len, reverse=True):
            entry = self._folders[path]
            number = self._open_parent(path, entry.name)
            self._own(lambda user, group, number=number: os.fchown(number, user, group), entry)  # type: ignore[misc]
            os.fchmod(number, entry.mode & 0o7777)
            os.utime(number, (_time(entry), _time(entry)))

    def _own(self, change: Callable[[int, int], None], entry: tarfile.TarInfo) -> None:
        if self._owners == 1:
            return
        for kind, number in (("user", entry.uid), ("group", entry.gid)):
            if not 0 <= number < self._owners:
                raise Refused(
                    f"{_shown(entry.name)} belongs to {kind} {number}: there are 0 to {self._owners - 1} only"
                )
        change(entry.uid, entry.gid)

    def _count(self) -> None:
        self.found.entries += 1
        if self.found.entries > self._limits.entries:
            raise Refused(f"the layer has more than {self._limits.entries} entries, which is the limit")


def parts_of(name: str, what: str) -> tuple[str, ...]:
    """The parts of a path inside a layer; raises ``Refused`` if it leads out."""
    if name.startswith("/"):
        raise Refused(f"{what} {_shown(name)} is an absolute path")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise Refused(f"{what} {_shown(name)} leads out of the layer")
    if len(parts) > _MOST_DEPTH or "\0" in name:
        raise Refused(f"{what} {_shown(name)} is not a valid path")
    return parts


def check_link(path: tuple[str, ...], target: str) -> None:
    """A symbolic link may be absolute, which is the container's root, but not climb above it."""
    if not target or "\0" in target:
        raise Refused(f"the symbolic link {'/'.join(path)!r} has no valid target")
    depth = 0 if target.startswith("/") else len(path) - 1
    for part in target.split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            raise Refused(f"the symbolic link {'/'.join(path)!r} leads out of the layer, to {_shown(target)}")


def _is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _time(entry: tarfile.TarInfo) -> float:
    return min(max(0.0, float(entry.mtime)), 2.0**34)


def _set_time(name: str, entry: tarfile.TarInfo, parent: int) -> None:
    os.utime(name, (_time(entry), _time(entry)), dir_fd=parent, follow_symlinks=False)


def _shown(name: str) -> str:
    return repr(name if len(name) < 120 else f"{name[:100]}…")
