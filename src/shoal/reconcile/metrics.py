"""Metrics of controllers. Labels are controller names and a closed set of outcomes, never object names.

Those of the work queues have Kubernetes' names, so that public dashboards show them.
"""

from __future__ import annotations

from enum import StrEnum

from shoal.base.metrics import Metrics


class Outcome(StrEnum):
    DONE = "done"
    AGAIN = "again"  # asked to run again after a delay
    CONFLICT = "conflict"  # the object changed meanwhile
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    TERMINAL = "terminal"  # not retried


class ReconcileMetrics:
    """One per process; shared by all its controllers."""

    def __init__(self, metrics: Metrics) -> None:
        self.reconciles = metrics.counter(
            "shoal_reconcile_total", "Reconciles by controller and outcome.", ("controller", "outcome")
        )
        self.duration_s = metrics.histogram(
            "workqueue_work_duration_seconds", "How long one reconcile takes.", ("name",)
        )
        self.queued_s = metrics.histogram(
            "workqueue_queue_duration_seconds", "How long a key waits for a worker.", ("name",)
        )
        self.depth = metrics.gauge("workqueue_depth", "Keys that wait for a worker.", ("name",))
        self.adds = metrics.counter("workqueue_adds_total", "Keys that were queued.", ("name",))
        self.retries = metrics.counter(
            "workqueue_retries_total", "Keys that were queued again after a failure.", ("name",)
        )
        self.delayed = metrics.gauge(
            "shoal_reconcile_queue_delayed", "Keys that wait for their time or back off.", ("controller",)
        )
        self.resyncs = metrics.counter(
            "shoal_reconcile_resync_total", "Periodic passes over all objects.", ("controller",)
        )
