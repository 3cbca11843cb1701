"""Settings of a node agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from shoal.errors import ConfigError
from shoal.kube.names import is_label_value, is_qualified_name
from shoal.kube.quantity import parse

_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_AMOUNTS = {"cpu": "4 or 1500m", "memory": "8Gi", "disk": "50Gi"}


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint that the node registers with."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What the nodes of a process have in common, as users write it: plain texts, for files, variables and flags."""

    labels: tuple[str, ...] = field(default=(), metadata={"doc": "labels of the nodes, each KEY=VALUE"})
    taints: tuple[str, ...] = field(
        default=(), metadata={"doc": "taints that new nodes register with, each KEY=VALUE:EFFECT or KEY:EFFECT"}
    )
    cpu: str = field(default="", metadata={"doc": "CPUs of each node, such as 4 or 1500m; default: the machine's"})
    memory: str = field(default="", metadata={"doc": "memory of each node, such as 8Gi; default: the machine's"})
    disk: str = field(default="", metadata={"doc": "ephemeral storage of each node; default: the disk's"})
    pods: int = field(default=110, metadata={"doc": "largest number of pods on a node"})
    network: str = field(
        default="",
        metadata={"doc": "/16 of this machine for nodes and pods, such as 10.207.0.0/16; default: a loopback network"},
    )

    def __post_init__(self) -> None:
        self.label_pairs()
        self.taint_list()
        for name in ("cpu", "memory", "disk"):
            text = getattr(self, name)
            try:
                good = not text or parse(text).mantissa > 0
            except ValueError:
                good = False
            if not good:
                raise ConfigError(f"node.{name} is {text!r}: use an amount above 0, such as {_AMOUNTS[name]}")
        if self.pods < 1:
            raise ConfigError(f"node.pods is {self.pods}: use 1 or more")

    def label_pairs(self) -> tuple[tuple[str, str], ...]:
        made = []
        for text in self.labels:
            key, equals, value = text.partition("=")
            faults = [*is_qualified_name(key), *is_label_value(value)] if equals else ["it has no ="]
            if faults:
                raise ConfigError(f"node.labels has {text!r}: {faults[0]}; use KEY=VALUE, such as disk=ssd")
            made.append((key, value))
        return tuple(made)

    def taint_list(self) -> tuple[Taint, ...]:
        made = []
        for text in self.taints:
            pair, _, effect = text.rpartition(":")
            key, _, value = pair.partition("=")
            faults = [*is_qualified_name(key), *is_label_value(value)]
            if effect not in _TAINT_EFFECTS:
                faults = [f"the effect must be {', '.join(_TAINT_EFFECTS[:-1])} or {_TAINT_EFFECTS[-1]}"]
            if faults:
                raise ConfigError(
                    f"node.taints has {text!r}: {faults[0]}; use KEY=VALUE:EFFECT, such as gpu=yes:NoSchedule"
                )
            made.append(Taint(key, value, effect))
        return tuple(made)


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
