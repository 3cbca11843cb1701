"""Routes as gateways need them: apps become the deployments that serve them in the gateway's region. Pure, but for
reading the rows.

A region in which no revision gets requests leads to the revision that the other regions give most to: its gateway sends
the requests there. An app without instances anywhere leads to its newest revision, so that gateways answer that it has
none. In the regions that may get such requests, routes keep an old revision without weight until it is
removed, so that their gateways still know it.

While an app is rolled out, its candidate may have *extras* in a region besides its weight: a header or cookie by which
testers reach it, a percent of the requests that is copied to it, and a preview host. They hold for every share of the
app that a route gives, and not for backends that are pinned to a deployment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import case, select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database.tables import App, Deployment, Environment, Sentinel, Topology
from shoal.control.domain.plan import needed_instances
from shoal.control.rollout.model import Lead
from shoal.control.rollout.plan import led_to


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedDeployment:
    """A deployment that takes requests, as its cluster knows it."""

    deployment: str
    namespace: str
    name: str
    port: int
    protocol: str

    def as_json(self) -> dict[str, Any]:
        return {
            "deployment": self.deployment,
            "namespace": self.namespace,
            "name": self.name,
            "port": self.port,
            "protocol": self.protocol,
        }


class RoutedShare(NamedTuple):
    """A revision of an app, and its percent of the app's requests."""

    target: RoutedDeployment
    weight: int
    extras: Mapping[str, Any] | None = None


TESTED_BY = ("header", "cookie")
_NOTHING: Sequence[RoutedShare | None] = (None,)
Shares = Mapping[str, Sequence[RoutedShare]]  # by app


@dataclass(slots=True)
class RouteTargets:
    """Where the routes of an environment may lead."""

    pinned: dict[str, RoutedDeployment] = field(default_factory=dict)  # every running deployment, by id
    elsewhere: dict[str, list[RoutedShare]] = field(default_factory=dict)  # by app: where no region is named below
    regions: dict[str, dict[str, list[RoutedShare]]] = field(default_factory=dict)  # by region and app

    def in_region(self, region_id: str) -> Shares:
        return {**self.elsewhere, **self.regions.get(region_id, {})}


