"""What the rollout of an app needs of other objects: a route where requests are judged, room for two revisions, and
what checks and notifications need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.control.database import tables
from shoal.control.domain import gateways
from shoal.control.domain.deployments import place_of, resources_of, running_deployments, topology_of
from shoal.control.domain.kinds.app import AppSpec, RegionSpec
from shoal.control.domain.kinds.rollout import rollout_faults, strategy_of
from shoal.control.domain.outbound_needs import faults_outside
from shoal.control.domain.placement.facts import has_capacity, size_of
from shoal.control.domain.placement.model import ClusterFacts, PlacedLoad
from shoal.control.domain.placement.plan import shortage
from shoal.control.domain.plan import needed_instances
from shoal.control.domain.work import PendingWork
from shoal.control.rollout.strategy import BLUE_GREEN, CANARY, Strategy
from shoal.errors import FieldError, invalid

FIELD = "spec.rollout"


async def faults_of_rollout(
    work: PendingWork,
    app: tables.App | None,
    spec: AppSpec,
    raw: Mapping[str, Any],
    environment: tables.Environment | None,
    *,
    is_led_to: bool,
) -> list[FieldError]:
    """Why the app cannot be rolled out as its spec says. ``is_led_to``: a route that leads to it is applied together
    with it."""
    defaults = environment.spec if environment is not None else {}
    faults = rollout_faults(raw, defaults)
    strategy = strategy_of(raw, defaults)
    if faults or not strategy.is_configured or spec.desired == "stopped":
        return faults
    if environment is not None:
        faults += await faults_outside(work, environment.workspace_id, environment.id, strategy)
    if _needs_requests(strategy) and not is_led_to and not await _has_route(work, app):
        why = (
            "an analysis needs requests, and no route leads to the app: apply a route in the same file, or leave the "
            "analysis out (judge: false makes numbers in steps pauses)"
        )
        faults.append(invalid(FIELD, "analysis", why))
    if strategy.kind in (CANARY, BLUE_GREEN):
        faults += await _shortages(work, app, spec, strategy.kind)
    return faults


def _needs_requests(strategy: Strategy) -> bool:
    return strategy.is_judged and any(step.kind == "analysis" for step in strategy.steps)


async def _has_route(work: PendingWork, app: tables.App | None) -> bool:
    return app is not None and bool(await gateways.routes_of_app(work.session, app))


async def _shortages(work: PendingWork, app: tables.App | None, spec: AppSpec, kind: str) -> list[FieldError]:
    """The regions without room for both revisions at full size, where clusters say how much they take."""
    if work.read_facts is None or not any(map(has_capacity, work.infrastructure.clusters.values())):
        return []
    clusters = {each.id: each for each in await work.read_facts()}
    own = await _own_loads(work, app) if app is not None else {}
    found: list[FieldError] = []
    for region in spec.topology:
        both = _both(spec, region)
        used = [clusters[id_] for id_ in own if id_ in clusters and clusters[id_].region == region.region]
        lacks = _lacks(used or [each for each in clusters.values() if each.region == region.region], own, both)
        if lacks:
            why = (
                f"region {region.region} has no room for both revisions, which run at full size until the promotion: "
                f"{lacks}; use strategy rolling, lower replicas or resources, or raise the capacity of the cluster"
            )
            found.append(invalid(FIELD, kind, why))
    return found


def _lacks(clusters: Sequence[ClusterFacts], own: Mapping[str, PlacedLoad], both: PlacedLoad) -> str:
    """What each of these clusters lacks; empty if one of them has room."""
    lacks = {each.name: shortage(each, _without(own.get(each.id, PlacedLoad()), both)) for each in clusters}
    return "; ".join(f"{name}: {lack}" for name, lack in sorted(lacks.items())) if all(lacks.values()) else ""


def _without(placed: PlacedLoad, both: PlacedLoad) -> PlacedLoad:
    """What comes to what the app has placed already."""
    return PlacedLoad(
        both.deployments - placed.deployments,
        both.cpu_millicores - placed.cpu_millicores,
        both.memory_mib - placed.memory_mib,
    )


def _both(spec: AppSpec, region: RegionSpec) -> PlacedLoad:
    resources = {**spec.resources.as_json(), **region.overrides.resources.as_json()}
    one = size_of(resources, region.needed)
    return one.plus(one)


async def _own_loads(work: PendingWork, app: tables.App) -> dict[str, PlacedLoad]:
    """By cluster, what the app has there now."""
    known = {each.id: each for each in await running_deployments(work, app.id)}
    found: dict[str, PlacedLoad] = {}
    for row in await topology_of(work, list(known)):
        if row.desired_status not in ("running", "leaving"):
            continue
        resources = resources_of(known[row.deployment_id].template, row.overrides)
        load = size_of(resources, needed_instances(row.replicas, row.autoscaling))
        at = place_of(row).cluster
        found[at] = found.get(at, PlacedLoad()).plus(load)
    return found
