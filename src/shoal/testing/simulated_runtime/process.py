"""Runs the steps of a simulated process on the injected clock."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shoal.base.clock import Clock
from shoal.node.runtime.model import OutputStream
from shoal.testing.simulated_runtime.machine import Box
from shoal.testing.simulated_runtime.shell import Step

_SIGNALS = {"TERM": 15, "KILL": 9, "INT": 2, "9": 9, "15": 15}


class Ended(Exception):
    """The process has ended with a code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


async def run_steps(box: Box, steps: tuple[Step, ...], clock: Clock) -> int:
    """Run the process of a container; returns its exit code."""
    try:
        for step in steps:
            await _step(box, step, clock)
    except Ended as end:
        return end.code
    return 0


async def _step(box: Box, step: Step, clock: Clock) -> None:
    if step.name == "echo":
        stream = OutputStream.STDERR if step.to_stderr else OutputStream.STDOUT
        box.log.write(int(clock.wall_s() * 1e9), stream, " ".join(step.args).encode() + b"\n")
    elif step.name == "exit":
        raise Ended(int(step.args[0]) if step.args else 0)
    elif step.name == "sleep":
        await _sleep(box, _seconds(step), clock)
    elif step.name == "kill":
        box.signal = _SIGNALS.get(step.args[0].lstrip("-").removeprefix("SIG"), 15)
        raise Ended(128 + box.signal)
    elif step.name == "trap":
        box.ignores_term = True
    elif step.name == "serve":
        box.serves.add(int(step.args[0]))
        await _sleep(box, None, clock)
    elif step.name == "cat":
        await _cat(box, clock)
    elif step.name == "write":
        write_file(box, step.args[0], " ".join(step.args[1:]))


def _seconds(step: Step) -> float | None:
    text = step.args[0] if step.args else "inf"
    return None if text in ("inf", "infinity") else float(text)


async def _sleep(box: Box, seconds: float | None, clock: Clock) -> None:
    """Sleep until the time is up, or until a signal ends the process."""
    done = asyncio.Event()
    timer = clock.call_later(seconds, done.set) if seconds is not None else None
    try:
        await _until(box, done)
    finally:
        if timer is not None:
            timer.cancel()


async def _until(box: Box, done: asyncio.Event) -> None:
    waits = {asyncio.create_task(done.wait(), name="done"), asyncio.create_task(box.killed.wait(), name="killed")}
    if not box.ignores_term:
        waits.add(asyncio.create_task(box.term.wait(), name="term"))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    if box.killed.is_set():
        raise Ended(137)
    if box.term.is_set() and not box.ignores_term:
        raise Ended(143)


async def _cat(box: Box, clock: Clock) -> None:
    """Copy the input to the output until the input ends."""
    if not box.spec.stdin:
        return
    ended = asyncio.Event()

    async def copy() -> None:
        while (data := await box.input.get()) is not None:
            box.log.write(int(clock.wall_s() * 1e9), OutputStream.STDOUT, data)
        ended.set()

    task = asyncio.create_task(copy(), name="simulated/cat")
    try:
        await _until(box, ended)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def write_file(box: Box, path: str, text: str) -> None:
    """Write to the mount that contains the path; do nothing without one."""
    for mount in sorted(box.spec.mounts, key=lambda each: len(each.container_path), reverse=True):
        if path == mount.container_path or path.startswith(mount.container_path.rstrip("/") + "/"):
            target = Path(mount.host_path + path[len(mount.container_path) :])
            target.write_text(text)
            return


def read_file(box: Box, path: str) -> bytes | None:
    for mount in sorted(box.spec.mounts, key=lambda each: len(each.container_path), reverse=True):
        if path == mount.container_path or path.startswith(mount.container_path.rstrip("/") + "/"):
            found = Path(mount.host_path + path[len(mount.container_path) :])
            return found.read_bytes() if found.is_file() else None
    return None


async def wait_for(clock: Clock, event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event; returns whether it came in time."""
    over = asyncio.Event()
    timer = clock.call_later(seconds, over.set)
    waits = [asyncio.create_task(each.wait(), name="wait") for each in (event, over)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    return event.is_set()
