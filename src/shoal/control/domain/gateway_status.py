"""The state of gateways, in pure functions over rows: health, and the reason when it is not what it should be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shoal.control.database import tables
from shoal.control.domain.silence import LOST, silence_of
from shoal.control.domain.status import StatusFacts, place_status
from shoal.sync.keys import Place

GOOD = frozenset({"healthy", "paused"})


def gateway_status(sentinel: tables.Sentinel, desired: tables.Desired | None, facts: StatusFacts) -> dict[str, Any]:
    """A gateway where it is now; ``reason`` is empty when all is well."""
    health, reason = _judge(sentinel, desired, facts)
    return {
        "gateway": sentinel.name,
        "region": facts.regions.get(sentinel.region_id, sentinel.region_id),
        "cluster": facts.clusters.get(sentinel.cluster_id, sentinel.cluster_id),
        "shard": sentinel.shard,
        "health": health,
        "available": sentinel.available_replicas,
        "desired": sentinel.desired_replicas,
        "status": sentinel.deploy_status,
        "address": sentinel.address,
        "reason": reason,
    }


def _judge(sentinel: tables.Sentinel, desired: tables.Desired | None, facts: StatusFacts) -> tuple[str, str]:
    agent = facts.agents.get(Place(sentinel.cluster_id, sentinel.shard))
    silence = silence_of(agent, facts.now)
    if silence is not None and silence.reason == LOST:
        return "unhealthy", f"{silence.reason}: {silence.message}"
    health = sentinel.health
    if silence is not None:
        return health, f"{silence.reason}: {silence.message}"
    observed = (desired.observed if desired else None) or {}
    out = observed.get("takenOut") or []
    serving = [pod for pod in observed.get("stale") or () if pod not in out]
    silent = [
        f"no sign of life in its cluster for 30 s, {what}: {', '.join(pods)}"
        for what, pods in (("serves its last configuration", serving), ("taken out of its Service", out))
        if pods
    ]
    if silent:
        return health, "; ".join(silent)
    found = place_status(desired, facts) if desired is not None else None
    if found is not None and found["state"] == "ApplyFailed":
        return health, f"{found['reason']}: {found['message']}"
    fault = observed.get("fault") or {}
    why = f"; {fault['reason']}: {fault['message']}" if fault else ""
    available, desired_replicas = sentinel.available_replicas, sentinel.desired_replicas
    if health in GOOD and (text := _rolled_out(sentinel, observed)):
        return health, text
    if health not in GOOD or (health != "paused" and fault and available < desired_replicas):
        return health, f"{available} of {desired_replicas} replicas are available{why}"
    if sentinel.deploy_status == "progressing" and health != "paused":
        text = found["message"] if found and found["message"] else "its newest version is being rolled out"
        return health, f"{text}{why}"
    return health, ""


def _rolled_out(sentinel: tables.Sentinel, observed: Mapping[str, Any]) -> str:
    """What a rollout does with it now, and what keeps pods of the other version from being ready; empty where its wave
    has not begun."""
    at = sentinel.rollout or {}
    if not at or not (at["count"] or at["promoted"]):
        return ""
    candidate = observed.get("candidate") or {}
    faults = (each for each in (candidate, observed.get("fault") or {}) if each.get("reason"))
    why = next((f"; {each['reason']}: {each['message']}" for each in faults), "")
    number = f"revision {at['revision']}"
    if at["promoted"]:
        return f"its pods are exchanged for those of {number}{why}"
    return f"{int(candidate.get('ready') or 0)} of {at['count']} pods of {number} are ready beside its own{why}"


def explained(gateways: Iterable[Mapping[str, Any]]) -> list[str]:
    """One sentence for each gateway that is not as it should be."""
    return [
        f"gateway {one['region']} → {one['cluster']}/{one['shard']}: {one['health']}, {one['reason']}"
        for one in gateways
        if one["reason"]
    ]
