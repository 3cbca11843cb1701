"""Settings of the service proxy."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.errors import ConfigError
from shoal.node.proxy.model import ProxyListener


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig:
    """One proxy serves all nodes of a cluster."""

    node_addresses: tuple[str, ...] = ("127.0.0.1",)  # where node ports are
    fixed: tuple[ProxyListener, ...] = ()  # what is served besides Services
    balancers: str = ""  # range from which Services of type LoadBalancer get an address; empty: they get none
    listeners: int = 4096  # limit of open listeners, each an open file; further services wait and get an event
    connections: int = 16384  # at a time
    retry_s: float = 5.0  # wait before retrying an address that is in use
    drain_s: float = 2.0  # for connections when the proxy stops

    def __post_init__(self) -> None:
        if self.listeners < 1 or self.connections < 1:
            raise ConfigError("proxy.listeners and proxy.connections must be 1 or more")
        if self.retry_s <= 0 or self.drain_s < 0:
            raise ConfigError("proxy.retry_s must be more than 0 and proxy.drain_s 0 or more")
