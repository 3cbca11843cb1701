"""Runtimes of nodes on this machine: pods as processes, or as containers of an engine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shoal.app.components import ComponentDeps
from shoal.app.config import ClusterConfig
from shoal.app.home import shoal_home
from shoal.base.clock import Clock
from shoal.node.forks.client import ForkClient
from shoal.node.runtime.docker.config import DockerConfig
from shoal.node.runtime.docker.runtime import DockerRuntime, check
from shoal.node.runtime.model import Runtime
from shoal.node.runtime.process.addresses import Network, PodAddresses
from shoal.node.runtime.process.config import ProcessConfig
from shoal.node.runtime.process.images import load_table
from shoal.node.runtime.process.runtime import ProcessRuntime, ProcessRuntimeDeps


@dataclass(frozen=True, slots=True)
class LocalRuntimes:
    """``make`` gives the runtime of a node, from its name and address."""

    make: Callable[[ComponentDeps, str, str], Runtime]
    sandboxes_run: bool  # sandboxes are containers too and have to be stopped


def runtimes_of(config: ClusterConfig, network: Network) -> LocalRuntimes:
    if config.runtime == "docker":
        return _docker(config)
    return _processes(config, network)


def root_of(folder: Path, node: str) -> Path:
    """Directory of a node's volumes and of its runtime's state."""
    return (folder / "nodes" / node).absolute()


async def check_engine(config: ClusterConfig, clock: Clock) -> None:
    """Raise RuntimeFailure, with the fix, if the runtime needs an engine and none is reachable."""
    if config.runs_nodes and config.runtime == "docker":
        await check(_docker_config(config, node="check"), clock=clock, environ=os.environ)


def _processes(config: ClusterConfig, network: Network) -> LocalRuntimes:
    folder = config.dir
    covered = (shoal_home(), folder.absolute(), config.credentials_dir.absolute())  # keys, tokens, other clusters
    table = load_table([path] if (path := folder / "images.yaml").exists() else [])

    def make(deps: ComponentDeps, name: str, address: str) -> Runtime:
        process = ProcessRuntimeDeps(
            clock=deps.clock,
            new_id=deps.ids.new_uid,
            environ=os.environ,
            host_address=address,
            forks=ForkClient.of(os.environ),
        )
        own = ProcessConfig(root=root_of(folder, name), covered=covered, volumes=(deps.volumes,))
        return ProcessRuntime(own, table, PodAddresses(network, name), process)

    return LocalRuntimes(make, sandboxes_run=False)


def _docker(config: ClusterConfig) -> LocalRuntimes:
    def make(deps: ComponentDeps, name: str, address: str) -> Runtime:
        own = _docker_config(config, node=name, address=address)
        return DockerRuntime(own, clock=deps.clock, environ=os.environ)

    return LocalRuntimes(make, sandboxes_run=True)


def _docker_config(config: ClusterConfig, *, node: str, address: str = "127.0.0.1") -> DockerConfig:
    # The directory names the cluster in the engine: a new start in it finds and stops the containers left there.
    cluster = hashlib.sha256(str(config.dir.resolve()).encode()).hexdigest()[:12]
    return DockerConfig(
        cluster=cluster,
        node=node,
        socket=config.docker_socket,
        pause_image=config.pause_image,
        host_address=address,
    )


__all__ = ["LocalRuntimes", "check_engine", "root_of", "runtimes_of"]
