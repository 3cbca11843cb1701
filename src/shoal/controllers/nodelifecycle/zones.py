"""Rate limits of evictions: a queue of lost nodes per zone, whose rate depends on how much of the zone is lost.

When every node of the cluster is lost, this process is probably cut off itself: then no evictions start, and running
ones are stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shoal.controllers.nodelifecycle.config import NodeLifecycleConfig
from shoal.controllers.nodelifecycle.plan import ZoneState, rate, zone_state


@dataclass(slots=True)
class _Zone:
    waiting: dict[str, None] = field(default_factory=dict)  # lost nodes, in order
    rate: float = 0.0
    tokens: float = 1.0  # the first node of a zone does not wait
    filled_s: float = 0.0


class Zones:
    """The queues of all zones. Times are arguments; nothing here waits."""

    def __init__(self, config: NodeLifecycleConfig) -> None:
        self._config = config
        self._zones: dict[str, _Zone] = {}
        self.states: dict[str, ZoneState] = {}

    @property
    def all_lost(self) -> bool:
        return bool(self.states) and all(state is ZoneState.FULL for state in self.states.values())

    def update(self, ready: Mapping[str, Mapping[str, bool]], now_s: float) -> bool:
        """Set the ready nodes per zone; return whether the cluster has recovered from a total loss."""
        were_lost = self.all_lost
        self.states = {name: zone_state(list(nodes.values()), self._config) for name, nodes in ready.items()}
        for gone in self._zones.keys() - ready.keys():
            del self._zones[gone]
        for name, nodes in ready.items():
            zone = self._zones.setdefault(name, _Zone(filled_s=now_s))
            self._fill(zone, now_s)
            zone.rate = 0.0 if self.all_lost else rate(self.states[name], len(nodes), self._config)
            for node in [node for node in zone.waiting if nodes.get(node, True)]:
                del zone.waiting[node]
        return were_lost and not self.all_lost

    def wait(self, zone: str, node: str) -> None:
        """Queue a lost node for eviction of its pods."""
        self._zones[zone].waiting.setdefault(node, None)

    def forget_waiting(self) -> None:
        for zone in self._zones.values():
            zone.waiting.clear()

    def take(self, now_s: float) -> Iterable[str]:
        """The nodes whose turn has come."""
        taken: list[str] = []
        for zone in self._zones.values():
            self._fill(zone, now_s)
            while zone.waiting and zone.rate > 0 and zone.tokens >= 1.0:
                zone.tokens -= 1.0
                node = next(iter(zone.waiting))
                del zone.waiting[node]
                taken.append(node)
        return taken

    def next_s(self, now_s: float) -> float | None:
        """The delay until the next turn; None if no allowed node waits."""
        times = [
            max(0.0, (1.0 - zone.tokens) / zone.rate - (now_s - zone.filled_s))
            for zone in self._zones.values()
            if zone.waiting and zone.rate > 0
        ]
        return min(times, default=None)

    @staticmethod
    def _fill(zone: _Zone, now_s: float) -> None:
        # tolerance: rounding of fractions must not delay a node by a round
        zone.tokens = min(1.0, zone.tokens + (now_s - zone.filled_s) * zone.rate + 1e-9)
        zone.filled_s = now_s
