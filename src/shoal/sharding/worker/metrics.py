"""Metrics of a worker. No label: a process is one shard, and names of objects are never labels."""

from __future__ import annotations

from shoal.base.metrics import Metrics

_DURATIONS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0)


class WorkerMetrics:
    def __init__(self, metrics: Metrics) -> None:
        prefix = "shard_worker_"
        self.handled = metrics.counter(f"{prefix}handled_total", "objects whose handler ended well").labels()
        self.failed = metrics.counter(f"{prefix}failed_total", "objects whose handler failed and runs again").labels()
        self.handler_s = metrics.histogram(
            f"{prefix}handler_seconds", "runs of a handler", bounds=_DURATIONS_S
        ).labels()
        self.queue_length = metrics.gauge(f"{prefix}queue_length", "objects that wait for a handler")
        self.waiting = metrics.gauge(f"{prefix}retries_waiting", "objects that wait for their next try")
        self.slots = metrics.gauge(f"{prefix}slots", "slots that this worker works on")
        self.objects = metrics.gauge(f"{prefix}objects", "objects of these slots")
