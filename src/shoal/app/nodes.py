"""Nodes whose pods run on this machine: their network, keys and agents, and the proxy for Services."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from shoal.app.certificates import CertificateKeeper
from shoal.app.components import Component, ComponentDeps, node_names
from shoal.app.config import ClusterOptions, checked_config
from shoal.app.connect import NODE, PROXY
from shoal.app.container_network import unshare
from shoal.app.pki import kubelet_context
from shoal.app.runtimes import LocalRuntimes, root_of, runtimes_of
from shoal.app.sandboxes import helper_folder, start_helper
from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.ids import Ids
from shoal.base.logs import get_logger
from shoal.base.metrics import Metrics
from shoal.client import Client
from shoal.errors import ShoalError
from shoal.node.agent import NodeAgentDeps
from shoal.node.config import NodeConfig, NodeSettings
from shoal.node.forks.client import ForkClient
from shoal.node.node_object import MachineInfo
from shoal.node.proxy import wiring as proxy
from shoal.node.proxy.config import ProxyConfig
from shoal.node.proxy.metrics import ProxyMetrics
from shoal.node.proxy.model import InsideNetwork, ProxyListener, SharedNetwork
from shoal.node.proxy.process import ProxyProcess, end_proxy
from shoal.node.runtime.model import Runtime, RuntimeFailure
from shoal.node.runtime.process.addresses import Network, claim_network
from shoal.node.wiring import add as add_node
from shoal.reconcile import EventRecorder, Manager, ReconcileMetrics
from shoal.sentinel.folders import remove_left_folders

log = get_logger("nodes")

_PORT = 10250
_END_S = 2.0  # grace period of containers when the cluster stops
_ALL_ENDED_S = 6.0  # timeout of stopping all of them
_MACHINE_ID, _BOOT_ID = Path("/etc/machine-id"), Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class NodeDeps:
    """Dependencies shared by all nodes of a cluster on this machine."""

    folder: Path
    network: Network
    keeper: CertificateKeeper
    runtimes: LocalRuntimes
    settings: NodeSettings = NodeSettings()
    shared: SharedNetwork | None = None  # addresses that containers reach too
    fixed: tuple[ProxyListener, ...] = ()  # what the proxy serves besides Services
    inside: InsideNetwork | None = None  # where Services are, if pods have a network of their own

    @property
    def proxy_folder(self) -> Path:
        return self.folder / "proxy"


def local_nodes(deps: ComponentDeps, shared: NodeDeps, count: int) -> list[Component]:
    """The agents of ``count`` nodes, and one proxy that makes Services work on all of them."""
    names = node_names(count)
    addresses = tuple(shared.network.node_address(name) for name in names)
    nodes = [_node(deps, shared, name, address) for name, address in zip(names, addresses, strict=True)]
    return [*nodes, _proxy(deps, shared, addresses)]


async def end_pods(deps: ComponentDeps, shared: NodeDeps, count: int) -> None:
    """Stop the proxy process and all containers: a cluster that stops as a whole leaves no processes behind. Nodes that
    stop alone, or are killed, leave theirs running and find them again."""
    await asyncio.gather(end_proxy(shared.proxy_folder, clock=deps.clock), _end_containers(deps, shared, count))
    if shared.shared is not None:
        unshare(shared.network)
    remove_left_folders()  # of gateways that were killed


async def _end_containers(deps: ComponentDeps, shared: NodeDeps, count: int) -> None:
    make, network = shared.runtimes.make, shared.network
    runtimes = [make(deps, name, network.node_address(name)) for name in node_names(count)]
    try:
        async with within(deps.clock, _ALL_ENDED_S):
            await asyncio.gather(*(_end(each, sandboxes=shared.runtimes.sandboxes_run) for each in runtimes))
            await shared.runtimes.end(deps.clock)
    except (RuntimeFailure, TimeoutError) as error:
        log.warning("stopping containers failed; some may still run", error=error)


async def end_left_pods(folder: Path, *, clock: Clock) -> None:
    """End the containers of a cluster that was killed. Its directory must be locked, or nobody may start it."""
    runtime = "sandbox" if helper_folder(folder).is_dir() else "process"
    config = checked_config(ClusterOptions(dir=folder, runtime=runtime))
    network = claim_network(folder)
    shared = NodeDeps(folder, network, CertificateKeeper(config.pki_dir, clock=clock, metrics=Metrics()),
                      runtimes_of(config, network))  # fmt: skip
    deps = ComponentDeps(
        connect=_nobody, clock=clock, ids=Ids(), random=Random(), metrics=Metrics(), identity="",
        volumes=(folder / "volumes").absolute(),
    )  # fmt: skip
    await _end_containers(deps, shared, len(list((folder / "nodes").iterdir())))


def _nobody(user: str) -> Client:
    raise ShoalError(f"the API server has ended: {user} cannot call it")


async def _end(runtime: Runtime, *, sandboxes: bool) -> None:
    await runtime.open()
    try:
        found = await runtime.list()
        stops = [runtime.stop(each.id, grace_s=_END_S) for each in found.containers]
        ended: list[object] = await asyncio.gather(*stops, return_exceptions=True)
        if sandboxes:
            more = [runtime.stop_sandbox(each.id) for each in found.sandboxes]
            ended += await asyncio.gather(*more, return_exceptions=True)
        for failure in ended:
            if isinstance(failure, BaseException):
                raise failure
    finally:
        await runtime.close()


def _node(deps: ComponentDeps, shared: NodeDeps, name: str, address: str) -> Component:
    root = root_of(shared.folder, name)
    tls = shared.keeper.keep_context(
        "kubelet", lambda pki: pki.ensure_server((name, address), f"node-{name}"), kubelet_context
    )

    def wire(manager: Manager, events: EventRecorder) -> None:
        runtime = shared.runtimes.make(deps, name, address)
        parts = NodeAgentDeps(
            manager=manager, runtime=runtime, recorder=events, machine=_machine(), clock=deps.clock,
            random=deps.random.random,
        )  # fmt: skip
        own = shared.settings
        config = NodeConfig(
            name=name, root=root, addresses=(address,), port=_PORT, labels=own.label_pairs(), taints=own.taint_list(),
            cpu=own.cpu, memory=own.memory, disk=own.disk, pods=own.pods,
            dns_servers=(shared.inside.dns,) if shared.inside else (),
        )  # fmt: skip
        add_node(config, parts, tls)

    return Component("kubelet", f"{NODE}{name}", deps, wire, elected=False)


def _proxy(deps: ComponentDeps, shared: NodeDeps, addresses: Sequence[str]) -> Component:
    def wire(manager: Manager, events: EventRecorder) -> None:
        relays, metrics = _relays(deps, shared), ReconcileMetrics(deps.metrics)
        proxy.add(
            manager, events, clock=deps.clock, random=deps.random.random, new_id=deps.ids.new_uid,
            metrics=metrics, relays=relays,
            config=ProxyConfig(
                node_addresses=("127.0.0.1", *addresses), fixed=shared.fixed,
                balancers=shared.network.balancer_cidr if shared.inside else "",
            ),
        )  # fmt: skip
        if shared.inside is not None:
            proxy.add_inside(
                manager, clock=deps.clock, random=deps.random.random, new_id=deps.ids.new_uid, metrics=metrics,
                network=shared.inside, process=relays,
            )  # fmt: skip

    return Component("kube-proxy", PROXY, deps, wire, elected=False)


def _relays(deps: ComponentDeps, shared: NodeDeps) -> ProxyProcess:
    return ProxyProcess(
        shared.proxy_folder, clock=deps.clock, metrics=ProxyMetrics(deps.metrics), shared=shared.shared,
        forks=ForkClient.of(os.environ), inside=shared.inside,
        ready=partial(start_helper, shared.folder, clock=deps.clock),
    )  # fmt: skip


def _machine() -> MachineInfo:
    def text(path: Path) -> str:
        return path.read_text().strip() if path.exists() else ""

    return MachineInfo(machine_id=text(_MACHINE_ID), boot_id=text(_BOOT_ID))


__all__ = ["NodeDeps", "end_pods", "local_nodes", "node_names"]
