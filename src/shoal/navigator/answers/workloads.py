"""Workloads over all clusters (Deployments, StatefulSets, single pods) with their pods by cluster; details of a pod."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.errors import NotFound
from shoal.navigator.answers.fleet import Deployments
from shoal.navigator.answers.joins import EndpointsByNamespace, status_of, workload_of
from shoal.navigator.answers.query.fields import DEPLOYMENT_LABEL
from shoal.navigator.model import Row
from shoal.navigator.summaries import DeploymentSummary, PodSummary
from shoal.navigator.view import View

Json = dict[str, Any]
WorkloadId = tuple[str, str, str]  # namespace, kind, name
ALONE = "Pod"
_TURN = 10_000


@dataclass(frozen=True, slots=True)
class WorkloadPage:
    items: list[Json]
    total: int
    more: bool


@dataclass(slots=True)
class _Place:
    """A workload in one cluster."""

    pods: list[Row]
    deployment: Row | None = None


def workloads(
    view: View,
    deployments: Callable[[], Deployments],
    *,
    cluster: str = "",
    namespace: str = "",
    limit: int | None = None,
    after: WorkloadId | None = None,
) -> Generator[None, None, WorkloadPage]:
    """By namespace, kind and name. Pauses regularly, so that other tasks can run."""
    found = yield from _grouped(
        list(view.rows("pods", cluster=cluster, namespace=namespace)),
        view.rows("deployments", cluster=cluster, namespace=namespace),
    )
    ids = sorted(each for each in found if after is None or each > after)
    chosen = ids if limit is None else ids[:limit]
    fleet = deployments()
    return WorkloadPage([_shown(view, fleet, each, found[each]) for each in chosen], len(found), len(chosen) < len(ids))


def workload(
    view: View, deployments: Callable[[], Deployments], namespace: str, kind: str, name: str
) -> Generator[None, None, Json]:
    """One workload with its pods in every cluster, and the services that they are endpoints of."""
    found = yield from _grouped(
        list(view.rows("pods", namespace=namespace)), view.rows("deployments", namespace=namespace)
    )  # fmt: skip
    id_ = next((each for each in found if each[1].lower() == kind.lower() and each[2] == name), None)
    if id_ is None:
        raise NotFound(f"no cluster has a {kind} {namespace}/{name}")
    places = found[id_]
    fleet, endpoints = deployments(), EndpointsByNamespace(view)
    made = _shown(view, fleet, id_, places)
    for shown in made["clusters"]:
        rows = sorted(places[shown["cluster"]].pods, key=lambda row: row.name)
        shown["instances"] = [pod_json(row, fleet) for row in rows]
        shown["services"] = sorted({name for row in rows for name in endpoints.services_of(row)})
    return made


def pod_row(view: View, cluster: str, namespace: str, name: str) -> Row:
    row = view.row(cluster, "pods", f"{namespace}/{name}")
    if row is None:
        if view.cluster(cluster) is None:
            known = ", ".join(each.name for each in view.clusters()[:20]) or "none"
            raise NotFound(f"cluster {cluster!r} not found (existing clusters: {known})")
        raise NotFound(f"cluster {cluster!r} has no pod {namespace}/{name}")
    return row


def pod_detail(view: View, fleet: Deployments, row: Row, obj: Json | None) -> Json:
    """A pod with its services, its node's zone, and the object itself."""
    made = pod_json(row, fleet)
    made["services"] = list(EndpointsByNamespace(view).services_of(row))
    cluster = view.cluster(row.cluster)
    made["region"] = cluster.region if cluster is not None else ""
    made["freshness"] = str(cluster.freshness) if cluster is not None else ""
    made["object"] = obj
    return made


