"""The settings of a sentinel, from ``SHOAL_SENTINEL_*`` and flags."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from shoal.base.settings import setting
from shoal.errors import ConfigError

PORT, HEALTH_PORT, METRICS_PORT = 8040, 8041, 8042
NAMESPACE = "sentinel"  # namespace to which krane writes the gateways' objects


def check_traces(url: str, percent: float) -> None:
    """``ConfigError`` unless the two settings can be used."""
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment):
        raise ConfigError(f"traces_url is {url!r}: use http://HOST:PORT or https://HOST:PORT")
    if not 0 <= percent <= 100:
        raise ConfigError(f"traces_percent is {percent:g}: use 0 to 100")


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelConfig:
    name: str = setting("sentinel", doc="name of the gateway; all replicas use the same")
    pod: str = setting("", doc="name of this replica's pod; default: the name of the gateway")
    namespace: str = setting(NAMESPACE, doc="namespace of the gateway's routes, policies and secrets")
    region: str = setting("", doc="region of the gateway")
    zone: str = setting(
        "", doc="zone of the gateway; it prefers instances of the same zone; default: the zone of its node"
    )
    node: str = setting("", doc="name of the node that runs this replica")
    environment: str = setting("", doc="id of the environment to serve; empty for the shared gateway of the region")
    shared: bool = setting(False, doc="serve every environment of the region")
    host: str = setting("127.0.0.1", doc="address to listen on")
    port: int = setting(PORT, doc="port for traffic")
    health_port: int = setting(HEALTH_PORT, doc="port for /livez and /readyz")
    metrics_port: int = setting(METRICS_PORT, doc="port for /metrics")
    tls_port: int = setting(0, doc="port for TLS; 0 serves TLS on the port for traffic")
    entry_port: int = setting(0, doc="port for gateways of other regions; 0: none")
    entry_secret: str = setting("", doc="name of the TLS Secret for mutual TLS between gateways of different regions")
    trusted_hops: int = setting(0, doc="number of trusted proxies in front, for X-Forwarded-For")
    redis_url: str = setting(
        "", doc="redis://HOST:PORT that counts strict limits; without it, routes with strict limits are closed"
    )
    directory: Path | None = setting(
        None, doc="directory for sockets and Envoy's bootstrap file; default: a temporary one"
    )
    state: Path | None = setting(None, doc="directory for the last complete state; default: not stored")
    restore_s: float = setting(5.0, doc="seconds to wait for the cluster before using the stored state")
    concurrency: int = setting(0, doc="worker threads of Envoy; 0 for one per CPU")
    max_connections: int = setting(50_000, doc="concurrent client connections")
    max_heap_mib: int = setting(0, doc="heap size at which Envoy refuses requests; 0 for no limit")
    drain_s: float = setting(
        5.0, doc="seconds for open requests at shutdown, and until an unused Envoy cluster is removed"
    )
    log_percent: float = setting(1.0, doc="percentage of successful requests to log; failed requests are always logged")
    traces_url: str = setting(
        "", doc="http://HOST:PORT of a collector that takes traces with OTLP over HTTP; empty: no traces"
    )
    traces_percent: float = setting(
        1.0, doc="percentage of requests to trace; clients cannot raise it by their trace context"
    )
    stats_s: float = setting(5.0, doc="seconds between two reads of Envoy's counters")

    def __post_init__(self) -> None:
        for name in ("port", "health_port", "metrics_port"):
            if not 1 <= getattr(self, name) <= 65535:
                raise ConfigError(f"{name} is {getattr(self, name)}: use 1 to 65535")
        for name in ("tls_port", "entry_port"):
            if not 0 <= getattr(self, name) <= 65535:
                raise ConfigError(f"{name} is {getattr(self, name)}: use 1 to 65535, or 0 for none")
        ports = [self.port, self.health_port, self.metrics_port, *(p for p in (self.tls_port, self.entry_port) if p)]
        if len(set(ports)) != len(ports):
            raise ConfigError("port, health_port, metrics_port, tls_port and entry_port must differ")
        if bool(self.entry_port) and not self.entry_secret:
            raise ConfigError(
                "entry_secret is not set: entry_port needs a TLS Secret to authenticate gateways of other regions"
            )
        if self.stats_s <= 0 or self.drain_s < 0 or self.restore_s < 0:
            raise ConfigError("stats_s must be more than 0, drain_s and restore_s 0 or more")
        check_traces(self.traces_url, self.traces_percent)
        try:
            ip_address(self.host)
        except ValueError:
            raise ConfigError(f"host is {self.host!r}: use an address, such as 127.0.0.1") from None

    @property
    def everything(self) -> bool:
        """Whether it serves more than one environment."""
        return self.shared or not self.environment

    @property
    def replica(self) -> str:
        return self.pod or self.name
