"""The runtime with processes of this machine as containers; ``shoal.node.runtime.model`` specifies each call. How
they are isolated is up to its ``Isolation``.

The state is on disk and in the processes; ``open`` loads it into memory. The exit of a container is noticed through a
pidfd of its shim, and at the latest by the check of all containers every few seconds.
"""

from __future__ import annotations

import asyncio
import os
import signal as signals
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import shoal
from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.logs import get_logger
from shoal.base.supervision import SupervisedLoops
from shoal.base.tasks import OwnedTasks
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
from shoal.node.runtime.process.isolation import Isolation, RunningContainer
from shoal.node.runtime.process.logs import read_log
from shoal.node.runtime.process.session import open_attach, open_exec
from shoal.node.runtime.process.shim import processes
from shoal.node.runtime.process.table_images import ImageSource
from shoal.node.runtime.process.watches import Watches
from shoal.node.runtime.streams import EventStreams

log = get_logger("node.process")

_KILLED = 137
_KILL_S = 10.0  # for a shim to kill its container; after that the shim is killed too
_NEW_S = 60.0  # how long after its start a container is looked at by its isolation
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(slots=True)
class _Entry:
    """The state of a container in memory."""

    kept: records.KeptContainer
    folder: Path
    container: Container
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    shim: records.ProcessIdentity | None = None
    cpu_ns: int = 0
    starting: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRuntimeDeps:
    """Dependencies of a process runtime."""

    clock: Clock
    new_id: Callable[[], str]
    host_address: str = "127.0.0.1"  # of the node, and of pods on the host's network


