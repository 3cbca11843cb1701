"""What pods see as their root: the seam for images, and its first implementation.

A ``RootSource`` gives an image's layers as folders on disk. ``MachineRoots`` has no layers: its images are programs of
the machine, and the root is the machine's system, read-only, without home folders and everything else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import shoal
from shoal.node.runtime.model import Image
from shoal.node.runtime.process.shim.mounts import is_inside
from shoal.node.runtime.process.table_images import ImageSource, TableImages

_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "opt", "nix", "gnu")


@dataclass(frozen=True, slots=True)
class RootFiles:
    """The files of an image. With ``layers`` they are these folders, the uppermost first, and nothing of the machine;
    without, the machine's system. ``programs`` are folders that are bound read-only in any case."""

    layers: tuple[Path, ...] = ()
    programs: tuple[Path, ...] = ()
    system: tuple[Path, ...] = field(default=())
    links: tuple[tuple[str, str], ...] = ()  # at the top of the root, as the machine has them


class RootSource(ImageSource, Protocol):
    """Images with files. Owners in layers are ids of pods; where the cluster has one user, all are 0."""

    def files_of(self, image: Image) -> RootFiles:
        """The files of an image that is on the node."""


class MachineRoots(TableImages):
    """Images of the table: programs of the machine."""

    def files_of(self, image: Image) -> RootFiles:
        return machine_files()


def machine_files(top: Path = Path("/")) -> RootFiles:
    """The machine's system, and this interpreter with this package wherever they are."""
    folders, links = [], []
    for name in _SYSTEM:
        path = top / name
        if path.is_symlink():
            links.append((name, os.readlink(path)))
        elif path.is_dir():
            folders.append(path)
    return RootFiles(programs=tuple(_outside(programs(), folders)), system=tuple(folders), links=tuple(links))


def programs() -> list[Path]:
    """The folders of this interpreter, its environment and this package."""
    found = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix)}
    found.add(os.path.realpath(Path(shoal.__file__).parents[1]))
    found.add(os.path.abspath(sys.prefix))  # links into it name it so
    return [Path(path) for path in sorted(found)]


def _outside(paths: Iterable[Path], folders: Iterable[Path]) -> list[Path]:
    """Those that no other folder contains."""
    found: list[Path] = []
    for path in paths:
        if not any(is_inside(str(path), str(each)) for each in (*folders, *found)):
            found.append(path)
    return found
