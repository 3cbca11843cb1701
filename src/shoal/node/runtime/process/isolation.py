"""The interface between the runtime and the way in which its pods are isolated from the machine and from each other.

The runtime keeps sandboxes and containers, their state on disk and their lives; an ``Isolation`` gives a pod its place:
namespaces or a share of the machine, a network, the files that it sees, and the shims in that place. ``SharedMachine``
is that of the process runtime; ``shoal.node.runtime.sandbox`` has another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Protocol

from shoal.base.logs import get_logger
from shoal.node.forks.client import NO_FORKS, ForkClient
from shoal.node.runtime.connections import SocketConnection
from shoal.node.runtime.model import ContainerResources, ContainerSpec, PodConnection, RuntimeFailure
from shoal.node.runtime.process import launch
from shoal.node.runtime.process.config import ProcessConfig
from shoal.node.runtime.process.hostports import HostPorts
from shoal.node.runtime.process.launch import Pod, ShimStart
from shoal.node.runtime.process.sockets import listening_address, ports_on_all_addresses

log = get_logger("node.process")


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A container that was started a short time ago."""

    id: str
    name: str
    pod: Pod
    shim: int


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that the user of a container should know."""

    container_id: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Look:
    """What a periodic look has found."""

    notices: tuple[Notice, ...] = ()
    lost: tuple[str, ...] = ()  # ids of sandboxes that have ended


class Isolation(Protocol):
    """The place of pods. Calls for different pods may run at the same time."""

    name: str  # scheme of container ids

    async def open(self, shims_of: Callable[[str], Sequence[int]]) -> None:
        """Begin; raises ``RuntimeFailure`` with the fix if this machine cannot do it. ``shims_of`` gives the pids of a
        sandbox's running shims."""

    async def close(self) -> None:
        """Release what this process holds; pods go on."""

    async def restore(self, pod: Pod) -> bool:
        """Find the place of a pod from an earlier run; False if it is gone."""

    async def attach(self, pod: Pod) -> None:
        """Make the place of a new pod. A ``CreateFailure`` leaves nothing behind."""

    async def detach(self, pod: Pod) -> None:
        """Give the place up; its containers have ended."""

    def prepare(self, folder: Path, container_id: str, spec: ContainerSpec, pod: Pod) -> list[str]:
        """Write what a container's shim needs to its folder. Returns notices, each ``REASON message``; raises
        ``CreateFailure``."""

    def change_limits(self, folder: Path, resources: ContainerResources) -> None:
        """Change the limits of a container that was not started yet."""

    async def start(self, folder: Path, pod: Pod) -> ShimStart:
        """Start the shim of a container and wait for its result."""

    async def connect(self, pod: Pod, port: int) -> PodConnection:
        """Connect to a port of the pod; raises ``ConnectionError``."""

    async def look(self, new: Sequence[RunningContainer]) -> Look:
        """Called every few seconds, with the containers that have started lately."""

    async def remove(self, folder: Path) -> None:
        """Delete the folder of a container with everything that it has written."""


@dataclass(slots=True)
class SharedMachine:
    """Pods share the machine: its network, its processes and most of its files."""

    config: ProcessConfig
    environ: Mapping[str, str]
    host_address: str
    name: str = "process"
    forks: ForkClient = NO_FORKS  # what forks shims and programs of ours
    _namespaces: str = ""
    _shims_of: Callable[[str], Sequence[int]] = field(default=lambda _: ())
    _warned: dict[str, set[int]] = field(default_factory=dict)  # ports for which a warning was sent, by container
    _ports: HostPorts = field(init=False)

    def __post_init__(self) -> None:
        self._ports = HostPorts(self.host_address)

    async def open(self, shims_of: Callable[[str], Sequence[int]]) -> None:
        self._shims_of = shims_of
        try:
            self._namespaces = await launch.find_namespaces(self.config)
        except OSError as error:
            raise RuntimeFailure(f"the node's folder {self.config.root} cannot be used: {error}") from error
        if gap := launch.isolation_gap(self._namespaces):
            log.warning("the isolation of pods is incomplete", reason=gap.what, fix=gap.fix)

    async def close(self) -> None:
        await self._ports.close_all()

    async def restore(self, pod: Pod) -> bool:
        await self._ports.open(pod.sandbox, pod.spec.ports, strict=False)
        return True

    async def attach(self, pod: Pod) -> None:
        try:
            await self._ports.open(pod.sandbox, pod.spec.ports, strict=True)
        except BaseException:
            await self._ports.close(pod.sandbox.id)
            raise

    async def detach(self, pod: Pod) -> None:
        await self._ports.close(pod.sandbox.id)

    def prepare(self, folder: Path, container_id: str, spec: ContainerSpec, pod: Pod) -> list[str]:
        return launch.prepare(folder, container_id, spec, pod, self.config, self.environ, self._namespaces)

    def change_limits(self, folder: Path, resources: ContainerResources) -> None:
        launch.change_memory_limit(folder, resources)

    async def start(self, folder: Path, pod: Pod) -> ShimStart:
        return await launch.start_shim(folder, self.forks)

    async def connect(self, pod: Pod, port: int) -> PodConnection:
        address = pod.sandbox.addresses[0]
        if not pod.spec.host_network:
            address = await listening_address(address, port, self._shims_of(pod.sandbox.id))
        return SocketConnection(*await asyncio.open_connection(address, port))

    async def look(self, new: Sequence[RunningContainer]) -> Look:
        by_shim = {each.shim: each for each in new if not each.pod.spec.host_network}
        self._warned = {each.id: self._warned.get(each.id, set()) for each in new}
        if not by_shim:
            return Look()
        found = []
        for shim, ports in (await ports_on_all_addresses(tuple(by_shim))).items():
            each = by_shim[shim]
            for port in set(ports) - self._warned[each.id]:
                self._warned[each.id].add(port)
                found.append(_binds_all_addresses(each, port))
        return Look(tuple(found))

    async def remove(self, folder: Path) -> None:
        rmtree(folder, ignore_errors=True)


def _binds_all_addresses(each: RunningContainer, port: int) -> Notice:
    address = next(iter(each.pod.sandbox.addresses), "")
    return Notice(
        each.id, "BindsAllAddresses",
        f"container {each.name!r} listens on all addresses (0.0.0.0:{port}): no other pod of this "
        f"machine can use the port {port}, and other machines may reach it; listen on $HOST ({address}) instead",
    )  # fmt: skip