class ProcessRuntime:
    """Runs containers as processes."""

    def __init__(
        self,
        config: ProcessConfig,
        images: ImageSource,
        addresses: PodAddresses,
        isolation: Isolation,
        deps: ProcessRuntimeDeps,
    ) -> None:
        self._config = config
        self._images = images
        self._addresses = addresses
        self._isolation = isolation
        self._deps = deps
        self._clock = deps.clock
        self._sandboxes: dict[str, records.KeptSandbox] = {}
        self._containers: dict[str, _Entry] = {}
        self._watches = Watches(self._shim_ended)
        self._events = EventStreams()
        self._closing = asyncio.Event()
        self._loops = SupervisedLoops(deps.clock)
        self._launches = OwnedTasks()

    # the runtime itself

    async def open(self) -> None:
        try:
            for folder in (self._config.sandboxes, self._config.containers):
                folder.mkdir(parents=True, exist_ok=True, mode=0o711)
        except OSError as error:
            raise RuntimeFailure(f"the node's folder {self._config.root} cannot be used: {error}") from error
        await self._isolation.open(self._shims_of)
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
        for kept in tuple(self._sandboxes.values()):
            if kept.sandbox.ready and not await self._isolation.restore(launch.Pod(kept.sandbox, kept.spec)):
                self._lose(kept)
        self._loops.start("process/check", self._check_periodically)

    async def _load_containers(self) -> None:
        self._containers.clear()
        for folder in sorted(self._config.containers.iterdir()):
            kept = records.load_container(folder)
            if kept is None or kept.container.sandbox_id not in self._sandboxes:
                _kill_all(usage.stragglers(folder.name) if records.shim_of(folder) is not None else [])
                await self._isolation.remove(folder)
                continue
            while records.being_started(folder):
                await self._clock.sleep(0.01)
            entry = self._containers[folder.name] = _Entry(kept, folder, kept.container)
            self._refresh(entry)
            if entry.shim is not None:
                self._watches.add(folder.name, entry.shim.pid, child=False)
                self._refresh(entry)  # the pid may have been reused before the watch began

    async def close(self) -> None:
        self._closing.set()
        await self._loops.stop()
        await self._isolation.close()
        await self._settled(*self._containers.values())
        self._watches.close()
        self._events.close()

    async def info(self) -> RuntimeInfo:
        machine, config = os.uname(), self._config
        disk = os.statvfs(config.root)
        return RuntimeInfo(
            name=self._isolation.name, version=shoal.__version__, os_image=_os_image(), kernel=machine.release,
            architecture=_ARCHITECTURES.get(machine.machine, machine.machine),
            cpu_milli=config.cpu_milli or 1000 * len(os.sched_getaffinity(0)),
            memory_bytes=config.memory_bytes or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            disk_bytes=disk.f_blocks * disk.f_frsize,
        )  # fmt: skip

    # images

    async def image(self, reference: str) -> Image | None:
        return await self._images.image(reference)

    async def images(self) -> tuple[Image, ...]:
        return await self._images.images()

    async def pull(
        self,
        reference: str,
        *,
        credentials: tuple[RegistryCredentials, ...] = (),
        progress: Callable[[PullProgress], None] = lambda _: None,
        command: bool = False,
    ) -> Image:
        return await self._images.pull(reference, credentials=credentials, progress=progress, command=command)

    async def remove_image(self, image_id: str) -> None:
        await self._images.remove_image(image_id)

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
            self._keep(records.KeptSandbox(sandbox=made, spec=spec, boot=processes.boot_id()))
            await self._isolation.attach(launch.Pod(made, spec))
        except BaseException as error:
            self._forget(made)
            if isinstance(error, OSError):
                raise CreateFailure(f"creating the sandbox failed: {error}") from error
            raise
        return made

    def _keep(self, kept: records.KeptSandbox) -> None:
        records.save_sandbox(self._config.sandboxes, kept)
        self._sandboxes[kept.sandbox.id] = kept

    def _forget(self, sandbox: Sandbox) -> None:
        self._give_back(sandbox)
        self._sandboxes.pop(sandbox.id, None)
        (self._config.sandboxes / sandbox.id).unlink(missing_ok=True)

    def _lose(self, kept: records.KeptSandbox) -> None:
        """The sandbox has ended without a call."""
        self._give_back(kept.sandbox)
        self._keep(replace(kept, sandbox=replace(kept.sandbox, ready=False, addresses=())))
        self._events.publish(RuntimeEvent(kind=RuntimeEventKind.SANDBOX, pod_uid=kept.sandbox.pod_uid))

    def _give_back(self, sandbox: Sandbox) -> None:
        for address in sandbox.addresses:
            if address != self._deps.host_address:
                self._addresses.give_back(address)

    async def stop_sandbox(self, sandbox_id: str) -> None:
        kept = self._sandboxes.get(sandbox_id)
        if kept is None:
            return
        await asyncio.gather(*(self.stop(entry.container.id, grace_s=0) for entry in self._of(sandbox_id)))
        await self._isolation.detach(launch.Pod(kept.sandbox, kept.spec))
        if kept.sandbox.ready:
            self._lose(kept)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        await self.stop_sandbox(sandbox_id)
        for entry in self._of(sandbox_id):
            await self.remove(entry.container.id)
        if self._sandboxes.pop(sandbox_id, None) is not None:
            (self._config.sandboxes / sandbox_id).unlink(missing_ok=True)

    def _of(self, sandbox_id: str) -> list[_Entry]:
        return [entry for entry in self._containers.values() if entry.container.sandbox_id == sandbox_id]

    def _shims_of(self, sandbox_id: str) -> list[int]:
        """The shims of its running containers."""
        running = (entry for entry in self._of(sandbox_id) if entry.container.phase is ContainerPhase.RUNNING)
        return [entry.shim.pid for entry in running if entry.shim is not None]

    # containers

    async def create(self, sandbox_id: str, spec: ContainerSpec) -> Container:
        kept = self._sandboxes.get(sandbox_id)
        if kept is None or not kept.sandbox.ready:
            raise CreateFailure(f"the sandbox {sandbox_id} is not ready")
        for entry in self._of(sandbox_id):
            if (entry.container.name, entry.container.attempt) == (spec.name, spec.attempt):
                return entry.container
        made = Container(
            id=self._deps.new_id().replace("-", ""), sandbox_id=sandbox_id, pod_uid=kept.sandbox.pod_uid,
            name=spec.name, attempt=spec.attempt, phase=ContainerPhase.CREATED, image_id=spec.image.id,
            image_reference=spec.image_reference, created_at=self._clock.wall_s(), hash=spec.hash,
            labels=dict(spec.labels),
        )  # fmt: skip
        folder = self._config.containers / made.id
        entry = _Entry(
            records.KeptContainer(
                container=made, stop_signal=spec.stop_signal or spec.image.stop_signal, tty=spec.tty, stdin=spec.stdin
            ),
            folder, made,
        )  # fmt: skip
        try:
            folder.mkdir(mode=0o711)
            notices = self._isolation.prepare(folder, made.id, spec, launch.Pod(kept.sandbox, kept.spec))
            records.save_container(folder, entry.kept)
        except (OSError, CreateFailure) as error:
            await self._isolation.remove(folder)
            raise CreateFailure(str(error)) from error
        self._containers[made.id] = entry
        for notice in notices:
            self._notice(entry, *notice.split(" ", 1))
        return made

    async def start(self, container_id: str) -> Container:
        entry = self._entry(container_id)
        if entry.container.phase is not ContainerPhase.CREATED:
            return entry.container
        if entry.starting is None:
            entry.starting = self._launches.start(self._launch(entry), name=f"launch/{container_id}", awaited=True)
        await asyncio.shield(entry.starting)  # a cancelled caller must not lose track of the shim
        return entry.container

    async def _launch(self, entry: _Entry) -> None:
        kept = self._sandboxes[entry.container.sandbox_id]
        started = await self._isolation.start(entry.folder, launch.Pod(kept.sandbox, kept.spec))
        if started.shim_pid:
            self._watches.add(entry.container.id, started.shim_pid, child=started.child)
        self._refresh(entry)
        if not started.ok:
            if entry.container.phase is ContainerPhase.CREATED:  # the shim itself failed
                reason = ExitReason.START_ERROR
                records.write_exit(
                    entry.folder, code=128, reason=reason, at=self._clock.wall_s(), message=started.message
                )
                self._refresh(entry)
            raise StartFailure(started.message)

    async def _settled(self, *entries: _Entry) -> None:
        """Wait for starts in progress."""
        starting = [entry.starting for entry in entries if entry.starting is not None and not entry.starting.done()]
        await asyncio.gather(*starting, return_exceptions=True)

    def _refresh(self, entry: _Entry) -> None:
        """Read a container's state from disk and publish the changes."""
        before = entry.container.phase
        if before is ContainerPhase.EXITED:
            return
        found = records.as_it_is(entry.folder, entry.kept.container, self._clock.wall_s())
        entry.container = found
        if found.phase is before:
            return
        event = RuntimeEvent(kind=RuntimeEventKind.STARTED, pod_uid=found.pod_uid, container_id=found.id)
        if found.started_at is not None and before is ContainerPhase.CREATED:
            self._events.publish(event)
        if found.phase is ContainerPhase.RUNNING:
            entry.shim = records.shim_of(entry.folder)
        else:
            if found.reason is ExitReason.UNKNOWN:
                _kill_all(usage.stragglers(found.id))
            entry.exited.set()
            self._events.publish(replace(event, kind=RuntimeEventKind.EXITED))

    def _shim_ended(self, container_id: str) -> None:
        entry = self._containers.get(container_id)
        if entry is not None:
            self._refresh(entry)

    async def stop(self, container_id: str, *, grace_s: float, signal: str = "") -> Container:
        entry = self._entry(container_id)
        await self._settled(entry)
        if entry.container.phase is ContainerPhase.CREATED:
            now = self._clock.wall_s()
            records.write_exit(
                entry.folder, code=_KILLED, reason=ExitReason.ERROR, at=now, message="the container was never started"
            )
            self._refresh(entry)
        if entry.container.phase is ContainerPhase.EXITED:
            return entry.container
        if grace_s > 0:
            await self._ask(entry, do="signal", number=_number(signal or entry.kept.stop_signal))
            with suppress(TimeoutError):
                async with within(self._clock, grace_s):
                    await entry.exited.wait()
        if not entry.exited.is_set():
            await self._kill(entry)
        return entry.container

    async def _kill(self, entry: _Entry) -> None:
        await self._ask(entry, do="kill")
        try:
            async with within(self._clock, _KILL_S):
                await entry.exited.wait()
        except TimeoutError:
            log.warning("a shim did not stop its container; killing both", container=entry.container.id)
            if entry.shim is not None and entry.shim.alive:
                _kill_all([*processes.descendants(entry.shim.pid), entry.shim.pid])
            await entry.exited.wait()

    async def _ask(self, entry: _Entry, **request: object) -> None:
        try:
            await ask(entry.folder, **request)
        except NoSuchContainer:
            self._refresh(entry)  # the container is exiting

    async def remove(self, container_id: str) -> None:
        if container_id not in self._containers:
            return
        await self.stop(container_id, grace_s=0)
        entry = self._containers.pop(container_id, None)
        if entry is not None:
            (entry.folder / "kept").unlink(missing_ok=True)  # without this file the container does not exist
            await self._isolation.remove(entry.folder)

    async def update(self, container_id: str, resources: ContainerResources) -> None:
        entry = self._entry(container_id)
        if entry.container.phase is ContainerPhase.CREATED:
            self._isolation.change_limits(entry.folder, resources)
        elif entry.container.phase is ContainerPhase.RUNNING:
            await self._ask(entry, do="limit", resources=launch.limits_of(resources))

    async def inspect(self, container_id: str) -> Container:
        return self._entry(container_id).container

    async def list(self) -> Inventory:
        sandboxes = tuple(kept.sandbox for kept in self._sandboxes.values())
        return Inventory(sandboxes, tuple(entry.container for entry in self._containers.values()))

    def _entry(self, container_id: str) -> _Entry:
        entry = self._containers.get(container_id)
        if entry is None:
            raise NoSuchContainer(f"container {container_id} not found")
        return entry

    def _running(self, container_id: str) -> _Entry:
        entry = self._entry(container_id)
        if entry.container.phase is not ContainerPhase.RUNNING:
            raise NoSuchContainer(f"the container {container_id} is not running")
        return entry

    # events

    def events(self) -> AsyncIterator[RuntimeEvent]:
        return self._events.listen()

    def _notice(self, entry: _Entry, reason: str, message: str) -> None:
        found = entry.container
        self._events.publish(
            RuntimeEvent(
                kind=RuntimeEventKind.NOTICE,
                pod_uid=found.pod_uid,
                container_id=found.id,
                reason=reason,
                message=message,
            )
        )

    async def _check_periodically(self) -> None:
        """Check all containers, in case an event was missed, and let the isolation look at new ones."""
        while True:
            await self._clock.sleep(self._config.look_s)
            try:
                self._watches.reap()
                for entry in tuple(self._containers.values()):
                    if entry.container.id not in self._watches:
                        self._refresh(entry)
                await self._look()
            except (OSError, RuntimeFailure) as error:
                log.warning("listing the containers failed", reason=str(error))

    async def _look(self) -> None:
        now = self._clock.wall_s()
        new = []
        for entry in self._containers.values():
            kept = self._sandboxes.get(entry.container.sandbox_id)
            if _is_new(entry.container, now) and entry.shim is not None and kept is not None:
                pod = launch.Pod(kept.sandbox, kept.spec)
                new.append(RunningContainer(entry.container.id, entry.container.name, pod, entry.shim.pid))
        found = await self._isolation.look(new)
        for notice in found.notices:
            named = self._containers.get(notice.container_id)
            if named is not None:
                self._notice(named, notice.reason, notice.message)
        for sandbox_id in found.lost:
            kept = self._sandboxes.get(sandbox_id)
            if kept is not None and kept.sandbox.ready:
                self._lose(kept)

    # logs, sessions, connections, statistics

    async def logs(self, container_id: str, options: LogOptions) -> AsyncIterator[tuple[LogRecord, ...]]:
        entry = self._entry(container_id)
        ended = entry.exited.is_set
        async for found in read_log(entry.folder, options, clock=self._clock, ended=ended, closing=self._closing):
            yield found

    async def exec(self, container_id: str, command: tuple[str, ...], options: SessionOptions) -> RuntimeSession:
        return await open_exec(self._running(container_id).folder, command, options)

    async def attach(self, container_id: str, options: SessionOptions) -> RuntimeSession:
        entry = self._running(container_id)
        options = replace(options, stdin=options.stdin and (entry.kept.stdin or entry.kept.tty))
        return await open_attach(entry.folder, options, terminal=entry.kept.tty)

    async def connect(self, sandbox_id: str, port: int) -> PodConnection:
        kept = self._sandboxes.get(sandbox_id)
        if kept is None or not kept.sandbox.ready:
            raise ConnectionRefusedError(f"the sandbox {sandbox_id} is not ready")
        return await self._isolation.connect(launch.Pod(kept.sandbox, kept.spec), port)

    async def stats(self) -> tuple[ContainerStats, ...]:
        now = self._clock.wall_s()
        running = [
            (entry, entry.container, entry.shim.pid)
            for entry in self._containers.values()
            if entry.container.phase is ContainerPhase.RUNNING and entry.shim is not None
        ]

        def look() -> list[ContainerStats]:
            return [usage.stats_of(container, shim, entry.folder, now) for entry, container, shim in running]

        found = []
        for (entry, _, _), stats in zip(running, await asyncio.to_thread(look), strict=True):
            entry.cpu_ns = max(entry.cpu_ns, stats.cpu_total_ns)
            if entry.container.phase is ContainerPhase.RUNNING:
                found.append(replace(stats, cpu_total_ns=entry.cpu_ns))
        return tuple(found)


def _is_new(container: Container, now: float) -> bool:
    return container.phase is ContainerPhase.RUNNING and now - (container.started_at or now) < _NEW_S


def _kill_all(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signals.SIGKILL)


def _number(name: str) -> int:
    """The number of a signal by its name, with or without ``SIG``, or the number; SIGTERM for an empty one."""
    if name.isdigit() and 0 < int(name) < signals.NSIG:
        return int(name)
    full = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    found = getattr(signals, full, signals.SIGTERM)
    return int(found) if isinstance(found, signals.Signals) else int(signals.SIGTERM)


def _os_image() -> str:
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return "Linux"
    return next((line[12:].strip('"') for line in lines if line.startswith("PRETTY_NAME=")), "Linux")
