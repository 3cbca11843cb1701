"""The metrics of a relay. Every label comes from a closed set."""

from __future__ import annotations

from shoal.base.metrics import PROCESS, Metrics


class RelayMetrics:
    """``stream`` is deployments or sentinels."""

    def __init__(self, metrics: Metrics = PROCESS) -> None:
        self.connected = metrics.gauge(
            "shoal_relay_connected", "1 while the stream to the control plane is up", ("stream",)
        )
        self.connections = metrics.counter(
            "shoal_relay_connections_total", "Streams to the control plane: ok, lost", ("stream", "result")
        )
        self.events = metrics.counter("shoal_relay_events_total", "Events mirrored", ("stream",))
        self.items = metrics.counter("shoal_relay_items_sent_total", "Objects sent to agents", ("stream",))
        self.ended = metrics.counter(
            "shoal_relay_agents_ended_total", "Agents' streams that the control plane ended", ("stream",)
        )
        self.calls = metrics.counter(
            "shoal_relay_calls_total", "Calls of agents: passed (on), kept (for later), refused", ("method", "result")
        )
        self.waiting = metrics.gauge("shoal_relay_reports_waiting", "Reports kept until the control plane is back")
