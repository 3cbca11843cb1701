"""Settings of flow control, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass, fields

from shoal.base.settings import setting
from shoal.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowConfig:
    """Concurrency limits of one server, and rate limits per user and flow while other requests wait."""

    max_requests_in_flight: int = setting(400, doc="concurrent reads; priority levels share these and the writes")
    max_mutating_requests_in_flight: int = setting(200, doc="concurrent writes")
    requests_per_second: float = setting(200.0, doc="requests per second of one user while requests queue")
    burst: float = setting(500.0, doc="requests that one user may send in a burst")
    flow_requests_per_second: float = setting(
        400.0, doc="requests per second of one flow (a FlowSchema divides requests into flows)"
    )
    flow_burst: float = setting(1000.0, doc="requests that one flow may send in a burst")
    slice_s: float = setting(0.005, doc="time for limited levels per event loop iteration; other requests queue")
    queue_wait_s: float = setting(15.0, doc="longest wait of a request in a queue")
    retry_after_s: int = setting(1, doc="Retry-After of rejected requests")
    # The control plane's own levels: fair queues, but no buckets. A server that rejected its controllers would only
    # increase their backlog.
    unmetered_levels: frozenset[str] = setting(
        frozenset({"system", "node-high", "leader-election", "workload-high"}),
        doc="priority levels without limits per user and flow",
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, int | float) and value <= 0:
                raise ConfigError(f"{each.name} is {value}: use a number above 0")

    @property
    def seats(self) -> int:
        """The seats that priority levels share."""
        return self.max_requests_in_flight + self.max_mutating_requests_in_flight
