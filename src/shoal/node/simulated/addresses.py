"""Addresses of simulated nodes and pods: each node has a number, an address and a network of its own for its pods."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

from shoal.errors import ConfigError


class Addresses:
    """Assigns addresses. Those of nodes are deterministic, so a restarted fleet assigns the same ones."""

    def __init__(self, node_network: str, pod_network: str, pods: int) -> None:
        self._nodes, self._pods = IPv4Network(node_network), IPv4Network(pod_network)
        self._bits = (2 * pods + 1).bit_length()  # twice the pods, so that an address rests before it is used again
        self._first_node = int(self._nodes.network_address)
        self._first_pod = int(self._pods.network_address)
        self._used: dict[int, set[int]] = {}  # number of the node -> addresses in use
        self._last: dict[int, int] = {}
        if self._bits > 32 - self._pods.prefixlen:
            raise ConfigError(f"simulated nodes: {pod_network} is too small for nodes of {pods} pods")

    def node(self, number: int) -> str:
        if not 0 < number < self._nodes.num_addresses - 1:
            raise ConfigError(f"simulated nodes: {self._nodes} has no address for node number {number}")
        return str(IPv4Address(self._first_node + number))

    def network(self, number: int) -> str:
        """The network of a node's pods. Networks repeat after the end of the range."""
        return f"{IPv4Address(self._base(number))}/{32 - self._bits}"

    def take(self, number: int) -> str:
        """A free pod address of this node."""
        used = self._used.setdefault(number, set())
        base, size = self._base(number), 1 << self._bits
        offset = self._last.get(number, 0)
        for _ in range(size):
            offset = offset % (size - 2) + 1
            if base + offset not in used:
                break
        self._last[number] = offset
        used.add(base + offset)
        return str(IPv4Address(base + offset))

    def keep(self, number: int, address: str) -> None:
        """Mark an address as used."""
        self._used.setdefault(number, set()).add(int(IPv4Address(address)))

    def free(self, number: int, address: str) -> None:
        self._used.get(number, set()).discard(int(IPv4Address(address)))

    def _base(self, number: int) -> int:
        networks = 1 << (32 - self._pods.prefixlen - self._bits)
        return self._first_pod + ((number % networks) << self._bits)
