"""Metrics of flow control and audit, with the names that Kubernetes uses. Read at each scrape.

Users can add schemas and levels, so only the first ``MAX_NAMES`` of them are named;
the rest are counted together as ``other``.
"""

from __future__ import annotations

from shoal.apiserver.protection import Protection
from shoal.base.metrics import LabelValues, Metrics

MAX_NAMES = 100
_FLOW = "apiserver_flowcontrol_"
_LEVEL = ("priority_level",)
_BOTH = ("priority_level", "flow_schema")

Table = dict[LabelValues, float]


def define_flow_metrics(metrics: Metrics, protection: Protection) -> None:
    """The metrics of one server's gate and auditor."""
    counter, gauge = metrics.counter, metrics.gauge
    read = FlowTables(protection)
    counter(f"{_FLOW}rejected_requests_total", "Requests that flow control refused.", (*_BOTH, "reason")).follow_each(
        read.rejected
    )
    counter(f"{_FLOW}dispatched_requests_total", "Requests that flow control let through.", _BOTH).follow_each(
        read.dispatched
    )
    gauge(f"{_FLOW}current_executing_seats", "Seats that are taken.", _LEVEL).follow_each(read.used)
    gauge(f"{_FLOW}nominal_limit_seats", "Seats of each level.", _LEVEL).follow_each(read.limits)
    gauge(f"{_FLOW}current_inqueue_requests", "Requests that wait.", _BOTH).follow_each(read.waiting)
    gauge(
        "apiserver_current_inflight_requests", "Requests that are being answered.", ("request_kind",)
    ).follow_each(read.in_flight)  # fmt: skip
    counter("apiserver_audit_event_total", "Audit events.").follow(lambda: float(protection.auditor.events))
    counter("apiserver_audit_error_total", "Audit events that were lost.", ("plugin",)).follow_each(read.lost_events)


class FlowTables:
    """Reads the series of one server's gate and auditor."""

    def __init__(self, protection: Protection) -> None:
        self._gate = protection.gate
        self._auditor = protection.auditor

    def rejected(self) -> Table:
        found: Table = {}
        for number, schema in enumerate(self._gate.schemas):
            both = (schema.level_name, schema.name) if number < MAX_NAMES else ("other", "other")
            for reason, count in schema.rejected.items():
                _add(found, (*both, reason), count)
        return found

    def dispatched(self) -> Table:
        found: Table = {}
        for number, schema in enumerate(self._gate.schemas):
            both = (schema.level_name, schema.name) if number < MAX_NAMES else ("other", "other")
            _add(found, both, schema.dispatched)
        return found

    def used(self) -> Table:
        found: Table = {}
        for number, level in enumerate(self._gate.levels.values()):
            _add(found, (level.name if number < MAX_NAMES else "other",), level.used)
        return found

    def limits(self) -> Table:
        found: Table = {}
        for number, level in enumerate(self._gate.levels.values()):
            _add(found, (level.name if number < MAX_NAMES else "other",), level.nominal)
        return found

    def waiting(self) -> Table:
        found: Table = {}
        for number, level in enumerate(self._gate.levels.values()):
            name = level.name if number < MAX_NAMES else "other"
            for schema, count in level.queued.items():
                _add(found, (name, schema) if len(found) < MAX_NAMES else ("other", "other"), count)
        return found

    def in_flight(self) -> Table:
        reads, writes = self._gate.in_flight
        return {("readOnly",): reads, ("mutating",): writes}

    def lost_events(self) -> Table:
        log = self._auditor.log
        return {} if log is None else {("buffered",): log.overflowed, ("log",): log.failed}


def _add(table: Table, labels: LabelValues, amount: float) -> None:
    table[labels] = table.get(labels, 0) + amount
