"""Sessions of ``exec`` and ``attach``, over hijacked connections of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from shoal.base.clock import Clock
from shoal.node.runtime.docker import pods
from shoal.node.runtime.docker.engine import Engine, EngineError, EngineGone, Exchange
from shoal.node.runtime.docker.frames import BadFrame, Frames
from shoal.node.runtime.model import NoSuchContainer, OutputStream, SessionOptions, StartFailure

_KILLED = 137
_FIRST_POLL_S = 0.005
_POLL_CAP_S = 0.25
_NOT_FOUND = (126, 127)  # exit codes of a command that could not be started
_FAILED = (b"OCI runtime", b"exec failed", b"executable file")  # the engine writes that to the command's output


class _Streams:
    """The streams of both kinds of session."""

    def __init__(self, engine: Engine, exchange: Exchange, options: SessionOptions, *, terminal: bool) -> None:
        self._engine = engine
        self._exchange = exchange
        self._options = options
        self._terminal = terminal
        self._frames = Frames(terminal=terminal)
        self._input_open = options.stdin
        self._writing = asyncio.Lock()
        self._closed = False

    async def output(self) -> AsyncIterator[tuple[OutputStream, bytes]]:
        while not self._closed:
            try:
                data = await self._exchange.read()
                pieces = list(self._frames.feed(data))
            except (EngineGone, BadFrame):
                return
            for stream, piece in pieces:
                if self._options.stdout if stream is OutputStream.STDOUT else self._options.stderr:
                    yield stream, piece
            if not data:
                return

    async def write(self, data: bytes) -> None:
        async with self._writing:
            if not self._input_open or self._closed or not data:
                return
            try:
                await self._exchange.write(data)
            except EngineGone:
                self._input_open = False

    async def _end_input(self) -> None:
        async with self._writing:
            if self._input_open and not self._closed:
                self._input_open = False
                self._exchange.write_eof()

    async def _resize(self, what: str, name: str, width: int, height: int) -> None:
        if not self._terminal or self._closed:
            return
        try:
            await self._engine.json("POST", what, name, "resize", query={"w": width, "h": height})
        except EngineError:
            return  # it has just exited


class ExecSession(_Streams):
    """A command in a container."""

    def __init__(
        self,
        engine: Engine,
        exchange: Exchange,
        options: SessionOptions,
        *,
        clock: Clock,
        exec_id: str,
        container_id: str,
    ) -> None:
        super().__init__(engine, exchange, options, terminal=options.tty)
        self._clock = clock
        self._id = exec_id
        self._container_id = container_id
        self._code: int | None = None

    async def close_input(self) -> None:
        if self._terminal:
            await self.write(b"\x04")
        await self._end_input()

    async def resize(self, width: int, height: int) -> None:
        await self._resize("exec", self._id, width, height)

    async def wait(self) -> int:
        delay_s = _FIRST_POLL_S
        while self._code is None:
            state = await _state(self._engine, self._id)
            if not state["Running"] and state["ExitCode"] is not None:
                self._code = state["ExitCode"]
                break
            await self._clock.sleep(delay_s)
            delay_s = min(_POLL_CAP_S, delay_s * 2)
        return self._code

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if self._code is None:
                state = await _state(self._engine, self._id)
                if state["Running"]:
                    pods.kill(state["Pid"], self._container_id)
        except (EngineError, EngineGone):
            pass  # the container is removed, or the engine is unreachable
        finally:
            self._engine.release(self._exchange)


class AttachSession(_Streams):
    """A connection to the main process of a container."""

    def __init__(
        self,
        engine: Engine,
        exchange: Exchange,
        options: SessionOptions,
        *,
        terminal: bool,
        container_id: str,
        once: bool,
    ) -> None:
        super().__init__(engine, exchange, options, terminal=terminal)
        self._id = container_id
        self._once = once

    async def close_input(self) -> None:
        if self._once:
            await self._end_input()
        self._input_open = False

    async def resize(self, width: int, height: int) -> None:
        await self._resize("containers", self._id, width, height)

    async def wait(self) -> int:
        return await wait_for_exit(self._engine, self._id)

    async def close(self) -> None:
        self._closed = True
        self._engine.release(self._exchange)


async def wait_for_exit(engine: Engine, container_id: str) -> int:
    """Wait until a container does not run and return its exit code; that of SIGKILL if it was removed."""
    try:
        found = await engine.json(
            "POST", "containers", container_id, "wait", patient=True,
            query={"condition": "not-running", "interval": "50ms"},
        )  # fmt: skip
    except EngineError as error:
        if error.missing:
            return _KILLED
        raise
    return int((found or {}).get("StatusCode", _KILLED))


async def open_exec(
    engine: Engine, container_id: str, command: tuple[str, ...], options: SessionOptions, *, clock: Clock
) -> ExecSession:
    """Run a command in a container; raises ``StartFailure`` if the program does not exist."""
    body = {
        "AttachStdin": options.stdin,
        "AttachStdout": options.stdout,
        "AttachStderr": options.stderr and not options.tty,
        "Tty": options.tty,
        "Cmd": list(command),
    }
    try:
        made = await engine.json("POST", "containers", container_id, "exec", body=body)
    except EngineError as error:
        if error.missing or error.status == 409:
            raise NoSuchContainer(f"the container {container_id} is not running: {error}") from error
        raise StartFailure(str(error)) from error
    exec_id = made["Id"]
    try:
        exchange = await engine.hijack("exec", exec_id, "start", body={"Detach": False, "Tty": options.tty})
    except EngineError as error:
        if error.status == 409:
            raise NoSuchContainer(f"the container {container_id} is not running: {error}") from error
        raise StartFailure(str(error)) from error
    session = ExecSession(engine, exchange, options, clock=clock, exec_id=exec_id, container_id=container_id)
    try:
        await _started(engine, exchange, exec_id, options, clock)
    except BaseException:
        await session.close()
        raise
    return session


async def _started(engine: Engine, exchange: Exchange, exec_id: str, options: SessionOptions, clock: Clock) -> None:
    """Wait until the command runs or has exited. If it could not be started, the engine writes that to its output."""
    delay_s = _FIRST_POLL_S
    while True:
        state = await _state(engine, exec_id)
        if state["Running"] or state["ExitCode"] is not None:
            break
        await clock.sleep(delay_s)
        delay_s = min(_POLL_CAP_S, delay_s * 2)
    if state["Running"] or state["ExitCode"] not in _NOT_FOUND:
        return
    output = await exchange.body()
    if any(words in output for words in _FAILED):
        try:
            pieces = [piece for _, piece in Frames(terminal=options.tty).feed(output)]
        except BadFrame:
            pieces = [output]
        raise StartFailure(b"".join(pieces).decode(errors="replace").strip())
    exchange.unread(output)


async def _state(engine: Engine, exec_id: str) -> dict[str, Any]:
    """The state of a command: running, pid, exit code. One that the engine no longer knows counts as killed."""
    try:
        found = await engine.json("GET", "exec", exec_id, "json")
    except EngineError as error:
        if error.missing:
            return {"Running": False, "ExitCode": _KILLED, "Pid": 0}
        raise
    return {"Running": bool(found.get("Running")), "ExitCode": found.get("ExitCode"), "Pid": int(found.get("Pid") or 0)}


async def open_attach(
    engine: Engine, container_id: str, options: SessionOptions, *, terminal: bool, once: bool
) -> AttachSession:
    query = {
        "stream": True, "logs": False, "stdin": options.stdin, "stdout": options.stdout,
        "stderr": options.stderr and not terminal,
    }  # fmt: skip
    try:
        exchange = await engine.hijack("containers", container_id, "attach", query=query)
    except EngineError as error:
        if error.missing or error.status == 409:
            raise NoSuchContainer(f"the container {container_id} is not running: {error}") from error
        raise
    return AttachSession(engine, exchange, options, terminal=terminal, container_id=container_id, once=once)
