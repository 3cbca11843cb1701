"""How ``shoal up`` starts its children: forked from a process that has imported their modules, or as programs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, BinaryIO, Protocol

from shoal.app import fork_server
from shoal.base.logs import get_logger
from shoal.node.runtime.process.shim.system import become_subreaper

log = get_logger("up")

PROGRAM = (sys.executable, "-m", "shoal")
_THRIFTY = {"MALLOC_ARENA_MAX": "2"}
_ROOM = " " * 400  # in the command line, for that of a child
_TRIES = 2
_END_S = 2.0
_STANDARD_ERROR = 2


class ChildProcess(Protocol):
    """What is needed of a process; asyncio's own has it."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    @property
    def stdout(self) -> asyncio.StreamReader | None: ...

    async def wait(self) -> int: ...

    def kill(self) -> None: ...


async def spawn(command: Sequence[str], log_file: BinaryIO, environ: Mapping[str, str]) -> Process:
    """Start a program. Its own session: Ctrl-C reaches this process alone, which then ends the others in order."""
    return await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=log_file, start_new_session=True, env=dict(environ)
    )


class ForkedProcess:
    """A child of this process that another one has forked."""

    def __init__(self, pid: int, stdin: int, stdout: asyncio.StreamReader) -> None:
        """``stdin`` is the other end of its standard input, which stays open until it has ended."""
        self.pid = pid
        self.stdout: asyncio.StreamReader | None = stdout
        self.returncode: int | None = None
        self._stdin = stdin
        self._ended = asyncio.Event()
        self._pidfd = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._saw_end)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def close_stdin(self) -> None:
        """End its standard input."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    def _saw_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.close_stdin()
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        self._ended.set()


class ForkFailed(Exception):
    """The fork server is away, or cannot fork."""


class StepFailed(Exception):
    """A function in a process of its own; its error is on standard error."""


class ForkServer:
    """Starts Shoal's own commands by a fork server, and one anew when it has failed. Other commands are started as
    programs, and so are all where the system has no such thing."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._process: Process | None = None
        self._connection: socket.socket | None = None

    async def start(self) -> None:
        """Start the server: it begins to import."""
        if sys.platform != "linux":
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", fork_server.__name__, str(theirs.fileno()), _ROOM, stdin=DEVNULL, stdout=DEVNULL,
                pass_fds=(theirs.fileno(),), env={**os.environ, **_THRIFTY},
            )  # fmt: skip
        self._connection = ours

    async def end(self) -> None:
        """End the server; its children live on."""
        self._disconnect()
        if self._process is not None:
            try:
                async with asyncio.timeout(_END_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
            self._process = None

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def spawn(self, command: Sequence[str], log_file: BinaryIO, environ: Mapping[str, str]) -> ChildProcess:
        """As ``spawn`` of this module."""
        if tuple(command[: len(PROGRAM)]) != PROGRAM or self._connection is None:
            return await spawn(command, log_file, environ)
        more = {name: value for name, value in environ.items() if os.environ.get(name) != value}
        async with self._lock:
            for _ in range(_TRIES):
                try:
                    request = {"arguments": list(command[len(PROGRAM) :]), "environ": more}
                    return await self._forked(request, log_file.fileno())
                except (ForkFailed, OSError) as error:
                    log.warning("the fork server has failed; starting another one", reason=str(error))
                    await self.end()
                    await self.start()
        return await spawn(command, log_file, environ)

    async def call(self, function: str, *arguments: object) -> None:
        """Call ``package.module:name``, with arguments for JSON, in a process of its own; in a thread of this one where
        none can be forked. The error of one that fails is on standard error."""
        process: ForkedProcess | None = None
        async with self._lock:
            if self._connection is not None:
                with suppress(ForkFailed, OSError):
                    request = {"function": function, "arguments": arguments, "environ": {}}
                    process = await self._forked(request, _STANDARD_ERROR)
        if process is None:
            module, _, name = function.partition(":")
            await asyncio.to_thread(lambda: getattr(import_module(module), name)(*arguments))
            return
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
        if code != 0:
            raise StepFailed(f"{function} has failed with exit code {code}")

    async def _forked(self, request: Mapping[str, Any], stderr: int) -> ForkedProcess:
        their_stdin, stdin = os.pipe()
        stdout, their_stdout = os.pipe()
        theirs = (their_stdin, their_stdout, stderr)
        become_subreaper()  # the server's child is an orphan at once, and becomes ours
        try:
            pid = (await self._ask(request, theirs))["pid"]
        except BaseException:
            os.close(stdin)
            os.close(stdout)
            self._disconnect()  # an answer that still comes would be taken for that of the next one
            raise
        finally:
            become_subreaper(False)  # other orphans are not
            os.close(their_stdin)
            os.close(their_stdout)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(stdout, "rb", 0)
        )
        return ForkedProcess(pid, stdin, reader)

    async def _ask(self, request: Mapping[str, Any], streams: Sequence[int]) -> dict[str, Any]:
        assert self._connection is not None
        socket.send_fds(self._connection, [json.dumps(request).encode()], streams)
        answer = await asyncio.get_running_loop().sock_recv(self._connection, fork_server.MESSAGE_BYTES)
        if not answer:
            raise ForkFailed("it has ended")
        found: dict[str, Any] = json.loads(answer)
        if "error" in found:
            raise ForkFailed(found["error"])
        return found
