"""Settings of the node lifecycle controller. ``plan.py`` uses them, so they are plain fields: ``shoal.base.settings``,
which reads them, knows logs and the clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLifecycleConfig:
    """When a node counts as lost, and how fast its pods are evicted."""

    period_s: float = field(default=5.0, metadata={"doc": "seconds between checks of all nodes"})
    grace_s: float = field(
        default=50.0, metadata={"doc": "seconds without a heartbeat after which a node is lost; renewals come every 10"}
    )
    startup_grace_s: float = field(default=60.0, metadata={"doc": "the same for nodes that have never reported"})
    rate: float = field(default=0.1, metadata={"doc": "lost nodes per second whose pods are evicted, per zone"})
    slow_rate: float = field(
        default=0.01, metadata={"doc": "the same in large zones that are partly lost; in small ones it is 0"}
    )
    large_cluster: int = field(default=50, metadata={"doc": "number of nodes from which on a zone is large"})
    unhealthy_share: float = field(
        default=0.55, metadata={"doc": "share of lost nodes from which on a zone is partly lost"}
    )

    def __post_init__(self) -> None:
        if min(self.period_s, self.grace_s, self.startup_grace_s) <= 0 or min(self.rate, self.slow_rate) < 0:
            raise ConfigError(
                "node_lifecycle: period_s, grace_s and startup_grace_s must exceed 0, rate and slow_rate 0 or more"
            )
        if not 0 < self.unhealthy_share <= 1:
            raise ConfigError("node_lifecycle.unhealthy_share must be more than 0 and at most 1")
