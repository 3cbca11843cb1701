"""Metrics of a gateway's process. Those of its requests are in ``shoal.sentinel.stats``."""

from __future__ import annotations

from shoal.base.metrics import Metrics


class GatewayMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self.published = metrics.counter("shoal_sentinel_snapshots_total", "Snapshots made for Envoy.")
        self.failed = metrics.counter("shoal_sentinel_translation_failures_total", "Failed translations of inputs.")
        self.starts = metrics.gauge("shoal_sentinel_envoy_starts", "How often Envoy was started.")
        self.refusals = metrics.gauge("shoal_sentinel_refusals", "Resources, routes and policies that Envoy refuses.")


class LimitMetrics:
    """Of the rate-limit service."""

    def __init__(self, metrics: Metrics) -> None:
        self.verdicts = metrics.counter("shoal_sentinel_limit_verdicts_total", "Strict limits judged.", ("verdict",))
