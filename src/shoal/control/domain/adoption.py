"""Deployments that ran before the fleet knew of them, and are an app's revision in a region (``adopt``).

A region adopts when the app gets its first instances there; later ``adopt`` means nothing more. What was adopted is
kept with the revision that it is, so the revisions after it are ordinary.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from shoal.control.database import tables
from shoal.control.domain.kinds.app import Adoption, AppSpec
from shoal.control.domain.plan import ADOPTED
from shoal.control.domain.work import PendingWork
from shoal.errors import FieldError, invalid, not_found
from shoal.sync.keys import Place

ABILITY = "adopt"  # of agents, in their heartbeats
UPGRADE = "upgrade it first: shoal agents upgrade"


def newly_adopted(spec: AppSpec, before: Mapping[str, Any] | None) -> dict[int, Adoption]:
    """By index of the topology, what a spec adopts that the one before it did not have in that region."""
    known = {row.get("region") for row in (before or {}).get("topology") or ()}
    return {
        index: row.adopt for index, row in enumerate(spec.topology) if row.adopt is not None and row.region not in known
    }


def faults_of_adoption(
    work: PendingWork, spec: AppSpec, before: Mapping[str, Any] | None, environment: tables.Environment | None
) -> list[FieldError]:
    """Faults that only the fleet shows. Whether the Deployment is there, and may be adopted, its agent finds out."""
    faults: list[FieldError] = []
    for index, adopt in newly_adopted(spec, before).items():
        at, region = f"spec.topology[{index}].adopt", spec.topology[index].region
        cluster = cluster_named(work, region, adopt.cluster)
        if cluster is None:
            fix = f"region {region} has no cluster of that name; shoal get clusters lists them"
            faults.append(not_found(f"{at}.cluster", f"{adopt.cluster}: {fix}"))
        elif old := _too_old(work, cluster):
            faults.append(invalid(f"{at}.cluster", adopt.cluster, old))
        if environment is not None and environment.namespace != adopt.namespace:
            fix = (
                f"the environment's namespace is {environment.namespace}: apply the App in an environment with "
                f"spec.namespace {adopt.namespace}"
            )
            faults.append(invalid(f"{at}.namespace", adopt.namespace, fix))
    return faults


def warn_of_ignored(work: PendingWork, spec: AppSpec, before: Mapping[str, Any] | None) -> None:
    """A region that has instances adopts nothing more."""
    known = {row.get("region"): row.get("adopt") for row in (before or {}).get("topology") or ()}
    for row in spec.topology:
        if row.adopt is not None and row.region in known and known[row.region] != row.adopt.as_json():
            work.warnings.append(
                f"region {row.region} has instances of the app already: {row.adopt.deployment} is not adopted"
            )


def adopted_by(work: PendingWork, spec: AppSpec, regions: Collection[str]) -> dict[str, Any]:
    """What to keep with a revision that gets its instances in these regions."""
    found: dict[str, Any] = {}
    for row in spec.topology:
        if row.adopt is not None and row.region in regions:
            cluster = cluster_named(work, row.region, row.adopt.cluster)
            if cluster is not None:  # the names were checked
                found[row.region] = {**row.adopt.as_json(), "clusterId": cluster.id}
    return found


async def place_of_adopted(work: PendingWork, template: Mapping[str, Any], region: str) -> tuple[Place, dict[str, Any]]:
    """Where a Deployment that is adopted runs, and the reason; an empty place when nothing is adopted in the region."""
    found = (template.get(ADOPTED) or {}).get(region)
    if found is None:
        return Place("", ""), {}
    facts = next((each for each in await work.facts(region) if each.id == found["clusterId"]), None)
    shards = sorted(facts.shards, key=lambda each: (each.agent != "joined", each.name)) if facts else []
    shard = shards[0].name if shards else "default"
    reason = {
        "considered": [found["cluster"]], "refused": {}, "chosen": found["cluster"], "shard": shard, "region": region,
        "because": f"Deployment {found['deployment']}, which it adopts, runs there",
    }  # fmt: skip
    return Place(found["clusterId"], shard), reason


def cluster_named(work: PendingWork, region: str, name: str) -> tables.Cluster | None:
    known = work.infrastructure
    return next(
        (each for each in known.clusters.values() if each.name == name and known.region_name(each.region_id) == region),
        None,
    )


def _too_old(work: PendingWork, cluster: tables.Cluster) -> str:
    """Why the agents of a cluster cannot adopt; empty when they can, or none has said anything yet."""
    states = [agent.state for place, agent in work.infrastructure.agents.items() if place.cluster == cluster.id]
    said = [state for state in states if state and "deployments" in state]
    if said and not any(ABILITY in (state.get("abilities") or ()) for state in said):
        return f"its agent is of a release that cannot adopt Deployments: {UPGRADE}"
    return ""
