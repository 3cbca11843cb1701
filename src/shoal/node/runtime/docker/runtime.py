"""The runtime on a container engine; ``shoal.node.runtime.model`` specifies each call.

The engine holds the state; ``container_cache`` has a copy that is refreshed before it is used. The engine does not
record two kinds of exit: of a container that failed to start (some engines), and of one that was stopped before its
start. They are kept in memory; after a restart of the agent such a container is CREATED again.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.logs import get_logger
from shoal.base.tasks import beside
from shoal.node.runtime.connections import SocketConnection
from shoal.node.runtime.docker import bodies, pods
from shoal.node.runtime.docker.bridge import keep_address
from shoal.node.runtime.docker.config import DockerConfig, find_socket
from shoal.node.runtime.docker.container_cache import ContainerCache
from shoal.node.runtime.docker.engine import Engine, EngineError
from shoal.node.runtime.docker.images import EngineImages
from shoal.node.runtime.docker.logs import read_log
from shoal.node.runtime.docker.networks import ensure_network
from shoal.node.runtime.docker.session import open_attach, open_exec, wait_for_exit
from shoal.node.runtime.docker.sources import resolved
from shoal.node.runtime.docker.views import Found, info_of, stats_of
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
    RuntimeInfo,
    RuntimeSession,
    Sandbox,
    SandboxSpec,
    SessionOptions,
    StartFailure,
)

log = get_logger("node.docker")

_KILLED = 137
_NOT_STARTED = 128
_CONNECT_S = 10.0
_STATS_AT_ONCE = 8
_GONE_S = 0.05
_LOCALHOST = "localhost/"


@dataclass(slots=True)
class _Stopping:
    """A stop in progress. Concurrent callers share it, with the earliest deadline."""

    until: float  # on the monotonic clock
    earlier: asyncio.Event = field(default_factory=asyncio.Event)


class DockerRuntime:
    """Runs containers with a Docker engine or with podman."""

    def __init__(self, config: DockerConfig, *, clock: Clock, environ: Mapping[str, str]) -> None:
        self._config = config
        self._clock = clock
        self._environ = environ
        self._engine = Engine("", clock=clock, request_s=config.request_s)
        self._images = EngineImages(self._engine)
        self._cache = ContainerCache(self._engine, config, clock=clock)
        self._pause = ""
        self._gateways: frozenset[str] = frozenset()
        self._stopping: dict[str, _Stopping] = {}
        self._sizes: dict[str, int] = {}
        self._sizes_at = 0.0
        self._cpu_ns: dict[str, int] = {}

    # the runtime itself

    async def open(self) -> None:
        path = find_socket(self._config, self._environ, os.path.exists)
        self._engine = Engine(path, clock=self._clock, request_s=self._config.request_s)
        self._images = EngineImages(self._engine)
        self._cache = ContainerCache(self._engine, self._config, clock=self._clock)
        await self._engine.negotiate()
        await self._cache.open()
        try:
            self._pause = await self._images.ensure_pause(self._config.pause_image)
            self._gateways = (await ensure_network(self._engine, self._config)).gateways
            await self._remove_strays()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._cache.close()
        await self._images.close()
        self._engine.close()

    async def info(self) -> RuntimeInfo:
        return info_of(await self._engine.json("GET", "info"))

    async def _remove_strays(self) -> None:
        """Remove what an interrupted run left: sandboxes that were never started, containers without a sandbox."""
        inventory = await self._cache.refresh()
        for sandbox in inventory.sandboxes:
            if (await self._cache.find(sandbox.id)).phase is ContainerPhase.CREATED:
                await self.remove_sandbox(sandbox.id)
        pods_there = {each.id for each in inventory.sandboxes}
        for container in inventory.containers:
            if container.sandbox_id not in pods_there:
                await self._remove(container.id)

    async def remove_all(self) -> None:
        """Remove all sandboxes and containers of this node, and the cluster's network if it is unused. Call it between
        ``open`` and ``close``."""
        inventory = await self._cache.refresh()
        await asyncio.gather(*(self.remove_sandbox(each.id) for each in inventory.sandboxes))
        for each in (await self._cache.refresh()).containers:
            await self._remove(each.id)
        if not self._config.network:
            with suppress(EngineError):
                await self._engine.json("DELETE", "networks", self._config.network_name)

    # images

    async def image(self, reference: str) -> Image | None:
        return await self._images.find(reference)

    async def images(self) -> tuple[Image, ...]:
        return await self._images.all()

    async def pull(
        self,
        reference: str,
        *,
        credentials: tuple[RegistryCredentials, ...] = (),
        progress: Callable[[PullProgress], None] = lambda _: None,
        command: bool = False,
    ) -> Image:
        return await self._images.pull(reference, credentials, progress)

    async def remove_image(self, image_id: str) -> None:
        await self._images.remove(image_id)

    # sandboxes

    async def create_sandbox(self, spec: SandboxSpec) -> Sandbox:
        for each in (await self._cache.refresh()).sandboxes:
            if (each.pod_uid, each.attempt) == (spec.pod_uid, spec.attempt):
                if each.ready:
                    return each
                await self.remove_sandbox(each.id)
        body = bodies.sandbox_body(spec, await self._pause_image(), self._create_context())
        name = bodies.sandbox_name(spec, self._config)
        try:
            made = await self._made(name, body)
        except EngineError as error:
            raise CreateFailure(f"creating the sandbox failed: {error}") from error
        try:
            await self._engine.json("POST", "containers", made, "start")
            keep_address(self._gateways)
            sandbox = (await self._cache.find(made)).view
        except BaseException as error:
            await self._remove(made)
            if isinstance(error, EngineError):
                raise CreateFailure(f"starting the sandbox failed: {error}") from error
            raise
        if not isinstance(sandbox, Sandbox) or not sandbox.ready:
            await self._remove(made)
            raise CreateFailure("the sandbox exited immediately or has no address")
        return sandbox

    async def _pause_image(self) -> str:
        """The image of sandboxes; built or pulled again if it was removed."""
        if await self._images.find(self._pause) is None:
            self._pause = await self._images.ensure_pause(self._config.pause_image)
        return self._pause

    async def _made(self, name: str, body: dict[str, Any]) -> str:
        """Create a container and return its id, or the id of the one that an interrupted call has created."""
        try:
            found = await self._engine.json("POST", "containers", "create", query={"name": name}, body=body)
        except EngineError as error:
            if not _is_taken(error):
                raise
            found = await self._engine.json("GET", "containers", name, "json")
        return str(found["Id"])

    async def stop_sandbox(self, sandbox_id: str) -> None:
        inventory = await self._cache.refresh()
        if not any(each.id == sandbox_id for each in inventory.sandboxes):
            return
        inside = (each.id for each in inventory.containers if each.sandbox_id == sandbox_id)
        await asyncio.gather(*(self._killed(each) for each in inside))
        await self._kill(sandbox_id, "SIGKILL")
        await wait_for_exit(self._engine, sandbox_id)
        with suppress(NoSuchContainer):
            await self._cache.find(sandbox_id)

    async def _killed(self, container_id: str) -> None:
        with suppress(NoSuchContainer):
            await self.stop(container_id, grace_s=0)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        inventory = await self._cache.refresh()
        inside = [each for each in inventory.containers if each.sandbox_id == sandbox_id]
        await asyncio.gather(*(self._killed(each.id) for each in inside))
        # newest first: a container goes before the one whose namespaces it joined
        for each in sorted(inside, key=lambda each: -each.created_at):
            await self._remove(each.id)
        if any(each.id == sandbox_id for each in inventory.sandboxes):
            await self._remove(sandbox_id)

    # containers

    async def create(self, sandbox_id: str, spec: ContainerSpec) -> Container:
        inventory = await self._cache.refresh()
        sandbox = next((each for each in inventory.sandboxes if each.id == sandbox_id), None)
        if sandbox is None or not sandbox.ready:
            raise CreateFailure(f"the sandbox {sandbox_id} is not ready")
        inside = [each for each in inventory.containers if each.sandbox_id == sandbox_id]
        for each in inside:
            if (each.name, each.attempt) == (spec.name, spec.attempt):
                return each
        if spec.target:
            spec = replace(spec, target=_running_id(inside, spec.target))
        spec = replace(spec, mounts=tuple(map(resolved, spec.mounts)))
        body = bodies.container_body(spec, sandbox, self._create_context(self._seccomp(spec.security.seccomp_profile)))
        try:
            made = await self._made(bodies.container_name(spec, sandbox, self._config), body)
            return await self._cache.container(made)
        except (EngineError, NoSuchContainer) as error:
            raise CreateFailure(str(error)) from error

    def _create_context(self, seccomp: str = "") -> bodies.CreateContext:
        return bodies.CreateContext(config=self._config, podman=self._engine.podman, seccomp=seccomp)

    def _seccomp(self, profile: str) -> str:
        """A seccomp profile of the node: for podman its path, for Docker its content."""
        if not profile.startswith(_LOCALHOST):
            return ""
        path = Path(self._config.seccomp_root) / profile.removeprefix(_LOCALHOST)
        try:
            content = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise CreateFailure(f"the seccomp profile {path} cannot be read: {error}") from error
        return str(path) if self._engine.podman else content

    async def start(self, container_id: str) -> Container:
        before = await self._cache.container(container_id)
        if before.phase is not ContainerPhase.CREATED:
            return before
        try:
            await self._engine.json("POST", "containers", container_id, "start")
        except EngineError as error:
            if error.missing and await self._is_removed(container_id):
                raise NoSuchContainer(f"container {container_id} not found") from error
            await self._record_exit(container_id, ExitReason.START_ERROR, _NOT_STARTED, str(error))
            raise StartFailure(str(error)) from error
        return await self._cache.container(container_id)

    async def _record_exit(self, container_id: str, reason: ExitReason, code: int, message: str = "") -> Container:
        """Record the exit of a container that never ran."""
        found = await self._cache.container(container_id)
        if found.phase is not ContainerPhase.CREATED:
            return found
        ended = replace(
            found, phase=ContainerPhase.EXITED, exit_code=code, reason=reason, message=message,
            finished_at=self._clock.wall_s(), identity="",
        )  # fmt: skip
        return self._cache.record_exit(ended)

    async def stop(self, container_id: str, *, grace_s: float, signal: str = "") -> Container:
        found = await self._cache.find(container_id)
        container = await self._cache.container(container_id)
        if container.phase is ContainerPhase.CREATED:
            return await self._record_exit(container_id, ExitReason.ERROR, _KILLED)
        if container.phase is not ContainerPhase.EXITED:
            await self._end(container_id, grace_s, signal or found.stop_signal or "SIGTERM")
        return await self._cache.container(container_id)

    async def _end(self, container_id: str, grace_s: float, signal: str) -> None:
        until = self._clock.monotonic() + grace_s
        under_way = self._stopping.get(container_id)
        if under_way is not None:
            if until < under_way.until:
                under_way.until = until
                under_way.earlier.set()
            await wait_for_exit(self._engine, container_id)
            return
        mine = self._stopping[container_id] = _Stopping(until)
        try:
            if grace_s > 0:
                await self._kill(container_id, signal)
                await self._wait_until_deadline(container_id, mine)
            await self._kill(container_id, "SIGKILL")
            await wait_for_exit(self._engine, container_id)
        finally:
            del self._stopping[container_id]

    async def _wait_until_deadline(self, container_id: str, stopping: _Stopping) -> None:
        """Wait for the exit until the deadline, which other callers may shorten."""
        async with beside(wait_for_exit(self._engine, container_id), name=f"stop/{container_id}") as exited:
            while not exited.done() and (rest_s := stopping.until - self._clock.monotonic()) > 0:
                stopping.earlier.clear()
                async with beside(stopping.earlier.wait(), name="stop/earlier") as shortened:
                    with suppress(TimeoutError):
                        async with within(self._clock, rest_s):
                            await asyncio.wait({exited, shortened}, return_when=asyncio.FIRST_COMPLETED)

    async def _kill(self, container_id: str, signal: str) -> None:
        try:
            await self._engine.json("POST", "containers", container_id, "kill", query={"signal": signal})
        except EngineError as error:
            if error.missing or error.status == 409:
                return  # it is removed, or does not run
            with suppress(NoSuchContainer):
                if (await self._cache.find(container_id)).phase is ContainerPhase.RUNNING:
                    raise

    async def remove(self, container_id: str) -> None:
        await self._remove(container_id)

    async def _remove(self, container_id: str) -> None:
        try:
            found = await self._cache.find(container_id)
        except NoSuchContainer:
            return
        if found.phase is ContainerPhase.RUNNING:
            await self._kill(container_id, "SIGKILL")
            await wait_for_exit(self._engine, container_id)
        deadline = self._clock.monotonic() + self._config.request_s
        while not await self._is_removed(container_id):
            try:
                query = {"force": True, "v": True}
                await self._engine.json("DELETE", "containers", container_id, query=query)
            except EngineError as error:
                if not (error.missing or error.status == 409) or self._clock.monotonic() > deadline:
                    raise
                # 409: it is being removed
                await self._clock.sleep(_GONE_S)
        self._cpu_ns.pop(container_id, None)

    async def _is_removed(self, container_id: str) -> bool:
        try:
            await self._cache.find(container_id)
        except NoSuchContainer:
            return True
        return False

    async def update(self, container_id: str, resources: ContainerResources) -> None:
        await self._cache.container(container_id)
        try:
            body = bodies.resources_body(resources)
            await self._engine.json("POST", "containers", container_id, "update", body=body)
        except EngineError as error:
            if error.status not in (404, 405) or not self._engine.podman:
                raise
            log.warning("this version of podman cannot change limits", container=container_id)

    async def inspect(self, container_id: str) -> Container:
        return await self._cache.container(container_id)

    async def list(self) -> Inventory:
        return await self._cache.refresh()

    def events(self) -> AsyncIterator[RuntimeEvent]:
        return self._cache.events()

    # logs, sessions, connections, statistics

    async def logs(self, container_id: str, options: LogOptions) -> AsyncIterator[tuple[LogRecord, ...]]:
        found = await self._cache.find(container_id)
        async for batch in read_log(self._engine, container_id, options, terminal=found.terminal):
            yield batch

    async def exec(self, container_id: str, command: tuple[str, ...], options: SessionOptions) -> RuntimeSession:
        await self._running(container_id)
        return await open_exec(self._engine, container_id, command, options, clock=self._clock)

    async def attach(self, container_id: str, options: SessionOptions) -> RuntimeSession:
        found = await self._running(container_id)
        options = replace(options, stdin=options.stdin and found.stdin)
        return await open_attach(self._engine, container_id, options, terminal=found.terminal, once=found.stdin_once)

    async def _running(self, container_id: str) -> Found:
        found = await self._cache.find(container_id)
        if found.phase is not ContainerPhase.RUNNING:
            raise NoSuchContainer(f"the container {container_id} is not running")
        return found

    async def connect(self, sandbox_id: str, port: int) -> PodConnection:
        try:
            found = await self._running(sandbox_id)
        except NoSuchContainer:
            raise ConnectionRefusedError(f"the sandbox {sandbox_id} is not ready") from None
        addresses = found.view.addresses if isinstance(found.view, Sandbox) else ()
        hosts = ("127.0.0.1", *addresses)
        refused: OSError = ConnectionRefusedError(f"connection refused: nothing listens on port {port} of the pod")
        for host in hosts:
            inside = None if found.host_network else await pods.socket_in(found.pid, sandbox_id)
            if inside is None and not found.host_network and host not in addresses:
                continue  # this machine's own loopback is not the pod's
            try:
                return await self._connected(inside, host, port)
            except (OSError, TimeoutError) as error:
                refused = error
        if isinstance(refused, ConnectionError):
            raise refused
        raise ConnectionRefusedError(f"port {port} of the pod cannot be reached: {refused}") from refused

    async def _connected(self, inside: socket.socket | None, host: str, port: int) -> PodConnection:
        async with within(self._clock, _CONNECT_S):
            if inside is None:
                return SocketConnection(*await asyncio.open_connection(host, port))
            try:
                await asyncio.get_running_loop().sock_connect(inside, (host, port))
                return SocketConnection(*await asyncio.open_connection(sock=inside))
            except BaseException:
                inside.close()
                raise

    async def stats(self) -> tuple[ContainerStats, ...]:
        running = [each for each in (await self._cache.refresh()).containers if each.phase is ContainerPhase.RUNNING]
        sizes = await self._file_sizes()
        slots = asyncio.Semaphore(_STATS_AT_ONCE)

        async def one(container: Container) -> ContainerStats | None:
            async with slots:
                try:
                    query = {"stream": False, "one-shot": True}
                    found = await self._engine.json("GET", "containers", container.id, "stats", query=query)
                except EngineError:
                    return None  # it has just exited
            if not found:
                return None
            stats = stats_of(found, container, self._clock.wall_s(), sizes.get(container.id, 0))
            self._cpu_ns[container.id] = max(self._cpu_ns.get(container.id, 0), stats.cpu_total_ns)
            return replace(stats, cpu_total_ns=self._cpu_ns[container.id])

        return tuple(each for each in await asyncio.gather(*map(one, running)) if each is not None)

    async def _file_sizes(self) -> Mapping[str, int]:
        """Sizes of the containers' writable layers, at most ``sizes_s`` old because they are costly for the engine."""
        now = self._clock.monotonic()
        if self._config.sizes_s and (not self._sizes_at or now - self._sizes_at > self._config.sizes_s):
            self._sizes_at = now
            query = {"size": True, "filters": bodies.owner_filter(self._config)}
            listed = await self._engine.json("GET", "containers", "json", query=query) or []
            self._sizes = {each["Id"]: int(each.get("SizeRw") or 0) for each in listed}
        return self._sizes


def _is_taken(error: EngineError) -> bool:
    """Whether the name is already in use. Podman reports it with the status of an inner error."""
    return error.status == 409 or "already in use" in str(error)


def _running_id(inside: list[Container], name: str) -> str:
    for each in inside:
        if each.name == name and each.phase is ContainerPhase.RUNNING:
            return each.id
    raise CreateFailure(f"the target container {name!r} is not running")
