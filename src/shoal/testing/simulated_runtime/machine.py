"""The state of a simulated machine: images, sandboxes, containers and their logs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from shoal.node.runtime.model import Container, ContainerSpec, Image, LogRecord, OutputStream, Sandbox, SandboxSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What the containers of an image do if they have no command."""

    argv: tuple[str, ...] = ("sleep", "inf")
    cpu_milli: int = 1
    memory_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedConfig:
    """How the simulated machine behaves."""

    pull_s: float = 0.0
    start_s: float = 0.0
    programs: Mapping[str, Program] = field(default_factory=dict)  # by image reference
    missing: frozenset[str] = frozenset()  # references that cannot be pulled
    network: str = "10.88.0"  # the first three numbers of pod addresses
    host_address: str = "127.0.0.1"
    cpu_milli: int = 8000
    memory_bytes: int = 16 << 30
    disk_bytes: int = 100 << 30


class Log:
    """The output of a container, which readers can follow."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.ended = False
        self._more = asyncio.Event()

    def write(self, at_ns: int, stream: OutputStream, data: bytes) -> None:
        self.records.append(LogRecord(at_ns, stream, data))
        self._wake()

    def end(self) -> None:
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    async def wait(self, position: int) -> None:
        """Wait for a record after ``position``, or for the end."""
        while len(self.records) <= position and not self.ended:
            await self._more.wait()


@dataclass(slots=True)
class Box:
    """A container with its log, input and signals."""

    spec: ContainerSpec
    container: Container
    log: Log
    task: asyncio.Task[None] | None = None
    term: asyncio.Event = field(default_factory=asyncio.Event)  # set by a signal that ends the container
    killed: asyncio.Event = field(default_factory=asyncio.Event)
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    signal: int = 0
    ignores_term: bool = False
    input: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    serves: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Machine:
    """State that outlives the agent and the runtime."""

    images: dict[str, Image] = field(default_factory=dict)  # by reference
    sandboxes: dict[str, Sandbox] = field(default_factory=dict)
    specs: dict[str, SandboxSpec] = field(default_factory=dict)
    boxes: dict[str, Box] = field(default_factory=dict)
    numbers: count[int] = field(default_factory=lambda: count(1))
    used: set[str] = field(default_factory=set)  # addresses
