"""The user namespace of a cluster: which users of the machine its pods' users are.

A map is a list of (first id inside, first id outside, count), as the kernel writes it.
"""

from __future__ import annotations

import os

from shoal.node.runtime.process.shim import system

from . import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    Map = list[tuple[int, int, int]]


class MapError(OSError):
    """The ids could not be mapped."""


def map_text(ids: Map) -> str:
    return "\n".join(" ".join(map(str, each)) for each in ids) + "\n"


def enter_new(uids: Map, gids: Map, program: str) -> None:
    """Move this process, which is not root, into a new user namespace. ``program`` is the folder of ``newuidmap`` and
    ``newgidmap``, which map more than the own user; without it there is that one only."""
    me = os.getpid()
    if not program:
        system.unshare(system.NEWUSER)
        files.write("/proc/self/setgroups", "deny")
        files.write("/proc/self/uid_map", map_text(uids))
        files.write("/proc/self/gid_map", map_text(gids))
        return
    started, go = os.pipe()
    mapper = os.fork()
    if mapper == 0:
        os.close(go)
        os.read(started, 1)  # until this process is in its namespace
        os._exit(_run_mappers(me, uids, gids, program))
    os.close(started)
    system.unshare(system.NEWUSER)
    os.close(go)
    _, status = os.waitpid(mapper, 0)
    if status:
        raise MapError(1, "newuidmap or newgidmap refused the ids: see /etc/subuid and /etc/subgid")


def _run_mappers(pid: int, uids: Map, gids: Map, program: str) -> int:
    for name, ids in (("newuidmap", uids), ("newgidmap", gids)):
        words = [str(number) for each in ids for number in each]
        child = os.fork()
        if child == 0:
            try:
                os.execv(f"{program}/{name}", [name, str(pid), *words])
            finally:
                os._exit(127)
        if os.waitpid(child, 0)[1]:
            return 1
    return 0


def new_namespace(uids: Map, gids: Map) -> int:
    """As root: a file of a new user namespace, in which this process is not."""
    ready, made = os.pipe()
    hold, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        try:
            system.unshare(system.NEWUSER)
            os.write(made, b"1")
            os.read(hold, 1)
        finally:
            os._exit(0)
    try:
        os.close(made)
        if not os.read(ready, 1):
            raise MapError(1, "user namespaces are not allowed on this machine")
        files.write(f"/proc/{pid}/uid_map", map_text(uids))
        files.write(f"/proc/{pid}/gid_map", map_text(gids))
        return system.open_namespace(pid, "user")
    finally:
        for number in (ready, hold, go):
            os.close(number)
        os.waitpid(pid, 0)


def become_root_of(namespace: int) -> None:
    """Enter a user namespace as its root. ``namespace`` is negative if this process is in it already."""
    if namespace >= 0:
        system.join(namespace)
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
