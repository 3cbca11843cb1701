"""Simulated nodes as a part of a process, with the kubelet endpoints of all of them on one socket.

The nodes have loopback addresses, and one socket listens on all of them: thousands of nodes need one file descriptor,
and other machines cannot reach them. Each cluster has a port of its own.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from pathlib import Path

from shoal.app.certificates import CertificateKeeper
from shoal.app.components import Component, ComponentDeps
from shoal.app.connect import SIMULATED_NODES
from shoal.app.pki import kubelet_context
from shoal.base.files import write_private
from shoal.base.http1.server import ContextOf
from shoal.base.logs import get_logger
from shoal.node.config import NodeSettings
from shoal.node.simulated import FleetConfig, SimulatedFleet
from shoal.node.simulated.server import FleetEndpoints, FleetServer
from shoal.reconcile import EventRecorder, Manager

log = get_logger("simulated")

KUBELET = "kubelet"  # source of the nodes' events
NODE_NETWORK = "127.64.0.0/12"
_PORT_FILE = "simulated-port"
_BLOCK = 24  # nodes whose addresses have this many bits in common share a certificate
_LOOPBACK = b"lo"
_BACKLOG = 512


@dataclass(frozen=True, slots=True)
class SimulatedNodeKeys:
    """The cluster's directory, in which the port is remembered, and what keeps the certificates of its nodes."""

    folder: Path
    keeper: CertificateKeeper


def simulated_nodes(
    deps: ComponentDeps, count: int, keys: SimulatedNodeKeys | None, settings: NodeSettings
) -> Component:
    """``count`` nodes. Without ``keys``, for an API server elsewhere, their addresses lead nowhere."""
    amounts = {name: text for name in ("cpu", "memory", "disk") if (text := getattr(settings, name))}
    base = FleetConfig(
        nodes=count, labels=settings.label_pairs(), taints=settings.taint_list(), pods=settings.pods, **amounts
    )

    def wire(manager: Manager, events: EventRecorder) -> None:
        opened = None if keys is None else listening(keys.folder / _PORT_FILE)
        config = base
        if opened is not None:
            config = replace(base, node_network=NODE_NETWORK, kubelet_port=opened.getsockname()[1])
        fleet = SimulatedFleet(manager, config, clock=deps.clock, events=events.named(KUBELET))
        if keys is not None and opened is not None:
            server = FleetServer(fleet, clock=deps.clock)
            manager.add(FleetEndpoints(server, opened, contexts(keys)))
        manager.add(fleet)

    return Component("simulated-nodes", SIMULATED_NODES, deps, wire, elected=False)


def listening(remembered: Path) -> socket.socket | None:
    """A socket on every address of the loopback interface, at the port of last time if that is free; None where the
    system has no such sockets."""
    try:
        last = int(remembered.read_text())
    except (OSError, ValueError):
        last = 0
    for port in dict.fromkeys((last if 0 < last < 65536 else 0, 0)):
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _LOOPBACK)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(("", port))
            opened.listen(_BACKLOG)
        except (AttributeError, OSError) as error:
            opened.close()
            reason = str(error)
            continue
        write_private(remembered, f"{opened.getsockname()[1]}\n".encode())
        return opened
    log.warning("simulated nodes cannot listen on the loopback interface: no logs, no statistics",
                reason=reason)  # fmt: skip
    return None


def contexts(keys: SimulatedNodeKeys) -> ContextOf:
    """TLS context of a node by its address. One certificate serves a block of addresses."""
    made: dict[IPv4Network, ssl.SSLContext] = {}

    def context_of(address: str) -> ssl.SSLContext:
        block = IPv4Network(f"{address}/{_BLOCK}", strict=False)
        context = made.get(block)
        if context is None:
            hosts = [str(each) for each in block]
            context = made[block] = keys.keeper.keep_context(
                "kubelet", lambda pki: pki.ensure_server(hosts, f"nodes-{block.network_address}"), kubelet_context
            )
        return context

    return context_of
