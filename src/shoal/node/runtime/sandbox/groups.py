"""Control groups of this machine that a cluster may make groups in, for the limits of containers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_NEEDED = ("memory", "cpu", "pids")
_TOP = "shoal"


@dataclass(frozen=True, slots=True)
class Groups:
    """Where groups of containers are made: a folder for each controller. Without controllers, limits are best effort:
    the shim looks at memory and processes every second."""

    folders: Mapping[str, str]
    shown: str  # for people
    unified: bool = False  # version 2

    @property
    def complete(self) -> bool:
        return all(name in self.folders for name in _NEEDED)

    def of(self, container_id: str) -> dict[str, str]:
        return {name: f"{folder}/{container_id}" for name, folder in self.folders.items()}


def find_groups(*, proc: Path = Path("/proc/self"), top: Path = Path("/sys/fs/cgroup")) -> Groups:
    """The groups of version 2 that were delegated to this user, or those of version 1 as root."""
    if (top / "cgroup.controllers").exists():
        return _second(proc, top)
    return _first(top)


def _first(top: Path) -> Groups:
    found = {}
    for name in _NEEDED:
        folder = top / name
        if (folder / "cgroup.procs").exists() and os.access(folder, os.W_OK):
            try:
                (folder / _TOP).mkdir(exist_ok=True)
            except OSError:
                continue
            found[name] = str(folder / _TOP)
    if not found:
        return Groups({}, "best effort: control groups of version 1 are for root only")
    return Groups(found, f"control groups (version 1: {', '.join(found)})")


def _second(proc: Path, top: Path) -> Groups:
    try:
        line = next(each for each in (proc / "cgroup").read_text().splitlines() if each.startswith("0::"))
    except (OSError, StopIteration):
        return Groups({}, "best effort: this process is in no control group")
    place = top / line[3:].lstrip("/")
    best = next((each for each in reversed((place, *place.parents)) if _is_given(each, top)), None)
    if best is None:
        fix = "no control group is delegated to this user (systemd: Delegate=yes, or run below user@.service)"
        return Groups({}, f"best effort: {fix}")
    own = best / _TOP
    try:
        own.mkdir(exist_ok=True)
        _enable(best)
        _enable(own)
    except OSError as error:
        return Groups({}, f"best effort: {best} does not pass its controllers on ({error.strerror})")
    given = (own / "cgroup.controllers").read_text().split()
    found = {name: str(own) for name in _NEEDED if name in given}
    if not found:
        return Groups({}, f"best effort: {best} has none of the controllers {', '.join(_NEEDED)}")
    return Groups(found, f"control groups (version 2: {', '.join(found)})", unified=True)


def _is_given(folder: Path, top: Path) -> bool:
    inside = folder == top or top in folder.parents
    return inside and os.access(folder, os.W_OK) and os.access(folder / "cgroup.subtree_control", os.W_OK)


def _enable(folder: Path) -> None:
    offered = (folder / "cgroup.controllers").read_text().split()
    wanted = " ".join(f"+{name}" for name in _NEEDED if name in offered)
    if wanted:
        (folder / "cgroup.subtree_control").write_text(wanted)
