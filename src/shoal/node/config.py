"""Settings of a node agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from shoal.errors import ConfigError

_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint that the node registers with."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionConfig:
    """Thresholds below which the node evicts pods. 0 turns a threshold off."""

    memory_available_bytes: int = 100 << 20
    disk_available_part: float = 0.10
    period_s: float = 10.0
    pressure_s: float = 300.0  # a pressure condition lasts at least this long


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Settings of one node."""

    name: str
    root: Path  # folder of the node: volumes and state of the runtime
    addresses: tuple[str, ...] = ("127.0.0.1",)
    port: int = 10250  # of the node's own HTTPS endpoints
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    cpu: str = ""  # capacity; empty: as the runtime reports
    memory: str = ""
    disk: str = ""
    pods: int = 110
    reserved_cpu: str = "0"  # not for pods
    reserved_memory: str = "0"
    dns_servers: tuple[str, ...] = ()
    cluster_domain: str = "cluster.local"
    provider_id: str = ""
    pod_cidr: str = ""
    lease_s: int = 40
    renew_s: float = 10.0
    status_s: float = 10.0  # interval in which a changed status is written
    unchanged_s: float = 300.0  # interval in which an unchanged status is written
    relist_s: float = 10.0  # interval of the comparison of all containers, besides events
    stop_s: float = 8.0
    eviction: EvictionConfig = field(default_factory=EvictionConfig)

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("node.name is empty: give the node a name")
        if not self.addresses:
            raise ConfigError("node.addresses is empty: give the node at least one address")
        if self.pods < 1:
            raise ConfigError(f"node.pods is {self.pods}: use 1 or more")
        for taint in self.taints:
            if taint.effect not in _TAINT_EFFECTS:
                raise ConfigError(f"node.taints has the effect {taint.effect!r}: use {', '.join(_TAINT_EFFECTS)}")
