"""Where a deployment of a region goes: clusters that may not take it are refused, each with the reason; of the others

1. the one it runs on already,
2. the one where the environment's gateway is,
3. one without a taint that prefers others, with an agent that has joined,
4. the least loaded, measured against its capacity; by name when that does not decide.

The order of the clusters given does not matter. A lost agent refuses its shard, unless the deployment runs there and
no other place takes it: the desired state then waits for the agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from shoal.control.domain.kinds.app import Toleration
from shoal.control.domain.kinds.places import Taint
from shoal.control.domain.placement.expressions import refusal as expression_refusal
from shoal.control.domain.placement.model import (
    SILENT,
    ClusterFacts,
    PlacedLoad,
    Placement,
    PlacementRequest,
    ShardFacts,
)
from shoal.sync.keys import Place

# A cluster that says nothing of its capacity counts as this large when loads are compared.
_USUAL = PlacedLoad(deployments=10_000, cpu_millicores=1_000_000, memory_mib=4_000_000)


def place(want: PlacementRequest, clusters: Sequence[ClusterFacts]) -> Placement:
    """Choose a place, or return the reason why there is none."""
    here = sorted((each for each in clusters if each.region == want.region), key=lambda each: each.name)
    refused = {cluster.name: why for cluster in here if (why := refusal(want, cluster))}
    allowed = [cluster for cluster in here if cluster.name not in refused]
    chosen = min((_ranked(want, each) for each in allowed), default=None, key=lambda found: found[0])
    reason: dict[str, Any] = {"considered": [cluster.name for cluster in here], "refused": refused}
    if chosen is None:
        stays = _waiting(want, here, refused)
        if stays:
            return Placement(
                want.current, {**reason, "chosen": stays, "because": f"it runs there, but {refused[stays]}"}
            )
        because = "no cluster accepts it" if here else f"region {want.region} has no cluster"
        return Placement(None, {**reason, "chosen": "", "because": because})
    _, cluster, shard = chosen
    return Placement(
        Place(cluster.id, shard.name),
        {
            **reason,
            "chosen": cluster.name,
            "shard": shard.name,
            "because": _because(want, cluster, shard, len(allowed)),
            "load": {each.name: round(load_of(each, PlacedLoad()), 4) for each in allowed},
        },
    )


def refusal(want: PlacementRequest, cluster: ClusterFacts) -> str:
    """Why this cluster cannot take it; empty when it can."""
    if not cluster.region_can_schedule:
        return f"region {cluster.region} accepts no new deployments"
    if not cluster.can_schedule:
        return "the cluster accepts no new deployments"
    missing = [f"{key}={value}" for key, value in sorted(want.labels.items()) if cluster.labels.get(key) != value]
    if missing:
        return f"labels do not match: {', '.join(missing)}"
    for taint in cluster.taints:
        if taint.effect == "NoSchedule" and not tolerated(taint, want.tolerations):
            return f"taint {taint.key}={taint.value} is not tolerated"
    if want.cel and (why := expression_refusal(want.cel, as_value(cluster), want.app)):
        return why
    if not _is_current(want, cluster) and (why := shortage(cluster, want.size)):
        return why
    if not cluster.shards:
        return "the cluster has no shards"
    if all(shard.agent in SILENT for shard in cluster.shards):
        return SILENT[cluster.shards[0].agent]
    return ""


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(
        (not each.effect or each.effect == taint.effect)
        and (
            (each.operator == "Exists" and each.key in ("", taint.key))
            or (each.operator == "Equal" and each.key == taint.key and each.value == taint.value)
        )
        for each in tolerations
    )


def load_of(cluster: ClusterFacts, more: PlacedLoad) -> float:
    """The fullest of its dimensions, 1.0 being full."""
    used, capacity = cluster.load.plus(more), cluster.capacity
    return max(
        used.deployments / (capacity.deployments or _USUAL.deployments),
        used.cpu_millicores / (capacity.cpu_millicores or _USUAL.cpu_millicores),
        used.memory_mib / (capacity.memory_mib or _USUAL.memory_mib),
    )


def as_value(cluster: ClusterFacts) -> dict[str, Any]:
    """The cluster as expressions see it; a capacity that is not given is 0."""
    capacity, load = cluster.capacity, cluster.load
    return {
        "name": cluster.name,
        "region": cluster.region,
        "platform": cluster.platform,
        "labels": dict(cluster.labels),
        "shards": [shard.name for shard in cluster.shards],
        "capacity": {
            "cpu": capacity.cpu_millicores or 0,
            "memory": capacity.memory_mib or 0,
            "deployments": capacity.deployments or 0,
        },
        "used": {"cpu": load.cpu_millicores, "memory": load.memory_mib, "deployments": load.deployments},
    }


def shortage(cluster: ClusterFacts, more: PlacedLoad) -> str:
    """What a cluster would have too little of with so much more; empty if it has room."""
    after, capacity = cluster.load.plus(more), cluster.capacity
    for name, used, limit in (
        ("deployments", after.deployments, capacity.deployments),
        ("cpu", after.cpu_millicores, capacity.cpu_millicores),
        ("memory", after.memory_mib, capacity.memory_mib),
    ):
        if limit is not None and used > limit:
            return f"not enough {name}: {used} of {limit} would be used"
    return ""


def _is_current(want: PlacementRequest, cluster: ClusterFacts) -> bool:
    return want.current is not None and want.current.cluster == cluster.id


def _ranked(want: PlacementRequest, cluster: ClusterFacts) -> tuple[tuple[Any, ...], ClusterFacts, ShardFacts]:
    shards = [shard for shard in cluster.shards if shard.agent not in SILENT]
    shard = min(shards, key=lambda each: _shard_rank(want, cluster, each))
    avoided = any(
        taint.effect == "PreferNoSchedule" and not tolerated(taint, want.tolerations) for taint in cluster.taints
    )
    rank = (
        not _is_current(want, cluster),
        cluster.id != want.home,
        avoided,
        all(each.agent != "joined" for each in cluster.shards),
        load_of(cluster, PlacedLoad()),
        cluster.name,
    )
    return rank, cluster, shard


def _shard_rank(want: PlacementRequest, cluster: ClusterFacts, shard: ShardFacts) -> tuple[Any, ...]:
    return (want.current != Place(cluster.id, shard.name), shard.agent != "joined", shard.deployments, shard.name)


def _because(want: PlacementRequest, cluster: ClusterFacts, shard: ShardFacts, candidates: int) -> str:
    if want.current == Place(cluster.id, shard.name):
        return "it already runs there"
    if candidates == 1:
        return "only this cluster accepts it"
    if cluster.id == want.home:
        return "the environment's gateway is there"
    return f"least load of {candidates} clusters"


def _waiting(want: PlacementRequest, here: Sequence[ClusterFacts], refused: dict[str, str]) -> str:
    """The cluster it runs on, when nothing but the silence of it speaks against it; empty otherwise."""
    for cluster in here:
        if _is_current(want, cluster) and refused.get(cluster.name) in SILENT.values():
            return cluster.name
    return ""
