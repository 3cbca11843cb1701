"""Routes as gateways need them: apps become the deployments that serve them now. Pure, but for reading the rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database.tables import App, Deployment


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


def resolve_route(
    spec: Mapping[str, Any], live: Mapping[str, RoutedDeployment], pinned: Mapping[str, RoutedDeployment]
) -> dict[str, Any]:
    """The stored spec of a route with deployments in place of apps. ``live`` is by app, ``pinned`` by deployment's id.

    An app without a live deployment has no target: its share is kept, so that requests are refused rather than all
    sent elsewhere."""
    named = [{"app": spec["app"]}] if spec.get("app") else list(spec.get("backends") or ())
    found = {key: value for key, value in spec.items() if key not in ("app", "backends", "mirror")}
    if named:
        found["backends"] = [
            {
                "app": backend["app"],
                "weight": backend.get("weight", 100),
                "target": _target(backend, live, pinned),
            }
            for backend in named
        ]
    mirror = spec.get("mirror")
    if mirror and mirror.get("app") in live:
        found["mirror"] = {"percent": mirror.get("percent", 100), "target": live[mirror["app"]].as_json()}
    return found


def _target(
    backend: Mapping[str, Any], live: Mapping[str, RoutedDeployment], pinned: Mapping[str, RoutedDeployment]
) -> dict[str, Any] | None:
    pin = backend.get("deployment")
    target = pinned.get(pin) if pin else live.get(backend["app"])
    return target.as_json() if target else None


async def read_targets(
    session: AsyncSession, environment_ids: Collection[str]
) -> dict[str, tuple[dict[str, RoutedDeployment], dict[str, RoutedDeployment]]]:
    """By environment: the live deployment of each app, and every running deployment by id."""
    rows = await session.execute(
        select(App.name, App.live_deployment_id, Deployment)
        .join(App, App.id == Deployment.app_id)
        .where(Deployment.environment_id.in_(environment_ids), Deployment.desired_state == "running")
    )
    found: dict[str, tuple[dict[str, RoutedDeployment], dict[str, RoutedDeployment]]] = {
        id_: ({}, {}) for id_ in environment_ids
    }
    for row in rows:
        deployment: Deployment = row.Deployment
        live, pinned = found[deployment.environment_id]
        target = pinned[deployment.id] = RoutedDeployment(
            deployment=deployment.id,
            namespace=deployment.namespace,
            name=deployment.k8s_name,
            port=int(deployment.template.get("port") or 0),
            protocol=str(deployment.template.get("protocol") or "http1"),
        )
        if deployment.id == row.live_deployment_id:
            live[row.name] = target
    return found
