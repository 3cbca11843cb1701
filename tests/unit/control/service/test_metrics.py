"""Metrics of the cluster service."""

from __future__ import annotations

from shoal.base.metrics import Metrics
from shoal.control.service.metrics import ServiceMetrics


def test_metrics_have_names_of_the_control_plane_and_can_be_rendered() -> None:
    metrics = Metrics()
    counts = ServiceMetrics(metrics)
    counts.hops.labels("deployments", "sent").observe(0.02)
    text = metrics.render().decode()
    assert "shoal_control_hop_seconds_bucket" in text
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert names and all(name.startswith("shoal_control_") for name in names)
