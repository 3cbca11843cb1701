"""Runtimes of nodes on this machine: pods as processes, in sandboxes or not, or as containers of an engine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from shoal.app.components import ComponentDeps
from shoal.app.config import ClusterConfig
from shoal.app.home import shoal_home
from shoal.app.sandboxes import helper_folder, real_images, sandbox_runtime
from shoal.base.clock import Clock
from shoal.node.forks.client import ForkClient
from shoal.node.runtime.docker.config import DockerConfig
from shoal.node.runtime.docker.runtime import DockerRuntime
from shoal.node.runtime.model import Runtime
from shoal.node.runtime.process.addresses import Network, PodAddresses
from shoal.node.runtime.process.config import ProcessConfig
from shoal.node.runtime.process.images import ImageTable, load_table
from shoal.node.runtime.process.isolation import SharedMachine
from shoal.node.runtime.process.runtime import ProcessRuntime, ProcessRuntimeDeps
from shoal.node.runtime.process.table_images import TableImages
from shoal.node.runtime.sandbox.client import end_helper
from shoal.node.runtime.sandbox.config import SandboxConfig


@dataclass(frozen=True, slots=True)
class LocalRuntimes:
    """``make`` gives the runtime of a node, from its name and address."""

    make: Callable[[ComponentDeps, str, str], Runtime]
    sandboxes_run: bool  # sandboxes are more than a record and have to be stopped
    end: Callable[[Clock], Awaitable[None]]  # what is left when all have been stopped


async def _nothing(clock: Clock) -> None:
    pass


def runtimes_of(config: ClusterConfig, network: Network) -> LocalRuntimes:
    if config.runtime == "sandbox":
        return _sandboxes(config)
    if config.runtime == "docker":
        return _docker(config)
    return _processes(config, network)


def root_of(folder: Path, node: str) -> Path:
    """Directory of a node's volumes and of its runtime's state."""
    return (folder / "nodes" / node).absolute()


def _process_config(config: ClusterConfig, deps: ComponentDeps, name: str) -> ProcessConfig:
    folder = config.dir
    covered = (shoal_home(), folder.absolute(), config.credentials_dir.absolute())  # keys, tokens, other clusters
    return ProcessConfig(root=root_of(folder, name), covered=covered, volumes=(deps.volumes,))


def _table(config: ClusterConfig) -> ImageTable:
    return load_table([path] if (path := config.dir / "images.yaml").exists() else [])


def _sandboxes(config: ClusterConfig) -> LocalRuntimes:
    helper, table = helper_folder(config.dir), _table(config)

    def make(deps: ComponentDeps, name: str, address: str) -> Runtime:
        own = _process_config(config, deps, name)
        sandbox = SandboxConfig(helper=helper)
        roots = real_images(config.dir, table, clock=deps.clock)
        return sandbox_runtime(own, sandbox, roots, node=name, address=address, clock=deps.clock, ids=deps.ids)

    async def end(clock: Clock) -> None:
        await end_helper(helper, clock=clock)

    return LocalRuntimes(make, sandboxes_run=True, end=end)


def _processes(config: ClusterConfig, network: Network) -> LocalRuntimes:
    table = _table(config)

    def make(deps: ComponentDeps, name: str, address: str) -> Runtime:
        process = ProcessRuntimeDeps(clock=deps.clock, new_id=deps.ids.new_uid, host_address=address)
        own = _process_config(config, deps, name)
        isolation = SharedMachine(own, os.environ, address, forks=ForkClient.of(os.environ))
        return ProcessRuntime(own, TableImages(table), PodAddresses(network, name), isolation, process)

    return LocalRuntimes(make, sandboxes_run=False, end=_nothing)


def _docker(config: ClusterConfig) -> LocalRuntimes:
    def make(deps: ComponentDeps, name: str, address: str) -> Runtime:
        own = docker_config(config, node=name, address=address)
        return DockerRuntime(own, clock=deps.clock, environ=os.environ)

    return LocalRuntimes(make, sandboxes_run=True, end=_nothing)


def docker_config(config: ClusterConfig, *, node: str, address: str = "127.0.0.1") -> DockerConfig:
    # The directory names the cluster in the engine: a new start in it finds and stops the containers left there.
    cluster = hashlib.sha256(str(config.dir.resolve()).encode()).hexdigest()[:12]
    return DockerConfig(
        cluster=cluster,
        node=node,
        socket=config.docker_socket,
        pause_image=config.pause_image,
        host_address=address,
    )


__all__ = ["LocalRuntimes", "docker_config", "root_of", "runtimes_of"]
