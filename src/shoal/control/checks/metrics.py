"""The metrics of checks and notifications. Every label comes from a closed set."""

from __future__ import annotations

from shoal.base.metrics import PROCESS, Metrics


class CheckMetrics:
    """``kind`` is webhook, prometheus, query, job, or other for one that this version does not know."""

    def __init__(self, metrics: Metrics = PROCESS) -> None:
        self.checks = metrics.counter(
            "shoal_control_rollout_checks_total",
            "Answers of rollouts' checks: passed, failed, inconclusive, pending (a job that runs), late (another "
            "control plane asked meanwhile)",
            ("kind", "result"),
        )
        self.notifications = metrics.counter(
            "shoal_control_rollout_notifications_total",
            "Attempts to deliver notifications of rollouts: delivered, failed, dropped (given up after an hour)",
            ("result",),
        )
