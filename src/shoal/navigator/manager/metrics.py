"""Metrics of the manager."""

from __future__ import annotations

from shoal.base.metrics import Metrics


class ManagerMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self.streams = metrics.gauge("shoal_navigator_edges", "edges that are connected")
        self.rows = metrics.gauge("shoal_navigator_rows", "objects of all clusters")
        self.clusters = metrics.gauge("shoal_navigator_clusters", "clusters by freshness", ["freshness"])
        self.claims = metrics.counter("shoal_navigator_claims", "claims of clusters by their result", ["result"])
        self.messages = metrics.counter("shoal_navigator_messages", "messages of edges", ["kind"])
        self.changes = metrics.counter("shoal_navigator_changes", "rows stored or removed", ["change"])
        self.resyncs = metrics.counter("shoal_navigator_resyncs", "kinds that had to be sent again")
        self.requests = metrics.counter("shoal_navigator_requests", "requests to edges by their result", ["result"])
        self.unknown_replies = metrics.counter(
            "shoal_navigator_unknown_replies", "replies to requests that were no longer pending"
        )
        self.commit_s = metrics.histogram("shoal_navigator_commit_seconds", "one transaction").labels()
        self.visible_s = metrics.histogram(
            "shoal_navigator_visible_seconds", "from the receipt of a change until queries see it"
        ).labels()
        self.expired = metrics.counter("shoal_navigator_expired", "entries of the history that retention deleted")
