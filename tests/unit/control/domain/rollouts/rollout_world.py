"""A served app whose rollouts the tests play, agents and gateways included."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fleet_world import ADMIN, World, an_app, doc, ref

from shoal.control.database import tables

CANARY = {"steps": [{"weight": 25}, {"pause": "60s"}, {"weight": 50}, {"pause": {}}], "judge": False}
APP = ref("App", "web")


Action = Callable[[], Awaitable[None]]


async def once(action: Action) -> None:
    await action()


async def play(
    world: World,
    rounds: int = 12,
    *,
    only: tuple[int, ...] | None = None,
    how: Callable[[Action], Awaitable[None]] = once,
) -> None:
    """Agents run what they are told and gateways take their routes, until nothing changes. ``only``: revisions whose
    instances become ready. ``how`` does each of these actions."""
    before: Any = None
    for _ in range(rounds):
        now = (await shares(world), [each.version for each in await world.rows(tables.Rollout)])
        if now == before:
            return
        before = now
        deployments = {row.id: row for row in await world.rows(tables.Deployment)}
        clusters = {row.id: row.name for row in await world.rows(tables.Cluster)}
        for row in await world.rows(tables.Topology):
            count = row.replicas if row.instances is None else row.instances
            ready = only is None or deployments[row.deployment_id].revision in only
            crash = {} if ready else {"status": "failed", "reason": "CrashLoopBackOff", "restarts": 3}
            told: dict[str, Any] = {"only": clusters[row.cluster_id], "count": count, "ready": ready, **crash}
            await how(partial(world.report, row.deployment_id, **told))
        await how(partial(world.report_config, "route"))
        await how(world.fleet.keep_rollouts)


async def served(world: World, **options: Any) -> None:
    await world.apply(an_app(**options))
    await world.report_app()
    await world.apply(doc("Route", "r", {"host": "shop.example.com", "app": "web"}))
    for sentinel in await world.rows(tables.Sentinel):
        await world.report_sentinel(sentinel.id, health="healthy", available=1, desired=1, image="gateway:1")
    await world.report_config("route", "keys")


async def shares(world: World) -> dict[tuple[str, int], tuple[int, int | None]]:
    """By region and revision, weight and told instances."""
    rows = await world.rows(tables.Topology)
    return {(row.reason["region"], row.revision): (row.weight, row.instances) for row in rows}


async def decided(world: World) -> list[str]:
    found = await world.fleet.rollout(ADMIN, APP)
    return [each["action"] for each in found["decisions"]]


async def rollout(world: World) -> dict[str, Any]:
    return await world.fleet.rollout(ADMIN, APP)
