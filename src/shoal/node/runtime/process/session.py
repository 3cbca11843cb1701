"""Sessions with a container: a command in it (exec), or its own program (attach). The shim gets the other ends of the
session's pipes or terminal."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from shoal.base.tasks import OwnedTasks, cancel_all
from shoal.node.runtime.model import OutputStream, RuntimeFailure, SessionOptions, StartFailure
from shoal.node.runtime.process.fds import Channel, readable, write_all

_PIECE_BYTES = 65536
_KILLED = 137
_END_OF_INPUT = b"\x04"


class _Files:
    """The file descriptors of a session: our ends of its streams, and ``theirs`` for the shim, in order."""

    def __init__(self) -> None:
        self.outputs: dict[int, OutputStream] = {}
        self.input = -1
        self.terminal = -1
        self.theirs: list[int] = []

    def add_output(self, stream: OutputStream) -> None:
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        self.outputs[ours] = stream
        self.theirs.append(theirs)

    def add_input(self) -> None:
        theirs, self.input = os.pipe()
        os.set_blocking(self.input, False)
        self.theirs.append(theirs)

    def add_nothing(self) -> None:
        self.theirs.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))

    def add_terminal(self) -> None:
        master, slave = os.openpty()
        os.set_blocking(master, False)
        self.outputs[master] = OutputStream.STDOUT
        self.terminal, self.input = os.dup(master), os.dup(master)
        self.theirs += [slave, os.dup(slave), os.dup(slave)]

    def close_theirs(self) -> None:
        for fd in self.theirs:
            os.close(fd)
        self.theirs = []

    def close(self) -> None:
        self.close_theirs()
        for fd in (*self.outputs, self.input, self.terminal):
            if fd >= 0:
                os.close(fd)
        self.outputs, self.input, self.terminal = {}, -1, -1


class ProcessSession:
    """A session through a shim. See ``shoal.node.runtime.model.RuntimeSession``."""

    def __init__(self, channel: Channel, files: _Files, *, terminal: bool) -> None:
        self._channel = channel
        self._files = files
        self._terminal = terminal
        self._writing = asyncio.Lock()
        loop = asyncio.get_running_loop()
        self._given_up: asyncio.Future[None] = loop.create_future()
        self._exit: asyncio.Future[int] = loop.create_future()
        self._tasks = OwnedTasks()
        self._following = self._tasks.start(self._follow(), name="session/exit")

    async def _follow(self) -> None:
        """Wait for the exit, then close everything except output that was not read yet."""
        code = _KILLED
        try:
            while line := await self._channel.line():
                word, _, text = line.partition(" ")
                if word == "exit":
                    code = int(text)
                    break
        finally:
            self._release(code)
        async with self._writing:
            self._close_input()

    def _release(self, code: int) -> None:
        self._channel.close()
        if not self._exit.done():
            self._exit.set_result(code)

    async def output(self) -> AsyncIterator[tuple[OutputStream, bytes]]:
        files = self._files
        while files.outputs and not self._given_up.done():
            ended = self._exit.done()  # before reading, so that all output is read
            ready = tuple(files.outputs) if ended else await readable(files.outputs, self._exit, self._given_up)
            for fd in ready:
                stream = files.outputs.get(fd)
                data = _read(fd) if stream is not None else b""
                if data and stream is not None:
                    yield stream, data
                elif data is not None or ended:
                    _drop(files, fd)
        if self._exit.done():
            self._close_terminal()

    async def write(self, data: bytes) -> None:
        async with self._writing:
            if self._files.input >= 0 and not await write_all(self._files.input, data):
                self._close_input()

    async def close_input(self) -> None:
        async with self._writing:
            if self._files.input >= 0 and self._files.terminal >= 0:
                await write_all(self._files.input, _END_OF_INPUT)
            self._close_input()

    def _close_input(self) -> None:
        if self._files.input >= 0:
            os.close(self._files.input)
            self._files.input = -1

    def _close_terminal(self) -> None:
        if self._files.terminal >= 0:
            os.close(self._files.terminal)
            self._files.terminal = -1

    async def resize(self, width: int, height: int) -> None:
        if not self._terminal or self._given_up.done():
            return
        if self._files.terminal >= 0:
            fcntl.ioctl(self._files.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        elif not self._exit.done():
            await self._channel.send({"do": "resize", "width": width, "height": height})

    async def wait(self) -> int:
        return await asyncio.shield(self._exit)

    async def close(self) -> None:
        if self._given_up.done():
            return
        self._given_up.set_result(None)
        await cancel_all(self._following)
        self._release(_KILLED)  # the task may have been cancelled before it ran
        async with self._writing:
            self._files.close()


def _read(fd: int) -> bytes | None:
    """The available bytes; None if there are none yet, empty at the end."""
    try:
        return os.read(fd, _PIECE_BYTES)
    except BlockingIOError:
        return None
    except OSError:  # a terminal whose other side is closed
        return b""


def _drop(files: _Files, fd: int) -> None:
    if files.outputs.pop(fd, None) is not None:
        os.close(fd)


async def open_exec(folder: Path, command: tuple[str, ...], options: SessionOptions) -> ProcessSession:
    """Run a command in the container whose state is in ``folder``."""
    files = _Files()
    if options.tty:
        files.add_terminal()
    else:
        _pipes(files, options, all_three=True)
    request = {"do": "exec", "argv": list(command)}
    return await _opened(folder, request, files, terminal=options.tty)


async def open_attach(folder: Path, options: SessionOptions, *, terminal: bool) -> ProcessSession:
    """Connect to the container's own program; with a terminal, standard error is part of standard output."""
    files = _Files()
    _pipes(files, options, all_three=False)
    wanted = {"stdin": options.stdin, "stdout": options.stdout, "stderr": options.stderr}
    request = {"do": "attach", "streams": [name for name, on in wanted.items() if on]}
    return await _opened(folder, request, files, terminal=terminal)


def _pipes(files: _Files, options: SessionOptions, *, all_three: bool) -> None:
    if options.stdin:
        files.add_input()
    elif all_three:
        files.add_nothing()
    for stream, wanted in ((OutputStream.STDOUT, options.stdout), (OutputStream.STDERR, options.stderr)):
        if wanted:
            files.add_output(stream)
        elif all_three:
            files.add_nothing()


async def _opened(folder: Path, request: Mapping[str, object], files: _Files, *, terminal: bool) -> ProcessSession:
    channel: Channel | None = None
    try:
        channel = await Channel.open(folder, request, files.theirs)
        files.close_theirs()
        answer = await channel.line()
    except BaseException:
        files.close()
        if channel is not None:
            channel.close()
        raise
    word, _, rest = answer.partition(" ")
    if word in ("ok", "started"):
        return ProcessSession(channel, files, terminal=terminal)
    files.close()
    channel.close()
    if word == "failed":
        raise StartFailure(rest.partition(" ")[2])
    raise RuntimeFailure("the container exited")
