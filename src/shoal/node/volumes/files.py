"""Folders whose files change atomically: readers see the old files or the new ones, never a mix.

    volume/..2024_01_01_1   the files, one folder per change
    volume/..data           symbolic link to the newest folder; replacing it is the change
    volume/key              symbolic link to ..data/key

This is kubelet's layout, which programs that watch such volumes expect.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from shoal.base.files import PRIVATE_FILE, link_to
from shoal.node.volumes.content import File, Files

_DATA = "..data"


def write(folder: Path, files: Files, stamp: str, *, group: int | None = None) -> bool:
    """Make the folder contain exactly ``files``; False if it already does. ``stamp`` is part of the inner name."""
    folder.mkdir(parents=True, exist_ok=True)
    if group is not None:  # readable for the pod's fsGroup
        files = {path: File(file.data, file.mode | 0o440) for path, file in files.items()}
    if _current(folder) == files:
        return False
    inner = _new_folder(folder, stamp)
    for path, file in files.items():
        target = inner / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "wb", opener=_private) as written:
            written.write(file.data)
        target.chmod(file.mode)
        if group is not None:
            set_group(target, group)
    old = os.readlink(folder / _DATA) if (folder / _DATA).is_symlink() else ""
    link_to(folder / _DATA, inner.name)
    _link_names(folder, {path.split("/", 1)[0] for path in files})
    if old:
        shutil.rmtree(folder / old, ignore_errors=True)
    return True


def _new_folder(folder: Path, stamp: str) -> Path:
    number = 0
    while True:
        inner = folder / f"..{stamp}.{number}"
        try:
            inner.mkdir()
        except FileExistsError:
            number += 1
            continue
        return inner


def _current(folder: Path) -> Files | None:
    data = folder / _DATA
    if not data.is_dir():
        return None
    found = Files()
    for path in data.rglob("*"):
        if path.is_file():
            found[str(path.relative_to(data))] = File(path.read_bytes(), path.stat().st_mode & 0o7777)
    return found


def _link_names(folder: Path, names: Iterable[str]) -> None:
    """Create the missing links and remove those without a file."""
    wanted = set(names)
    for path in folder.iterdir():
        if path.is_symlink() and not path.name.startswith("..") and path.name not in wanted:
            path.unlink()
    for name in wanted:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"{_DATA}/{name}")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL, PRIVATE_FILE)  # until its mode is set, a Secret is its owner's alone


def set_group(path: Path, group: int) -> None:
    try:
        os.chown(path, -1, group)
    except PermissionError:
        pass  # without the right to change the group, the owner's permissions have to suffice
