"""``shoal up``: starts every process there is, says how to use it, and ends them all together.

Today that is one cluster. Each process is a child with its own log file; a child ends when its standard input does,
so nothing is left behind even when this process is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from shoal.app.files import DirectoryLock, make_private_dir, write_private
from shoal.app.home import ENDPOINTS, UP_LOCK
from shoal.app.kubectl import kubectl_word
from shoal.base.tasks import wait_first
from shoal.errors import ShoalError

CLUSTER = "local"
READY_BUDGET_S = 60.0
STOP_BUDGET_S = 10.0
EXIT_BUDGET_S = 2.0
_LOG_LIMIT_BYTES = 10_000_000
_LOG_TAIL_LINES = 15


class StartFailed(ShoalError):
    """A process did not become ready; the message has the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """The flags of ``shoal up``."""

    dir: Path
    port: int | None = None
    store: str = ""

    @property
    def cluster_dir(self) -> Path:
        return self.dir / "clusters" / CLUSTER


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """A cluster that has said it is ready."""

    name: str
    url: str
    kubeconfig: Path
    process: Process


def cluster_command(options: UpOptions) -> list[str]:
    """The command line of the cluster's process."""
    command = [sys.executable, "-m", "shoal", "cluster", "start", "--dir", str(options.cluster_dir), "--stop-on-eof"]
    if options.port is not None:
        command += ["--port", str(options.port)]
    if options.store:
        command += ["--store", options.store]
    return command


async def run_up(
    options: UpOptions,
    say: Callable[[str], object],
    *,
    command: Callable[[UpOptions], Sequence[str]] = cluster_command,
) -> None:
    """Start all, say where, wait for a signal, stop all. ``say`` prints a line."""
    make_private_dir(options.cluster_dir)
    with DirectoryLock(options.dir / UP_LOCK):
        stop = _stop_event()
        log = options.cluster_dir / "cluster.log"
        process = await _spawn(command(options), log)
        endpoints = options.dir / ENDPOINTS
        try:
            url = await _ready_url(process, log, stop)
            if url is None:
                return
            cluster = RunningCluster(CLUSTER, url, options.cluster_dir / "kubeconfig", process)
            write_private(endpoints, render_endpoints([cluster]))
            for line in guide(cluster):
                say(line)
            say("ready")
            if await _stopped_or_died(process, stop):
                raise StartFailed(f"the cluster ended by itself with code {process.returncode}\n{_tail(log)}")
        finally:
            endpoints.unlink(missing_ok=True)
            await _end(process)


def render_endpoints(clusters: Sequence[RunningCluster]) -> bytes:
    """The content of ``endpoints.json``: for programs, what runs and how to reach it."""
    listed = [{"name": c.name, "url": c.url, "kubeconfig": str(c.kubeconfig), "pid": c.process.pid} for c in clusters]
    return json.dumps({"pid": os.getpid(), "clusters": listed}, indent=2).encode() + b"\n"


def guide(cluster: RunningCluster) -> list[str]:
    """What to try first."""
    kubectl = f"{kubectl_word()} --kubeconfig {cluster.kubeconfig}"
    return [
        f"A Kubernetes-compatible cluster runs at {cluster.url}. Its pods are processes of this machine. Try:",
        "",
        f"  {kubectl} get nodes",
        f"  {kubectl} create deployment web --image=shoal/echo --replicas=3",
        f"  {kubectl} rollout status deployment/web",
        f"  {kubectl} port-forward deployment/web 8080",
        f"  {kubectl} logs -f deployment/web",
        "",
    ]


def _stop_event() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def _open_log(log: Path) -> BinaryIO:
    if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
        log.replace(log.with_suffix(".log.1"))
    return log.open("ab")


async def _spawn(command: Sequence[str], log: Path) -> Process:
    with _open_log(log) as stderr:
        # Its own session: Ctrl-C reaches this process alone, which then ends the others in order.
        return await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=stderr, start_new_session=True
        )


async def _ready_url(process: Process, log: Path, stop: asyncio.Event) -> str | None:
    """The URL of the ready line; None when asked to stop before it came."""
    try:
        async with asyncio.timeout(READY_BUDGET_S):
            line = await wait_first(_read_line(process), stop.wait())
    except TimeoutError:
        raise StartFailed(f"the cluster was not ready within {READY_BUDGET_S:.0f} s\n{_tail(log)}") from None
    if stop.is_set():
        return None
    if not isinstance(line, bytes) or not line.startswith(b"ready "):
        with suppress(TimeoutError):  # it has closed its output: let it end with a code of its own
            async with asyncio.timeout(EXIT_BUDGET_S):
                await process.wait()
        await _end(process)
        raise StartFailed(f"the cluster did not start (code {process.returncode})\n{_tail(log)}")
    return line.decode().split()[1]


async def _read_line(process: Process) -> bytes:
    assert process.stdout is not None
    return await process.stdout.readline()


async def _stopped_or_died(process: Process, stop: asyncio.Event) -> bool:
    """Wait for the end; True when the process ended without being asked to."""
    await wait_first(process.wait(), stop.wait())
    return not stop.is_set()


async def _end(process: Process) -> None:
    if process.returncode is None:
        # not process.terminate(): that polls, which takes the exit code away from whoever waits for it
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
