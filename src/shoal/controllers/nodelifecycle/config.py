"""How patient the node lifecycle controller is."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLifecycleConfig:
    period_s: float = 5.0  # between looks at all nodes
    grace_s: float = 50.0  # without a sign of life a node is lost: five renewals of its lease
    startup_grace_s: float = 60.0  # for nodes that have not reported at all
    rate: float = 0.1  # nodes a second whose pods are evicted, in each zone
    slow_rate: float = 0.01  # the same in large zones that are partly lost; in small ones it is 0
    large_cluster: int = 50  # nodes of a zone
    unhealthy_share: float = 0.55  # of a zone's nodes, from which on it is partly lost

    def __post_init__(self) -> None:
        if min(self.period_s, self.grace_s, self.startup_grace_s) <= 0 or min(self.rate, self.slow_rate) < 0:
            raise ConfigError("nodelifecycle: times must be more than 0 and rates 0 or more")
        if not 0 < self.unhealthy_share <= 1:
            raise ConfigError("nodelifecycle.unhealthy_share must be more than 0 and at most 1")
