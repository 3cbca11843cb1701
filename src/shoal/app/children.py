"""Child processes of ``shoal up``.

Each has a log file, prints ``ready``, and exits when its standard input closes, so no child survives this process even
if it is killed. A child that exits is restarted, and so is one that hangs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from shoal.app.forking import ChildProcess, spawn
from shoal.base.clock import Clock
from shoal.base.tasks import wait_first
from shoal.errors import ShoalError

READY_BUDGET_S = 60.0
STOP_BUDGET_S = 10.0
EXIT_BUDGET_S = 2.0
_LOG_LIMIT_BYTES = 10_000_000
_LOG_TAIL_LINES = 15
LOOK_S = 5.0  # between two looks whether the children answer
HANG_S = 30.0  # a child that has not answered for so long is killed
_ANSWER_S = 5.0
_DEATHS, _LATELY_S = 5, 60.0  # more than so many within this time are too many


Spawn = Callable[[Sequence[str], BinaryIO, Mapping[str, str]], Awaitable[ChildProcess]]


class StartFailed(ShoalError):
    """A process did not become ready; the message has the end of its log."""


class Stopped(ShoalError):
    """Stopped before all children were ready."""


@dataclass(slots=True)
class Child:
    """One process, restarted if it dies. ``url`` is the text it prints after the word ``ready``."""

    name: str
    command: Sequence[str]
    log: Path
    process: ChildProcess
    wave: int = 0
    url: str = ""
    deaths: list[float] = field(default_factory=list)  # times of recent exits
    answered_s: float = 0.0  # when it last did


class Children:
    """The child processes, in the order of their start."""

    def __init__(
        self,
        stop: asyncio.Event,
        clock: Clock,
        answers: Callable[[str], Awaitable[bool]] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        spawn: Spawn = spawn,
    ) -> None:
        """``answers`` tells whether the server at a URL answers. ``environ`` is added to their environment. ``spawn``
        starts a command with its log as standard error, and pipes for standard input and output."""
        self._environ = {**os.environ, **(environ or {})}
        self._stop = stop
        self._clock = clock
        self._answers = answers or is_answering
        self._spawn = spawn
        self._all: list[Child] = []

    async def start(self, name: str, command: Sequence[str], log: Path, *, wave: int = 0) -> Child:
        """Return when it is ready; raise StartFailed with the end of its log, or Stopped if this process must stop.
        Children of a later wave are ended first."""
        child = Child(name, command, log, await self._spawned(command, log), wave)
        self._all.append(child)
        await self._until_ready(child)
        return child

    async def keep(self, say: Callable[[str], object], changed: Callable[[], None]) -> None:
        """Until asked to stop: restart each child that exits or hangs, then call ``changed``. Raise StartFailed for a
        child that keeps failing."""
        while not self._stop.is_set():
            exits = (child.process.wait() for child in self._all)
            await wait_first(self._stop.wait(), self._until_one_hangs(say), *exits)
            for child in self._all:
                if child.process.returncode is not None and not self._stop.is_set():
                    await self._restart(child, say)
                    changed()

    async def _until_one_hangs(self, say: Callable[[str], object]) -> None:
        """Return when a child was killed because it has not answered for long, for example because it is suspended."""
        while True:
            await self._clock.sleep(LOOK_S)
            found = await asyncio.gather(*(self._answers(child.url) for child in self._all))
            now = self._clock.monotonic()
            for child, answers in zip(self._all, found, strict=True):
                child.answered_s = now if answers else child.answered_s
            hanging = [child for child in self._all if now - child.answered_s >= HANG_S]
            for child in hanging:
                say(f"the {child.name} has not answered for {now - child.answered_s:.0f} s; killing it")
                with suppress(ProcessLookupError):
                    os.kill(child.process.pid, signal.SIGKILL)  # it works for suspended processes too
                await child.process.wait()
            if hanging:
                return

    async def end(self) -> None:
        """Stop all children: wave by wave, the last one first, those of one wave together."""
        while self._all:
            last = max(child.wave for child in self._all)
            ending = [child for child in self._all if child.wave == last]
            self._all = [child for child in self._all if child.wave != last]
            await asyncio.gather(*(_end(child.process) for child in ending))

    async def _spawned(self, command: Sequence[str], log: Path) -> ChildProcess:
        with _open_log(log) as stderr:
            return await self._spawn(command, stderr, self._environ)

    async def _restart(self, child: Child, say: Callable[[str], object]) -> None:
        now = self._clock.monotonic()
        code = child.process.returncode
        child.deaths = [*(death for death in child.deaths if death > now - _LATELY_S), now]
        if len(child.deaths) > _DEATHS:
            raise StartFailed(f"the {child.name} keeps failing, last with exit code {code}\n{_tail(child.log)}")
        say(f"the {child.name} exited with code {code}; restarting it")
        child.process = await self._spawned(child.command, child.log)
        await self._until_ready(child)

    async def _until_ready(self, child: Child) -> None:
        name, process, log = child.name, child.process, child.log
        try:
            async with asyncio.timeout(READY_BUDGET_S):
                line = await wait_first(_read_line(process), self._stop.wait())
        except TimeoutError:
            raise StartFailed(f"the {name} was not ready within {READY_BUDGET_S:.0f} s\n{_tail(log)}") from None
        if self._stop.is_set():
            raise Stopped(f"stopped while the {name} was starting")
        if not isinstance(line, bytes) or not line.startswith(b"ready"):
            with suppress(TimeoutError):  # its output is closed: wait for its exit code
                async with asyncio.timeout(EXIT_BUDGET_S):
                    await process.wait()
            await _end(process)
            raise StartFailed(f"the {name} did not start (exit code {process.returncode})\n{_tail(log)}")
        child.url = line.decode().removeprefix("ready").strip()
        child.answered_s = self._clock.monotonic()


async def is_answering(url: str, within_s: float = _ANSWER_S) -> bool:
    """Whether the server at an https URL answers. The kernel accepts connections for a process that hangs, so a TLS
    handshake is asked for. A refused connection is no sign of that: a process that does not listen is about to exit."""
    place = urlsplit(url)
    if place.scheme != "https" or place.port is None:
        return True
    try:
        async with asyncio.timeout(within_s):
            _, writer = await asyncio.open_connection(place.hostname, place.port, ssl=_unverified())
    except TimeoutError:
        return False
    except OSError:
        return True
    writer.transport.abort()
    return True


@cache
def _unverified() -> ssl.SSLContext:
    """For handshakes after which nothing is sent. The system's authorities, 10 MB in 20 ms, are not read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _open_log(log: Path) -> BinaryIO:
    if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
        log.replace(log.with_suffix(".log.1"))
    return log.open("ab")


async def _read_line(process: ChildProcess) -> bytes:
    assert process.stdout is not None
    return await process.stdout.readline()


async def _end(process: ChildProcess) -> None:
    if process.returncode is None:
        # not process.terminate(): it polls, and the waiting coroutine would miss the exit code
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_BUDGET_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
    return "\n".join((f"the end of {log}:", *(f"  {line}" for line in lines)))
