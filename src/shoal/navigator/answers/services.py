"""Services over all clusters: Services of one namespace and name are one service.

Addresses, ports and endpoints are listed by cluster, since they differ. Endpoints that are not ready are listed too, as
not ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shoal.errors import NotFound
from shoal.navigator.answers.joins import EndpointsByNamespace, status_of, workload_of
from shoal.navigator.model import Cluster, Row
from shoal.navigator.summaries import PodSummary, PortSummary, ServiceSummary, SliceSummary
from shoal.navigator.view import View

SERVICE_NAME_LABEL = "kubernetes.io/service-name"

Json = dict[str, Any]
ServiceId = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ServicePage:
    """``total`` counts all; ``more``: there are further pages."""

    items: list[Json]
    total: int
    more: bool


def services(
    view: View, *, cluster: str = "", namespace: str = "", limit: int | None = None, after: ServiceId | None = None
) -> ServicePage:
    """By namespace and name."""
    found: dict[ServiceId, list[Row]] = {}
    for row in view.rows("services", cluster=cluster, namespace=namespace):
        found.setdefault((row.namespace, row.name), []).append(row)
    ids = sorted(each for each in found if after is None or each > after)
    chosen = ids if limit is None else ids[:limit]
    endpoints, clusters = EndpointsByNamespace(view), _by_name(view)
    items = [_merged(each, found[each], clusters, endpoints) for each in chosen]
    return ServicePage(items, len(found), len(chosen) < len(ids))


def service(view: View, namespace: str, name: str) -> Json:
    """One service with every endpoint of every cluster."""
    key = f"{namespace}/{name}"
    rows = [row for each in view.clusters() if (row := view.row(each.name, "services", key)) is not None]
    if not rows:
        raise NotFound(f"no cluster has a service {key!r}")
    made = _merged((namespace, name), rows, _by_name(view), EndpointsByNamespace(view))
    for place in made["clusters"]:
        slices = view.labelled("endpointslices", SERVICE_NAME_LABEL, name, cluster=place["cluster"])
        place["endpoints"] = _endpoints(view, [row for row in slices if row.namespace == namespace])
    return made


def endpoint_ports(ports: Iterable[PortSummary]) -> list[Json]:
    return [{"name": port.name, "port": port.port or None, "protocol": port.protocol} for port in ports]


def _by_name(view: View) -> Mapping[str, Cluster]:
    return {each.name: each for each in view.clusters()}


def _merged(
    id_: ServiceId, rows: list[Row], clusters: Mapping[str, Cluster], endpoints: EndpointsByNamespace
) -> Json:  # fmt: skip
    namespace, name = id_
    places = [
        _place(row, row.summary, clusters.get(row.cluster), endpoints.endpoints_of(row))
        for row in sorted(rows, key=lambda row: row.cluster)
        if isinstance(row.summary, ServiceSummary)
    ]
    return {
        "namespace": namespace,
        "name": name,
        "types": sorted({place["type"] for place in places}),
        "ports": sorted({port["port"] for place in places for port in place["ports"]}),
        "endpoints": sum(place["endpointCount"] for place in places),
        "readyEndpoints": sum(place["readyCount"] for place in places),
        "clusters": places,
    }


def _place(row: Row, summary: ServiceSummary, cluster: Cluster | None, counts: tuple[int, int]) -> Json:
    return {
        "cluster": row.cluster,
        "region": cluster.region if cluster is not None else "",
        "freshness": str(cluster.freshness) if cluster is not None else "",
        "type": summary.type,
        "clusterIp": summary.cluster_ip,
        "externalIps": list(summary.external_ips),
        "externalName": summary.external_name,
        "selector": dict(summary.selector),
        "labels": dict(summary.labels),
        "ports": [
            {"name": port.name, "port": port.port, "protocol": port.protocol, "target": port.target,
             "appProtocol": port.app_protocol}
            for port in summary.ports
        ],
        "endpointCount": counts[0],
        "readyCount": counts[1],
        "createdAt": summary.created_at,
    }  # fmt: skip


def _endpoints(view: View, slices: list[Row]) -> list[Json]:
    found = [
        _endpoint(view, row, row.summary, number)
        for row in slices
        if isinstance(row.summary, SliceSummary)
        for number in range(len(row.summary.endpoints))
    ]
    return sorted(found, key=lambda each: (each["pod"], each["address"]))


def _endpoint(view: View, row: Row, summary: SliceSummary, number: int) -> Json:
    endpoint = summary.endpoints[number]
    pod = view.row(row.cluster, "pods", f"{row.namespace}/{endpoint.pod}") if endpoint.pod else None
    shown: Json = {
        "address": endpoint.address,
        "ports": endpoint_ports(summary.ports),
        "ready": endpoint.ready,
        "serving": endpoint.serving,
        "terminating": endpoint.terminating,
        "pod": endpoint.pod,
        "node": endpoint.node,
        "zone": endpoint.zone,
    }
    if pod is not None and isinstance(pod.summary, PodSummary):
        shown |= {
            "status": status_of(pod.summary),
            "proxy": pod.summary.proxy,
            "workload": workload_of(pod.summary),
            "images": [container.image for container in pod.summary.containers],
        }
    return shown
