"""Metrics of the manager. Labels come from closed sets; names of shards are not labels."""

from __future__ import annotations

from shoal.base.metrics import Metrics

_DURATIONS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class ShardMetrics:
    def __init__(self, metrics: Metrics) -> None:
        prefix = "shard_controller_"
        self.shards = metrics.gauge(f"{prefix}shards_total", "shards, by phase", ("phase",))
        self.healthy = metrics.gauge(f"{prefix}healthy_shards", "shards that hold their Lease and pass their checks")
        self.load = metrics.gauge(f"{prefix}load_average", "average load of the live shards, 0 to 1")
        self.queue_depth = metrics.gauge(f"{prefix}queue_length", "objects that wait in the queues of all shards")
        self.unowned = metrics.gauge(f"{prefix}unowned_slots", "slots that no live shard owns")
        self.moving = metrics.gauge(f"{prefix}moving_slots", "slots on their way from one shard to another")
        self.resources = metrics.gauge(f"{prefix}total_resources", "objects that carry a slot, as of the last sweep")
        self.scalings = metrics.counter(
            f"{prefix}scaling_operations_total", "decisions to change the number of shards", ("operation", "reason")
        )
        self.migrations = metrics.counter(f"{prefix}migrations_total", "moves of a slot that ended", ("status",))
        self.migration_s = metrics.histogram(
            f"{prefix}migration_duration_seconds", "moves of a slot, from their beginning", ("status",),
            bounds=_DURATIONS_S,
        )  # fmt: skip
        self.given = metrics.counter(f"{prefix}given_slots_total", "slots reassigned because they had no owner")
        self.taken = metrics.counter(f"{prefix}leases_taken_total", "Leases taken from shards that stopped renewing")
        self.assignments = metrics.counter(f"{prefix}assignments_total", "objects that were given a slot", ("by",))
        self.errors = metrics.counter(f"{prefix}errors_total", "failures that are retried", ("component",))
