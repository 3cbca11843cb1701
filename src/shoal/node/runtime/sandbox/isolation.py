"""Pods in sandboxes: what the runtime of processes does there instead of sharing the machine."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.node.runtime.connections import SocketConnection
from shoal.node.runtime.model import (
    ContainerResources,
    ContainerSpec,
    CreateFailure,
    PodConnection,
    RuntimeFailure,
    SandboxSpec,
)
from shoal.node.runtime.process.config import ProcessConfig
from shoal.node.runtime.process.isolation import Look, RunningContainer
from shoal.node.runtime.process.launch import Pod, ShimStart, result_of
from shoal.node.runtime.sandbox import launch
from shoal.node.runtime.sandbox.client import HelperAway, HelperClient, HelperLink, HelperRefusal
from shoal.node.runtime.sandbox.config import SandboxConfig
from shoal.node.runtime.sandbox.groups import Groups, find_groups
from shoal.node.runtime.sandbox.ids import IdMap, choose
from shoal.node.runtime.sandbox.network import PodNetwork
from shoal.node.runtime.sandbox.roots import RootSource

log = get_logger("node.sandbox")

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxDeps:
    """Dependencies of a node's sandboxes."""

    clock: Clock
    environ: dict[str, str]
    roots: RootSource


class SandboxIsolation:
    """Implements ``Isolation`` and ``PodNetwork``."""

    name = "sandbox"

    def __init__(self, process: ProcessConfig, config: SandboxConfig, deps: SandboxDeps) -> None:
        self._process = process
        self._config = config
        self._deps = deps
        self._node = str(process.root.absolute())
        self._client = HelperClient(config.helper, clock=deps.clock, ids=lambda: self._ids, found=self._found)
        self._shims_of: Callable[[str], Sequence[int]] = lambda _: ()
        self._pods: dict[str, Pod] = {}  # those whose place this helper has
        self._lost: list[str] = []
        self._noticed: set[str] = set()

    # the place of pods

    async def open(self, shims_of: Callable[[str], Sequence[int]]) -> None:
        self._shims_of = shims_of
        self._ids: IdMap = choose(self._config.helper, self._config.ids)
        groups = find_groups() if self._config.groups == "auto" else Groups({}, "best effort: turned off")
        self._place = launch.Place(
            self._process, self._config, self._ids, groups, platform.machine(), has_own_pids(platform.release()),
            self._deps.environ,
        )  # fmt: skip
        try:
            await self._client.ask({"do": "hello"})
        except HelperAway as failure:
            raise RuntimeFailure(
                f"sandboxes cannot be used on this machine: {failure}; run `shoal doctor`, or use --runtime process"
            ) from failure

    async def close(self) -> None:
        await self._client.close()

    async def _found(self, link: HelperLink) -> None:
        """A helper that this node has not talked to: it may be a new one, which knows no pods."""
        words, _ = await link.ask({"do": "pods", "node": self._node})
        known = set(words.split())
        for pod in tuple(self._pods.values()):
            if pod.sandbox.id not in known and not await self._adopted(link, pod):
                del self._pods[pod.sandbox.id]
                self._lost.append(pod.sandbox.id)

    async def _adopted(self, link: HelperLink, pod: Pod) -> bool:
        for shim in self._shims_of(pod.sandbox.id):
            with suppress(HelperRefusal):
                await link.ask({"do": "adopt", "shim": shim, **self._wanted(pod.sandbox.id, pod.spec, "")})
                return True
        return False

    async def restore(self, pod: Pod) -> bool:
        words, _ = await self._client.ask({"do": "pods", "node": self._node})
        if pod.sandbox.id not in words.split():
            for shim in self._shims_of(pod.sandbox.id):
                with suppress(HelperRefusal):
                    await self._client.ask({"do": "adopt", "shim": shim, **self._wanted(pod.sandbox.id, pod.spec, "")})
                    break
            else:
                return False
        self._pods[pod.sandbox.id] = pod
        return True

    async def attach(self, pod: Pod) -> None:
        await self.network.attach(pod.sandbox.id, pod.spec, pod.sandbox.addresses[0])
        self._pods[pod.sandbox.id] = pod

    async def detach(self, pod: Pod) -> None:
        self._pods.pop(pod.sandbox.id, None)
        await self.network.detach(pod.sandbox.id)

    @property
    def network(self) -> PodNetwork:
        return HelperNetwork(self._client, self._wanted)

    def _wanted(self, sandbox_id: str, spec: SandboxSpec, address: str) -> dict[str, object]:
        return {
            "id": sandbox_id, "node": self._node, "hostname": spec.hostname or spec.name, "address": address,
            "host_network": spec.host_network, "host_ipc": spec.host_ipc, "sysctls": dict(spec.sysctls),
            "memory": [each.options(self._ids.count) for each in spec.memory_volumes],
        }  # fmt: skip

    # containers

    def prepare(self, folder: Path, container_id: str, spec: ContainerSpec, pod: Pod) -> list[str]:
        target = self._target(spec, pod)
        files = self._deps.roots.files_of(spec.image)
        notices = launch.prepare(folder, container_id, spec, pod, self._place, files, target=target)
        if pod.sandbox.id not in self._noticed and pod.spec.ports:
            self._noticed.add(pod.sandbox.id)
            ports = ", ".join(str(each.host_port) for each in pod.spec.ports)
            notices.append(f"HostPortNotServed the sandbox runtime does not serve host ports yet: {ports}")
        return notices

    def _target(self, spec: ContainerSpec, pod: Pod) -> int:
        return 0

    def change_limits(self, folder: Path, resources: ContainerResources) -> None:
        launch.change_limits(folder, resources, self._place)

    async def start(self, folder: Path, pod: Pod) -> ShimStart:
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        try:
            words, _ = await self._client.ask({"do": "start", "folder": str(folder), "pod": pod.sandbox.id}, (theirs,))
        except HelperRefusal as failure:
            os.close(ours)
            return ShimStart(0, False, str(failure), child=False)
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return await result_of(int(words), ours, folder, child=False)

    async def connect(self, pod: Pod, port: int) -> PodConnection:
        address = pod.sandbox.addresses[0]
        if pod.spec.host_network:
            return SocketConnection(*await asyncio.open_connection(address, port))
        loop = asyncio.get_running_loop()
        made = await self.network.sockets(pod.sandbox.id, family=socket.AF_INET, kind=socket.SOCK_STREAM, count=2)
        for each, place in zip(made, (address, _LOOPBACK), strict=True):
            each.setblocking(False)
            try:
                await loop.sock_connect(each, (place, port))
            except OSError:
                each.close()
            except BaseException:
                for other in made:
                    other.close()
                raise
            else:
                for other in made:
                    if other is not each:
                        other.close()
                return SocketConnection(*await asyncio.open_connection(sock=each))
        raise ConnectionRefusedError(f"connection refused: nothing listens on port {port} of {address}")

    async def look(self, new: Sequence[RunningContainer]) -> Look:
        if not self._client.is_there:
            await self._client.ask({"do": "hello"})  # starts another one, which takes over what it can
        lost, self._lost = tuple(self._lost), []
        return Look((), lost)

    async def remove(self, folder: Path) -> None:
        if self._ids.root:
            shutil.rmtree(folder, ignore_errors=True)
            return
        try:  # some belong to other users, and the overlay's own folder may not be read
            await self._client.ask({"do": "remove", "folder": str(folder)})
        except RuntimeFailure as failure:
            log.warning("the files of a container are left", folder=str(folder), reason=str(failure))


