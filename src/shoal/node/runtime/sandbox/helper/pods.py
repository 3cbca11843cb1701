"""The namespaces of pods, and of the cluster: each is made by a short-lived process, which hands over open files.

A pod's *ground* is a mount namespace with a small tmpfs as its root. Containers start from a copy of it, so it has what
they share and what the kernel wants to see before it lets them mount their own:

    /new       where a container puts its root      /stage     for mounts on the way
    /proc /sys of the machine, never given away     /shm       /dev/shm of all containers of the pod
    /memory/N  volumes in memory

Networks are routed, without a bridge: each pod has a link of its own into the cluster's network namespace, an address
with the prefix length 32, and one route, to ``GATEWAY``, which is the same for all pods. So every packet between two
pods passes through the routing of the cluster's namespace.
"""

from __future__ import annotations

import _socket
import os

from shoal.node.runtime.process.shim import system

from . import files, users
from .netlink import RouteSocket, index_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

GATEWAY = "169.254.1.1"
KINDS = ("net", "ipc", "uts", "mnt")
_LINK = "eth0"
_MTU = 65520  # nothing of it leaves the machine
_SHM = "64m"
_OPEN_SYSCTLS = {"net.ipv4.ip_unprivileged_port_start": "0"}


class PodFault(Exception):
    """The namespaces of a pod could not be made."""


def make_cluster_network(user: int) -> int:
    """The network namespace that all pods' links lead to."""

    def work() -> list[int]:
        users.become_root_of(user)
        system.unshare(system.NEWNET)
        links = RouteSocket()
        loopback = index_of("lo")
        links.set_up(loopback, "lo")
        links.add_address(loopback, GATEWAY)
        files.write("/proc/sys/net/ipv4/ip_forward", "1")
        files.write("/proc/sys/net/ipv4/conf/all/rp_filter", "1")
        return [system.open_namespace("self", "net")]

    pid, source = start(work)
    return finish(pid, source)[0]


def make_pod(user: int, cluster: int, wanted: dict[str, Any]) -> tuple[int, _socket.socket]:
    """Start to make a pod's namespaces; ``finish`` gives their files, in the order of ``kinds_of``."""

    def work() -> list[int]:
        users.become_root_of(user)
        kinds = kinds_of(wanted)
        flags = system.NEWNS | (system.NEWNET if "net" in kinds else 0) | (system.NEWIPC if "ipc" in kinds else 0)
        system.unshare(flags | system.NEWUTS)
        system.set_hostname(wanted["hostname"])
        if "net" in kinds:
            _connect(cluster, wanted)
        _set_sysctls(_OPEN_SYSCTLS if "net" in kinds else {}, wanted["sysctls"])
        _lay_ground(wanted["memory"])
        return [system.open_namespace("self", kind) for kind in kinds]

    return start(work)


def kinds_of(wanted: dict[str, Any]) -> list[str]:
    """The namespaces that a pod has for itself."""
    shared = {"net": wanted["host_network"], "ipc": wanted["host_ipc"]}
    return [kind for kind in KINDS if not shared.get(kind)]


def _connect(cluster: int, wanted: dict[str, Any]) -> None:
    address, outer = wanted["address"], wanted["link"]
    links = RouteSocket()
    links.set_up(index_of("lo"), "lo")
    links.add_pair(_LINK, outer, cluster, _MTU)
    link = index_of(_LINK)
    links.add_address(link, address)
    links.set_up(link, _LINK)
    links.add_route(link, GATEWAY)
    links.add_route(link, "0.0.0.0", prefix=0, gateway=GATEWAY, source=address)
    own = system.open_namespace("self", "net")
    system.join(cluster)
    there = RouteSocket()
    number = index_of(outer)
    there.set_up(number, outer)
    there.add_route(number, address)
    files.write(f"/proc/sys/net/ipv4/conf/{outer}/proxy_arp", "1")
    files.write(f"/proc/sys/net/ipv4/conf/{outer}/rp_filter", "1")  # no packet with the address of another pod
    system.join(own)


def _set_sysctls(usual: dict[str, str], wanted: dict[str, str]) -> None:
    for name, value in usual.items():
        if name not in wanted:
            files.write("/proc/sys/" + name.replace(".", "/"), value)
    for name, value in wanted.items():
        if ".." in name or name.startswith("/"):
            raise PodFault(f"invalid sysctl name {name!r}")
        try:
            files.write("/proc/sys/" + name.replace(".", "/"), value)
        except OSError as error:
            raise PodFault(f"sysctl {name}={value} cannot be set in a pod: {error.strerror}") from None


def _lay_ground(memory: list[dict[str, str]]) -> None:
    system.mount("none", "/", flags=system.MS_REC | system.MS_PRIVATE)
    ground = "/tmp"  # noqa: S108 - mounted over in this namespace only
    system.mount("shoal", ground, "tmpfs", options="mode=755,size=1m")
    for name in ("new", "stage", "proc", "sys", "shm", "memory"):
        os.mkdir(f"{ground}/{name}")
    for name in ("proc", "sys"):
        system.mount(f"/{name}", f"{ground}/{name}", flags=system.MS_BIND | system.MS_REC)
    for number, options in enumerate([{"mode": "1777", "size": _SHM}, *memory]):
        place = f"{ground}/memory/{number - 1}" if number else f"{ground}/shm"
        if number:
            os.mkdir(place)
        shown = ",".join(f"{name}={value}" for name, value in options.items())
        system.mount("shoal", place, "tmpfs", flags=2 | 4, options=shown)  # nosuid, nodev
    system.pivot_root(ground)


# short-lived processes


def start(work: Any) -> tuple[int, _socket.socket]:
    """Run ``work`` in another process, which sends the files that it returns."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        _run(work, theirs)
    theirs.close()
    return pid, ours


def _run(work: Any, answers: _socket.socket) -> NoReturn:
    try:
        files.send(answers, b"ok", work())
        os._exit(0)
    except BaseException as error:
        answers.send(files.error_text(error).encode()[:4096])
    finally:
        os._exit(1)


def finish(pid: int, source: _socket.socket) -> list[int]:
    """The files of a process from ``start``; raise ``PodFault`` if it failed."""
    try:
        data, found = files.receive(source)
    finally:
        source.close()
    os.waitpid(pid, 0)
    if data != b"ok":
        raise PodFault(data.decode(errors="replace") or "the process that prepares the pod was killed")
    return found
