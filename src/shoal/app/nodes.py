"""Nodes whose pods are processes of this machine: their network, keys and agents, and the proxy for Services."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shoal.app.components import Component, Host
from shoal.app.pki import KeyPair, Pki
from shoal.base.metrics import Metrics
from shoal.node.agent import AgentParts
from shoal.node.config import NodeConfig
from shoal.node.node_object import Machine
from shoal.node.proxy import wiring as proxy
from shoal.node.proxy.config import ProxyConfig
from shoal.node.runtime.process.addresses import Addresses, Network
from shoal.node.runtime.process.config import ProcessConfig
from shoal.node.runtime.process.images import ImageTable
from shoal.node.runtime.process.runtime import ProcessRuntime, Surroundings
from shoal.node.wiring import add as add_node
from shoal.reconcile import EventRecorder, Manager, ReconcileMetrics

PROXY = "system:kube-proxy"
_PORT = 10250
_END_S = 2.0  # what containers get to end when the cluster does
_MACHINE_ID, _BOOT_ID = Path("/etc/machine-id"), Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Ground:
    """What all nodes of a cluster on this machine share."""

    folder: Path
    network: Network
    pki: Pki
    images: ImageTable


def node_names(count: int) -> list[str]:
    return [f"node-{number}" for number in range(1, count + 1)]


def process_nodes(host: Host, ground: Ground, count: int) -> list[Component]:
    """The agents of ``count`` nodes and one proxy that makes Services work on all of them."""
    names = node_names(count)
    addresses = tuple(ground.network.node_address(name) for name in names)
    nodes = [_node(host, ground, name, address) for name, address in zip(names, addresses, strict=True)]
    return [*nodes, _proxy(host, addresses)]


async def end_pods(host: Host, ground: Ground, count: int) -> None:
    """End what still runs: a cluster that is stopped as a whole leaves no processes behind. Agents that are stopped
    alone, or killed, leave theirs running and find them again."""
    for name in node_names(count):
        runtime = _runtime(host, ground, name, ground.network.node_address(name))
        await runtime.open()
        try:
            found = await runtime.list()
            await asyncio.gather(*(runtime.stop(each.id, grace_s=_END_S) for each in found.containers))
        finally:
            await runtime.close()


def _runtime(host: Host, ground: Ground, name: str, address: str) -> ProcessRuntime:
    around = Surroundings(clock=host.clock, new_id=host.ids.new_uid, environ=os.environ, host_address=address)
    config = ProcessConfig(root=_root(ground, name))
    return ProcessRuntime(config, ground.images, Addresses(ground.network, name), around)


def _root(ground: Ground, name: str) -> Path:
    return (ground.folder / "nodes" / name).absolute()


def _node(host: Host, ground: Ground, name: str, address: str) -> Component:
    root = _root(ground, name)
    keys = ground.pki.ensure_server((name, address), f"node-{name}")

    def wire(manager: Manager, events: EventRecorder) -> None:
        runtime = _runtime(host, ground, name, address)
        parts = AgentParts(
            manager=manager, runtime=runtime, recorder=events, machine=_machine(), clock=host.clock,
            random=host.random.random,
        )  # fmt: skip
        config = NodeConfig(name=name, root=root, addresses=(address,), port=_PORT)
        add_node(config, parts, _tls(keys, ground.pki.ca_cert))

    return Component("kubelet", f"system:node:{name}", host, wire, elected=False)


def _proxy(host: Host, addresses: Sequence[str]) -> Component:
    def wire(manager: Manager, events: EventRecorder) -> None:
        proxy.add(
            manager, events, clock=host.clock, random=host.random.random, new_id=host.ids.new_uid,
            metrics=ReconcileMetrics(Metrics()), config=ProxyConfig(node_addresses=("127.0.0.1", *addresses)),
        )  # fmt: skip

    return Component("kube-proxy", PROXY, host, wire, elected=False)


def _tls(keys: KeyPair, ca: Path) -> ssl.SSLContext:
    """A node serves those who show a certificate of the cluster's authority, and then looks at the name in it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(keys.cert, keys.key)
    context.load_verify_locations(ca)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _machine() -> Machine:
    def text(path: Path) -> str:
        return path.read_text().strip() if path.exists() else ""

    return Machine(machine_id=text(_MACHINE_ID), boot_id=text(_BOOT_ID))


__all__ = ["Ground", "end_pods", "node_names", "process_nodes"]
