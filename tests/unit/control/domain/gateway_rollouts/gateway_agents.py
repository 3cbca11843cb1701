"""Gateways of two regions whose agents the tests play: they run what they are told, as far as it comes up."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fleet_world import ADMIN, World, an_app, doc, ref

from shoal.control.database import tables
from shoal.control.database.traffic import SAMPLE_MS, gateway_version

ENVIRONMENT = ref("Environment", "prod")
ROUTE = {"host": "shop.example", "app": "web"}
CRASHED = {"restarts": 3, "reason": "CrashLoopBackOff", "message": "exit code 1"}
BEFORE_5_MS = 4  # bucket


async def gateways(world: World) -> dict[str, tables.Sentinel]:
    return {each.name: each for each in await world.rows(tables.Sentinel)}


async def images(world: World) -> dict[str, str]:
    return {name: each.image for name, each in (await gateways(world)).items()}


async def told(world: World) -> dict[str, tuple[int, int]]:
    """By region, pods of its own and of the candidate."""
    return {
        name: ((each.rollout or {}).get("kept", each.desired_replicas), (each.rollout or {}).get("count", 0))
        for name, each in (await gateways(world)).items()
    }


async def report(world: World, name: str, *, bad: Collection[str] = (), **observed: Any) -> None:
    """An agent has done what it was told; pods of the images ``bad`` crash."""
    sentinel = (await gateways(world))[name]
    at = sentinel.rollout or {}
    kept, image = at.get("kept", sentinel.desired_replicas), sentinel.image or "agent:1"
    comes_up = image not in bad
    said: dict[str, Any] = {
        "desired": kept, "available": kept if comes_up else 0, "health": "healthy", "splits": True,
        "image": image if comes_up else "",
        **({} if comes_up else {"fault": {"reason": CRASHED["reason"], "message": CRASHED["message"]}}),
    }  # fmt: skip
    if count := at.get("count", 0):
        is_bad = at["image"] in bad
        said["candidate"] = {
            "revision": at["revision"], "pods": count, "ready": 0 if is_bad else count,
            **(CRASHED if is_bad else {"restarts": 0, "reason": "", "message": ""}),
        }  # fmt: skip
    await world.report_sentinel(sentinel.id, **(said | observed))


async def play(world: World, rounds: int = 20, **options: Any) -> None:
    """Agents report until nothing changes."""
    before: Any = None
    for _ in range(rounds):
        now = (await told(world), await images(world), [each.version for each in await world.rows(tables.Rollout)])
        if now == before:
            return
        before = now
        for name in await gateways(world):
            await report(world, name, **options)
        await world.fleet.keep_rollouts()


async def two_gateways(world: World, **sentinel: Any) -> None:
    if sentinel:
        await world.apply(doc("Environment", "prod", {"sentinel": sentinel}))
    await world.apply(an_app(regions=("eu", "us")))
    await world.apply(doc("Route", "front", ROUTE))
    await world.report_app()
    await play(world)


async def changed(world: World, image: str, **options: Any) -> None:
    found = (await world.fleet.get(ADMIN, ENVIRONMENT))["spec"].get("sentinel") or {}
    others = {name: value for name, value in found.items() if name != "image"}
    wanted = {**others, **({"image": image} if image else {})}
    await world.apply(doc("Environment", "prod", {"sentinel": wanted} if wanted else {}), **options)


async def rollout(world: World, number: int = 0) -> dict[str, Any]:
    return await world.fleet.rollout(ADMIN, ENVIRONMENT, number)


async def decided(world: World) -> list[str]:
    return [each["action"] for each in (await rollout(world))["decisions"]]


async def seconds(world: World, count: int, **requests: dict[int, tuple[int, int]]) -> None:
    """Time passes, and gateways tell of these requests in every 5 s of it: by region, of each revision (0: of what it
    was before) how many there were and how many of them failed."""
    regions = {row.name: row.id for row in await world.rows(tables.Region)}
    environment = (await world.rows(tables.Environment))[0].id
    for _ in range(count // 5):
        await world.clock.advance(5)
        now = world.databases.of("default").time.now_ms()
        at = now - now % SAMPLE_MS - SAMPLE_MS
        async with world.databases.of("default").transaction() as tx:
            for name, counted in requests.items():
                shown = {
                    gateway_version(revision): {
                        "codes": [0, total - failed, 0, 0, failed], "times": [BEFORE_5_MS, total], "latencyMs": total * 5,
                    }
                    for revision, (total, failed) in counted.items()
                }  # fmt: skip
                tx.session.add(
                    tables.Traffic(
                        environment_id=environment, from_at=at, span_ms=SAMPLE_MS, region_id=regions[name],
                        workspace_id="default", deployments=shown,
                    )
                )  # fmt: skip
        counts = {"pod": {"until": at + SAMPLE_MS}}
        for name in await gateways(world):
            await report(world, name, counted=counts)
        await world.fleet.keep_rollouts()
