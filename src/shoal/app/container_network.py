"""The network of a cluster whose pods are containers: one that these reach, where that is possible, else loopback
addresses, which only this machine reaches."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network

from shoal.app.config import ClusterConfig
from shoal.app.runtimes import docker_config
from shoal.base.clock import Clock
from shoal.base.local_routes import add_local, may_change_routes, remove_local, routed_networks
from shoal.base.logs import get_logger
from shoal.errors import ConfigError
from shoal.node.proxy.model import ListenAddress, ProxyBackend, ProxyListener, SharedNetwork
from shoal.node.runtime.docker.networks import look_at_networks, why_apart
from shoal.node.runtime.process.addresses import Network, claim_network, network_of

log = get_logger("nodes")

_EVERY_ADDRESS = ("", "0.0.0.0", "::")
FIX = "run it as root beside an engine that runs as root on this machine, in a new directory"


@dataclass(frozen=True, slots=True)
class ContainerReach:
    """Whether containers of the engine reach addresses of this machine, or why they do not."""

    problem: str
    own: tuple[IPv4Network, ...]
    every: tuple[IPv4Network, ...]


async def container_reach(config: ClusterConfig, clock: Clock) -> ContainerReach:
    """Raises ``RuntimeFailure``, with what to do, if no engine answers."""
    found = await look_at_networks(docker_config(config, node="check"), clock=clock, environ=os.environ)
    return ContainerReach(found.apart or _missing_right(), found.own, found.every)


def reach_problem(socket_path: str) -> str:
    """Why containers of the engine at this socket would not reach Services; empty if they would."""
    return why_apart(socket_path) or _missing_right()


def _missing_right() -> str:
    return "" if may_change_routes() else "this process may not add routes (CAP_NET_ADMIN)"


async def share_network(config: ClusterConfig, clock: Clock) -> SharedNetwork | None:
    """Decide the network of the cluster at its first start, and make it local. None: containers do not reach it."""
    reach = await container_reach(config, clock)
    network, problem = choose_network(config, reach)
    if problem:
        log.warning("containers of this cluster do not reach its Services and API server", reason=problem, fix=FIX)
        return None
    try:
        add_local(IPv4Network(network.cidr))
    except OSError as error:
        raise ConfigError(
            f"the network {network.cidr} of the cluster in {config.dir} cannot be made local: {error.strerror}; {FIX}"
        ) from None
    return SharedNetwork(cidr=network.cidr, clients=(network.cidr, *map(str, reach.own)))


def choose_network(config: ClusterConfig, reach: ContainerReach) -> tuple[Network, str]:
    """The network of the cluster, and why containers do not reach it; empty if they do."""
    known = network_of(config.dir)
    problem = reach.problem
    if not problem and "apiserver" not in config.components:
        problem = "the API server of this cluster runs elsewhere"
    if not problem and known is not None and not known.reaches_containers:
        problem = f"the cluster in {config.dir} began with loopback addresses"
    network = claim_network(config.dir, apart_from=None if problem else (*reach.every, *routed_networks()))
    if problem and network.reaches_containers:
        raise ConfigError(
            f"the network {network.cidr} of the cluster in {config.dir} cannot be made local: {problem}; {FIX}"
        )
    return network, problem


def unshare(network: Network) -> None:
    """The cluster has stopped as a whole."""
    if network.reaches_containers:
        with suppress(OSError):
            remove_local(IPv4Network(network.cidr))


def api_listener(config: ClusterConfig, network: Network) -> tuple[ProxyListener, ...]:
    """How containers reach the API server of this process, unless it listens on all addresses itself."""
    if not network.reaches_containers or config.host in _EVERY_ADDRESS or "apiserver" not in config.components:
        return ()
    place = ListenAddress("TCP", network.api_address, config.port)
    return (ProxyListener(place=place, backends=(ProxyBackend(config.host, config.port),)),)
