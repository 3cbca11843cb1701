"""``shoal sentinel start`` as a process: ready when it has everything, gone with its Envoy however it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from gateway_world import prepare

from shoal.app.ports import any_free
from shoal.base.clock import RealClock
from shoal.client import connect, load
from shoal.testing.servers import server_process
from shoal.testing.waiting import eventually


def envoys_of(pid: int) -> list[int]:
    """The children of a process that are Envoy."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(entry)) is not None:
            name, parent = stat
            if parent == pid and name == "envoy":
                found.append(int(entry.name))
    return found


def _stat(entry: Path) -> tuple[str, int] | None:
    try:
        text = (entry / "stat").read_text()
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name, int(rest.split()[1])


def is_gone(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@asynccontextmanager
async def sentinel_process() -> AsyncIterator[tuple[subprocess.Popen[bytes], int]]:
    """A gateway that is ready, and the port of its health."""
    ports = [any_free("127.0.0.1") for _ in range(3)]
    with server_process() as server, tempfile.TemporaryDirectory() as home:
        async with connect(load(server.kubeconfig), clock=RealClock()) as client:
            await prepare(client)
        env = {key: value for key, value in os.environ.items() if not key.startswith("KUBERNETES_")}
        env |= {"KUBECONFIG": server.kubeconfig, "HOME": home, "SHOAL_SENTINEL_CONCURRENCY": "1"}
        flags = ["--port", str(ports[0]), "--health-port", str(ports[1]), "--metrics-port", str(ports[2])]
        command = [sys.executable, "-m", "shoal", "sentinel", "start", "--environment", "env_1", *flags]
        process = await asyncio.to_thread(subprocess.Popen, command, stdout=subprocess.PIPE, env=env)
        try:
            assert process.stdout is not None
            line = await asyncio.to_thread(process.stdout.readline)
            assert line.decode() == f"ready http://127.0.0.1:{ports[0]}\n"
            yield process, ports[1]
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


async def test_a_gateway_that_is_asked_to_stop_ends_with_its_envoy() -> None:
    async with sentinel_process() as (process, health), httpx.AsyncClient() as http:
        assert (await http.get(f"http://127.0.0.1:{health}/readyz")).status_code == 200
        (envoy,) = envoys_of(process.pid)
        process.terminate()
        assert await asyncio.to_thread(process.wait, 20) == 0
        assert is_gone(envoy)


async def test_a_gateway_that_is_killed_takes_its_envoy_along() -> None:
    async with sentinel_process() as (process, _):
        (envoy,) = envoys_of(process.pid)
        process.send_signal(signal.SIGKILL)
        await eventually(lambda: is_gone(envoy))
