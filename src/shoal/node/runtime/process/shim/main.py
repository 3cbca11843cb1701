"""The shim's loop: copies the container's output to its log and to attached clients, reaps, and records the exit."""

from __future__ import annotations

import _socket
import fcntl
import marshal
import os
import select
import struct
import termios
import time

from . import processes, system
from .child import StartError, spawn
from .log import ContainerLog
from .peers import ShimPeer

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing these at run time would double the memory of a shim
    from collections.abc import Callable
    from typing import Any, NoReturn, Protocol

    from .child import Run

    class Forked(Protocol):
        """Runs programs in a process that was forked, in place of ``exec``."""

        def fits(self, argv: list[str], environment: dict[str, str], targets: list[str]) -> bool: ...

        def run(self, argv: list[str], environment: dict[str, str]) -> NoReturn: ...

    Interest = dict[int, tuple[int, Callable[[], object]]]

_PIECE_BYTES = 65536
_LOOK_MS = 1000  # interval of the checks of memory and stalled readers
_LAST_OUTPUT_S = 2.0  # for readers to take the last output
_KILL_S = 5.0  # after which processes that do not die are left behind
_END_OF_INPUT = b"\x04"


class Shim:
    """One container. Works in the container's folder."""

    def __init__(self, config: dict[str, Any], forked: Forked | None = None) -> None:
        """``forked`` is given to a shim that was forked itself: it may fork the container's program."""
        self._config = config
        self._forked = forked
        self._inherited = 0  # memory that the container's program has from the fork server
        self._memory_limit = config["memory_limit"]
        self._log = ContainerLog(config["log_bytes"], config["log_files"])
        self._peers: list[ShimPeer] = []
        self._outputs: dict[int, str] = {}  # stream by the file from which its output is read
        self._input = -1  # file to which its input is written
        self._unread = b""  # input that the container has not read yet
        self._input_ends = False  # close its input after the unread part
        self._pid = 0
        self._status: int | None = None
        self._out_of_memory = False
        self._signals = system.child_signals()
        self._listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)

    def run(self, ready: int) -> None:
        """Start the container, write the result to ``ready``, and run until the container has exited."""
        started_at = time.time()
        self._listen()
        try:
            self._start()
        except StartError as error:
            _write_facts("exit", code=error.code, signal=0, reason="StartError", at=time.time(), message=str(error))
            _say(ready, f"failed {error.code} {error}")
            return
        me = os.getpid()
        _write_facts(
            "state", pid=self._pid, start=processes.start_time(self._pid), shim=me,
            shim_start=processes.start_time(me), boot=processes.boot_id(), at=started_at, inherited=self._inherited,
        )  # fmt: skip
        _say(ready, "started")
        while self._status is None:
            self._turn()
        self._finish()

    def _listen(self) -> None:
        if os.path.exists("shim.sock"):
            os.unlink("shim.sock")
        self._listener.bind("shim.sock")
        self._listener.listen(16)
        self._listener.setblocking(False)

    def _start(self) -> None:
        config = self._config
        if config["tty"]:
            master, slave = os.openpty()
            theirs = {slave}
            streams = (slave, slave, slave)
            self._outputs, self._input = {master: "stdout"}, os.dup(master)
        else:
            out, their_out = os.pipe()
            err, their_err = os.pipe()
            if config["stdin"]:
                their_in, self._input = os.pipe()
            else:
                their_in = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
            theirs = {their_in, their_out, their_err}
            streams = (their_in, their_out, their_err)
            self._outputs = {out: "stdout", err: "stderr"}
        for fd in (*self._outputs, *((self._input,) if self._input >= 0 else ())):
            os.set_blocking(fd, False)
        try:
            self._pid = self._spawn(config["argv"], streams)
        finally:
            for fd in theirs:
                os.close(fd)

    def _run_forked(self) -> Run | None:
        config, forked = self._config, self._forked
        if forked is None or not forked.fits(config["argv"], config["env"], [each[1] for each in config["mounts"]]):
            return None
        self._inherited = processes.private_bytes(os.getpid())
        return forked.run

    # what depends on how containers are isolated

    def _spawn(self, argv: list[str], streams: tuple[int, int, int], inside: int = 0) -> int:
        return spawn(self._config, argv, streams, inside, run=None if inside else self._run_forked())

    def _watches(self) -> bool:
        """Whether the container is looked at every second."""
        return bool(self._memory_limit)

    def _is_out_of_memory(self) -> bool:
        return self._out_of_memory

    def _change_limits(self, request: dict[str, Any]) -> None:
        self._memory_limit = request["resources"]["memory"]

    # the loop

    def _turn(self) -> None:
        self._peers = [peer for peer in self._peers if not peer.closed]
        interest = self._interest()
        poll = select.poll()
        for fd, (mask, _) in interest.items():
            poll.register(fd, mask)
        look = self._watches() or any(peer.pending for peer in self._peers)
        for fd, _ in poll.poll(_LOOK_MS if look else None):
            interest[fd][1]()
        if look:
            self._look()

    def _interest(self) -> Interest:
        found: Interest = {self._signals: (select.POLLIN, self._reap), self._listener.fileno(): (1, self._accept)}
        if not any(peer.pending for peer in self._peers):  # a slow reader blocks the container
            for fd in self._outputs:
                found[fd] = (select.POLLIN, lambda fd=fd: self._copy(fd))  # type: ignore[misc]
        if self._unread:
            found[self._input] = (select.POLLOUT, self._feed)
        for peer in self._peers:
            found[peer.fd] = (select.POLLIN, lambda peer=peer: self._serve(peer))  # type: ignore[misc]
            for fd in peer.pending:
                found[fd] = (select.POLLOUT, lambda peer=peer, fd=fd: peer.flush(fd))  # type: ignore[misc]
            if peer.input >= 0 and not self._unread:
                found[peer.input] = (select.POLLIN, lambda peer=peer: self._take(peer))  # type: ignore[misc]
        return found

    def _reap(self) -> None:
        try:
            os.read(self._signals, 4096)
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                self._status = status
            for peer in self._peers:
                if peer.pid == pid:
                    peer.pid = 0
                    peer.answer(f"exit {_code(status)}")

    def _look(self) -> None:
        for peer in self._peers:
            peer.check_stall()
        limit = self._memory_limit
        if limit and not self._out_of_memory:
            pids = [self._pid, *processes.descendants(self._pid)]
            private = sum(map(processes.private_bytes, pids)) - self._inherited
            if private > limit and sum(map(processes.proportional_bytes, pids)) > limit:
                self._out_of_memory = True
                os.kill(self._pid, system.SIGKILL)

    # output and input

    def _copy(self, fd: int) -> bool:
        """Read a piece of output; False if there is none at the moment."""
        stream = self._outputs.get(fd)
        if stream is None:
            return False
        try:
            data = os.read(fd, _PIECE_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # a terminal whose other side is closed
            data = b""
        if not data:
            del self._outputs[fd]
            os.close(fd)
            return False
        self._log.write(stream, data)
        for peer in self._peers:
            peer.give(stream, data)
        return True

    def _take(self, peer: ShimPeer) -> None:
        """Read input of an attached client. With ``stdin_once`` its end also ends the container's input."""
        if peer.input < 0:
            return
        try:
            data = os.read(peer.input, _PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._unread += data
            self._feed()
        else:
            self._input_ended(peer)

    def _input_ended(self, peer: ShimPeer) -> None:
        peer.close_input()
        if not self._config["stdin_once"] or self._input < 0:
            return
        if self._config["tty"]:
            self._unread += _END_OF_INPUT
        else:
            self._input_ends = True
        self._feed()

    def _feed(self) -> None:
        try:
            if self._unread and self._input >= 0:
                self._unread = self._unread[os.write(self._input, self._unread) :]
        except BlockingIOError:
            return
        except OSError:  # the container closed its input
            self._input_ends, self._unread = True, b""
        if self._input < 0:
            self._unread = b""
        elif self._input_ends and not self._unread:
            os.close(self._input)
            self._input = -1

    # requests

    def _accept(self) -> None:
        try:
            fd, _ = self._listener._accept()  # type: ignore[attr-defined]
        except OSError:
            return
        self._peers.append(ShimPeer(fd))

    def _serve(self, peer: ShimPeer) -> None:
        if peer.closed:
            return
        had_input = peer.input >= 0
        for request, files in peer.receive():
            kept = self._answer(peer, request, files)
            for fd in files:
                if fd not in kept:
                    os.close(fd)
        if peer.gone():
            if peer.pid:
                self._kill_session(peer.pid)
            if had_input:
                self._input_ended(peer)

    def _answer(self, peer: ShimPeer, request: dict[str, Any], files: list[int]) -> list[int]:
        """Carry out a request. Returns the files to keep open."""
        kind = request["do"]
        if kind == "signal":
            os.kill(self._pid, request["number"])
            peer.answer("ok")
        elif kind == "kill":
            for pid in (self._pid, *processes.descendants(self._pid)):
                _kill(pid)
            peer.answer("ok")
        elif kind == "limit":
            self._change_limits(request)
            peer.answer("ok")
        elif kind == "resize" and self._config["tty"]:
            size = struct.pack("HHHH", request["height"], request["width"], 0, 0)
            fcntl.ioctl(self._input, termios.TIOCSWINSZ, size)
        elif kind == "exec":
            self._exec(peer, request["argv"], (files[0], files[1], files[2]))
        elif kind == "attach":
            named = dict(zip(request["streams"], files, strict=True))
            for fd in files:
                os.set_blocking(fd, False)
            peer.input = named.pop("stdin", -1)
            peer.outputs = named
            peer.answer("ok")
            return files
        return []

    def _exec(self, peer: ShimPeer, argv: list[str], streams: tuple[int, int, int]) -> None:
        try:
            peer.pid = self._spawn(argv, streams, inside=self._pid)
        except StartError as error:
            peer.answer(f"failed {error.code} {error}")
        else:
            peer.answer(f"started {peer.pid}")

    @staticmethod
    def _kill_session(leader: int) -> None:
        for pid in processes.descendants(os.getpid()):
            if pid == leader or processes.session(pid) == leader:
                _kill(pid)

    # the end

    def _finish(self) -> None:
        """The main process has exited: kill the others, record the exit, and send the last output."""
        self._kill_all()
        for fd in tuple(self._outputs):
            while self._copy(fd):
                pass
        self._log.end()
        assert self._status is not None
        code = _code(self._status)
        signal = code - 128 if os.WIFSIGNALED(self._status) else 0
        reason = "OOMKilled" if self._is_out_of_memory() else "Error" if code else "Completed"
        _write_facts("exit", code=code, signal=signal, reason=reason, at=time.time(), message="")
        until = time.monotonic() + _LAST_OUTPUT_S
        while (late := [peer for peer in self._peers if peer.pending]) and time.monotonic() < until:
            poll = select.poll()
            for peer in late:
                for fd in peer.pending:
                    poll.register(fd, select.POLLOUT)
            poll.poll(100)
            for peer in late:
                for fd in tuple(peer.pending):
                    peer.flush(fd)
        for peer in self._peers:
            peer.answer(f"exit {137 if peer.pid else code}")
            peer.close()

    def _kill_all(self) -> None:
        until = time.monotonic() + _KILL_S
        while time.monotonic() < until:
            for pid in processes.descendants(os.getpid()):
                _kill(pid)
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                time.sleep(0.002)
            for peer in self._peers:
                if pid and peer.pid == pid:
                    peer.pid = 0
                    peer.answer(f"exit {_code(status)}")


def _kill(pid: int) -> None:
    try:
        os.kill(pid, system.SIGKILL)
    except ProcessLookupError:
        pass


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _write_facts(path: str, **facts: object) -> None:
    """Write one fact per line, atomically."""
    text = "".join(f"{name} {str(value).replace(chr(10), ' ')}\n" for name, value in facts.items())
    fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    os.write(fd, text.encode())
    os.close(fd)
    os.replace(f"{path}.new", path)


def _say(fd: int, text: str) -> None:
    try:
        os.write(fd, text.encode())
    except OSError:
        pass  # the runtime has gone; it reads the files when it returns
    os.close(fd)


def main(folder: str, forked: Forked | None = None) -> None:
    """Run the container of a folder. The runtime reads the result of the start from file descriptor 3."""
    os.closerange(4, 65536)
    os.set_inheritable(3, False)
    serve(folder, 3, lambda config: Shim(config, forked))


def serve(folder: str, ready: int, make: Callable[[dict[str, Any]], Shim]) -> None:
    """Run the container of a folder until its exit; the result of the start is written to ``ready``."""
    os.chdir(folder)
    if os.getsid(0) != os.getpid():
        os.setsid()
    lock = os.open("lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say(ready, "failed 128 the container is already being started")
        return
    system.become_subreaper()
    config_fd = os.open("config", os.O_RDONLY | os.O_CLOEXEC)
    raw = b""
    while piece := os.read(config_fd, _PIECE_BYTES):
        raw += piece
    os.close(config_fd)
    make(marshal.loads(raw)).run(ready)  # noqa: S302 - written by our own user
