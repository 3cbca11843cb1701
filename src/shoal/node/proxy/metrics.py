"""Metrics of the service proxy's relays, which the cluster's process asks the proxy process for."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.base.metrics import Metrics


class ProxyMetrics:
    """One per process. ``saw`` takes the counts of a proxy process, ``started`` is called for each new one."""

    def __init__(self, metrics: Metrics) -> None:
        self._listeners = metrics.gauge("shoal_service_proxy_listeners", "Addresses of Services that are served.")
        self._connections = metrics.gauge("shoal_service_proxy_connections", "Connections open now.")
        self._accepted = metrics.counter("shoal_service_proxy_accepted_total", "Connections accepted.")
        self._failed = metrics.counter(
            "shoal_service_proxy_failed_total", "Connections closed because no pod accepted them."
        )
        self._starts = metrics.counter("shoal_service_proxy_starts_total", "Proxy processes started by this process.")
        self._last: Mapping[str, int] = {}

    def started(self) -> None:
        self._starts.inc()

    def found(self, counts: Mapping[str, int]) -> None:
        """A proxy process was connected to: what it has counted before is not counted again."""
        self._last = counts
        self._show(counts)

    def saw(self, counts: Mapping[str, int]) -> None:
        for name, counter in (("accepted", self._accepted), ("failed", self._failed)):
            counter.inc(max(0, counts[name] - self._last.get(name, 0)))
        self._last = counts
        self._show(counts)

    def _show(self, counts: Mapping[str, int]) -> None:
        self._listeners.set(counts["listeners"])
        self._connections.set(counts["connections"])
