"""The metrics of the cluster service. Every label comes from a closed set."""

from __future__ import annotations

from shoal.base.metrics import PROCESS, Metrics

# Up to a quarter of an hour: a change may wait for an agent to come back, and for an image to be pulled.
_HOPS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)


class ServiceMetrics:
    """``stream`` is deployments or sentinels; ``result`` and ``outcome`` are named where they are counted."""

    def __init__(self, metrics: Metrics = PROCESS) -> None:
        self.requests = metrics.counter(
            "shoal_control_rpc_requests_total", "Calls that ended, by method and Connect code", ("method", "code")
        )
        self.streams = metrics.gauge("shoal_control_streams", "Open streams", ("stream",))
        self.hellos = metrics.counter(
            "shoal_control_hellos_total",
            "How streams began: resumed, synced, observe_only, bad_cursor, fenced, refused, busy",
            ("stream", "result"),
        )
        self.ended = metrics.counter(
            "shoal_control_streams_ended_total",
            "Why streams ended: closed, fenced, revoked, incarnation, stopping, failed",
            ("stream", "reason"),
        )
        self.changes = metrics.counter(
            "shoal_control_changes_processed_total", "Changes read from the database", ("stream",)
        )
        self.items = metrics.counter(
            "shoal_control_items_sent_total", "Objects sent to agents: as change or in a sync", ("stream", "source")
        )
        self.loads = metrics.counter(
            "shoal_control_loads_total", "Objects looked up to be sent: hit, read, gone, later, broken", ("result",)
        )
        self.syncs = metrics.counter(
            "shoal_control_sync_desired_state_total", "Complete syncs: ok, failed", ("stream", "result")
        )
        self.sync_s = metrics.histogram(
            "shoal_control_full_sync_duration_seconds", "How long a full sync took", ("stream",), bounds=_HOPS_S
        )
        self.buckets = metrics.counter(
            "shoal_control_digest_buckets_total", "Buckets that agents found to differ", ("stream",)
        )
        self.resends = metrics.counter(
            "shoal_control_report_buckets_total", "Buckets of reports that agents were asked for again", ("stream",)
        )
        self.reports = metrics.counter(
            "shoal_control_reports_total", "Reports: stored, same, old, unknown", ("stream", "result")
        )
        self.report_s = metrics.histogram(
            "shoal_control_report_status_duration_seconds", "Taking a report, until committed", ("stream", "result")
        )
        self.report_batch = metrics.histogram(
            "shoal_control_report_batch_size",
            "Requests committed together",
            bounds=(1, 2, 5, 10, 25, 50, 100, 250),
        )
        self.sentinels_ready = metrics.counter(
            "shoal_control_notify_sentinel_ready_total",
            "Reports of gateways: not_found, not_converged, ready, superseded (it was ready before)",
            ("outcome",),
        )
        self.hops = metrics.histogram(
            "shoal_control_hop_seconds",
            "From the commit of a change until it was sent, applied, ready",
            ("stream", "hop"),
            bounds=_HOPS_S,
        )
        self.agents = metrics.gauge("shoal_control_agents", "Agents that joined: alive, lost", ("state",))
        self.frozen = metrics.gauge("shoal_control_frozen", "1 while too many agents vanished together to be believed")
        self.incarnations = metrics.counter(
            "shoal_control_incarnations_total",
            "How often a database had gone back, found by: cursor, mark, tail",
            ("by",),
        )
