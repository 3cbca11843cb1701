"""Settings of the scheduler and of its profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from shoal.errors import ConfigError
from shoal.kube.names import is_dns1123_subdomain
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


def parse_profile(text: str) -> Profile:
    """A profile as settings write it: ``NAME`` and what differs from the default, separated by spaces.

    ``-PLUGIN`` turns a plugin off and ``-*`` all of them, ``PLUGIN`` turns one on, ``PLUGIN=WEIGHT`` sets the weight of
    its score, and ``percentage=N`` how many of the nodes are searched."""
    name, *words = text.split() or [""]
    known = {*FILTERS, *SCORES}
    weights, disabled, percentage = dict(WEIGHTS), set[str](), 0
    if is_dns1123_subdomain(name):
        raise _bad(text, f"{name!r} is no name of a scheduler")
    for word in words:
        plugin, equals, number = word.removeprefix("-").partition("=")
        if equals and not (number.isascii() and number.isdigit()):
            raise _bad(text, f"{word!r} has no whole number")
        if plugin == "percentage" and equals:
            percentage = int(number)
        elif word == "-*":
            disabled |= known
        elif plugin not in known or (equals and (plugin not in SCORES or word.startswith("-"))):
            near = get_close_matches(plugin, SCORES if equals else known, n=1)
            raise _bad(text, f"{word!r} names no plugin" + (f"; did you mean {near[0]}?" if near else ""))
        elif word.startswith("-"):
            disabled.add(plugin)
        else:
            disabled.discard(plugin)
            if equals:
                weights[plugin] = int(number)
    return Profile(name=name, weights=weights, disabled=frozenset(disabled), percentage_of_nodes_to_score=percentage)


def profiles_of(texts: Sequence[str]) -> tuple[Profile, ...]:
    """The profiles of a cluster: those given, and the default scheduler's unless it is among them."""
    given = [parse_profile(text) for text in texts]
    names = [each.name for each in given]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"scheduler_profiles has {name!r} more than once: give each scheduler name once")
    return tuple(given) if DEFAULT_SCHEDULER in names else (Profile(), *given)


def _bad(text: str, problem: str) -> ConfigError:
    return ConfigError(
        f'scheduler_profiles has {text!r}: {problem}; use for example "batch NodeResourcesFit=5 -ImageLocality"'
    )


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
