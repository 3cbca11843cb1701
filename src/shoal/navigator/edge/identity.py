"""The identity of the cluster: from the join file, completed from the cluster itself."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field

from shoal.base.logs import get_logger
from shoal.client import Client, Scope, TransportError, builtin
from shoal.errors import ApiError, Forbidden, NotFound
from shoal.navigator.edge.config import EdgeJoinFile
from shoal.navigator.edge.mesh.plan import istiod_of

log = get_logger("navigator.edge.identity")

_REGION = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    cluster: str
    metadata: dict[str, str] = field(default_factory=dict)


async def identify(client: Client, join: EdgeJoinFile) -> ClusterIdentity:
    """Without a name in the join file: the mesh's name of the cluster, else the uid of its kube-system namespace. Then
    the cluster must answer; with a name, what it does not say is left out."""
    metadata = {"region": join.region, "environment": join.environment}
    mesh = ""
    try:
        metadata["version"] = (await client.request("GET", "/version")).get("gitVersion", "")
        metadata["region"] = join.region or await _permitted(_region(client))
        mesh = await _permitted(_mesh_id(client))
    except (ApiError, TransportError) as error:
        if not join.cluster:
            raise
        log.warning("the cluster's identity cannot be read", reason=str(error))
    if mesh:
        metadata["mesh_cluster_id"] = mesh
        if join.cluster and mesh != join.cluster:
            log.warning("the mesh calls this cluster by another name", mesh=mesh, cluster=join.cluster)
    cluster = join.cluster or mesh or await _uid(client)
    return ClusterIdentity(cluster=cluster, metadata={name: value for name, value in metadata.items() if value})


async def _permitted(reading: Awaitable[str]) -> str:
    """Empty for an edge that may only read some namespaces."""
    try:
        return await reading
    except Forbidden:
        return ""


async def _region(client: Client) -> str:
    for node in (await client.of(builtin("nodes")).page(limit=1)).items:
        labels = node["metadata"].get("labels") or {}
        for label in _REGION:
            if labels.get(label):
                return str(labels[label])
    return ""


async def _mesh_id(client: Client) -> str:
    deployments = await client.of(builtin("deployments", "apps")).page(Scope(label_selector="app=istiod"), limit=10)
    for deployment in deployments.items:
        istiod = istiod_of(deployment)
        if istiod is not None and istiod.cluster_id:
            return istiod.cluster_id
    return ""


async def _uid(client: Client) -> str:
    found = await client.of(builtin("namespaces")).page(Scope(field_selector="metadata.name=kube-system"), limit=1)
    if not found.items:
        raise NotFound("the cluster has no kube-system namespace to be named after: name it in the join file")
    return str(found.items[0]["metadata"]["uid"])
