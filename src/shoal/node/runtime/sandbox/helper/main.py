"""The helper's loop: answers the agents of the cluster's nodes, and forks shims.

A request is a dict, framed like those to a shim; ``do`` is one of

    hello    the version of this protocol          pod      make a pod's namespaces
    adopt    take over those of a running shim     drop     give up a pod's namespaces
    start    fork the shim of a container          socket   sockets in a pod's or the cluster's network
    remove   delete a folder with mapped owners    pods     the pods of a node
    network  which network namespace is the cluster's (its inode)
    end      end; containers go on

Answers are lines of text: ``ok …`` or ``failed WHY``; sockets come with their line.
"""

from __future__ import annotations

import _socket
import fcntl
import os
import resource
import select

from shoal.node.runtime.process.shim import processes, system
from shoal.node.runtime.process.shim.main import serve
from shoal.node.runtime.process.shim.peers import ShimPeer

from . import container, files, pods, users
from .shim import SandboxShim

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

VERSION = "2"
SOCKET, LOCK, SHIMS = "helper.sock", "helper.lock", "shims"
_LOOK_MS = 2000
_UNATTENDED_LOOKS = 1800  # two seconds each, without pods and clients
_HIGH = 1 << 12  # file numbers that are not in use
_READY = 3


class PodFiles:
    """The namespaces of a pod, and the node that it belongs to."""

    def __init__(self, node: str, numbers: dict[str, int]) -> None:
        self.node = node
        self.numbers = numbers

    def close(self) -> None:
        for number in self.numbers.values():
            os.close(number)


