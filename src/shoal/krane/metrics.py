"""Metrics of an agent. Labels are closed sets: the controller, the operation, the outcome; never a key."""

from __future__ import annotations

from shoal.base.metrics import Metrics

_SYNC_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_HOP_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

_C = ("controller",)


class KraneMetrics:
    """One per process; both controllers count into it under their names."""

    def __init__(self, metrics: Metrics) -> None:
        counter, gauge, histogram = metrics.counter, metrics.gauge, metrics.histogram
        self.operations = counter(
            "shoal_krane_reconcile_operations_total", "Keys worked on.", (*_C, "operation", "result")
        )
        self.corrections = counter(
            "shoal_krane_resync_corrections_total",
            "Corrections by resync and drift detection: an older version, drift, an unknown object.",
            (*_C, "kind"),
        )
        self.syncs = counter("shoal_krane_syncs_total", "Syncs of everything or of some buckets.", (*_C, "kind"))
        self.sync_s = histogram("shoal_krane_sync_duration_seconds", "From begin to end of a sync.", _C, bounds=_SYNC_S)
        self.connections = counter(
            "shoal_krane_stream_connections_total", "Streams, by how they began or failed.", (*_C, "result")
        )
        self.events = counter("shoal_krane_stream_events_received_total", "Messages of the stream.", (*_C, "event"))
        self.hop_s = histogram(
            "shoal_krane_hop_seconds",
            "From the commit of a change until it was received, applied, ready.",
            (*_C, "hop"),
            bounds=_HOP_S,
        )
        self.report_s = histogram("shoal_krane_report_status_duration_seconds", "Reports sent.", (*_C, "result"))
        self.deduped = counter("shoal_krane_report_deduped_total", "Reports left out: nothing had changed.", _C)
        self.heartbeats = counter("shoal_krane_heartbeats_total", "Heartbeats.", ("result",))
        self.objects = gauge("shoal_krane_objects", "Objects desired here.", _C)
        self.buffered = gauge("shoal_krane_buffered_keys", "Keys received that wait or are being applied.", _C)
        self.retrying = gauge("shoal_krane_retrying_keys", "Keys that fail and are tried again.", _C)
        self.held = gauge("shoal_krane_held_deletes", "Deletions that wait for a person.", _C)
        self.lag_s = gauge("shoal_krane_lag_seconds", "Age of the oldest key that is not applied.", _C)
        self.unreported = gauge("shoal_krane_unreported_keys", "Keys whose report is not delivered.", _C)
        self.connected = gauge("shoal_krane_connected", "1 while the stream is up.", _C)
        self.breaker = gauge(
            "shoal_krane_breaker_state", "0 closed, 1 half-open, 2 open; `agent`: of joining and heartbeats.", _C
        )
        self.version = gauge("shoal_krane_version_last_seen", "The newest number of the cursor that is durable.", _C)
        self.epoch = gauge("shoal_krane_epoch", "The epoch this agent acts under; 0: none.")
        self.leading = gauge("shoal_krane_leading", "1 while this agent acts, 0 while it stands by.")
