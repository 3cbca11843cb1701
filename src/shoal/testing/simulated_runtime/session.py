"""Sessions and connections of simulated containers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from shoal.base.clock import Clock
from shoal.base.tasks import cancel_all
from shoal.node.runtime.model import OutputStream, SessionOptions
from shoal.testing.simulated_runtime.machine import Box
from shoal.testing.simulated_runtime.process import Ended, read_file, write_file
from shoal.testing.simulated_runtime.shell import Step

_KILLED = 137


class ExecSession:
    """A command in a container, beside its own process. It ends with the container."""

    def __init__(self, box: Box, steps: tuple[Step, ...], options: SessionOptions, clock: Clock) -> None:
        self._box = box
        self._options = options
        self._clock = clock
        self._input: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._output: asyncio.Queue[tuple[OutputStream, bytes] | None] = asyncio.Queue(16)
        self._closed = False
        self._task = asyncio.create_task(self._run(steps), name=f"simulated/exec/{box.container.id}")

    async def _run(self, steps: tuple[Step, ...]) -> int:
        work = asyncio.create_task(self._steps(steps), name="simulated/exec/steps")
        ended = asyncio.create_task(self._box.exited.wait(), name="simulated/exec/ended")
        try:
            await asyncio.wait({work, ended}, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else _KILLED
        finally:
            await cancel_all(work, ended)
            await self._output.put(None)

    async def _steps(self, steps: tuple[Step, ...]) -> int:
        try:
            for step in steps:
                await self._step(step)
        except Ended as end:
            return end.code
        return 0

    async def _step(self, step: Step) -> None:
        if step.name == "echo":
            await self._say(
                OutputStream.STDERR if step.to_stderr else OutputStream.STDOUT, " ".join(step.args).encode() + b"\n"
            )
        elif step.name == "exit":
            raise Ended(int(step.args[0]) if step.args else 0)
        elif step.name == "sleep":
            if not step.args or step.args[0].startswith("inf"):
                await asyncio.Event().wait()
            await self._clock.sleep(float(step.args[0]))
        elif step.name == "cat":
            await self._cat(step)
        elif step.name == "write":
            write_file(self._box, step.args[0], " ".join(step.args[1:]))

    async def _cat(self, step: Step) -> None:
        for path in step.args:
            data = read_file(self._box, path)
            if data is None:
                await self._say(OutputStream.STDERR, f"cat: {path}: No such file or directory\n".encode())
                raise Ended(1)
            await self._say(OutputStream.STDOUT, data)
        if not step.args and self._options.stdin:
            while (data := await self._input.get()) is not None:
                await self._say(OutputStream.STDOUT, data)

    async def _say(self, stream: OutputStream, data: bytes) -> None:
        if self._options.tty:
            stream = OutputStream.STDOUT
        wanted = self._options.stdout if stream is OutputStream.STDOUT else self._options.stderr
        if wanted and data:
            await self._output.put((stream, data))

    async def output(self) -> AsyncIterator[tuple[OutputStream, bytes]]:
        while (piece := await self._output.get()) is not None:
            yield piece

    async def write(self, data: bytes) -> None:
        if not self._closed:
            await self._input.put(data)

    async def close_input(self) -> None:
        if not self._closed:
            self._closed = True
            await self._input.put(None)

    async def resize(self, width: int, height: int) -> None:
        return

    async def wait(self) -> int:
        return await asyncio.shield(self._task)

    async def close(self) -> None:
        while not self._output.empty():
            self._output.get_nowait()
        await cancel_all(self._task)


class AttachSession:
    """The output of a container from now on, and its input."""

    def __init__(self, box: Box, options: SessionOptions) -> None:
        self._box = box
        self._options = options
        self._position = len(box.log.records)
        self._gone = asyncio.Event()

    async def output(self) -> AsyncIterator[tuple[OutputStream, bytes]]:
        log = self._box.log
        while not self._gone.is_set():
            for record in log.records[self._position :]:
                self._position += 1
                wanted = self._options.stdout if record.stream is OutputStream.STDOUT else self._options.stderr
                if wanted:
                    yield record.stream, record.data
            if self._position < len(log.records):
                continue
            if log.ended:
                return
            waits = [
                asyncio.create_task(log.wait(self._position), name="attach/log"),
                asyncio.create_task(self._gone.wait(), name="attach/gone"),
            ]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await cancel_all(*waits)

    async def write(self, data: bytes) -> None:
        if self._options.stdin and not self._gone.is_set():
            await self._box.input.put(data)

    async def close_input(self) -> None:
        if self._options.stdin and self._box.spec.stdin_once:
            await self._box.input.put(None)

    async def resize(self, width: int, height: int) -> None:
        return

    async def wait(self) -> int:
        await self._box.exited.wait()
        return self._box.container.exit_code

    async def close(self) -> None:
        self._gone.set()


class EchoConnection:
    """A port that echoes what it receives, and answers HTTP GET with a short page."""

    def __init__(self) -> None:
        self._data: asyncio.Queue[bytes] = asyncio.Queue()
        self._ended = False

    async def read(self, limit: int = 65536) -> bytes:
        if self._ended and self._data.empty():
            return b""
        return await self._data.get()

    async def write(self, data: bytes) -> None:
        if data.startswith(b"GET "):
            status = data.split(b" ", 2)[1].rpartition(b"/")[2]
            code = int(status) if status.isdigit() and len(status) == 3 else 200
            head = f"HTTP/1.1 {code} Answer\r\nContent-Length: 2\r\nConnection: close\r\n\r\n".encode()
            await self._data.put(head + b"ok")
            await self.write_eof()
            return
        await self._data.put(data)

    async def write_eof(self) -> None:
        self._ended = True
        await self._data.put(b"")

    async def close(self) -> None:
        self._ended = True
        await self._data.put(b"")
