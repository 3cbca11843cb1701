"""What survives the agent, the helper and the machine, and what is left of a pod when it is gone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from sandbox_nodes import OnNode, SandboxNode

from shoal.base.files import holder_of
from shoal.node.runtime.model import ContainerPhase, ExitReason, RuntimeEventKind
from shoal.node.runtime.sandbox.client import LOCK
from shoal.testing.waiting import eventually

ECHO = "import socket; s = socket.create_server(('', 80))\nwhile True: c, _ = s.accept(); c.sendall(b'here'); c.close()"
ASK = "import socket, sys; print(socket.create_connection((sys.argv[1], 80), timeout=5).recv(9))"


def helper_of(node: SandboxNode) -> int | None:
    return holder_of(node.machine.helper / LOCK)


async def killed(node: SandboxNode) -> None:
    pid = helper_of(node)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: helper_of(node) != pid)


def server(node: SandboxNode) -> tuple[str, ...]:
    import sys

    return (sys.executable, "-I", "-c", ECHO)


async def answered(node: SandboxNode, sandbox_id: str) -> bytes:
    async def ask() -> bytes:
        try:
            connection = await node.runtime.connect(sandbox_id, 80)
        except ConnectionError:
            return b""
        try:
            return await connection.read()
        finally:
            await connection.close()

    found: bytes = await eventually(ask, timeout_s=15)
    return found


async def test_pods_outlive_a_helper_that_is_killed_and_the_next_one_finds_their_networks(on_node: OnNode) -> None:
    async with on_node() as node:
        old = await node.pod()
        served = await node.run(old, *server(node))
        assert await answered(node, old.id) == b"here"
        await killed(node)
        assert (await node.runtime.inspect(served.id)).phase is ContainerPhase.RUNNING
        new = await node.pod()  # starts another helper
        assert await answered(node, old.id) == b"here"
        assert await node.python(new, ASK, old.addresses[0]) == "b'here'\n"
        again = await node.run(old, "sleep", "600", name="again")  # in the namespaces that are still the pod's
        assert (await node.exec(again, "hostname"))[0] == f"{old.name}\n"
        assert await node.python(new, ASK, old.addresses[0]) == "b'here'\n"


async def test_a_pod_without_containers_ends_with_a_killed_helper_and_says_so(on_node: OnNode) -> None:
    async with on_node(process={"look_s": 0.1}) as node:
        pod, events = await node.pod(), node.runtime.events()
        await killed(node)

        async def lost() -> bool:
            found = (await node.runtime.list()).sandboxes
            return any(each.id == pod.id and not each.ready for each in found)

        await eventually(lost, timeout_s=15)
        async with asyncio.timeout(10):
            assert (await anext(events)).kind is RuntimeEventKind.SANDBOX


async def test_an_agent_that_comes_back_finds_pods_whose_helper_was_killed_meanwhile(on_node: OnNode) -> None:
    async with on_node() as node:
        pod, empty = await node.pod(), await node.pod()
        served = await node.run(pod, *server(node))
        await node.runtime.close()
        await killed(node)
        node.runtime = node.machine.runtime()
        await node.runtime.open()
        found = {each.id: each for each in (await node.runtime.list()).sandboxes}
        assert found[pod.id].ready and not found[empty.id].ready
        assert await answered(node, pod.id) == b"here"
        assert (await node.runtime.inspect(served.id)).phase is ContainerPhase.RUNNING


async def test_a_container_ends_with_its_shim(on_node: OnNode) -> None:
    async with on_node() as node:
        pod = await node.pod()
        container = await node.run(pod, "sh", "-c", "sleep 600 & sleep 600")
        shim = int(_facts(node.machine.process.containers / container.id / "state")["shim"])
        await node.runtime.close()  # it would kill what it finds
        os.kill(shim, signal.SIGKILL)
        await eventually(lambda: not Path(f"/proc/{container.identity.split('/')[0]}").exists())
        node.runtime = node.machine.runtime()
        await node.runtime.open()
        ended = await node.exited(container)
        assert (ended.reason, ended.exit_code) == (ExitReason.UNKNOWN, 137)


async def test_after_a_reboot_no_sandbox_is_ready(on_node: OnNode) -> None:
    async with on_node() as node:
        pod = await node.pod()
        await node.runtime.close()
        record = node.machine.process.sandboxes / pod.id
        record.write_text(json.dumps({**json.loads(record.read_text()), "boot": "another"}))
        node.runtime = node.machine.runtime()
        await node.runtime.open()
        (found,) = (await node.runtime.list()).sandboxes
        assert (found.ready, found.addresses) == (False, ())


async def test_nothing_is_left_of_a_removed_pod(on_node: OnNode) -> None:
    async with on_node() as node:
        pod = await node.pod()
        script = "mkdir -m 0 /closed /tmp/a; echo x > /file; chown 7 /file 2>/dev/null; sleep 600"
        container = await node.run(pod, "sh", "-c", script)
        folder = node.machine.process.containers / container.id
        groups = list(Path("/sys/fs/cgroup").glob(f"*/shoal/{container.id}"))
        assert bool(groups) == (os.geteuid() == 0 and not Path("/sys/fs/cgroup/cgroup.controllers").exists())
        await eventually(lambda: (folder / "root" / "file").exists())
        await node.runtime.remove_sandbox(pod.id)
        assert not folder.exists()
        await eventually(lambda: not any(each.exists() for each in groups))
        assert pod.id not in {each.id for each in (await node.runtime.list()).sandboxes}


async def test_a_helper_ends_when_its_folder_is_deleted(on_node: OnNode) -> None:
    async with on_node() as node:
        pid = helper_of(node)
        assert pid is not None
        await node.runtime.close()
        (node.machine.helper / "helper.sock").unlink()
        await eventually(lambda: not Path(f"/proc/{pid}").exists(), timeout_s=15)


async def test_names_of_pods_that_are_created_twice_at_once_or_given_up_leave_no_network(on_node: OnNode) -> None:
    async with on_node() as node:
        tasks = [asyncio.create_task(node.pod(), name=f"pod-{number}") for number in range(8)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        made = await asyncio.gather(*tasks, return_exceptions=True)
        kept = {each.id for each in made if not isinstance(each, BaseException)}
        assert {each.id for each in (await node.runtime.list()).sandboxes} == kept
        assert len(kept) == 4


def _facts(path: Path) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in path.read_text().splitlines() if " " in line)


@pytest.mark.parametrize("number", [1, 2])
async def test_addresses_of_two_clusters_may_be_the_same(on_node: OnNode, number: int) -> None:
    async with on_node() as node:
        assert (await node.pod()).addresses == ("10.244.0.1",)
