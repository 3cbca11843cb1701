"""The process from which programs of pods, their shims and service proxies are forked:
``python -P -m shoal.node.forks.server SOCKET MODULE``. It imports the ``MODULES`` of that module, and forks programs
that are ``python -m`` with one of its ``PACKAGES``.

Its memory is in every process that it forks, so it has nothing of its user: it is started with ``environment()``, opens
no file but its socket, and reads no setting. It runs no event loop and no thread. It is the parent of what it forks
and ends when its standard input does; what it has forked lives on.

    {"function": "package.module:name", "arguments": [...], "environ": {...}, "wait": false}   with up to four files
    ->  {"pid": 17}  and, if one waits for it,  {"ended": 0}

The files become those from 0 on. The answer to somebody else than the own user is none.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from shoal.node.forks import program

MESSAGE_BYTES = 100_000
_FILES = 4
_ASK_S = 2.0  # for a client to send its question
_HIGH, _ALL = 100, 65536  # numbers of files
_PASSED_ON = ("PATH", "PYTHONHOME", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")
_ROOM, _ROOM_BYTES = "SHOAL_ROOM", 8000  # for the environments of what is forked
WORDS_ROOM = " " * 600  # and their command lines
_SOURCE = Path(__file__).parents[3]


def environment(user: Mapping[str, str]) -> dict[str, str]:
    """The fork server's own: everything that it forks could read it."""
    found = {name: user[name] for name in _PASSED_ON if name in user}
    return {**found, "PYTHONPATH": str(_SOURCE), "MALLOC_ARENA_MAX": "1", _ROOM: " " * _ROOM_BYTES}


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """What a new process calls."""

    function: str
    arguments: Sequence[str]
    environ: Mapping[str, str]
    wait: bool = False


class ForkServer:
    """One server; ``serve`` returns in each process that it forks, with what that has to do."""

    def __init__(self, listener: socket.socket, modules: Sequence[str]) -> None:
        self._listener = listener
        self._waiting = list(modules)
        self._asking: dict[int, socket.socket] = {}  # who waits for the end of a process, by its pid

    def serve(self) -> ForkRequest | None:
        """None at the end of the server."""
        gc.disable()  # nothing here becomes garbage, and a collection would write to every page
        signal.signal(signal.SIGCHLD, lambda *_: self._reap())
        while True:
            input_, listener = 0, self._listener.fileno()
            ready = select.select([input_, listener], [], [], 0 if self._waiting else None)[0]
            if input_ in ready:
                return None
            if self._waiting:  # before the first request: what was imported afterwards would be shared by nobody
                _warm(self._waiting.pop(0))
            elif listener in ready and (request := self._next()) is not None:
                return request

    def _next(self) -> ForkRequest | None:
        """Answer one request. Returns it in the new process."""
        connection, _ = self._listener.accept()
        connection.settimeout(_ASK_S)
        try:
            if _user_of(connection) != os.geteuid():
                connection.close()
                return None
            message, files, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, _FILES)
        except OSError:
            connection.close()
            return None
        if _has_gone(connection):  # it has not waited: it executes the program
            message = b""
        try:
            request = ForkRequest(**json.loads(message))
            if len(os.listdir("/proc/self/task")) > 1:
                raise RuntimeError("a module has started a thread")
            gc.freeze()
            sys._clear_type_cache()  # it holds names: to replace one, a child would write to the page of the old one
            child = os.fork()
        except (ValueError, TypeError, RuntimeError, OSError) as error:
            answer: dict[str, object] = {"error": str(error)}
        else:
            if child == 0:
                self._let_go(connection, files)
                return request
            answer = {"pid": child}
            if request.wait:
                self._asking[child] = connection
        for each in files:
            os.close(each)
        _tell(connection, answer)
        if connection not in self._asking.values():
            connection.close()
        return None

    def _let_go(self, connection: socket.socket, files: Sequence[int]) -> None:
        """In the new process: keep the files that were sent, and nothing else."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for held in (self._listener, connection, *self._asking.values()):
            held.detach()
        self._asking.clear()
        high = [_moved(each) for each in files]
        for number, each in enumerate(high):
            os.dup2(each, number)
        os.closerange(len(high), _ALL)
        os.setsid()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if (asking := self._asking.pop(pid, None)) is not None:
                _tell(asking, {"ended": os.waitstatus_to_exitcode(status)})
                asking.close()


def _moved(number: int) -> int:
    return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _HIGH)


def _user_of(connection: socket.socket) -> int:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    user: int = struct.unpack("3i", raw)[1]
    return user


def _has_gone(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, 0)
    return bool(poll.poll(0))


def _tell(connection: socket.socket, answer: Mapping[str, object]) -> None:
    try:
        connection.send(json.dumps(answer).encode())
    except OSError:
        pass  # it has gone


def _warm(module: str) -> None:
    """Import it. One that cannot be imported fails where it is used, which has a log for that."""
    try:
        import_module(module)
    except Exception:  # noqa: S110
        pass


def _listening(path: str) -> socket.socket:
    """In the current directory afterwards: paths of sockets may have 107 bytes only."""
    folder, name = os.path.split(path)
    os.chdir(folder)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.path.lexists(name):
        os.unlink(name)
    old = os.umask(0o177)
    listener.bind(name)
    os.umask(old)
    listener.listen(64)
    return listener


FORKED: program.Forked | None = None  # in a process that this server has forked


def main(path: str, listed: str) -> int:
    global FORKED
    os.setsid()  # Ctrl-C is not for this process
    what = import_module(listed)
    FORKED = program.Forked({n: t for n, t in os.environ.items() if n != _ROOM}, _SOURCE, what.PACKAGES)
    request = ForkServer(_listening(path), what.MODULES).serve()
    if request is None:
        return 0
    gc.enable()
    module, _, name = request.function.partition(":")
    program.take_over([module, *request.arguments], request.environ)
    program.end(lambda: getattr(import_module(module), name)(*request.arguments))


if __name__ == "__main__":
    from shoal.node.forks import server  # the module of this name, which others import too

    sys.exit(server.main(*sys.argv[1:3]))
