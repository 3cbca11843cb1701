"""Metrics of an edge. Labels are closed sets: the kind, the message, the outcome; never an object's name."""

from __future__ import annotations

from shoal.base.metrics import Metrics


class EdgeMetrics:
    def __init__(self, metrics: Metrics) -> None:
        counter, gauge, histogram = metrics.counter, metrics.gauge, metrics.histogram
        self.connections = counter(
            "shoal_edge_connections_total", "Streams to the manager, by how they began or failed.", ("result",)
        )
        self.sent = counter("shoal_edge_messages_sent_total", "Messages sent.", ("message",))
        self.received = counter("shoal_edge_messages_received_total", "Messages of the manager.", ("message",))
        self.requests = counter("shoal_edge_requests_total", "Requests of the manager.", ("request", "result"))
        self.request_s = histogram("shoal_edge_request_seconds", "From request to the end of the answer.", ("request",))
        self.rows = gauge("shoal_edge_rows", "Objects reported.", ("kind",))
        self.kinds = gauge("shoal_edge_kind_synced", "1 while the kind is read without errors.", ("kind",))
        self.connected = gauge("shoal_edge_connected", "1 while the manager has accepted this edge.")
        self.epoch = gauge("shoal_edge_epoch", "The epoch of the claim; 0: none.")
        self.unsent = gauge("shoal_edge_unsent_changes", "Changes that wait to be sent.")
        self.interval_s = gauge("shoal_edge_verification_interval_seconds", "Current time between two verifications.")
        self.resyncs = gauge("shoal_edge_resyncs", "Kinds that were sent whole because the manager's digest differed.")
        self.overflows = gauge("shoal_edge_queue_overflows", "How often too many changes waited.")