class Helper:
    """Works in the current directory."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._outside = bool(config["root"])  # this process stays out of the user namespace
        self._user = -1
        self._cluster = -1
        self._pods: dict[str, PodFiles] = {}
        self._making: set[str] = set()  # pods whose namespaces are not there yet
        self._jobs: dict[int, Callable[[], None]] = {}  # by the file on which a short-lived process answers
        self._shims: set[int] = set()  # children
        self._peers: list[ShimPeer] = []
        self._ending = False
        self._signals = system.child_signals()
        self._listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._links = int.from_bytes(os.urandom(3), "big")  # so that names of links are not those of another helper
        self._files = resource.getrlimit(resource.RLIMIT_NOFILE)

    def prepare(self) -> None:
        """Make the namespaces of the cluster, or find them in a shim that has survived an earlier helper."""
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._files[1], self._files[1]))
        for shim in surviving_shims():
            try:
                self._cluster = _of_shim(shim, container.CLUSTER)
                if self._outside:
                    self._user = _of_shim(shim, container.USER)
            except OSError:
                continue
            return
        if self._outside:
            self._user = users.new_namespace(self._config["uids"], self._config["gids"])
        self._cluster = pods.make_cluster_network(self._user)

    def listen(self) -> int:
        """Listen, and return the inode of the socket."""
        if os.path.exists(SOCKET):
            os.unlink(SOCKET)
        self._listener.bind(SOCKET)
        self._listener.listen(512)
        self._listener.setblocking(False)
        return os.stat(SOCKET).st_ino

    def run(self, inode: int) -> None:
        """Serve until told to end, or the folder is deleted."""
        idle = 0
        while not self._ending and idle <= _UNATTENDED_LOOKS:
            self._peers = [peer for peer in self._peers if not peer.closed]
            interest: dict[int, Callable[[], object]] = {
                self._signals: self._reap, self._listener.fileno(): self._accept, **self._jobs,
            }  # fmt: skip
            for peer in self._peers:
                interest[peer.fd] = lambda peer=peer: self._serve(peer)  # type: ignore[misc]
            poll = select.poll()
            for fd in interest:
                poll.register(fd, select.POLLIN)
            ready = poll.poll(_LOOK_MS)
            for fd, _ in ready:
                interest[fd]()
            if not ready and not _is_there(inode):
                return
            idle = 0 if ready or self._peers or self._pods or self._shims else idle + 1
        if _is_there(inode):
            os.unlink(SOCKET)

    def _reap(self) -> None:
        try:
            os.read(self._signals, 4096)
        except BlockingIOError:
            pass
        for pid in tuple(self._shims):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._shims.discard(pid)

    def _accept(self) -> None:
        try:
            fd, _ = self._listener._accept()  # type: ignore[attr-defined]
        except OSError:
            return
        os.set_inheritable(fd, False)
        self._peers.append(ShimPeer(fd))

    def _serve(self, peer: ShimPeer) -> None:
        if peer.closed:
            return
        for request, opened in peer.receive():
            try:
                self._answer(peer, request, opened)
            except (OSError, pods.PodFault) as error:
                peer.answer(f"failed {files.error_text(error)}")
            finally:
                for fd in opened:
                    os.close(fd)

    def _answer(self, peer: ShimPeer, request: dict[str, Any], opened: list[int]) -> None:
        kind = request["do"]
        if kind == "hello":
            peer.answer(f"ok {VERSION}")
        elif kind == "pod":
            self._make_pod(peer, request)
        elif kind == "adopt":
            self._adopt(peer, request)
        elif kind == "drop":
            self._drop(request["id"])
            peer.answer("ok")
        elif kind == "pods":
            peer.answer(" ".join(["ok", *(id for id, pod in self._pods.items() if pod.node == request["node"])]))
        elif kind == "start":
            self._start(peer, request, opened[0])
        elif kind == "socket":
            self._open_sockets(peer, request)
        elif kind == "network":
            peer.answer(f"ok {os.fstat(self._cluster).st_ino}")
        elif kind == "remove":
            self._remove(peer, request["folder"])
        elif kind == "end":
            self._ending = True
            peer.answer("ok")
        else:
            peer.answer(f"failed unknown request {kind!r}")

    # pods

    def _make_pod(self, peer: ShimPeer, wanted: dict[str, Any]) -> None:
        identity = wanted["id"]
        if identity in self._pods:
            peer.answer("ok")
            return
        self._links = (self._links + 1) & 0xFFFFFF
        pid, source = pods.make_pod(self._user, self._cluster, {**wanted, "link": f"pod{self._links:06x}"})
        self._making.add(identity)

        def made() -> None:
            found = pods.finish(pid, source)
            pod = PodFiles(wanted["node"], dict(zip(pods.kinds_of(wanted), found, strict=True)))
            if identity in self._making:
                self._pods[identity] = pod
            else:  # dropped meanwhile
                pod.close()

        self._later(peer, source.fileno(), made, lambda: self._making.discard(identity))

    def _adopt(self, peer: ShimPeer, wanted: dict[str, Any]) -> None:
        if wanted["id"] not in self._pods:
            kinds = pods.kinds_of(wanted)
            found = {kind: _of_shim(wanted["shim"], container.FIRST + pods.KINDS.index(kind)) for kind in kinds}
            self._pods[wanted["id"]] = PodFiles(wanted["node"], found)
        peer.answer("ok")

    def _drop(self, identity: str) -> None:
        self._making.discard(identity)
        pod = self._pods.pop(identity, None)
        if pod is not None:
            pod.close()

    # short-lived processes

    def _later(
        self, peer: ShimPeer, fd: int, work: Callable[[], list[int] | None], after: Callable[[], None] = lambda: None
    ) -> None:
        """Answer when a process has sent its result."""

        def done() -> None:
            del self._jobs[fd]
            try:
                found = work() or []
            except pods.PodFault as error:
                peer.answer(f"failed {error}")
            else:
                _give(peer, found)
            finally:
                after()

        self._jobs[fd] = done

    def _open_sockets(self, peer: ShimPeer, wanted: dict[str, Any]) -> None:
        network = self._cluster
        if wanted["pod"]:
            pod = self._pods.get(wanted["pod"])
            if pod is None:
                peer.answer("failed the pod has no network")
                return
            network = pod.numbers.get("net", -1)

        def work() -> list[int]:
            users.become_root_of(self._user)
            if network >= 0:
                system.join(network)
            each = (wanted["family"], wanted["type"], wanted.get("protocol", 0))
            made = [_socket.socket(*each) for _ in range(wanted["count"])]
            return [each.detach() for each in made]

        pid, source = pods.start(work)
        self._later(peer, source.fileno(), lambda: pods.finish(pid, source))

    def _remove(self, peer: ShimPeer, folder: str) -> None:
        def work() -> list[int]:
            try:
                files.remove(folder)
            except FileNotFoundError:
                pass
            return []

        pid, source = pods.start(work)
        self._later(peer, source.fileno(), lambda: pods.finish(pid, source))

    # shims

    def _start(self, peer: ShimPeer, wanted: dict[str, Any], ready: int) -> None:
        pod = self._pods.get(wanted["pod"])
        if pod is None:
            peer.answer("failed the sandbox is not ready")
            return
        pid = os.fork()
        if pid == 0:
            self._become_shim(wanted["folder"], pod, ready)
        self._shims.add(pid)
        note_shim(pid)
        peer.answer(f"ok {pid}")

    def _become_shim(self, folder: str, pod: PodFiles, ready: int) -> NoReturn:
        try:
            kept = {_READY: ready, container.CLUSTER: self._cluster}
            if self._user >= 0:
                kept[container.USER] = self._user
            for kind, number in pod.numbers.items():
                kept[container.FIRST + pods.KINDS.index(kind)] = number
            kept[0] = kept[1] = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            errors = f"{folder}/shim.err"
            kept[2] = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
            moved = {to: fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _HIGH) for to, number in kept.items()}
            for to, number in moved.items():
                os.dup2(number, to, inheritable=to < _READY)
            last = 0
            for to in (*sorted(moved), _HIGH + 64):
                if last < to:  # closerange(0, 0) closes everything
                    os.closerange(last, to)
                last = to + 1
            resource.setrlimit(resource.RLIMIT_NOFILE, self._files)
            serve(folder, _READY, SandboxShim)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {files.error_text(error)}\n".encode())
        os._exit(0)


def _give(peer: ShimPeer, opened: list[int]) -> None:
    if not opened:
        peer.answer("ok")
        return
    try:
        if not peer.closed:
            files.send(peer.socket, b"ok\n", opened)
    except OSError:
        peer.close()
    finally:
        for number in opened:
            os.close(number)


def _is_there(inode: int) -> bool:
    try:
        return os.stat(SOCKET).st_ino == inode
    except OSError:
        return False


def _of_shim(shim: int, number: int) -> int:
    return os.open(f"/proc/{shim}/fd/{number}", os.O_RDONLY | os.O_CLOEXEC)


def note_shim(pid: int) -> None:
    """Remember a shim, for a helper that comes after this one."""
    number = os.open(SHIMS, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.write(number, f"{pid} {processes.start_time(pid)} {processes.boot_id()}\n".encode())
    os.close(number)


def surviving_shims() -> list[int]:
    """The shims of earlier helpers that still run; the others are forgotten."""
    try:
        lines = files.read_all(SHIMS).splitlines()
    except OSError:
        return []
    boot, found = processes.boot_id(), []
    for line in lines:
        fields = line.split()
        if len(fields) == 3 and fields[2] == boot and processes.start_time(int(fields[0])) == int(fields[1]):
            found.append(int(fields[0]))
    os.unlink(SHIMS)
    for pid in found:
        note_shim(pid)
    return found