def resolve_route(spec: Mapping[str, Any], live: Shares, pinned: Mapping[str, RoutedDeployment]) -> dict[str, Any]:
    """The stored spec of a route with deployments in place of apps. ``live`` is by app, ``pinned`` by deployment's id.

    An app without a live deployment has no target: its share is kept, so that requests are refused rather than all
    sent elsewhere. Where an app has several revisions, all weights of the route are multiplied by 100."""
    named = [{"app": spec["app"]}] if spec.get("app") else list(spec.get("backends") or ())
    found = {key: value for key, value in spec.items() if key not in ("app", "backends", "mirror")}
    shares: list[Sequence[RoutedShare | None]] = [_shares(backend, live, pinned) for backend in named]
    factor = 1 if all(len(each) < 2 for each in shares) else 100
    if named:
        found["backends"] = [
            {
                "app": backend["app"],
                "weight": backend.get("weight", 100) * (share.weight * factor // 100 if share else factor),
                "target": share.target.as_json() if share else None,
            }
            for backend, each in zip(named, shares, strict=True)
            for share in (each or _NOTHING)
        ]
    mirror = spec.get("mirror")
    if mirror and live.get(mirror.get("app")):
        most = max(live[mirror["app"]], key=lambda each: each.weight)
        found["mirror"] = {"percent": mirror.get("percent", 100), "target": most.target.as_json()}
    return found


def resolve_extras(spec: Mapping[str, Any], live: Shares) -> dict[str, Any]:
    """What the gateways of a region do for candidates among the apps of a route, besides weights; empty without any.

    A tester's request goes to the candidate whatever the weights are, those of the route included. Copies are made of
    all requests of the route, so the percent is multiplied by the share that the route gives to the app."""
    named = [{"app": spec["app"]}] if spec.get("app") else list(spec.get("backends") or ())
    total = sum(backend.get("weight", 100) for backend in named)
    found: dict[str, list[dict[str, Any]]] = {"testers": [], "mirrors": [], "previews": []}
    for backend in named:
        weight = backend.get("weight", 100)
        if backend.get("deployment") or not weight:
            continue
        for share in live.get(backend["app"], ()):
            extras, target = share.extras or {}, share.target.as_json()
            found["testers"] += [{by: extras[by], "target": target} for by in TESTED_BY if extras.get(by)]
            if percent := extras.get("mirror"):
                found["mirrors"].append({"percent": percent * weight / total, "target": target})
            if host := extras.get("previewHost"):
                found["previews"].append({"host": host, "target": target})
    return {name: each for name, each in found.items() if each}


def _shares(backend: Mapping[str, Any], live: Shares, pinned: Mapping[str, RoutedDeployment]) -> Sequence[RoutedShare]:
    pin = backend.get("deployment")
    if pin:
        return [RoutedShare(pinned[pin], 100)] if pin in pinned else []
    return live.get(backend["app"], [])


async def read_targets(session: AsyncSession, environment_ids: Collection[str]) -> dict[str, RouteTargets]:
    """By environment."""
    rows = await session.execute(
        select(
            App.name, App.revision.label("newest"), Deployment, Topology.region_id, Topology.revision,
            *_shares_of(Topology.weight, Topology.routed), Topology.replicas, Topology.autoscaling,
            Topology.extras,
        )
        .join(App, App.id == Deployment.app_id)
        .join(Topology, Topology.deployment_id == Deployment.id)
        .where(Deployment.environment_id.in_(environment_ids), Deployment.desired_state == "running")
        .order_by(Deployment.app_id, Deployment.revision.desc(), Topology.id)
    )  # fmt: skip
    with_gateways = await _gateway_regions(session, environment_ids)
    found = {id_: RouteTargets() for id_ in environment_ids}
    apps: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        deployment: Deployment = row.Deployment
        found[deployment.environment_id].pinned[deployment.id] = RoutedDeployment(
            deployment=deployment.id,
            namespace=deployment.namespace,
            name=deployment.k8s_name,
            port=int(deployment.template.get("port") or 0),
            protocol=str(deployment.template.get("protocol") or "http1"),
        )
        apps.setdefault((deployment.environment_id, row.name), []).append(row)
    for (environment_id, name), known in apps.items():
        _add_app(found[environment_id], name, known, with_gateways.get(environment_id, set()))
    return found


def _shares_of(weight: Any, routed: Any) -> list[Any]:
    """A control plane of an earlier version writes no weights: with it the live revision gets everything."""
    is_unwritten = (Topology.revision == 0) & (Deployment.id == App.live_deployment_id)
    return [case((is_unwritten, 100), else_=each).label(each.key) for each in (weight, routed)]


def _add_app(targets: RouteTargets, name: str, rows: Sequence[Any], with_gateways: Collection[str]) -> None:
    """``rows`` are those of one app, newest deployment first."""
    serving = {row.region_id for row in rows if row.weight}
    leads = led_to(
        Lead(row.Deployment.id, row.revision or row.Deployment.revision, row.routed)
        for row in rows
        if needed_instances(row.replicas, row.autoscaling)
    )
    if not leads and not any(needed_instances(row.replicas, row.autoscaling) for row in rows):
        leads = rows[0].Deployment.id  # the app is known and has no instance, which is not the same as no route
    if leads:
        targets.elsewhere[name] = [RoutedShare(targets.pinned[leads], 100)]
    is_known_elsewhere = any(region not in serving for region in with_gateways)
    for row in rows:
        if row.region_id not in serving:
            continue
        shares = targets.regions.setdefault(row.region_id, {}).setdefault(name, [])
        is_old = (row.revision or row.Deployment.revision) != row.newest
        target = targets.pinned[row.Deployment.id]
        is_known = row.weight or row.extras or (is_old and is_known_elsewhere)
        if is_known and all(each.target != target for each in shares):
            shares.append(RoutedShare(target, row.weight, row.extras))  # of a move under way there are two rows


async def _gateway_regions(session: AsyncSession, environment_ids: Collection[str]) -> dict[str, set[str]]:
    """By environment, the regions in which gateways may serve it."""
    rows = await session.execute(
        select(Environment.id, Sentinel.region_id)
        .join(Sentinel, Sentinel.workspace_id == Environment.workspace_id)
        .where(Environment.id.in_(environment_ids), Sentinel.environment_id.in_((Environment.id, "")))
    )
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row.id, set()).add(row.region_id)
    return found
