"""The life of containers that are processes: they survive the agent, and stopping them leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from shoal.node.runtime.model import (
    ContainerPhase,
    ContainerResources,
    CreateFailure,
    ExitReason,
    Security,
    SessionOptions,
)
from shoal.node.runtime.process import launch, records, usage
from shoal.node.runtime.process.shim import processes
from shoal.testing.waiting import eventually

Run = Callable[..., AbstractAsyncContextManager[Any]]

_AGENT = """
import asyncio, sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from shoal.testing.processes import ProcessMachine
from shoal.node.runtime.model import ContainerSpec, SandboxSpec

async def main():
    folder = Path(sys.argv[1])
    runtime = ProcessMachine(folder / "cluster", registry=folder / "networks").runtime()
    await runtime.open()
    sandbox = await runtime.create_sandbox(SandboxSpec(pod_uid="u", namespace="default", name="p"))
    image = await runtime.pull("busybox")
    for name, script in (("ends", "sleep 0.3; echo bye; exit 3"), ("stays", "echo up; sleep 1000 & wait")):
        spec = ContainerSpec(name=name, attempt=2, image=image, image_reference="busybox", command=("sh", "-c", script))
        await runtime.start((await runtime.create(sandbox.id, spec)).id)
    print("started", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_containers_go_on_when_the_agent_is_killed_and_another_one_takes_them_over(
    on_process_node: Run, tmp_path: Path
) -> None:
    agent = subprocess.Popen([sys.executable, "-c", _AGENT, str(tmp_path)], stdout=subprocess.PIPE)
    assert agent.stdout is not None
    assert agent.stdout.readline() == b"started\n"
    agent.kill()
    agent.wait()
    agent.stdout.close()

    async with on_process_node() as node:
        found = {each.name: each for each in (await node.runtime.list()).containers}
        stays = found["stays"]
        assert (stays.phase, stays.attempt) == (ContainerPhase.RUNNING, 2)
        assert await node.says(stays, "up") == "up\n"
        assert await node.exec(stays, "sh", "-c", "exit 4") == ("", 4)
        ended = await node.exited(found["ends"])
        assert (ended.exit_code, await node.output(ended)) == (3, "bye\n")
        assert (await node.runtime.stop(stays.id, grace_s=10)).exit_code == 143


async def test_stopping_a_container_ends_all_its_processes(on_process_node: Run) -> None:
    async with on_process_node() as node:
        script = "setsid sh -c 'setsid sleep 1000 & sleep 1000' & (sleep 1000 &) ; trap '' TERM; echo up; sleep 1000"
        container = await node.sh(script)
        await node.says(container, "up")
        await eventually(lambda: len(usage.stragglers(container.id)) >= 5)
        await node.runtime.stop(container.id, grace_s=0.05)
        assert usage.stragglers(container.id) == []


async def test_the_end_of_the_first_process_ends_the_others(on_process_node: Run) -> None:
    async with on_process_node() as node:
        container = await node.sh("setsid sleep 1000 & echo $!; exit 6")
        assert (await node.exited(container)).exit_code == 6
        assert usage.stragglers(container.id) == []


async def test_a_container_whose_shim_is_killed_has_exited_with_an_unknown_reason(on_process_node: Run) -> None:
    async with on_process_node() as node:
        container = await node.sh("setsid sleep 1000 & echo up; sleep 1000")
        await node.says(container, "up")
        shim = records.shim_of(node.folder(container))
        assert shim is not None and shim.alive
        os.kill(shim.pid, signal.SIGKILL)
        found = await node.exited(container)
        assert (found.exit_code, found.reason) == (137, ExitReason.UNKNOWN)
        await eventually(lambda: usage.stragglers(container.id) == [])


async def test_a_pid_that_came_again_is_not_taken_for_the_container(on_process_node: Run) -> None:
    async with on_process_node() as node:
        container = await node.sh("sleep 1000")
        folder = node.folder(container)
        identity = records.main_of(folder)
        assert identity is not None and identity.alive
        assert container.identity == str(identity)
        assert not records.ProcessIdentity(identity.pid, identity.start - 1, identity.boot).alive
        assert not records.ProcessIdentity(identity.pid, identity.start, "another boot").alive


async def test_a_container_is_started_once_however_often_it_is_tried(on_process_node: Run) -> None:
    async with on_process_node() as node:
        container = await node.sh("echo up; sleep 1000")
        again = await launch.start_shim(node.folder(container))
        assert not again.ok and "already" in again.message
        await eventually(lambda: os.waitpid(again.shim_pid, os.WNOHANG)[0] == again.shim_pid)
        assert await node.says(container, "up") == "up\n"


async def test_a_container_whose_start_is_cut_short_at_any_moment_can_be_ended(on_process_node: Run) -> None:
    async with on_process_node() as node:
        made = []
        for step in range(25):
            created = await node.create("sleep", "1000", name=f"c{step}")
            made.append(created.id)
            starting = asyncio.create_task(node.runtime.start(created.id))
            await asyncio.wait({starting}, timeout=step * 0.004)
            starting.cancel()
            assert (await node.runtime.stop(created.id, grace_s=0)).phase is ContainerPhase.EXITED
        await eventually(lambda: [each for each in made if usage.stragglers(each) or shims_of(each)] == [])


def shims_of(container_id: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if container_id in (folder / "cmdline").read_text(errors="replace"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def zombies() -> list[int]:
    return [pid for pid in processes.descendants(os.getpid()) if processes.stat_fields(pid)[:1] == [b"Z"]]


async def test_neither_files_nor_zombies_are_left_behind(on_process_node: Run) -> None:
    earlier = set(zombies())  # of tests that closed their runtime

    async with on_process_node() as node:

        async def one(name: str) -> None:
            container = await node.sh("echo hi; cat", name=name, stdin=True, stdin_once=True)
            assert await node.exec(container, "echo", "there") == ("there\n", 0)
            assert (await node.exec(container, "echo", "there", tty=True, stdin=True))[1] == 0
            session = await node.runtime.attach(container.id, SessionOptions(stdin=True))
            await session.close_input()
            assert await session.wait() == 0
            await session.close()
            await node.exited(container)
            await node.runtime.remove(container.id)

        await one("first")
        before = len(os.listdir("/proc/self/fd"))
        await asyncio.gather(*(one(f"c{n}") for n in range(6)))
        assert len(os.listdir("/proc/self/fd")) <= before
        await eventually(lambda: set(zombies()) <= earlier)
        assert list(node.config.containers.iterdir()) == []


async def test_orphans_are_reaped_while_the_container_runs(on_process_node: Run) -> None:
    async with on_process_node() as node:
        container = await node.sh("(sh -c 'sleep 0.01' &) ; (true &) ; echo up; sleep 1000")
        await node.says(container, "up")
        shim = records.shim_of(node.folder(container))
        assert shim is not None
        main = int(container.identity.partition("/")[0])

        def others() -> list[int]:
            return [pid for pid in processes.descendants(shim.pid) if pid != main]

        await eventually(lambda: len(others()) <= 1 and all(processes.start_time(pid) for pid in others()))


async def test_more_memory_than_the_limit_ends_the_container(on_process_node: Run) -> None:
    async with on_process_node() as node:
        script = "data = bytearray(60 << 20); data[::4096] = b'x' * len(data[::4096]); import time; time.sleep(1000)"
        limited = ContainerResources(memory_limit_bytes=40 << 20)
        container = await node.run(sys.executable, "-I", "-S", "-c", script, resources=limited)
        found = await node.exited(container)
        assert (found.exit_code, found.reason) == (137, ExitReason.OOM_KILLED)


async def test_statistics_count_all_processes_and_ended_children(on_process_node: Run) -> None:
    async with on_process_node() as node:
        burn = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"
        container = await node.sh(f"sh -c '{burn}'; sleep 1000 & echo up; wait")
        await node.says(container, "up")
        (stats,) = await node.runtime.stats()
        assert stats.cpu_total_ns >= 20_000_000
        assert stats.processes == 2
        assert stats.memory_working_set_bytes >= stats.memory_rss_bytes > 0
        assert stats.disk_used_bytes > 0


async def test_a_signal_may_be_chosen(on_process_node: Run) -> None:
    async with on_process_node() as node:
        chosen = await node.sh("trap 'exit 11' USR1; echo up; while :; do sleep 0.01; done", stop_signal="SIGUSR1")
        await node.says(chosen, "up")
        assert (await node.runtime.stop(chosen.id, grace_s=10)).exit_code == 11
        given = await node.run("sleep", "1000", name="other")
        found = await node.runtime.stop(given.id, grace_s=10, signal="INT")
        assert (found.exit_code, found.signal) == (130, 2)


async def test_run_as_non_root_refuses_root(on_process_node: Run) -> None:
    async with on_process_node() as node:
        if os.geteuid() != 0:
            pytest.skip("only root can change the user")
        with pytest.raises(CreateFailure, match="runAsNonRoot"):
            await node.sh("id", security=Security(run_as_non_root=True))
        container = await node.sh("id -u; id -g", name="other", security=Security(user=12345, run_as_non_root=True))
        await node.exited(container)
        assert await node.output(container) == "12345\n12345\n"
