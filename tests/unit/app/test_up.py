"""Guarantees of ``shoal up`` and ``shoal down``, with a stand-in for the cluster's process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shoal.app.commands.down import stop_all
from shoal.app.files import DirectoryLock, holder_of
from shoal.app.up import StartFailed, UpOptions, cluster_command, run_up
from shoal.base.clock import FakeClock, RealClock
from shoal.errors import ConfigError, ShoalError

STAND_IN = """
import sys
print("ready https://127.0.0.1:1234", flush=True)
sys.stdin.read()
"""
UP = """
import asyncio, sys; from pathlib import Path; from shoal.app.up import UpOptions, run_up
asyncio.run(run_up(UpOptions(dir=Path(sys.argv[1])), lambda line: print(line, flush=True),
                   command=lambda _: [sys.executable, "-c", sys.argv[2]]))
"""


def started(directory: Path, stand_in: str = STAND_IN) -> tuple[subprocess.Popen[str], list[str]]:
    """``up`` in a process of its own, and what it said up to ``ready``."""
    process = subprocess.Popen([sys.executable, "-c", UP, str(directory), stand_in], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    said: list[str] = []
    for line in process.stdout:
        said.append(line.rstrip("\n"))
        if said[-1] == "ready":
            break
    return process, said


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def end(process: subprocess.Popen[str], number: int) -> int:
    process.send_signal(number)
    code = process.wait(10)
    assert process.stdout
    process.stdout.close()
    return code


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_says_five_commands_then_ready_writes_endpoints_and_a_signal_ends_all(tmp_path: Path, number: int) -> None:
    process, said = started(tmp_path)
    endpoints = json.loads((tmp_path / "endpoints.json").read_bytes())
    (cluster,) = endpoints["clusters"]
    assert endpoints["pid"] == process.pid
    assert cluster["url"] == "https://127.0.0.1:1234"
    commands = [line for line in said if f"--kubeconfig {cluster['kubeconfig']}" in line]
    assert len(commands) == 5
    assert said[-1] == "ready"
    assert end(process, number) == 0
    assert gone(cluster["pid"])
    assert not (tmp_path / "endpoints.json").exists()


def test_the_cluster_ends_with_up_even_when_up_is_killed(tmp_path: Path) -> None:
    process, _ = started(tmp_path)
    (cluster,) = json.loads((tmp_path / "endpoints.json").read_bytes())["clusters"]
    end(process, signal.SIGKILL)
    assert gone(cluster["pid"])


def test_a_cluster_that_does_not_start_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    broken = [sys.executable, "-c", "import sys; sys.exit('error: port is 1: taken')"]
    with pytest.raises(StartFailed, match=r"did not start \(code 1\)[\s\S]*error: port is 1: taken"):
        asyncio.run(run_up(UpOptions(dir=tmp_path), print, command=lambda _: broken))
    assert not (tmp_path / "endpoints.json").exists()


def test_a_cluster_that_dies_later_ends_up_with_an_error(tmp_path: Path) -> None:
    dying = [sys.executable, "-c", "print('ready https://x', flush=True); raise SystemExit(3)"]
    with pytest.raises(StartFailed, match="ended by itself with code 3"):
        asyncio.run(run_up(UpOptions(dir=tmp_path), lambda _: None, command=lambda _: dying))


def test_a_second_up_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "clusters" / "local").mkdir(parents=True)
    with DirectoryLock(tmp_path / "up.lock"), pytest.raises(ConfigError, match="already in use"):
        asyncio.run(run_up(UpOptions(dir=tmp_path), print))


def test_down_stops_a_running_up_and_then_finds_nothing(tmp_path: Path) -> None:
    process, _ = started(tmp_path)
    stopped = asyncio.run(stop_all(tmp_path, clock=RealClock()))
    assert stopped == [f"up (process {process.pid})"]
    assert process.wait(5) == 0
    assert process.stdout
    process.stdout.close()
    assert asyncio.run(stop_all(tmp_path, clock=RealClock())) == []


def test_down_says_who_did_not_stop(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "kill", lambda *_: None)

    async def main() -> None:
        stopping = asyncio.create_task(stop_all(tmp_path, clock=clock))
        await clock.advance(30)
        await stopping

    code = "import sys; from pathlib import Path; from shoal.app.files import DirectoryLock\nwith DirectoryLock(Path(sys.argv[1])): print(1, flush=True); sys.stdin.read()"
    lock = tmp_path / "cluster.lock"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        holder.stdout.readline()
        assert holder_of(lock) == holder.pid
        with pytest.raises(ShoalError, match=f"process {holder.pid} did not stop within 20 s"):
            asyncio.run(main())
        holder.kill()


def test_the_flags_reach_the_cluster(tmp_path: Path) -> None:
    command = cluster_command(UpOptions(dir=tmp_path, port=7000, store="memory:"))
    assert command[1:5] == ["-m", "shoal", "cluster", "start"]
    assert command[5:] == [
        "--dir", str(tmp_path / "clusters" / "local"), "--stop-on-eof", "--port", "7000", "--store", "memory:"
    ]  # fmt: skip
