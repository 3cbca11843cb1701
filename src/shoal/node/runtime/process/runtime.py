"""The seam, with processes of this machine: see ``shoal.node.runtime.model`` for what each call promises.

The truth is on disk and in the processes; what is in memory is a copy that ``open`` makes. An exit is noticed by a file
for the shim's process that becomes readable, and at the latest by a look at everything every few seconds.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal as signals
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import shoal
from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.logs import get_logger
from shoal.base.tasks import cancel_all
from shoal.node.runtime.connections import SocketConnection
from shoal.node.runtime.model import (
    Container,
    ContainerPhase,
    ContainerResources,
    ContainerSpec,
    ContainerStats,
    CreateFailure,
    ExitReason,
    Image,
    Inventory,
    LogOptions,
    LogRecord,
    NoSuchContainer,
    PodConnection,
    PullProgress,
    RegistryCredentials,
    RuntimeEvent,
    RuntimeEventKind,
    RuntimeFailure,
    RuntimeInfo,
    RuntimeSession,
    Sandbox,
    SandboxSpec,
    SessionOptions,
    StartFailure,
)
from shoal.node.runtime.process import launch, records, usage
from shoal.node.runtime.process.addresses import PodAddresses
from shoal.node.runtime.process.config import ProcessConfig
from shoal.node.runtime.process.fds import ask
from shoal.node.runtime.process.hostports import HostPorts
from shoal.node.runtime.process.images import ImageTable
from shoal.node.runtime.process.logs import read_log
from shoal.node.runtime.process.session import open_attach, open_exec
from shoal.node.runtime.process.shim import processes
from shoal.node.runtime.process.sockets import listening_address, ports_on_all_addresses
from shoal.node.runtime.process.watches import Watches
from shoal.node.runtime.streams import EventStreams

log = get_logger("node.process")

_IMAGES = 500
_KILLED = 137
_KILL_S = 10.0  # for a shim to end everything; then the shim itself is killed
_NEW_S = 60.0  # how long a container is asked where it listens
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(slots=True)
class _Box:
    """A container in memory."""

    kept: records.KeptContainer
    folder: Path
    container: Container
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    shim: records.ProcessIdentity | None = None
    told: set[int] = field(default_factory=set)  # ports that users were warned of
    cpu_ns: int = 0
    starting: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRuntimeDeps:
    """What a runtime gets from the process that it is part of."""

    clock: Clock
    new_id: Callable[[], str]
    environ: Mapping[str, str]
    host_address: str = "127.0.0.1"  # of the node, and of pods on the host's network


class ProcessRuntime:
    """Runs containers as processes."""

    def __init__(
        self, config: ProcessConfig, images: ImageTable, addresses: PodAddresses, deps: ProcessRuntimeDeps
    ) -> None:
        self._config = config
        self._images = images
        self._addresses = addresses
        self._deps = deps
        self._clock = deps.clock
        self._sandboxes: dict[str, records.KeptSandbox] = {}
        self._boxes: dict[str, _Box] = {}
        self._watches = Watches(self._shim_ended)
        self._asked_for: dict[str, Image] = {}  # what the node says it has; the table knows more
        self._events = EventStreams()
        self._closing = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._namespaces = ""
        self._host_ports = HostPorts(deps.host_address)

    # the runtime itself

    async def open(self) -> None:
        try:
            for folder in (self._config.sandboxes, self._config.containers):
                folder.mkdir(parents=True, exist_ok=True, mode=0o711)
            self._namespaces = await launch.find_namespaces(self._config)
        except OSError as error:
            raise RuntimeFailure(f"the node's folder {self._config.root} cannot be used: {error}") from error
        self._closing = asyncio.Event()
        boot = processes.boot_id()
        self._sandboxes.clear()
        for kept in records.load_sandboxes(self._config.sandboxes):
            if kept.boot != boot and kept.sandbox.ready:
                kept = replace(kept, sandbox=replace(kept.sandbox, ready=False, addresses=()))
            self._sandboxes[kept.sandbox.id] = kept
        used = (address for kept in self._sandboxes.values() for address in kept.sandbox.addresses)
        self._addresses.open(address for address in used if address != self._deps.host_address)
        await self._load_containers()
        for kept in self._sandboxes.values():
            if kept.sandbox.ready:
                await self._host_ports.open(kept.sandbox, kept.spec.ports, strict=False)
        self._looking = asyncio.create_task(self._look_often(), name="process/look")

    async def _load_containers(self) -> None:
        self._boxes.clear()
        for folder in sorted(self._config.containers.iterdir()):
            kept = records.load_container(folder)
            if kept is None or kept.container.sandbox_id not in self._sandboxes:
                _kill_all(usage.stragglers(folder.name) if records.shim_of(folder) is not None else [])
                shutil.rmtree(folder, ignore_errors=True)
                continue
            while records.being_started(folder):
                await self._clock.sleep(0.01)
            box = self._boxes[folder.name] = _Box(kept, folder, kept.container)
            self._refresh(box)
            if box.shim is not None:
                self._watches.add(folder.name, box.shim.pid, child=False)
                self._refresh(box)  # the pid may have become somebody else's before it was watched

    async def close(self) -> None:
        self._closing.set()
        if self._looking is not None:
            await cancel_all(self._looking)
            self._looking = None
        await self._host_ports.close_all()
        await self._settled(*self._boxes.values())
        self._watches.close()
        self._events.close()

    async def info(self) -> RuntimeInfo:
        machine, config = os.uname(), self._config
        disk = os.statvfs(config.root)
        return RuntimeInfo(
            name="process", version=shoal.__version__, os_image=_os_image(), kernel=machine.release,
            architecture=_ARCHITECTURES.get(machine.machine, machine.machine),
            cpu_milli=config.cpu_milli or 1000 * len(os.sched_getaffinity(0)),
            memory_bytes=config.memory_bytes or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            disk_bytes=disk.f_blocks * disk.f_frsize,
        )  # fmt: skip

    # images

    async def image(self, reference: str) -> Image | None:
        found = self._images.find(reference)
        return self._used(found) if found is not None else None

    async def images(self) -> tuple[Image, ...]:
        return tuple(self._asked_for.values())

    def _used(self, image: Image) -> Image:
        self._asked_for.setdefault(image.id, image)
        if len(self._asked_for) > _IMAGES:
            del self._asked_for[next(iter(self._asked_for))]
        return image

    async def pull(
        self,
        reference: str,
        *,
        credentials: tuple[RegistryCredentials, ...] = (),
        progress: Callable[[PullProgress], None] = lambda _: None,
        command: bool = False,
    ) -> Image:
        found = self._images.find(reference)
        if found is None and not command:
            raise self._images.missing(reference)
        return self._used(found or self._images.bare(reference))

    async def remove_image(self, image_id: str) -> None:
        self._asked_for.pop(image_id, None)

    # sandboxes

    async def create_sandbox(self, spec: SandboxSpec) -> Sandbox:
        for kept in self._sandboxes.values():
            found = kept.sandbox
            if (found.pod_uid, found.attempt) == (spec.pod_uid, spec.attempt) and found.ready:
                return found
        address = self._deps.host_address if spec.host_network else self._addresses.take()
        made = Sandbox(
            id=self._deps.new_id().replace("-", ""), pod_uid=spec.pod_uid, namespace=spec.namespace, name=spec.name,
            attempt=spec.attempt, ready=True, addresses=(address,), created_at=self._clock.wall_s(),
        )  # fmt: skip
        try:
            await self._host_ports.open(made, spec.ports, strict=True)
            self._keep(records.KeptSandbox(sandbox=made, spec=spec, boot=processes.boot_id()))
        except BaseException as error:
            await self._host_ports.close(made.id)
            self._give_back(made)
            if isinstance(error, OSError):
                raise CreateFailure(f"creating the sandbox failed: {error}") from error
            raise
        return made

    def _keep(self, kept: records.KeptSandbox) -> None:
        records.save_sandbox(self._config.sandboxes, kept)
        self._sandboxes[kept.sandbox.id] = kept

    def _give_back(self, sandbox: Sandbox) -> None:
        for address in sandbox.addresses:
            if address != self._deps.host_address:
                self._addresses.give_back(address)

    async def stop_sandbox(self, sandbox_id: str) -> None:
        kept = self._sandboxes.get(sandbox_id)
        if kept is None:
            return
        await asyncio.gather(*(self.stop(box.container.id, grace_s=0) for box in self._of(sandbox_id)))
        await self._host_ports.close(sandbox_id)
        if kept.sandbox.ready:
            self._give_back(kept.sandbox)
            self._keep(replace(kept, sandbox=replace(kept.sandbox, ready=False, addresses=())))
            self._events.tell(RuntimeEvent(kind=RuntimeEventKind.SANDBOX, pod_uid=kept.sandbox.pod_uid))

    async def remove_sandbox(self, sandbox_id: str) -> None:
        await self.stop_sandbox(sandbox_id)
        for box in self._of(sandbox_id):
            await self.remove(box.container.id)
        if self._sandboxes.pop(sandbox_id, None) is not None:
            (self._config.sandboxes / sandbox_id).unlink(missing_ok=True)

    def _of(self, sandbox_id: str) -> list[_Box]:
        return [box for box in self._boxes.values() if box.container.sandbox_id == sandbox_id]

    # containers

    async def create(self, sandbox_id: str, spec: ContainerSpec) -> Container:
        kept = self._sandboxes.get(sandbox_id)
        if kept is None or not kept.sandbox.ready:
            raise CreateFailure(f"the sandbox {sandbox_id} is not ready")
        for box in self._of(sandbox_id):
            if (box.container.name, box.container.attempt) == (spec.name, spec.attempt):
                return box.container
        made = Container(
            id=self._deps.new_id().replace("-", ""), sandbox_id=sandbox_id, pod_uid=kept.sandbox.pod_uid,
            name=spec.name, attempt=spec.attempt, phase=ContainerPhase.CREATED, image_id=spec.image.id,
            image_reference=spec.image_reference, created_at=self._clock.wall_s(), hash=spec.hash,
            labels=dict(spec.labels),
        )  # fmt: skip
        folder = self._config.containers / made.id
        box = _Box(
            records.KeptContainer(container=made, stop_signal=spec.stop_signal, tty=spec.tty, stdin=spec.stdin),
            folder, made,
        )  # fmt: skip
        try:
            folder.mkdir(mode=0o711)
            notices = launch.prepare(
                folder, made.id, spec, launch.Pod(kept.sandbox, kept.spec), self._config, self._deps.environ,
                self._namespaces,
            )  # fmt: skip
            records.save_container(folder, box.kept)
        except (OSError, CreateFailure) as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise CreateFailure(str(error)) from error
        self._boxes[made.id] = box
        for notice in notices:
            self._notice(box, *notice.split(" ", 1))
        return made

    async def start(self, container_id: str) -> Container:
        box = self._box(container_id)
        if box.container.phase is not ContainerPhase.CREATED:
            return box.container
        if box.starting is None:
            box.starting = asyncio.create_task(self._launch(box), name=f"launch/{container_id}")
        await asyncio.shield(box.starting)  # once there is a shim, it must be known whoever is cancelled
        return box.container

    async def _launch(self, box: _Box) -> None:
        started = await launch.start_shim(box.folder)
        self._watches.add(box.container.id, started.shim_pid, child=True)
        self._refresh(box)
        if not started.ok:
            if box.container.phase is ContainerPhase.CREATED:  # the shim itself failed
                reason = ExitReason.START_ERROR
                records.write_exit(
                    box.folder, code=128, reason=reason, at=self._clock.wall_s(), message=started.message
                )
                self._refresh(box)
            raise StartFailure(started.message)

    async def _settled(self, *boxes: _Box) -> None:
        """Wait for starts that are under way."""
        starting = [box.starting for box in boxes if box.starting is not None and not box.starting.done()]
        await asyncio.gather(*starting, return_exceptions=True)

    def _refresh(self, box: _Box) -> None:
        """Bring a container up to date with the disk, and tell what changed."""
        before = box.container.phase
        if before is ContainerPhase.EXITED:
            return
        found = records.as_it_is(box.folder, box.kept.container, self._clock.wall_s())
        box.container = found
        if found.phase is before:
            return
        event = RuntimeEvent(kind=RuntimeEventKind.STARTED, pod_uid=found.pod_uid, container_id=found.id)
        if found.started_at is not None and before is ContainerPhase.CREATED:
            self._events.tell(event)
        if found.phase is ContainerPhase.RUNNING:
            box.shim = records.shim_of(box.folder)
        else:
            if found.reason is ExitReason.UNKNOWN:
                _kill_all(usage.stragglers(found.id))
            box.exited.set()
            self._events.tell(replace(event, kind=RuntimeEventKind.EXITED))

    def _shim_ended(self, container_id: str) -> None:
        box = self._boxes.get(container_id)
        if box is not None:
            self._refresh(box)

    async def stop(self, container_id: str, *, grace_s: float, signal: str = "") -> Container:
        box = self._box(container_id)
        await self._settled(box)
        if box.container.phase is ContainerPhase.CREATED:
            now = self._clock.wall_s()
            records.write_exit(box.folder, code=_KILLED, reason=ExitReason.ERROR, at=now, message="it never started")
            self._refresh(box)
        if box.container.phase is ContainerPhase.EXITED:
            return box.container
        if grace_s > 0:
            await self._ask(box, do="signal", number=_number(signal or box.kept.stop_signal))
            with suppress(TimeoutError):
                async with within(self._clock, grace_s):
                    await box.exited.wait()
        if not box.exited.is_set():
            await self._kill(box)
        return box.container

    async def _kill(self, box: _Box) -> None:
        await self._ask(box, do="kill")
        try:
            async with within(self._clock, _KILL_S):
                await box.exited.wait()
        except TimeoutError:
            log.warning("a shim did not stop its container; killing both", container=box.container.id)
            if box.shim is not None and box.shim.alive:
                _kill_all([*processes.descendants(box.shim.pid), box.shim.pid])
            await box.exited.wait()

    async def _ask(self, box: _Box, **request: object) -> None:
        try:
            await ask(box.folder, **request)
        except NoSuchContainer:
            self._refresh(box)  # it is about to end

    async def remove(self, container_id: str) -> None:
        if container_id not in self._boxes:
            return
        await self.stop(container_id, grace_s=0)
        box = self._boxes.pop(container_id, None)
        if box is not None:
            (box.folder / "kept").unlink(missing_ok=True)  # from here on it does not exist
            shutil.rmtree(box.folder, ignore_errors=True)

    async def update(self, container_id: str, resources: ContainerResources) -> None:
        box = self._box(container_id)
        if box.container.phase is ContainerPhase.CREATED:
            launch.change_memory_limit(box.folder, resources)
        elif box.container.phase is ContainerPhase.RUNNING:
            await self._ask(box, do="limit", memory=resources.memory_limit_bytes)

    async def inspect(self, container_id: str) -> Container:
        return self._box(container_id).container

    async def list(self) -> Inventory:
        sandboxes = tuple(kept.sandbox for kept in self._sandboxes.values())
        return Inventory(sandboxes, tuple(box.container for box in self._boxes.values()))

    def _box(self, container_id: str) -> _Box:
        box = self._boxes.get(container_id)
        if box is None:
            raise NoSuchContainer(f"container {container_id} not found")
        return box

    def _running(self, container_id: str) -> _Box:
        box = self._box(container_id)
        if box.container.phase is not ContainerPhase.RUNNING:
            raise NoSuchContainer(f"the container {container_id} is not running")
        return box

    # what happens by itself

    def events(self) -> AsyncIterator[RuntimeEvent]:
        return self._events.listen()

    def _notice(self, box: _Box, reason: str, message: str) -> None:
        found = box.container
        self._events.tell(
            RuntimeEvent(
                kind=RuntimeEventKind.NOTICE,
                pod_uid=found.pod_uid,
                container_id=found.id,
                reason=reason,
                message=message,
            )
        )

    async def _look_often(self) -> None:
        """The safety net for exits and starts, and a look at where new containers listen."""
        while True:
            await self._clock.sleep(self._config.look_s)
            try:
                self._watches.look()
                for box in tuple(self._boxes.values()):
                    if box.container.id not in self._watches:
                        self._refresh(box)
                await self._look_at_ports()
            except (OSError, RuntimeFailure) as error:
                log.warning("listing the containers failed", reason=str(error))

    async def _look_at_ports(self) -> None:
        now = self._clock.wall_s()
        new = [box for box in self._boxes.values() if _is_new(box.container, now) and not self._on_host(box)]
        if not new:
            return
        by_shim = {box.shim.pid: box for box in new if box.shim is not None}
        for shim, ports in (await ports_on_all_addresses(tuple(by_shim))).items():
            for port in set(ports) - by_shim[shim].told:
                by_shim[shim].told.add(port)
                self._warn_of(by_shim[shim], port)

    def _on_host(self, box: _Box) -> bool:
        kept = self._sandboxes.get(box.container.sandbox_id)
        return kept is None or kept.spec.host_network

    def _warn_of(self, box: _Box, port: int) -> None:
        kept = self._sandboxes[box.container.sandbox_id]
        address = next(iter(kept.sandbox.addresses), "")
        self._notice(
            box, "BindsAllAddresses",
            f"container {box.container.name!r} listens on all addresses (0.0.0.0:{port}): no other pod of this machine "
            f"can use the port {port}, and other machines may reach it; listen on $HOST ({address}) instead",
        )  # fmt: skip

    # looking inside

    async def logs(self, container_id: str, options: LogOptions) -> AsyncIterator[tuple[LogRecord, ...]]:
        box = self._box(container_id)
        ended = box.exited.is_set
        async for found in read_log(box.folder, options, clock=self._clock, ended=ended, closing=self._closing):
            yield found

    async def exec(self, container_id: str, command: tuple[str, ...], options: SessionOptions) -> RuntimeSession:
        return await open_exec(self._running(container_id).folder, command, options)

    async def attach(self, container_id: str, options: SessionOptions) -> RuntimeSession:
        box = self._running(container_id)
        options = replace(options, stdin=options.stdin and (box.kept.stdin or box.kept.tty))
        return await open_attach(box.folder, options, terminal=box.kept.tty)

    async def connect(self, sandbox_id: str, port: int) -> PodConnection:
        kept = self._sandboxes.get(sandbox_id)
        if kept is None or not kept.sandbox.ready:
            raise ConnectionRefusedError(f"the sandbox {sandbox_id} is not ready")
        address = kept.sandbox.addresses[0]
        if not kept.spec.host_network:
            running = (box for box in self._of(sandbox_id) if box.container.phase is ContainerPhase.RUNNING)
            address = await listening_address(address, port, [box.shim.pid for box in running if box.shim is not None])
        return SocketConnection(*await asyncio.open_connection(address, port))

    async def stats(self) -> tuple[ContainerStats, ...]:
        now = self._clock.wall_s()
        running = [
            (box, box.container, box.shim.pid)
            for box in self._boxes.values()
            if box.container.phase is ContainerPhase.RUNNING and box.shim is not None
        ]

        def look() -> list[ContainerStats]:
            return [usage.stats_of(container, shim, box.folder, now) for box, container, shim in running]

        found = []
        for (box, _, _), stats in zip(running, await asyncio.to_thread(look), strict=True):
            box.cpu_ns = max(box.cpu_ns, stats.cpu_total_ns)
            if box.container.phase is ContainerPhase.RUNNING:
                found.append(replace(stats, cpu_total_ns=box.cpu_ns))
        return tuple(found)


def _is_new(container: Container, now: float) -> bool:
    return container.phase is ContainerPhase.RUNNING and now - (container.started_at or now) < _NEW_S


def _kill_all(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signals.SIGKILL)


def _number(name: str) -> int:
    """The number of a signal's name, with or without ``SIG``; that of SIGTERM for none and for what is no signal."""
    full = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    found = getattr(signals, full, signals.SIGTERM)
    return int(found) if isinstance(found, signals.Signals) else int(signals.SIGTERM)


def _os_image() -> str:
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return "Linux"
    return next((line[12:].strip('"') for line in lines if line.startswith("PRETTY_NAME=")), "Linux")
