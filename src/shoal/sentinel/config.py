"""The settings of a sentinel, from ``SHOAL_SENTINEL_*`` and flags."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from shoal.base.settings import setting
from shoal.errors import ConfigError

PORT, HEALTH_PORT, METRICS_PORT = 8040, 8041, 8042
NAMESPACE = "sentinel"  # where krane puts what gateways read


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelConfig:
    name: str = setting("sentinel", doc="of this gateway; its replicas have the same")
    pod: str = setting("", doc="of this replica; default the name of the gateway")
    namespace: str = setting(NAMESPACE, doc="where its routes, policies and secrets are")
    region: str = setting("", doc="where it stands")
    zone: str = setting("", doc="where in the region; instances of the same zone come first; default as its node says")
    node: str = setting("", doc="on which it runs")
    environment: str = setting("", doc="id of the environment it serves; empty for the region's shared one")
    shared: bool = setting(False, doc="whether it serves every environment of the region")
    host: str = setting("127.0.0.1", doc="address of all its ports")
    port: int = setting(PORT, doc="for traffic")
    health_port: int = setting(HEALTH_PORT, doc="for /livez and /readyz")
    metrics_port: int = setting(METRICS_PORT, doc="for /metrics")
    tls_port: int = setting(0, doc="for TLS; 0 serves it on the port for traffic")
    entry_port: int = setting(0, doc="for gateways of other regions; 0 lets none in")
    entry_secret: str = setting(
        "", doc="name of the TLS Secret with which gateways of different regions know each other"
    )
    trusted_hops: int = setting(0, doc="how many proxies before us are believed about X-Forwarded-For")
    redis_url: str = setting("", doc="where strict limits are counted; without it routes that have such are closed")
    directory: Path | None = setting(None, doc="for sockets and Envoy's file; default a temporary one")
    state: Path | None = setting(None, doc="where the last complete state is kept; default nowhere")
    restore_s: float = setting(5.0, doc="how long the cluster may be away before what was kept is used")
    concurrency: int = setting(0, doc="threads of Envoy; 0 is one per CPU")
    max_connections: int = setting(50_000, doc="from clients, at a time")
    max_heap_mib: int = setting(0, doc="of Envoy, before it refuses work; 0 is no limit")
    drain_s: float = setting(5.0, doc="for requests under way when it stops, and before an unused cluster goes")
    log_percent: float = setting(1.0, doc="of requests that went well that are logged; others always are")
    stats_s: float = setting(5.0, doc="between two looks at Envoy's counters")

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
            raise ConfigError("entry_secret is not set: gateways of other regions come in only with certificates")
        if self.stats_s <= 0 or self.drain_s < 0 or self.restore_s < 0:
            raise ConfigError("stats_s must be more than 0, drain_s and restore_s 0 or more")
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
