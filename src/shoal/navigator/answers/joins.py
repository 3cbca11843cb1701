"""Joins of a row with other objects: its cluster, its node's zone, its services, its app.

They are computed for one query over one view, and only those that the query needs. Endpoints are read per namespace, at
the first row of that namespace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shoal.navigator.answers.fleet import Deployments
from shoal.navigator.answers.query.fields import TEMPLATE_HASH_LABEL
from shoal.navigator.model import KINDS, Cluster, Row
from shoal.navigator.summaries import NodeSummary, PodSummary, SliceSummary
from shoal.navigator.view import View

_NONE: tuple[str, ...] = ()
_NO_ENDPOINTS = (0, 0)


def joins_for(names: Iterable[str], view: View, deployments: Callable[[], Deployments]) -> dict[str, Any]:
    """By name, as the fields of queries use them."""
    found: dict[str, Any] = {}
    endpoints: EndpointsByNamespace | None = None
    for name in dict.fromkeys(names):
        if name in _OF_CLUSTER:
            empty: Any = dict if name == "metadata_of" else str
            found[name] = defaultdict(empty, {each.name: _OF_CLUSTER[name](each) for each in view.clusters()})
        elif name in ("services_of", "endpoints_of"):
            endpoints = endpoints or EndpointsByNamespace(view)
            found[name] = getattr(endpoints, name)
        elif name == "zone_of":
            found[name] = _zones(view)
        elif name == "app_of":
            found[name] = deployments().app_of
        elif name in ("revision_of", "project_of", "environment_of"):
            found[name] = getattr(deployments(), name.removesuffix("_of"))
        else:
            found[name] = _FUNCTIONS[name]
    return found


def status_of(pod: PodSummary) -> str:
    """The status column of ``kubectl get pods``."""
    if pod.deleting:
        return "Terminating"
    if pod.reason and pod.reason != "Unschedulable":
        return pod.reason
    for container in pod.containers:
        if container.state == "waiting" and container.reason:
            return container.reason
    if pod.phase != "Running":
        for container in pod.containers:
            if container.state == "terminated" and container.reason:
                return container.reason
        return "Completed" if pod.phase == "Succeeded" else pod.phase
    for container in pod.containers:
        if container.state == "terminated" and container.reason not in ("", "Completed"):
            return container.reason
    return pod.phase


def workload_of(pod: PodSummary) -> str:
    """The Deployment of a ReplicaSet, else the owner; empty for a pod without one."""
    owner = pod.owner
    hash_ = pod.labels.get(TEMPLATE_HASH_LABEL)
    if hash_ and owner.startswith("ReplicaSet/") and owner.endswith(f"-{hash_}"):
        return f"Deployment/{owner[len('ReplicaSet/') : -len(hash_) - 1]}"
    return owner


class EndpointsByNamespace:
    """Which pods are endpoints of which services, and how many each service has."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._pods: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {}
        self._counts: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}

    def services_of(self, row: Row) -> tuple[str, ...]:
        found = self._pods.get((row.cluster, row.namespace))
        if found is None:
            found = self._read((row.cluster, row.namespace))
        return found.get(row.name, _NONE)

    def endpoints_of(self, row: Row) -> tuple[int, int]:
        """How many there are, and how many of them are ready."""
        place = (row.cluster, row.namespace)
        if place not in self._counts:
            self._read(place)
        return self._counts[place].get(row.name, _NO_ENDPOINTS)

    def _read(self, place: tuple[str, str]) -> dict[str, tuple[str, ...]]:
        services: dict[str, dict[str, bool]] = {}  # service → endpoint → whether it is ready
        pods: dict[str, dict[str, None]] = {}
        cluster, namespace = place
        for row in self._view.rows("endpointslices", cluster=cluster, namespace=namespace):
            summary = row.summary
            if not isinstance(summary, SliceSummary) or not summary.service:
                continue
            known = services.setdefault(summary.service, {})
            for endpoint in summary.endpoints:
                # A pod with an address of each family is in two slices, and is one endpoint.
                one = endpoint.pod or endpoint.address
                known[one] = known.get(one, False) or endpoint.ready
                if endpoint.pod:
                    pods.setdefault(endpoint.pod, {})[summary.service] = None
        self._counts[place] = {name: (len(each), sum(each.values())) for name, each in services.items()}
        found = self._pods[place] = {pod: tuple(sorted(names)) for pod, names in pods.items()}
        return found


def _zones(view: View) -> Mapping[tuple[str, str], str]:
    return {
        (row.cluster, row.name): row.summary.zone
        for row in view.rows("nodes")
        if isinstance(row.summary, NodeSummary) and row.summary.zone
    }


_OF_CLUSTER: Mapping[str, Callable[[Cluster], Any]] = {
    "region_of": lambda cluster: cluster.region,
    "freshness_of": lambda cluster: str(cluster.freshness),
    "metadata_of": lambda cluster: cluster.metadata,
}
KINDS_OF_JOIN: Mapping[str, tuple[str, ...]] = {
    "services_of": ("endpointslices",),
    "endpoints_of": ("endpointslices",),
    "zone_of": ("nodes",),
}
"""Kinds that are read for a join."""

_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "status_of": status_of,
    "workload_of": workload_of,
    "kind_of": lambda row: KINDS[row.kind].kind,
}
