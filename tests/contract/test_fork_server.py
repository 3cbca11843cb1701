"""Children of ``shoal up`` that a process with their modules forks: they are as if they had been started."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shoal import __version__
from shoal.app.fork_server import MODULES
from shoal.app.forking import PROGRAM, ChildProcess, ForkedProcess, ForkServer, StepFailed
from shoal.testing.waiting import eventually

VERSION = (*PROGRAM, "version")
CLUSTER = (*PROGRAM, "cluster", "start", "--components", "apiserver", "--port", "0", "--stop-on-eof", "--dir")


@asynccontextmanager
async def fork_server() -> AsyncIterator[ForkServer]:
    server = ForkServer()
    await server.start()
    try:
        yield server
    finally:
        await server.end()


async def spawned(
    server: ForkServer, log: Path, *command: str, environ: Mapping[str, str] | None = None
) -> ChildProcess:
    with log.open("ab") as stderr:
        return await server.spawn(command, stderr, {**os.environ, **(environ or {})})


async def line_of(process: ChildProcess) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        return (await process.stdout.readline()).decode()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_a_forked_cluster_is_a_child_of_ours_with_its_own_session_environment_and_command_line(
    tmp_path: Path,
) -> None:
    async with fork_server() as server:
        command, home = (*CLUSTER, str(tmp_path / "c")), {"SHOAL_HOME": str(tmp_path / "home")}
        child = await spawned(server, tmp_path / "log", *command, environ=home)
        assert isinstance(child, ForkedProcess)
        assert (await line_of(child)).startswith("ready https://127.0.0.1:"), (tmp_path / "log").read_text()
        assert parent_of(child.pid) == os.getpid()
        assert os.getsid(child.pid) == child.pid
        assert Path(f"/proc/{child.pid}/cmdline").read_text().startswith("shoal\0cluster\0start\0")
        os.kill(child.pid, signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await child.wait() == 0
        assert child.returncode == 0


async def test_a_forked_child_ends_when_its_standard_input_ends_and_its_exit_is_seen(tmp_path: Path) -> None:
    async with fork_server() as server:
        child = await spawned(server, tmp_path / "log", *CLUSTER, str(tmp_path / "c"))
        assert isinstance(child, ForkedProcess)
        assert (await line_of(child)).startswith("ready")
        child.close_stdin()
        async with asyncio.timeout(60):
            assert await child.wait() == 0


async def test_errors_go_to_the_log_and_the_exit_code_comes_back(tmp_path: Path) -> None:
    async with fork_server() as server:
        child = await spawned(server, tmp_path / "log", *PROGRAM, "cluster", "start", "--nonsense")
        async with asyncio.timeout(60):
            assert await child.wait() == 2
    assert "--nonsense" in (tmp_path / "log").read_text()


async def test_a_fork_server_that_was_killed_is_replaced(tmp_path: Path) -> None:
    async with fork_server() as server:
        assert await line_of(first := await spawned(server, tmp_path / "log", *VERSION))
        (pid,) = (int(each) for each in Path("/proc/self/task").joinpath(str(os.getpid()), "children").read_text().split()
                  if "fork_server" in Path(f"/proc/{each}/cmdline").read_text())  # fmt: skip
        os.kill(pid, signal.SIGKILL)
        second = await spawned(server, tmp_path / "log", *VERSION)
        assert __version__ in await line_of(second)
        assert isinstance(second, ForkedProcess)
        await asyncio.gather(first.wait(), second.wait())


async def test_other_programs_and_all_after_the_end_are_started_as_programs(tmp_path: Path) -> None:
    async with fork_server() as server:
        other = await spawned(server, tmp_path / "log", sys.executable, "-c", "print('other')")
    ended = await spawned(server, tmp_path / "log", *VERSION)
    for process, text in ((other, "other"), (ended, __version__)):
        assert not isinstance(process, ForkedProcess)
        assert text in await line_of(process)
        assert await process.wait() == 0


async def test_only_children_of_the_fork_server_become_ours_when_their_parent_ends(tmp_path: Path) -> None:
    """Pods outlive a cluster that was killed: init takes them, since nobody here would wait for their end."""
    async with fork_server() as server:
        await (await spawned(server, tmp_path / "log", *VERSION)).wait()
    # The orphan closes its end of the pipe: asyncio takes a process for ended once its pipes are closed too.
    script = "import os, time; pid = os.fork(); print(pid, flush=True) if pid else (os.close(1), time.sleep(60))"
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    orphan = int(await parent.stdout.readline())
    await parent.wait()
    try:
        await eventually(lambda: parent_of(orphan) != parent.pid)
        assert parent_of(orphan) != os.getpid()
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_every_kind_of_child_that_up_starts_has_its_modules_listed() -> None:
    assert set(MODULES) == {"control", "navigator", "cluster"}


STEPS = "shoal.testing.fork_steps"


async def test_a_function_is_called_in_a_process_of_its_own_that_ends_with_it(tmp_path: Path) -> None:
    async with fork_server() as server:
        await server.call(f"{STEPS}:write_pid", str(tmp_path / "pid"), ["a", "b"])
    pid, _, rest = (tmp_path / "pid").read_text().partition(" ")
    assert rest == "a b"
    assert int(pid) != os.getpid()
    assert not Path(f"/proc/{pid}").exists()


async def test_a_function_that_fails_is_an_error(tmp_path: Path) -> None:
    async with fork_server() as server:
        with pytest.raises(StepFailed, match="exit code 1"):
            await server.call(f"{STEPS}:write_pid", str(tmp_path / "missing" / "pid"), [])


async def test_without_a_fork_server_a_function_is_called_in_this_process(tmp_path: Path) -> None:
    await ForkServer().call(f"{STEPS}:write_pid", str(tmp_path / "pid"), [])
    assert (tmp_path / "pid").read_text().split() == [str(os.getpid())]
