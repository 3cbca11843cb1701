"""Settings of flow control, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass, fields

from shoal.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowConfig:
    """How much one server does at a time, and what one user may take of it while others wait."""

    max_requests_in_flight: int = 400  # reads; with the next one the seats that priority levels share
    max_mutating_requests_in_flight: int = 200
    requests_per_second: float = 200.0  # of one user, counted only while requests have to wait
    burst: float = 500.0
    flow_requests_per_second: float = 400.0  # of one flow: all that a schema does not tell apart
    flow_burst: float = 1000.0
    slice_s: float = 0.005  # work of limited levels per turn of the event loop; the rest waits in queues
    queue_wait_s: float = 15.0
    retry_after_s: int = 1
    # The control plane's own levels: fair queues, but no buckets. A server that refused its controllers would only
    # make the work they have left grow.
    unmetered_levels: frozenset[str] = frozenset({"system", "node-high", "leader-election", "workload-high"})

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, int | float) and value <= 0:
                raise ConfigError(f"{each.name} is {value}: use a number above 0")

    @property
    def seats(self) -> int:
        """What priority levels divide among them."""
        return self.max_requests_in_flight + self.max_mutating_requests_in_flight
