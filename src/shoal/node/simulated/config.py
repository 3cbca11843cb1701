"""Settings of a simulated fleet."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network

from shoal.errors import ConfigError
from shoal.node.config import Taint
from shoal.node.simulated.model import Behaviour

_MANY_NODES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetConfig:
    """Number and size of the nodes, and the default behaviour of their pods."""

    nodes: int = 0  # made at the start; nodes of others with the fleet's label are simulated as well
    name_prefix: str = "node-"
    first: int = 1  # number of the first node
    zones: tuple[str, ...] = ()  # given to the nodes in turn
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    cpu: str = "16"
    memory: str = "64Gi"
    disk: str = "200Gi"
    pods: int = 110
    node_network: str = "172.16.0.0/12"
    pod_network: str = "10.0.0.0/8"
    kubelet_port: int = 10250
    behaviour: Behaviour = field(default_factory=Behaviour)
    job_run_s: float = 1.0  # how long the pods of a Job run
    # parts of the names of images that cannot be pulled; all others can
    missing_images: tuple[str, ...] = ("non-existent", "nonexistent", ":404", "invalid.registry")
    writers: int = 32  # requests at a time
    lease_s: int = 40
    renew_s: float = 0.0  # 0: ten seconds, twice that for large fleets
    slices: int = 20  # leases are renewed in this many parts over the period, not all at once
    status_s: float = 300.0  # node statuses that have not changed are written this often

    def __post_init__(self) -> None:
        if self.nodes < 0 or self.pods < 1 or self.writers < 1 or self.slices < 1:
            raise ConfigError("simulated nodes: nodes must be 0 or more; pods, writers and slices 1 or more")
        for name in ("node_network", "pod_network"):
            try:
                IPv4Network(getattr(self, name))
            except ValueError as error:
                raise ConfigError(f"simulated nodes: {name} is {getattr(self, name)!r}: {error}") from None

    def renewal_s(self, nodes: int) -> float:
        """The renewal interval of each lease, several times within its duration."""
        wanted_s = self.renew_s or (10.0 if nodes <= _MANY_NODES else 20.0)
        return min(wanted_s, self.lease_s / 2)