def pod_json(row: Row, fleet: Deployments) -> Json:
    pod = row.summary
    assert isinstance(pod, PodSummary)
    deployment = pod.labels.get(DEPLOYMENT_LABEL, "")
    return {
        "cluster": row.cluster,
        "namespace": row.namespace,
        "name": row.name,
        "status": status_of(pod),
        "phase": pod.phase,
        "reason": pod.reason,
        "ready": pod.ready,
        "deleting": pod.deleting,
        "node": pod.node,
        "ip": pod.ip,
        "workload": workload_of(pod),
        "serviceAccount": pod.service_account,
        "proxy": pod.proxy,
        "containers": [
            {"name": each.name, "image": each.image, "ready": each.ready, "restarts": each.restarts,
             "state": each.state, "reason": each.reason}
            for each in pod.containers
        ],
        "labels": dict(pod.labels),
        "app": fleet.app_of(pod.labels),
        "deployment": deployment,
        "revision": fleet.revision.get(deployment),
        "createdAt": pod.created_at,
    }  # fmt: skip


def _grouped(
    pods: Sequence[Row], deployments: Iterable[Row]
) -> Generator[None, None, dict[WorkloadId, dict[str, _Place]]]:
    found: dict[WorkloadId, dict[str, _Place]] = {}
    places: dict[tuple[str, str, str, int], _Place] = {}  # pods of one owner and template are one workload
    for start in range(0, len(pods), _TURN):
        for row in pods[start : start + _TURN]:
            pod = row.summary
            if not isinstance(pod, PodSummary):
                continue
            same = (row.cluster, row.namespace, pod.owner or row.name, id(pod.labels))
            place = places.get(same)
            if place is None:
                kind, _, name = (workload_of(pod) or f"{ALONE}/{row.name}").partition("/")
                place = found.setdefault((row.namespace, kind, name), {}).setdefault(row.cluster, _Place([]))
                places[same] = place
            place.pods.append(row)
        yield
    for row in deployments:
        clusters = found.setdefault((row.namespace, "Deployment", row.name), {})
        clusters.setdefault(row.cluster, _Place([])).deployment = row
    return found


def _shown(view: View, fleet: Deployments, id_: WorkloadId, places: dict[str, _Place]) -> Json:
    namespace, kind, name = id_
    shown = [_place(view, cluster, place) for cluster, place in sorted(places.items())]
    pods = [row.summary for place in places.values() for row in place.pods if isinstance(row.summary, PodSummary)]
    deployments = [place.deployment.summary for place in places.values() if place.deployment is not None]
    known = (*pods, *(each for each in deployments if isinstance(each, DeploymentSummary)))
    labels = {id(each.labels): each.labels for each in known}.values()  # pods share what is equal
    containers = {id(pod.containers): pod.containers for pod in pods}.values()
    apps = {app for each in labels if (app := fleet.app_of(each)) is not None}
    return {
        "namespace": namespace,
        "kind": kind,
        "name": name,
        "app": min(apps, default=None),
        "pods": sum(place["pods"] for place in shown),
        "ready": sum(place["ready"] for place in shown),
        "images": sorted({container.image for each in containers for container in each}),
        "proxies": sorted({pod.proxy for pod in pods}),
        "revisions": sorted(
            {number for each in labels if (number := fleet.revision.get(each.get(DEPLOYMENT_LABEL, ""))) is not None}
        ),
        "clusters": shown,
    }


def _place(view: View, name: str, place: _Place) -> Json:
    cluster = view.cluster(name)
    ready = sum(isinstance(row.summary, PodSummary) and row.summary.ready for row in place.pods)
    shown: Json = {
        "cluster": name,
        "region": cluster.region if cluster is not None else "",
        "freshness": str(cluster.freshness) if cluster is not None else "",
        "pods": len(place.pods),
        "ready": ready,
    }
    if place.deployment is not None and isinstance(place.deployment.summary, DeploymentSummary):
        wanted = place.deployment.summary
        shown |= {"replicas": wanted.replicas, "updated": wanted.updated, "images": list(wanted.images)}
    return shown