def has_own_pids(release: str) -> bool:
    """Whether the kernel has a highest pid for each process namespace, by its release."""
    numbers = re.findall(r"\d+", release)[:2]
    return tuple(map(int, numbers)) >= (6, 14)


@dataclass(frozen=True, slots=True)
class HelperNetwork:
    """A ``PodNetwork`` in the namespaces of the helper."""

    client: HelperClient
    wanted: Callable[[str, SandboxSpec, str], dict[str, object]]

    async def attach(self, sandbox_id: str, spec: SandboxSpec, address: str) -> None:
        try:
            await self.client.ask({"do": "pod", **self.wanted(sandbox_id, spec, address)})
        except HelperRefusal as failure:
            raise CreateFailure(f"creating the sandbox failed: {failure}") from failure
        except BaseException:
            with suppress(RuntimeFailure):
                await self.detach(sandbox_id)
            raise

    async def detach(self, sandbox_id: str) -> None:
        await self.client.ask({"do": "drop", "id": sandbox_id})

    async def sockets(self, sandbox_id: str, *, family: int, kind: int, count: int = 1) -> list[socket.socket]:
        try:
            _, numbers = await self.client.ask(
                {"do": "socket", "pod": sandbox_id, "family": int(family), "type": int(kind), "count": count}
            )
        except HelperRefusal as failure:
            raise ConnectionRefusedError(str(failure)) from failure
        return [socket.socket(fileno=number) for number in numbers]
