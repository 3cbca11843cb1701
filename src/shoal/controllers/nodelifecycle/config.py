"""Settings of the node lifecycle controller."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLifecycleConfig:
    period_s: float = 5.0  # between checks of all nodes
    grace_s: float = 50.0  # a node without a heartbeat for this long is lost: five lease renewals
    startup_grace_s: float = 60.0  # the same for nodes that have never reported
    rate: float = 0.1  # nodes per second whose pods are evicted, per zone
    slow_rate: float = 0.01  # the same in large zones that are partly lost; in small ones it is 0
    large_cluster: int = 50  # nodes from which on a zone is large
    unhealthy_share: float = 0.55  # share of lost nodes from which on a zone is partly lost

    def __post_init__(self) -> None:
        if min(self.period_s, self.grace_s, self.startup_grace_s) <= 0 or min(self.rate, self.slow_rate) < 0:
            raise ConfigError("nodelifecycle: times must be more than 0 and rates 0 or more")
        if not 0 < self.unhealthy_share <= 1:
            raise ConfigError("nodelifecycle.unhealthy_share must be more than 0 and at most 1")
