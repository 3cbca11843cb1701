"""Builds the mesh of a cluster from a view, for the analysis of ``shoal.navigator.istio``.

The analysis needs a pod's name, labels and proxy, which are in its row: only Istio's objects, services and namespaces
come from the disk. It runs in a thread, since a large mesh takes a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from shoal.errors import NotFound
from shoal.kube.objects import Obj
from shoal.navigator.answers.workloads import pod_row
from shoal.navigator.istio.analysis import acting_on, mistakes
from shoal.navigator.istio.model import DOMAIN, ROOT_NAMESPACE, Mesh
from shoal.navigator.model import CONTROL_PLANE_CONFIG, KINDS, Row
from shoal.navigator.summaries import PodSummary
from shoal.navigator.view import View

Json = dict[str, Any]

ISTIO_KINDS = tuple(kind.name for kind in KINDS.values() if kind.istio and kind is not CONTROL_PLANE_CONFIG)


async def mesh_of(view: View, cluster: str) -> Mesh:
    if view.cluster(cluster) is None:
        raise NotFound(f"cluster {cluster!r} not found")
    config = await _control_plane(view, cluster)
    objects = {kind: await _objects(view, cluster, kind) for kind in ISTIO_KINDS}
    return Mesh(
        cluster=cluster,
        root_namespace=_root_namespace(config),
        objects=objects,
        services=await _objects(view, cluster, "services"),
        pods=[pod_stub(row) for row in view.rows("pods", cluster=cluster)],
        namespaces=await _objects(view, cluster, "namespaces"),
        domain=str(config.get("domain") or DOMAIN),
    )


async def acting(view: View, cluster: str, namespace: str, pod: str) -> Json:
    """The Istio resources that act on a pod, and why."""
    row = pod_row(view, cluster, namespace, pod)
    mesh = await mesh_of(view, cluster)
    found = await asyncio.to_thread(acting_on, mesh, namespace, pod)
    proxy = row.summary.proxy if isinstance(row.summary, PodSummary) else ""
    return {
        "cluster": cluster, "namespace": namespace, "pod": pod, "proxy": proxy, "rootNamespace": mesh.root_namespace,
        "items": [asdict(each) for each in found],
    }  # fmt: skip


async def found_mistakes(view: View, clusters: Sequence[str], namespace: str = "") -> list[Json]:
    """What is wrong in the meshes of these clusters, errors first."""
    found: list[Json] = []
    for cluster in clusters:
        if not any(True for kind in ISTIO_KINDS for _ in view.rows(kind, cluster=cluster)):
            continue
        mesh = await mesh_of(view, cluster)
        found += [{"cluster": cluster, **asdict(each)} for each in await asyncio.to_thread(mistakes, mesh)]
    wanted = [each for each in found if namespace in ("", each["namespace"])]
    return sorted(wanted, key=lambda each: (each["severity"] != "error", each["cluster"]))


def pod_stub(row: Row) -> Obj:
    """A pod with the fields that the analysis reads, so that it finds the same proxy."""
    pod = row.summary
    labels = dict(pod.labels) if isinstance(pod, PodSummary) else {}
    proxy = pod.proxy if isinstance(pod, PodSummary) else "none"
    metadata: Obj = {"name": row.name, "namespace": row.namespace, "labels": labels}
    if proxy == "ztunnel":
        metadata["annotations"] = {"ambient.istio.io/redirection": "enabled"}
    elif proxy != "none":
        return {"metadata": metadata, "spec": {"containers": [{"name": "istio-proxy", "args": ["proxy", proxy]}]}}
    return {"metadata": metadata}


async def _objects(view: View, cluster: str, kind: str) -> list[Obj]:
    rows = sorted(view.rows(kind, cluster=cluster), key=lambda row: (row.namespace, row.name))
    return [obj for obj in await view.objects(rows) if obj is not None]


async def _control_plane(view: View, cluster: str) -> Mapping[str, Any]:
    for obj in await _objects(view, cluster, CONTROL_PLANE_CONFIG.name):
        spec = obj.get("spec")
        if isinstance(spec, Mapping):
            return spec
    return {}


def _root_namespace(config: Mapping[str, Any]) -> str:
    mesh_config = config.get("meshConfig")
    inside = mesh_config.get("rootNamespace") if isinstance(mesh_config, Mapping) else None
    return str(config.get("rootNamespace") or inside or ROOT_NAMESPACE)
