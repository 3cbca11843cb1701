"""What containers see: environment, volumes, terminals, addresses; and who can reach them."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from shoal.app.ports import any_free
from shoal.node.runtime.model import (
    CreateFailure,
    Mount,
    OutputStream,
    PortMapping,
    SandboxSpec,
    SessionOptions,
    StartFailure,
)
from shoal.testing.waiting import eventually

Run = Callable[..., AbstractAsyncContextManager[Any]]

_SERVER = "import socket, os; s = socket.create_server((os.environ['BIND'], int(os.environ['PORT']))); print('up', flush=True)\nwhile True: c, _ = s.accept(); c.sendall(b'hello'); c.close()"


async def test_a_container_knows_its_address_port_and_name(on_process_node: Run) -> None:
    async with on_process_node() as node:
        shown = "echo $HOST $POD_IP $PORT $HOSTNAME $(pwd)"
        container = await node.sh(f"{shown}; hostname 2>/dev/null", ports=(4711, 4712), env=(("A", "1"), ("A", "2")))
        await node.exited(container)
        first, *names = (await node.output(container)).splitlines()
        folder = node.machine._config.containers / container.id / "work"
        assert first == f"{node.address} {node.address} 4711 pod {folder}"
        assert names in ([], ["pod"])
        other = await node.sh("echo $PORT $A; exec env", name="other", env=(("A", "1"), ("A", "2"), ("PORT", "99")))
        await node.exited(other)
        assert (await node.output(other)).startswith("99 2\n")


async def test_the_agents_own_environment_is_not_handed_on(
    on_process_node: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_SECRET", "x")

    async with on_process_node() as node:
        container = await node.sh("env")
        await node.exited(container)
        found = await node.output(container)
        assert "AGENT_SECRET" not in found and "PATH=" in found


def volumes(tmp_path: Path) -> tuple[Mount, ...]:
    (tmp_path / "data").mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "key").write_text("value")
    (tmp_path / "message").touch()
    return (
        Mount(host_path=str(tmp_path / "message"), container_path="/dev/termination-log"),
        Mount(host_path=str(tmp_path / "config"), container_path="/data/inner/config", read_only=True, volume="config"),
        Mount(host_path=str(tmp_path / "data"), container_path="/data", volume="data"),
        Mount(host_path=str(tmp_path / "config"), container_path="/etc/shoal-test/config", volume="config"),
    )


async def test_volumes_are_at_their_places(on_process_node: Run, tmp_path: Path) -> None:
    async with on_process_node() as node:
        if not node.runtime._namespaces:
            pytest.skip("this machine allows no namespaces")
        script = (
            "echo bye > /dev/termination-log; echo new > /data/file; cat /data/inner/config/key /etc/shoal-test/config/key; "
            "echo no > /data/inner/config/key; ls / > /dev/null && ls /etc/passwd; test -e $SHOAL_POD_DIR/data/file && echo same"
        )
        container = await node.sh(script, mounts=volumes(tmp_path))
        await node.exited(container)
        assert await node.output(container) == "valuevalue/etc/passwd\nsame\n"
        assert "Read-only" in await node.output(container, OutputStream.STDERR)
        assert (tmp_path / "message").read_text() == "bye\n"
        assert (tmp_path / "data" / "file").read_text() == "new\n"
    assert not os.path.exists("/data") and not os.path.exists("/etc/shoal-test")


async def test_without_namespaces_volumes_are_below_the_pods_folder_and_users_are_told(
    on_process_node: Run, tmp_path: Path
) -> None:
    async with on_process_node(namespaces="off") as node:
        script = "cat $SHOAL_POD_DIR/etc/shoal-test/config/key; echo bye > $SHOAL_POD_DIR/dev/termination-log; echo $SHOAL_SERVICEACCOUNT_DIR"
        container = await node.sh(script, mounts=volumes(tmp_path))
        await node.exited(container)
        found = await node.output(container)
        folder = node.machine._config.containers / container.id / "root"
        assert found == f"value{folder}/var/run/secrets/kubernetes.io/serviceaccount\n"
        assert (tmp_path / "message").read_text() == "bye\n"
        await eventually(lambda: node.notices)
        assert [each.reason for each in node.notices] == ["VolumeRedirected"]
        assert "/etc/shoal-test/config" in node.notices[0].message and "termination-log" not in node.notices[0].message


async def test_a_volume_that_cannot_be_mounted_is_a_start_error_that_names_it(
    on_process_node: Run, tmp_path: Path
) -> None:
    async with on_process_node() as node:
        if not node.runtime._namespaces:
            pytest.skip("this machine allows no namespaces")
        (tmp_path / "file").touch()
        with pytest.raises(StartFailure, match="/etc"):
            await node.sh("true", mounts=(Mount(host_path=str(tmp_path / "file"), container_path="/etc"),))


async def test_a_terminal_has_a_size_that_can_be_changed(on_process_node: Run) -> None:
    async with on_process_node() as node:
        container = await node.sh("sleep 1000")
        session = await node.runtime.exec(
            container.id, ("sh", "-c", "read line; stty size; exit 3"), SessionOptions(stdin=True, tty=True)
        )
        await session.resize(132, 43)
        await session.write(b"go\n")
        found = b"".join([data async for _, data in session.output()])
        assert b"43 132" in found
        assert await session.wait() == 3
        await session.close()


async def test_several_may_be_attached_to_a_container_with_a_terminal(on_process_node: Run) -> None:
    async with on_process_node() as node:
        container = await node.sh(
            "stty -echo; printf 'name? '; read name; stty size; echo hello $name", tty=True, stdin=True
        )
        await asyncio.sleep(0)
        sessions = [await node.runtime.attach(container.id, SessionOptions(stdin=True, tty=True)) for _ in range(2)]
        await sessions[0].resize(99, 22)
        await sessions[1].write(b"you\n")
        for session in sessions:
            found = b"".join([data async for _, data in session.output()])
            assert b"22 99" in found and b"hello you" in found
            assert await session.wait() == 0
            await session.close()


async def test_a_reader_that_does_not_read_slows_the_container_down_and_one_that_leaves_frees_it(
    on_process_node: Run,
) -> None:
    async with on_process_node() as node:
        container = await node.sh(
            "read line; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo done; sleep 1000", stdin=True
        )
        session = await node.runtime.attach(container.id, SessionOptions(stdin=True))
        await session.write(b"go\n")
        output = session.output()
        first = await asyncio.wait_for(anext(output), 10)
        assert len(first[1]) <= 65536
        assert "done" not in await node.output(container)
        await output.aclose()
        await session.close()
        await node.says(container, "done")
        assert len(await node.output(container)) == 3000000 + len("\ndone\n")


async def test_a_command_that_is_given_up_ends_with_all_its_processes(on_process_node: Run) -> None:
    async with on_process_node() as node:
        container = await node.sh("exec sleep 1000")  # one process from the beginning

        async def count() -> int:
            (stats,) = await node.runtime.stats()
            return int(stats.processes)

        before = await count()
        session = await node.runtime.exec(
            container.id, ("sh", "-c", "sleep 1000 & sleep 1000 & echo up; wait"), SessionOptions()
        )
        assert await anext(session.output()) == (OutputStream.STDOUT, b"up\n")

        async def all_there() -> bool:
            return await count() == before + 3

        async def gone() -> bool:
            return await count() == before

        await eventually(all_there)
        await session.close()
        await eventually(gone)


async def test_a_pod_is_reached_at_its_address_and_nobody_else_at_it(on_process_node: Run) -> None:
    async with on_process_node() as node:
        port = any_free("127.0.0.1")
        with socket.create_server(("0.0.0.0", port)):
            with pytest.raises(ConnectionError):  # it is not the pod that listens there
                await node.runtime.connect(node.sandbox_id, port)
        env = (("BIND", node.address), ("PORT", str(port)))
        container = await node.run(sys.executable, "-I", "-c", _SERVER, env=env)
        await node.says(container, "up")
        connection = await node.runtime.connect(node.sandbox_id, port)
        assert await connection.read() == b"hello"
        await connection.close()


async def test_a_pod_that_listens_on_all_addresses_works_and_is_warned_of_once(on_process_node: Run) -> None:
    async with on_process_node(look_s=0.05) as node:
        port = any_free("127.0.0.1")
        env = (("BIND", "0.0.0.0"), ("PORT", str(port)))
        container = await node.run(sys.executable, "-I", "-c", _SERVER, env=env)
        await node.says(container, "up")
        connection = await node.runtime.connect(node.sandbox_id, port)
        assert await connection.read() == b"hello"
        await connection.close()
        await eventually(lambda: node.notices)
        await node.runtime._look_at_ports()
        assert [(each.reason, each.container_id) for each in node.notices] == [("BindsAllAddresses", container.id)]
        assert str(port) in node.notices[0].message and node.address in node.notices[0].message


async def test_a_port_of_the_node_leads_to_the_pod_and_belongs_to_one(on_process_node: Run) -> None:
    async with on_process_node() as node:
        port, inner = any_free("127.0.0.1"), any_free("127.0.0.1")
        ports = (PortMapping(container_port=inner, host_port=port),)
        await node.enter(ports=ports)
        container = await node.run(
            sys.executable, "-I", "-c", _SERVER, env=(("BIND", node.address), ("PORT", str(inner)))
        )
        await node.says(container, "up")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b"hello"
        writer.close()
        with pytest.raises(CreateFailure, match=str(port)):
            await node.runtime.create_sandbox(SandboxSpec(pod_uid="x", namespace="default", name="x", ports=ports))


async def test_the_echo_image_answers_http(on_process_node: Run) -> None:
    async with on_process_node() as node:
        from shoal.node.runtime.model import ContainerSpec

        image = await node.runtime.image("shoal/echo")
        spec = ContainerSpec(name="main", attempt=0, image=image, image_reference="shoal/echo", ports=(18080,))
        made = await node.runtime.create(node.sandbox_id, spec)
        await node.runtime.start(made.id)
        await node.says(made, f"listening on {node.address}:18080")
        connection = await node.runtime.connect(node.sandbox_id, 18080)
        await connection.write(b"GET /hello HTTP/1.1\r\nConnection: close\r\n\r\n")
        answer = b""
        while data := await connection.read():
            answer += data
        await connection.close()
        assert answer.startswith(b"HTTP/1.1 200") and b"GET /hello" in answer
        assert (await node.runtime.stop(made.id, grace_s=10)).exit_code == 0
