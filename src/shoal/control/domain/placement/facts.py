"""Reads the regions, clusters, agents and loads that placement needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database.tables import FLEET, Agent, Cluster, Deployment, Region, Topology
from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.places import read_cluster
from shoal.control.domain.placement.model import ClusterFacts, PlacedLoad, ShardFacts
from shoal.control.domain.silence import outage_of
from shoal.kube import quantity
from shoal.sync.keys import Place

MIB = 1 << 20


@dataclass(slots=True)
class Infrastructure:
    """Regions, clusters and agents as they were read."""

    regions: dict[str, Region] = field(default_factory=dict)  # by id
    named: dict[str, Region] = field(default_factory=dict)  # the same by name
    clusters: dict[str, Cluster] = field(default_factory=dict)  # by id
    agents: dict[Place, Agent] = field(default_factory=dict)

    def region_named(self, name: str) -> Region | None:
        return self.named.get(name)

    def region_name(self, region_id: str) -> str:
        found = self.regions.get(region_id)
        return found.name if found else region_id

    def cluster_name(self, cluster_id: str) -> str:
        found = self.clusters.get(cluster_id)
        return found.name if found else cluster_id

    def region_of_cluster(self, cluster_id: str) -> str:
        found = self.clusters.get(cluster_id)
        return self.region_name(found.region_id) if found else ""


async def read_infrastructure(session: AsyncSession, regions: Collection[str] | None = None) -> Infrastructure:
    """All of it, or only what is in the regions of these names."""
    query = (
        select(Region, Cluster, Agent)
        .outerjoin(Cluster, Cluster.region_id == Region.id)
        .outerjoin(Agent, Agent.cluster_id == Cluster.id)
        .where(Region.workspace_id == FLEET)
    )
    if regions is not None:
        query = query.where(Region.name.in_(regions))
    found = Infrastructure()
    for row in await session.execute(query):
        region: Region = row.Region
        cluster: Cluster | None = row.Cluster
        agent: Agent | None = row.Agent
        found.regions[region.id] = found.named[region.name] = region
        if cluster is not None:
            found.clusters[cluster.id] = cluster
        if agent is not None:
            found.agents[Place(agent.cluster_id, agent.shard)] = agent
    return found


async def read_counts(session: AsyncSession, clusters: Collection[str]) -> dict[Place, int]:
    """How many deployments are placed where."""
    query = (
        select(Topology.cluster_id, Topology.shard, func.count().label("deployments"))
        .where(Topology.cluster_id.in_(clusters))
        .group_by(Topology.cluster_id, Topology.shard)
    )
    return {Place(row.cluster_id, row.shard): row.deployments for row in await session.execute(query)}


async def read_sizes(session: AsyncSession, clusters: Collection[str]) -> dict[str, PlacedLoad]:
    """What the deployments placed on these clusters ask for; only clusters that name a capacity are worth it."""
    if not clusters:
        return {}
    query = (
        select(
            Topology.cluster_id,
            Topology.replicas,
            Topology.autoscaling,
            Topology.overrides,
            Deployment.template["resources"].label("resources"),
        )
        .join(Deployment, Deployment.id == Topology.deployment_id)
        .where(Topology.cluster_id.in_(clusters), Topology.desired_status.in_(("running", "leaving")))
    )
    found: dict[str, PlacedLoad] = {}
    for row in await session.execute(query):
        each = {**(row.resources or {}), **((row.overrides or {}).get("resources") or {})}
        instances = int((row.autoscaling or {}).get("min") or row.replicas) if row.autoscaling else row.replicas
        size = size_of(each, instances, deployments=0)
        found[row.cluster_id] = found.get(row.cluster_id, PlacedLoad()).plus(size)
    return found


def size_of(resources: dict[str, str], replicas: int, *, deployments: int = 1) -> PlacedLoad:
    """What so many instances ask for together."""
    cpu = quantity.parse(str(resources["cpu"])).milli() if resources.get("cpu") else 0
    memory = -(-quantity.parse(str(resources["memory"])).value() // MIB) if resources.get("memory") else 0
    return PlacedLoad(deployments, cpu * replicas, memory * replicas)


def has_capacity(cluster: Cluster) -> bool:
    capacity = cluster.spec.get("capacity") or {}
    return "cpu" in capacity or "memory" in capacity


def cluster_facts(
    infrastructure: Infrastructure, counts: dict[Place, int], sizes: dict[str, PlacedLoad]
) -> list[ClusterFacts]:
    return [_facts(infrastructure, cluster, counts, sizes) for cluster in infrastructure.clusters.values()]


def _facts(
    infrastructure: Infrastructure, cluster: Cluster, counts: dict[Place, int], sizes: dict[str, PlacedLoad]
) -> ClusterFacts:
    spec = read_cluster(Reader(cluster.spec, "spec", []))
    region = infrastructure.regions.get(cluster.region_id)
    shards = tuple(
        ShardFacts(
            name, _agent(infrastructure.agents.get(Place(cluster.id, name))), counts.get(Place(cluster.id, name), 0)
        )
        for name in spec.shards
    )
    placed = sum(count for place, count in counts.items() if place.cluster == cluster.id)
    return ClusterFacts(
        id=cluster.id,
        name=cluster.name,
        region=region.name if region else "",
        platform=region.platform if region else "",
        labels=cluster.labels,
        taints=spec.taints,
        capacity=spec.capacity,
        can_schedule=cluster.can_schedule,
        region_can_schedule=region.can_schedule if region else False,
        shards=shards,
        load=sizes.get(cluster.id, PlacedLoad()).plus(PlacedLoad(placed)),
    )


def _agent(agent: Agent | None) -> str:
    if agent is None:
        return "absent"
    return "lost" if agent.lost else "unreachable" if outage_of(agent) else "joined"


def with_one_more(facts: Sequence[ClusterFacts], place: Place, size: PlacedLoad) -> list[ClusterFacts]:
    """The facts after something was placed."""
    return [
        replace(
            each,
            load=each.load.plus(size),
            shards=tuple(_one_more(each.shards, place.shard)),
        )
        if each.id == place.cluster
        else each
        for each in facts
    ]


def _one_more(shards: Iterable[ShardFacts], name: str) -> Iterable[ShardFacts]:
    return (replace(shard, deployments=shard.deployments + 1) if shard.name == name else shard for shard in shards)
