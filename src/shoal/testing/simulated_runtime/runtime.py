"""The simulated runtime. ``shoal.node.runtime.model`` describes the contract of each call."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from shoal.base.clock import Clock
from shoal.base.tasks import cancel_all, wait_first
from shoal.node.runtime.model import (
    Container,
    ContainerPhase,
    ContainerResources,
    ContainerSpec,
    ContainerStats,
    CreateFailure,
    ExitReason,
    Image,
    ImageFailure,
    ImageFault,
    Inventory,
    LogOptions,
    LogRecord,
    NoSuchContainer,
    PodConnection,
    PullProgress,
    RegistryCredentials,
    RuntimeEvent,
    RuntimeEventKind,
    RuntimeInfo,
    RuntimeSession,
    Sandbox,
    SandboxSpec,
    SessionOptions,
    StartFailure,
    argv_of,
)
from shoal.node.runtime.streams import EventStreams
from shoal.testing.simulated_runtime import shell
from shoal.testing.simulated_runtime.machine import Box, Log, Machine, Program, SimulatedConfig
from shoal.testing.simulated_runtime.process import run_steps, wait_for
from shoal.testing.simulated_runtime.session import AttachSession, EchoConnection, ExecSession

_REFERENCE = re.compile(r"[a-z0-9]+([._:/@-]+[A-Za-z0-9_]+)*", re.ASCII)
_KILLED = 137


class SimulatedRuntime:
    """Behaves as a runtime with containers, and runs no processes."""

    def __init__(self, config: SimulatedConfig, *, clock: Clock, machine: Machine | None = None) -> None:
        self._config = config
        self._clock = clock
        self._machine = machine or Machine()
        self._events = EventStreams()
        self._closing = asyncio.Event()

    async def open(self) -> None:
        self._closing.clear()

    async def close(self) -> None:
        self._closing.set()
        self._events.close()

    async def halt(self) -> None:
        """Stop the machine: all containers end. For the end of tests."""
        await cancel_all(*(box.task for box in self._machine.boxes.values() if box.task is not None))

    async def info(self) -> RuntimeInfo:
        return RuntimeInfo(
            name="simulated", version="1", os_image="Shoal simulated machine", kernel="simulated",
            architecture="amd64", cpu_milli=self._config.cpu_milli, memory_bytes=self._config.memory_bytes,
            disk_bytes=self._config.disk_bytes,
        )  # fmt: skip

    # images

    async def image(self, reference: str) -> Image | None:
        if _REFERENCE.fullmatch(reference) is None:
            raise ImageFailure(ImageFault.INVALID_NAME, f'couldn\'t parse image name "{reference}"')
        return self._machine.images.get(reference)

    async def images(self) -> tuple[Image, ...]:
        return tuple(self._machine.images.values())

    async def pull(
        self,
        reference: str,
        *,
        credentials: tuple[RegistryCredentials, ...] = (),
        progress: Callable[[PullProgress], None] = lambda _: None,
        command: bool = False,
    ) -> Image:
        await self.image(reference)
        progress(PullProgress(reference=reference))
        if self._config.pull_s:
            await self._clock.sleep(self._config.pull_s)
        if reference in self._config.missing:
            raise ImageFailure(ImageFault.PULL, f"{reference}: not found")
        program = self._config.programs.get(reference, Program())
        image = Image(id=f"simulated:{reference}", names=(reference,), size_bytes=1 << 20, command=program.argv)
        self._machine.images[reference] = image
        return image

    async def remove_image(self, image_id: str) -> None:
        for reference in [name for name, image in self._machine.images.items() if image.id == image_id]:
            del self._machine.images[reference]

    # sandboxes

    async def create_sandbox(self, spec: SandboxSpec) -> Sandbox:
        for known, sandbox in self._machine.sandboxes.items():
            if (sandbox.pod_uid, sandbox.attempt) == (spec.pod_uid, spec.attempt) and sandbox.ready:
                return self._machine.sandboxes[known]
        address = self._config.host_address if spec.host_network else self._address()
        found = Sandbox(
            id=f"sandbox-{next(self._machine.numbers)}", pod_uid=spec.pod_uid, namespace=spec.namespace,
            name=spec.name, attempt=spec.attempt, ready=True, addresses=(address,), created_at=self._clock.wall_s(),
        )  # fmt: skip
        self._machine.sandboxes[found.id], self._machine.specs[found.id] = found, spec
        return found

    def _address(self) -> str:
        for number in range(2, 255):
            address = f"{self._config.network}.{number}"
            if address not in self._machine.used:
                self._machine.used.add(address)
                return address
        raise CreateFailure("no address is left")

    async def stop_sandbox(self, sandbox_id: str) -> None:
        sandbox = self._machine.sandboxes.get(sandbox_id)
        if sandbox is None:
            return
        for box in [each for each in self._machine.boxes.values() if each.container.sandbox_id == sandbox_id]:
            await self.stop(box.container.id, grace_s=0)
        self._machine.used.difference_update(sandbox.addresses)
        self._machine.sandboxes[sandbox_id] = replace(sandbox, ready=False, addresses=())
        self._events.publish(RuntimeEvent(kind=RuntimeEventKind.SANDBOX, pod_uid=sandbox.pod_uid))

    async def remove_sandbox(self, sandbox_id: str) -> None:
        await self.stop_sandbox(sandbox_id)
        for box in [each for each in self._machine.boxes.values() if each.container.sandbox_id == sandbox_id]:
            await self.remove(box.container.id)
        self._machine.sandboxes.pop(sandbox_id, None)
        self._machine.specs.pop(sandbox_id, None)

    # containers

    async def create(self, sandbox_id: str, spec: ContainerSpec) -> Container:
        sandbox = self._machine.sandboxes.get(sandbox_id)
        if sandbox is None or not sandbox.ready:
            raise CreateFailure(f"the sandbox {sandbox_id} is not ready")
        for box in self._machine.boxes.values():
            found = box.container
            if (found.sandbox_id, found.name, found.attempt) == (sandbox_id, spec.name, spec.attempt):
                return found
        if spec.security.run_as_non_root and spec.security.user == 0:
            raise CreateFailure("container has runAsNonRoot and image will run as root")
        made = Container(
            id=f"container-{next(self._machine.numbers)}", sandbox_id=sandbox_id, pod_uid=sandbox.pod_uid,
            name=spec.name, attempt=spec.attempt, phase=ContainerPhase.CREATED, image_id=spec.image.id,
            image_reference=spec.image_reference, created_at=self._clock.wall_s(), hash=spec.hash,
            labels=dict(spec.labels),
        )  # fmt: skip
        self._machine.boxes[made.id] = Box(spec, made, Log())
        return made

    async def start(self, container_id: str) -> Container:
        box = self._box(container_id)
        if box.container.phase is not ContainerPhase.CREATED:
            return box.container
        try:
            steps = shell.parse(argv_of(box.spec), dict(box.spec.env))
        except shell.NoSuchProgram as missing:
            message = f'exec: "{missing}": executable file not found in $PATH'
            self._exit(box, 127, reason=ExitReason.START_ERROR, message=message)
            raise StartFailure(message) from None
        if self._config.start_s:
            await self._clock.sleep(self._config.start_s)
        now = self._clock.wall_s()
        box.container = replace(
            box.container, phase=ContainerPhase.RUNNING, started_at=now, identity=f"{container_id}@{now}"
        )
        box.task = asyncio.create_task(self._run(box, steps), name=f"simulated/{container_id}")
        self._events.publish(
            RuntimeEvent(kind=RuntimeEventKind.STARTED, pod_uid=box.container.pod_uid, container_id=container_id)
        )
        return box.container

    async def _run(self, box: Box, steps: tuple[shell.Step, ...]) -> None:
        code = await run_steps(box, steps, self._clock)
        signal = box.signal if code > 128 else 0
        self._exit(box, code, signal=signal)

    def _exit(
        self, box: Box, code: int, *, signal: int = 0, reason: ExitReason | None = None, message: str = ""
    ) -> None:
        found = reason or (ExitReason.ERROR if code else ExitReason.COMPLETED)
        box.container = replace(
            box.container, phase=ContainerPhase.EXITED, finished_at=self._clock.wall_s(), exit_code=code, signal=signal,
            reason=found, message=message, identity="",
        )  # fmt: skip
        box.serves.clear()
        box.log.end()
        box.exited.set()
        self._events.publish(
            RuntimeEvent(kind=RuntimeEventKind.EXITED, pod_uid=box.container.pod_uid, container_id=box.container.id)
        )

    async def stop(self, container_id: str, *, grace_s: float, signal: str = "") -> Container:
        box = self._box(container_id)
        if box.container.phase is ContainerPhase.CREATED:
            self._exit(box, _KILLED)
        if box.container.phase is ContainerPhase.EXITED:
            return box.container
        if grace_s > 0:
            box.signal = box.signal or 15
            box.term.set()
            await wait_for(self._clock, box.exited, grace_s)
        if not box.exited.is_set():
            box.signal = 9
            box.killed.set()
            await box.exited.wait()
        return box.container

    async def remove(self, container_id: str) -> None:
        if container_id not in self._machine.boxes:
            return
        await self.stop(container_id, grace_s=0)
        self._machine.boxes.pop(container_id, None)

    async def update(self, container_id: str, resources: ContainerResources) -> None:
        box = self._box(container_id)
        box.spec = replace(box.spec, resources=resources)

    async def inspect(self, container_id: str) -> Container:
        return self._box(container_id).container

    async def list(self) -> Inventory:
        containers = tuple(box.container for box in self._machine.boxes.values())
        return Inventory(tuple(self._machine.sandboxes.values()), containers)

    def events(self) -> AsyncIterator[RuntimeEvent]:
        return self._events.listen()

    def _box(self, container_id: str) -> Box:
        box = self._machine.boxes.get(container_id)
        if box is None:
            raise NoSuchContainer(f"container {container_id} not found")
        return box

    def _running(self, container_id: str) -> Box:
        box = self._box(container_id)
        if box.container.phase is not ContainerPhase.RUNNING:
            raise NoSuchContainer(f"the container {container_id} is not running")
        return box

    # logs, sessions and usage

    async def logs(self, container_id: str, options: LogOptions) -> AsyncIterator[tuple[LogRecord, ...]]:
        log = self._box(container_id).log

        def wanted(record: LogRecord) -> bool:
            return record.at_ns >= options.since_ns and record.stream in options.streams

        position = len(log.records)
        first = [record for record in log.records if wanted(record)]
        if options.tail is not None:
            first = first[len(first) - min(options.tail, len(first)) :]
        if first:
            yield tuple(first)
        while options.follow and not self._closing.is_set():
            if len(log.records) > position:
                more = tuple(record for record in log.records[position:] if wanted(record))
                position = len(log.records)
                if more:
                    yield more
            elif log.ended:
                return
            else:
                await wait_first(log.wait(position), self._closing.wait())

    async def exec(self, container_id: str, command: tuple[str, ...], options: SessionOptions) -> RuntimeSession:
        box = self._running(container_id)
        try:
            steps = shell.parse(command, dict(box.spec.env))
        except shell.NoSuchProgram as missing:
            raise StartFailure(f'exec: "{missing}": executable file not found in $PATH') from None
        return ExecSession(box, steps, options, self._clock)

    async def attach(self, container_id: str, options: SessionOptions) -> RuntimeSession:
        return AttachSession(self._running(container_id), options)

    async def connect(self, sandbox_id: str, port: int) -> PodConnection:
        for box in self._machine.boxes.values():
            if box.container.sandbox_id == sandbox_id and port in box.serves:
                return EchoConnection()
        raise ConnectionRefusedError(f"connection refused: nothing listens on port {port} of the pod")

    async def stats(self) -> tuple[ContainerStats, ...]:
        now = self._clock.wall_s()
        return tuple(
            self._stats(box, now)
            for box in self._machine.boxes.values()
            if box.container.phase is ContainerPhase.RUNNING
        )

    def _stats(self, box: Box, now: float) -> ContainerStats:
        found, program = box.container, self._config.programs.get(box.container.image_reference, Program())
        ran_s = now - (found.started_at or now)
        return ContainerStats(
            container_id=found.id, pod_uid=found.pod_uid, name=found.name, at=now,
            cpu_total_ns=int(ran_s * program.cpu_milli * 1_000_000), memory_working_set_bytes=program.memory_bytes,
            memory_rss_bytes=program.memory_bytes, processes=1,
        )  # fmt: skip
