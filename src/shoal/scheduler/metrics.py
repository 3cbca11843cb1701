"""Metrics of the scheduler, with Kubernetes' names where it has the metric. Labels are profiles and closed sets,
never object names."""

from __future__ import annotations

from enum import StrEnum

from shoal.base.metrics import Metrics
from shoal.scheduler.queue import QueueState, SchedulingQueue

# as Kubernetes calls its queues; in flight is ours
_QUEUES = {
    QueueState.ACTIVE: "active",
    QueueState.BACKING_OFF: "backoff",
    QueueState.UNSCHEDULABLE: "unschedulable",
    QueueState.GATED: "gated",
    QueueState.IN_FLIGHT: "in_flight",
}


class ScheduleResult(StrEnum):
    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


class SchedulerMetrics:
    """One per process."""

    def __init__(self, metrics: Metrics) -> None:
        self.attempts = metrics.counter(
            "scheduler_schedule_attempts_total",
            "Attempts to place a pod, by profile and result.",
            ("profile", "result"),
        )
        self.placing_s = metrics.histogram(
            "scheduler_scheduling_algorithm_duration_seconds", "How long it takes to find a node for a pod.",
            bounds=(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25),
        )  # fmt: skip
        self.binding_s = metrics.histogram("shoal_scheduler_binding_seconds", "How long binding a pod takes.")
        self.victims = metrics.counter("shoal_scheduler_preemption_victims_total", "Pods deleted to make room.")
        self.pending = metrics.gauge("scheduler_pending_pods", "Pods that wait for a node.", ("queue",))
        self.expired = metrics.counter(
            "shoal_scheduler_assumed_expired_total", "Pods that were bound but not seen bound in time."
        )

    def follow(self, queue: SchedulingQueue) -> None:
        for place, name in _QUEUES.items():
            self.pending.follow(lambda place=place: float(queue.size(place)), name)  # type: ignore[misc]
