"""Metrics of flow control and audit, with the names that Kubernetes uses. Collected at each scrape.

Users can add schemas and levels, so only the first ``MAX_NAMES`` of them are named;
the rest are counted together as ``other``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shoal.apiserver.protection import Protection

if TYPE_CHECKING:
    from prometheus_client.core import Metric

MAX_NAMES = 100
_FLOW = "apiserver_flowcontrol_"
_BOTH = ("priority_level", "flow_schema")


class FlowMetrics:
    """Collects for one server."""

    def __init__(self, protection: Protection) -> None:
        self._protection = protection

    def collect(self) -> Iterator[Metric]:
        yield from self._schemas()
        yield from self._levels()
        yield from self._audit()

    def _schemas(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        rejected: dict[tuple[str, ...], float] = {}
        dispatched: dict[tuple[str, ...], float] = {}
        for number, schema in enumerate(self._protection.gate.schemas):
            both = (schema.level_name, schema.name) if number < MAX_NAMES else ("other", "other")
            dispatched[both] = dispatched.get(both, 0) + schema.dispatched
            for reason, count in schema.rejected.items():
                key = (*both, reason)
                rejected[key] = rejected.get(key, 0) + count
        family = CounterMetricFamily(
            f"{_FLOW}rejected_requests_total", "Requests that flow control refused.", labels=(*_BOTH, "reason")
        )
        yield _filled(family, rejected)
        family = CounterMetricFamily(
            f"{_FLOW}dispatched_requests_total", "Requests that flow control let through.", labels=_BOTH
        )
        yield _filled(family, dispatched)

    def _levels(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        gate = self._protection.gate
        used: dict[tuple[str, ...], float] = {}
        limits: dict[tuple[str, ...], float] = {}
        waiting: dict[tuple[str, ...], float] = {}
        for number, level in enumerate(gate.levels.values()):
            name = level.name if number < MAX_NAMES else "other"
            used[name,] = used.get((name,), 0) + level.used
            limits[name,] = limits.get((name,), 0) + level.nominal
            for schema, count in level.queued.items():
                key = (name, schema) if len(waiting) < MAX_NAMES else ("other", "other")
                waiting[key] = waiting.get(key, 0) + count
        label = ("priority_level",)
        yield _filled(GaugeMetricFamily(f"{_FLOW}current_executing_seats", "Seats that are taken.", labels=label), used)
        yield _filled(GaugeMetricFamily(f"{_FLOW}nominal_limit_seats", "Seats of each level.", labels=label), limits)
        yield _filled(
            GaugeMetricFamily(f"{_FLOW}current_inqueue_requests", "Requests that wait.", labels=_BOTH), waiting
        )
        family = GaugeMetricFamily(
            "apiserver_current_inflight_requests", "Requests that are being answered.", labels=("request_kind",)
        )
        reads, writes = gate.in_flight
        yield _filled(family, {("readOnly",): reads, ("mutating",): writes})

    def _audit(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        auditor = self._protection.auditor
        yield _filled(CounterMetricFamily("apiserver_audit_event_total", "Audit events."), {(): auditor.events})
        log = auditor.log
        lost: dict[tuple[str, ...], float] = (
            {} if log is None else {("buffered",): log.overflowed, ("log",): log.failed}
        )
        family = CounterMetricFamily("apiserver_audit_error_total", "Audit events that were lost.", labels=("plugin",))
        yield _filled(family, lost)


def _filled(family: Any, values: dict[tuple[str, ...], float]) -> Any:
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
