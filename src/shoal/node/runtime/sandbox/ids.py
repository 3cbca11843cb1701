"""Which users of the machine the users of a cluster's pods are.

    as root         65 536 ids of a range that no user of the machine has; the pod's root is never the machine's
    newuidmap       the pod's root is the own user, the others are from the range in /etc/subuid
    otherwise       the pod's root is the own user, and there is no other

The range is chosen at the first start and kept in the cluster's folder, because files on disk carry its ids.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from shoal.base.files import make_private_dirs, write_private
from shoal.node.runtime.model import RuntimeFailure

COUNT = 65536
_FIRST, _RANGES = 0x20000000, 8192  # far above users of machines, below those that systemd gives to containers
_FILE = "ids"

Ids = tuple[tuple[int, int, int], ...]  # first inside, first outside, count


@dataclass(frozen=True, slots=True)
class IdMap:
    """The ids of a cluster."""

    root: bool  # the agent is root
    uids: Ids
    gids: Ids
    mapper: str = ""  # folder of newuidmap

    @property
    def count(self) -> int:
        """How many users there are: those from 0 to it, excluded."""
        return sum(each[2] for each in self.uids)

    @property
    def outer_root(self) -> int:
        """The user of the machine that is the pods' root."""
        return self.uids[0][1]

    @property
    def shown(self) -> str:
        if self.root:
            return f"{self.count} users, none of them one of this machine"
        return f"{self.count} users by newuidmap" if self.count > 1 else "one user"


def choose(folder: Path, wanted: str) -> IdMap:
    """The ids of the cluster whose helper works in ``folder``."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        found = _range(folder, wanted)
        return IdMap(True, found, found)
    mapper = shutil.which("newuidmap") if wanted == "auto" and shutil.which("newgidmap") else None
    if mapper is not None:
        name = pwd.getpwuid(user).pw_name if _has_name(user) else str(user)
        users, groups = (subordinate(_lines(path), name, user) for path in ("/etc/subuid", "/etc/subgid"))
        if users is not None and groups is not None:
            return IdMap(False, _beside_own(user, users), _beside_own(group, groups), os.path.dirname(mapper))
    return IdMap(False, ((0, user, 1),), ((0, group, 1),))


def _range(folder: Path, wanted: str) -> Ids:
    count = COUNT if wanted == "auto" else 1
    kept = folder / _FILE
    if kept.exists():
        first = int(kept.read_text())
    else:
        digest = hashlib.sha256(bytes(folder.resolve())).digest()
        first = _FIRST + int.from_bytes(digest[:4], "big") % _RANGES * COUNT
        make_private_dirs(folder)
        write_private(kept, f"{first}\n".encode())
    if not is_mapped(_lines(Path("/proc/self/uid_map")), first, count):
        raise RuntimeFailure(
            f"users {first} to {first + count - 1} do not exist here: this process is root of a container with fewer; "
            f"start as an ordinary user, or use --runtime process"
        )
    return ((0, first, count),)


def _beside_own(own: int, more: tuple[int, int]) -> Ids:
    return ((0, own, 1), (1, more[0], min(more[1], COUNT - 1)))


def subordinate(lines: Iterable[str], name: str, number: int) -> tuple[int, int] | None:
    """First id and count of a user's largest range in ``/etc/subuid``."""
    found = []
    for line in lines:
        fields = line.strip().split(":")
        if len(fields) == 3 and fields[0] in (name, str(number)) and fields[1].isdigit() and fields[2].isdigit():
            found.append((int(fields[2]), int(fields[1])))
    best = max(found, default=(0, 0))
    return (best[1], best[0]) if best[0] > 0 else None


def is_mapped(lines: Iterable[str], first: int, count: int) -> bool:
    """Whether ids exist in the user namespace of this process, by its ``uid_map``."""
    for line in lines:
        inside, _, size = map(int, line.split())
        if inside <= first and first + count <= inside + size:
            return True
    return False


def _lines(path: str | Path) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _has_name(user: int) -> bool:
    try:
        pwd.getpwuid(user)
    except KeyError:
        return False
    return True
