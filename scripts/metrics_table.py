"""Write docs/metrics.md: every metric of every process, from the code that defines them.

python scripts/metrics_table.py            write the page
python scripts/metrics_table.py --check    fail when the page is not what the code says
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from shoal.apiserver.health import HealthChecks
from shoal.apiserver.protection_metrics import define_flow_metrics
from shoal.apiserver.request_metrics import define_request_metrics
from shoal.apiserver.store_metrics import define_store_metrics
from shoal.app.certificates import define_certificate_metrics
from shoal.base.metrics import MetricDescription, Metrics, process_metrics
from shoal.base.supervision import define_loop_metrics
from shoal.control.checks.metrics import CheckMetrics
from shoal.control.relay.metrics import RelayMetrics
from shoal.control.service.metrics import ServiceMetrics
from shoal.dashboard.metrics import PageMetrics
from shoal.krane.metrics import KraneMetrics
from shoal.navigator.edge.metrics import EdgeMetrics
from shoal.navigator.manager.metrics import ManagerMetrics
from shoal.node.proxy.metrics import ProxyMetrics
from shoal.node.server.metrics import KubeletMetrics
from shoal.reconcile.metrics import ReconcileMetrics
from shoal.reconcile.resync import ResyncMetrics
from shoal.rest.api import RestMetrics
from shoal.scheduler.metrics import SchedulerMetrics
from shoal.sentinel.metrics import GatewayMetrics, LimitMetrics
from shoal.sentinel.stats import define_stats_metrics
from shoal.sharding.manager.metrics import ShardMetrics
from shoal.sharding.proxy.load import ProxyLoad
from shoal.sharding.worker.metrics import WorkerMetrics

PAGE = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"

# What a definition reads at a scrape; nothing is scraped here.
_ANY: Any = SimpleNamespace(store=None, gate=None, auditor=None)


def _slis(metrics: Metrics) -> list[MetricDescription]:
    return HealthChecks().metrics.describe()


def _process(metrics: Metrics) -> list[MetricDescription]:
    define_loop_metrics(metrics)
    define_certificate_metrics(metrics)
    return [*process_metrics().describe(), *metrics.describe()]


def _defined(*define: Callable[[Metrics], object]) -> Callable[[Metrics], list[MetricDescription]]:
    def describe(metrics: Metrics) -> list[MetricDescription]:
        for each in define:
            each(metrics)
        return metrics.describe()

    return describe


SECTIONS: dict[str, Callable[[Metrics], list[MetricDescription]]] = {
    "Every process": _process,
    "API server": _defined(
        lambda metrics: define_request_metrics(metrics, _ANY, _ANY),
        lambda metrics: define_store_metrics(metrics, _ANY),
        lambda metrics: define_flow_metrics(metrics, _ANY),
    ),
    "API server, at `/metrics/slis`": _slis,
    "Scheduler": _defined(SchedulerMetrics),
    "Controllers, service proxy and shard manager": _defined(ReconcileMetrics),
    "Caches of scheduler, controllers and nodes": _defined(ResyncMetrics),
    "Node": _defined(KubeletMetrics),
    "Service proxy": _defined(ProxyMetrics),
    "Agent (krane)": _defined(KraneMetrics),
    "Control plane": _defined(
        ServiceMetrics, CheckMetrics, PageMetrics, lambda metrics: RestMetrics(metrics, "control")
    ),
    "Relay": _defined(RelayMetrics),
    "Gateway": _defined(
        GatewayMetrics, LimitMetrics, lambda metrics: define_stats_metrics(metrics, _ANY, "")
    ),
    "Navigator's manager": _defined(ManagerMetrics, lambda metrics: RestMetrics(metrics, "navigator")),
    "Navigator's edge": _defined(EdgeMetrics),
    "Shard manager": _defined(ShardMetrics),
    "Shard worker": _defined(WorkerMetrics),
    "Shard proxy": _defined(
        lambda metrics: ProxyLoad(
            _ANY, _ANY, "", slots=_ANY, source=None, gauges=_ANY, clock=_ANY, metrics=metrics
        )
    ),
}  # fmt: skip

_HEAD = """# Metrics

Every metric, by the part that has it. `scripts/metrics_table.py` writes this page; `make verify-generated` checks it.
[The guide](guides/monitoring.md) says where each process answers and how to scrape it. Parts that share a
process share its `/metrics`.

A histogram is stored as three metrics: `NAME_bucket`, `NAME_sum` and `NAME_count`.
"""


def tables() -> dict[str, list[MetricDescription]]:
    return {title: describe(Metrics()) for title, describe in SECTIONS.items()}


def render(sections: Iterable[tuple[str, list[MetricDescription]]]) -> str:
    lines = [_HEAD]
    for title, found in sections:
        lines += [f"## {title}", "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
        for each in sorted(found, key=lambda one: one.name):
            text = each.text[:1].upper() + each.text[1:].rstrip(".")
            lines.append(f"| `{each.name}` | {each.kind} | {', '.join(each.labels)} | {text} |".replace("|  |", "| |"))
        lines.append("")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    page = render(tables().items())
    if "--check" not in arguments:
        PAGE.write_text(page)
        return 0
    if not PAGE.exists() or PAGE.read_text() != page:
        print(f"stale: {PAGE}; run: python scripts/metrics_table.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
