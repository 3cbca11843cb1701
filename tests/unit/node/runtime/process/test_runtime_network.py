"""Connections to pods that are processes: addresses, host ports, warnings."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from shoal.app.ports import any_free
from shoal.node.runtime.model import (
    CreateFailure,
    PortMapping,
    SandboxSpec,
)
from shoal.testing.waiting import eventually

Run = Callable[..., AbstractAsyncContextManager[Any]]


_SERVER = "import socket, os; s = socket.create_server((os.environ['BIND'], int(os.environ['PORT']))); print('up', flush=True)\nwhile True: c, _ = s.accept(); c.sendall(b'hello'); c.close()"


async def test_a_connection_to_a_pod_never_reaches_another_program(on_process_node: Run) -> None:
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


async def test_a_pod_that_listens_on_all_addresses_works_and_gets_one_warning(on_process_node: Run) -> None:
    async with on_process_node(look_s=0.05) as node:
        port = any_free("127.0.0.1")
        env = (("BIND", "0.0.0.0"), ("PORT", str(port)))
        container = await node.run(sys.executable, "-I", "-c", _SERVER, env=env)
        await node.says(container, "up")
        connection = await node.runtime.connect(node.sandbox_id, port)
        assert await connection.read() == b"hello"
        await connection.close()
        await eventually(lambda: node.notices)
        later = (("BIND", "0.0.0.0"), ("PORT", str(any_free("127.0.0.1"))))
        other = await node.run(sys.executable, "-I", "-c", _SERVER, name="other", env=later)
        await eventually(lambda: len(node.notices) > 1)  # the runtime has looked at the first one again by then
        expected = [("BindsAllAddresses", container.id), ("BindsAllAddresses", other.id)]
        assert [(each.reason, each.container_id) for each in node.notices] == expected
        assert str(port) in node.notices[0].message and node.address in node.notices[0].message


async def test_a_host_port_leads_to_its_pod_and_belongs_to_one_pod(on_process_node: Run) -> None:
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
