"""Nodes of real processes for these tests, each in a folder of its own and gone with all it runs at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from shoal.app.pod_forks import PodForks
from shoal.node.runtime.model import (
    Container,
    ContainerPhase,
    ContainerSpec,
    LogOptions,
    OutputStream,
    RuntimeEvent,
    RuntimeEventKind,
    SandboxSpec,
    SessionOptions,
)
from shoal.node.runtime.process.config import ProcessConfig
from shoal.node.runtime.process.launch import find_namespaces
from shoal.node.runtime.process.runtime import ProcessRuntime
from shoal.testing import forked_code
from shoal.testing.processes import ProcessMachine
from shoal.testing.waiting import eventually

_NODE = "node-1"
_numbers = count(1)


class ProcessNode:
    """A runtime with one sandbox, and short ways to use it."""

    def __init__(self, machine: ProcessMachine, runtime: ProcessRuntime, config: ProcessConfig) -> None:
        self.machine = machine
        self.runtime = runtime
        self.config = config
        self.sandbox_id = ""
        self.address = ""
        self.notices: list[RuntimeEvent] = []

    def folder(self, container: Container) -> Path:
        """Where the runtime keeps the container's state."""
        return self.config.containers / container.id

    async def needs_namespaces(self) -> None:
        """Skip the test if volumes cannot be mounted on this machine."""
        if not await find_namespaces(self.config):
            pytest.skip("this machine allows no namespaces")

    async def enter(self, **sandbox: Any) -> None:
        spec = SandboxSpec(pod_uid=f"uid-{next(_numbers)}", namespace="default", name="pod", **sandbox)
        made = await self.runtime.create_sandbox(spec)
        self.sandbox_id, self.address = made.id, made.addresses[0]

    async def create(self, *argv: str, name: str = "main", attempt: int = 0, **more: Any) -> Container:
        image = await self.runtime.pull("busybox")
        spec = ContainerSpec(
            name=name, attempt=attempt, image=image, image_reference="busybox", command=argv, **more
        )  # fmt: skip
        return await self.runtime.create(self.sandbox_id, spec)

    async def run(self, *argv: str, **more: Any) -> Container:
        made = await self.create(*argv, **more)
        return await self.runtime.start(made.id)

    async def sh(self, script: str, **more: Any) -> Container:
        return await self.run("sh", "-c", script, **more)

    async def exited(self, container: Container) -> Container:
        async def check() -> Container | None:
            found = await self.runtime.inspect(container.id)
            return found if found.phase is ContainerPhase.EXITED else None

        found: Container = await eventually(check, timeout_s=15)
        return found

    async def output(self, container: Container, stream: OutputStream = OutputStream.STDOUT) -> str:
        options = LogOptions(streams=frozenset({stream}))
        found = [each.data async for batch in self.runtime.logs(container.id, options) for each in batch]
        return b"".join(found).decode()

    async def says(self, container: Container, word: str) -> str:
        """Wait until the container has written it."""

        async def check() -> str:
            found = await self.output(container)
            return found if word in found else ""

        found: str = await eventually(check, timeout_s=15)
        return found

    async def exec(self, container: Container, *argv: str, **options: Any) -> tuple[str, int]:
        session = await self.runtime.exec(container.id, argv, SessionOptions(**options))
        found = b"".join([data async for _, data in session.output()])
        code = await session.wait()
        await session.close()
        return found.decode(), code

    async def follow(self) -> None:
        async for event in self.runtime.events():
            if event.kind is RuntimeEventKind.NOTICE:
                self.notices.append(event)


@pytest.fixture
def on_process_node(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[ProcessNode]]:
    """A node to run processes on; keywords are settings of the runtime."""

    @asynccontextmanager
    async def node(**config: Any) -> AsyncIterator[ProcessNode]:
        machine = ProcessMachine(tmp_path / "cluster", registry=tmp_path / "networks", node=_NODE, **config)
        found = ProcessNode(machine, machine.runtime(), ProcessConfig(root=tmp_path / "cluster" / _NODE))
        await found.runtime.open()
        following = asyncio.create_task(found.follow(), name="notices")
        await asyncio.sleep(0)  # it listens from here on
        try:
            await found.enter()
            yield found
        finally:
            await found.runtime.close()
            await machine.halt()
            await following

    return node


@pytest.fixture
async def forks(tmp_path: Path) -> AsyncIterator[PodForks]:
    """A fork server for shims, and for programs that run code."""
    (folder := tmp_path / "home").mkdir(exist_ok=True)
    server = PodForks(folder, forked_code.__name__)
    await server.start()
    await eventually(server.socket.exists)
    try:
        yield server
    finally:
        await server.end()
