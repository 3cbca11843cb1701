"""A node with sandboxes, and short ways to use it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from itertools import count
from typing import Any

from shoal.node.runtime.model import (
    Container,
    ContainerPhase,
    ContainerSpec,
    Image,
    LogOptions,
    Sandbox,
    SandboxSpec,
    SessionOptions,
)
from shoal.node.runtime.process.runtime import ProcessRuntime
from shoal.testing.sandboxes import SandboxMachine
from shoal.testing.waiting import eventually

_numbers = count(1)


class SandboxNode:
    """A runtime with short ways to use it."""

    def __init__(self, machine: SandboxMachine, runtime: ProcessRuntime) -> None:
        self.machine = machine
        self.runtime = runtime
        self.image: Image | None = None  # instead of the usual one

    async def pod(self, **more: Any) -> Sandbox:
        number = next(_numbers)
        spec = SandboxSpec(pod_uid=f"uid-{number}", namespace="default", name=f"pod-{number}", **more)
        return await self.runtime.create_sandbox(spec)

    async def create(self, pod: Sandbox, *argv: str, name: str = "main", **more: Any) -> Container:
        image = self.image or await self.runtime.pull("busybox")
        spec = ContainerSpec(
            name=name, attempt=next(_numbers), image=image, image_reference="busybox", command=argv, **more
        )  # fmt: skip
        return await self.runtime.create(pod.id, spec)

    async def run(self, pod: Sandbox, *argv: str, **more: Any) -> Container:
        return await self.runtime.start((await self.create(pod, *argv, **more)).id)

    async def sh(self, pod: Sandbox, script: str, **more: Any) -> str:
        """Run a script in a container of its own; its output, and that of errors."""
        return (await self.result(pod, "sh", "-c", script, **more))[0]

    async def python(self, pod: Sandbox, program: str, *words: str, **more: Any) -> str:
        return (await self.result(pod, sys.executable, "-I", "-c", program, *words, **more))[0]

    async def result(self, pod: Sandbox, *argv: str, **more: Any) -> tuple[str, Container]:
        ended = await self.exited(await self.run(pod, *argv, **more))
        return await self.output(ended), ended

    async def exited(self, container: Container) -> Container:
        async def check() -> Container | None:
            found = await self.runtime.inspect(container.id)
            return found if found.phase is ContainerPhase.EXITED else None

        found: Container = await eventually(check, timeout_s=20)
        return found

    async def output(self, container: Container) -> str:
        found = [each.data async for batch in self.runtime.logs(container.id, LogOptions()) for each in batch]
        return b"".join(found).decode()

    async def says(self, container: Container, word: str) -> str:
        async def check() -> str:
            found = await self.output(container)
            return found if word in found else ""

        found: str = await eventually(check, timeout_s=20)
        return found

    async def exec(self, container: Container, *argv: str) -> tuple[str, int]:
        session = await self.runtime.exec(container.id, argv, SessionOptions())
        found = b"".join([data async for _, data in session.output()])
        code = await session.wait()
        await session.close()
        return found.decode(), code

    async def again(self) -> None:
        """Another runtime of the node, as after a restart of the agent."""
        await self.runtime.close()
        self.runtime = self.machine.runtime()
        await self.runtime.open()


OnNode = Callable[..., AbstractAsyncContextManager[SandboxNode]]
