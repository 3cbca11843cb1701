"""Settings of the scheduler and of its profiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shoal.errors import ConfigError
from shoal.scheduler.model import FILTERS, SCORES

DEFAULT_SCHEDULER = "default-scheduler"
_MIN_FEASIBLE = 100  # a search always covers at least this many nodes
_MIN_PERCENTAGE = 5

WEIGHTS: Mapping[str, int] = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadDefault:
    """A default constraint for pods without their own."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: str = "ScheduleAnyway"


SYSTEM_SPREAD = (
    SpreadDefault(topology_key="kubernetes.io/hostname", max_skew=3),
    SpreadDefault(topology_key="topology.kubernetes.io/zone", max_skew=5),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How pods with this ``spec.schedulerName`` are placed."""

    name: str = DEFAULT_SCHEDULER
    weights: Mapping[str, int] = field(default_factory=lambda: dict(WEIGHTS))  # missing plugins have weight 0
    disabled: frozenset[str] = frozenset()  # plugins that neither filter nor score
    spread_defaults: tuple[SpreadDefault, ...] = SYSTEM_SPREAD
    hard_pod_affinity_weight: int = 1
    percentage_of_nodes_to_score: int = 0  # 0: derived from the size of the cluster

    def __post_init__(self) -> None:
        unknown = (set(self.weights) - set(SCORES)) | (self.disabled - set(FILTERS) - set(SCORES))
        if unknown:
            raise ConfigError(f"scheduler profile {self.name!r} names unknown plugins: {', '.join(sorted(unknown))}")
        if not 0 <= self.percentage_of_nodes_to_score <= 100:
            raise ConfigError(f"scheduler profile {self.name!r}: percentage_of_nodes_to_score must be 0 to 100")
        if not 0 <= self.hard_pod_affinity_weight <= 100 or any(weight < 0 for weight in self.weights.values()):
            raise ConfigError(f"scheduler profile {self.name!r}: weights must be 0 or more")

    @property
    def system_spread(self) -> bool:
        """Whether the system's defaults apply; with them a node without a zone still takes part in spreading over
        hosts."""
        return self.spread_defaults is SYSTEM_SPREAD

    def filters(self, plugin: str) -> bool:
        return plugin not in self.disabled

    def weight(self, plugin: str) -> int:
        return 0 if plugin in self.disabled else self.weights.get(plugin, 0)

    def feasible_wanted(self, nodes: int) -> int:
        """How many feasible nodes are enough to choose from."""
        if nodes < _MIN_FEASIBLE:
            return nodes
        percentage = self.percentage_of_nodes_to_score or max(50 - nodes // 125, _MIN_PERCENTAGE)
        return max(nodes * percentage // 100, _MIN_FEASIBLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Settings of one scheduler process."""

    profiles: tuple[Profile, ...] = (Profile(),)
    binds_in_flight: int = 64
    tables: int = 64  # shapes whose tables are cached
    decisions: int = 1000  # pods whose last decision is kept
    backoff_s: float = 1.0  # after the first failure; doubles
    max_backoff_s: float = 10.0
    unschedulable_s: float = 300.0  # after which a pod is retried even without a helpful event
    flush_every_s: float = 30.0
    assumed_s: float = 30.0  # how long a bound pod may take to appear as bound; 0: no limit
    volumes_s: float = 600.0  # how long a pod's volumes may take to be bound
    slice_s: float = 0.005  # how long placing pods may block the event loop

    def __post_init__(self) -> None:
        if not self.profiles or len({each.name for each in self.profiles}) != len(self.profiles):
            raise ConfigError("scheduler.profiles must contain at least one profile, and each scheduler name once")
        if min(self.binds_in_flight, self.tables, self.decisions) < 1:
            raise ConfigError("scheduler: binds_in_flight, tables and decisions must be 1 or more")
        if not 0 < self.backoff_s <= self.max_backoff_s:
            raise ConfigError("scheduler.backoff_s must be above 0 and at most max_backoff_s")
