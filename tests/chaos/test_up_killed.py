"""``shoal up`` with everything that it starts, killed: pods outlive it, the next one goes on with them, `down` ends all."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal.app.commands.down import left_containers, stop_all
from shoal.base.clock import RealClock
from shoal.node.runtime.process.records import main_of
from shoal.testing.waiting import eventually_blocking

pytestmark = pytest.mark.chaos

_STOP_S = 15.0  # five times what it should take


@pytest.fixture(autouse=True)
def own_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of clusters' networks is in the temporary directory: what runs here reads the one of `up`."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


@contextmanager
def up(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """``shoal up`` with one region, once it is ready."""
    command = [sys.executable, "-m", "shoal", "up", "--dir", str(folder / "state"), "--port", "0", "--regions", "eu"]
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(temporary)}
    )  # fmt: skip
    assert process.stdout is not None
    try:
        said: list[str] = []
        for line in process.stdout:
            said.append(line)
            if line == "ready\n":
                break
        assert said[-1:] == ["ready\n"], "".join(said)
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def containers(state: Path) -> dict[str, int]:
    """The processes of running containers, by container."""
    found = ((folder.name, main_of(folder)) for folder in state.glob("clusters/*/nodes/*/containers/*"))
    return {name: main.pid for name, main in found if main is not None and main.alive}


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def kill_all(*pids: int) -> None:
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: none sees that another one has ended
        for pid in pids:
            os.kill(pid, number)


async def test_pods_outlive_up_and_are_adopted_and_ended(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with up(tmp_path) as first:
        pods = containers(state)
        assert len(pods) >= 3, "two instances and a gateway"
        children = children_of(first.pid)
        assert len(children) == 4, "control plane, navigator, cluster and the fork server of pods"
        kill_all(first.pid, *children)
        first.wait()
        assert containers(state) == pods
    with up(tmp_path) as second:
        assert containers(state).items() >= pods.items()
        began = time.monotonic()
        stopping = asyncio.create_task(stop_all(state, clock=RealClock()))
        await asyncio.to_thread(second.wait, 60)
        assert (await stopping)[0] == f"up (process {second.pid})"
        assert time.monotonic() - began < _STOP_S
    eventually_blocking(lambda: not containers(state))
    assert left_containers(state / "clusters" / "eu-1") == 0
    left = [each.name for each in (tmp_path / "tmp").iterdir() if not each.name.startswith("shoal-networks-")]
    assert left == []


async def test_down_alone_ends_what_a_killed_up_left(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with up(tmp_path) as first:
        kill_all(first.pid, *children_of(first.pid))
    count = len(containers(state))
    assert count >= 3
    stopped = await stop_all(state, clock=RealClock())
    assert f"{count} containers that outlived eu-1" in stopped
    assert not containers(state)
