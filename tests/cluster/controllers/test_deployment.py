"""Deployments against an API server, with the controllers of ReplicaSets and a player of pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shoal.base.clock import Clock, FakeClock
from shoal.client import PatchType, Scope
from shoal.controllers.context import ControllerContext
from shoal.controllers.deployment import wiring as deployments
from shoal.controllers.deployment.model import HASH_LABEL, REVISION, bounds_of
from shoal.controllers.deployment.replicasets import new_replica_set
from shoal.controllers.replicaset import wiring as replica_sets
from shoal.kube.objects import Obj
from shoal.testing.controllers import Play, PodPlayer, rolled_out, running
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually
from shoal.testing.workloads import deployment, template


@asynccontextmanager
async def cluster(player: PodPlayer | None = None, clock: Clock | None = None) -> AsyncIterator[ControllerContext]:
    player = player or PodPlayer()
    adds = [deployments.add, replica_sets.add, player.add]
    async with local_server(clock=clock) as server, running(server, adds, clock=clock) as context:
        yield context


async def patch(context: ControllerContext, **spec: Any) -> None:
    await context.resource("deployments", "apps").patch("web", {"spec": spec}, "default", type=PatchType.STRATEGIC)


async def roll(context: ControllerContext, image: str) -> None:
    containers = [{"name": "main", "image": image}]
    await patch(context, template={"spec": {"containers": containers}})


async def sizes(context: ControllerContext) -> dict[str, int]:
    """Image → replicas."""
    found = (await context.resource("replicasets", "apps").list(Scope(namespace="default"))).items
    return {each["spec"]["template"]["spec"]["containers"][0]["image"]: each["spec"]["replicas"] for each in found}


async def condition(context: ControllerContext, kind: str) -> Obj:
    found = await context.resource("deployments", "apps").get("web", "default")
    return next((c for c in found.get("status", {}).get("conditions") or () if c["type"] == kind), {})


async def test_a_rollout_a_rollback_and_their_history() -> None:
    async with cluster() as context:
        await context.resource("deployments", "apps").create(deployment("web", 4))
        for number, image in enumerate(("app:1", "app:2", "app:3", "app:1"), 1):
            await roll(context, image)
            found = await rolled_out(context, "deployments", "web")
            assert found["metadata"]["annotations"][REVISION] == str(number)
        assert await sizes(context) == {"app:1": 4, "app:2": 0, "app:3": 0}
        assert (await condition(context, "Progressing"))["reason"] == "NewReplicaSetAvailable"
        assert (await condition(context, "Available"))["status"] == "True"
        for each in (await context.resource("pods").list(Scope(namespace="default"))).items:
            assert each["metadata"]["labels"][HASH_LABEL] in each["metadata"]["name"]

        async def shown() -> bool:
            events = (await context.resource("events").list(Scope(namespace="default"))).items
            messages = {e["message"] for e in events if e["reason"] == "ScalingReplicaSet"}
            return any(m.startswith("Scaled up replica set web-") and m.endswith("from 0 to 4") for m in messages)

        await eventually(shown)


async def test_a_rollout_stays_within_its_limits() -> None:
    async with cluster() as context:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 1}}
        await context.resource("deployments", "apps").create(deployment("web", 8, strategy=strategy))
        await rolled_out(context, "deployments", "web")
        worst = {"most": 0, "least": 99}
        cache = context.informer("pods").cache

        def look(_: Any) -> None:
            alive = [each for each in cache if not each["metadata"].get("deletionTimestamp")]
            ready = [each for each in alive if _is_ready(each)]
            worst["most"] = max(worst["most"], len(alive))
            worst["least"] = min(worst["least"], len(ready))

        cache.add_handler(look)
        await roll(context, "app:2")
        await rolled_out(context, "deployments", "web")
        assert worst["most"] <= 10
        assert worst["least"] >= 7


def _is_ready(pod: Obj) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def test_a_rollout_without_progress_is_reported_and_can_be_undone() -> None:
    clock = FakeClock()
    player = PodPlayer(lambda pod: Play.RUNNING if _image(pod) == "broken" else Play.READY)
    async with cluster(player, clock) as context:
        await context.resource("deployments", "apps").create(deployment("web", 4, progressDeadlineSeconds=60))

        async def reported(kind: str, reason: str) -> None:
            async def check() -> bool:
                await clock.advance(0.25)
                return (await condition(context, kind)).get("reason") == reason

            await eventually(check)

        await reported("Progressing", "NewReplicaSetAvailable")
        await roll(context, "broken")
        await reported("Progressing", "ReplicaSetUpdated")
        await clock.advance(30)
        assert (await condition(context, "Progressing"))["reason"] == "ReplicaSetUpdated"
        await clock.advance(40)
        await reported("Progressing", "ProgressDeadlineExceeded")
        assert (await sizes(context))["app:1"] == 3
        await roll(context, "app:1")
        await reported("Progressing", "NewReplicaSetAvailable")

        async def back() -> bool:
            await clock.advance(0.25)
            return await sizes(context) == {"app:1": 4, "broken": 0}

        await eventually(back)


def _image(pod: Obj) -> str:
    found: str = pod["spec"]["containers"][0]["image"]
    return found


async def test_while_paused_only_the_size_changes() -> None:
    async with cluster() as context:
        await context.resource("deployments", "apps").create(deployment("web", 2))
        await rolled_out(context, "deployments", "web")
        await patch(context, paused=True, replicas=3)
        await roll(context, "app:2")

        async def grown() -> bool:
            found = await context.resource("deployments", "apps").get("web", "default")
            status = found["status"]
            return bool(
                status.get("availableReplicas") == 3 and status["observedGeneration"] >= found["metadata"]["generation"]
            )

        await eventually(grown)
        assert await sizes(context) == {"app:1": 3}
        assert (await condition(context, "Progressing"))["reason"] == "DeploymentPaused"
        await patch(context, paused=False)
        await rolled_out(context, "deployments", "web")
        assert await sizes(context) == {"app:1": 0, "app:2": 3}


async def test_recreating_never_runs_two_templates_at_once() -> None:
    async with cluster() as context:
        await context.resource("deployments", "apps").create(deployment("web", 4, strategy={"type": "Recreate"}))
        await rolled_out(context, "deployments", "web")
        mixed: list[set[str]] = []
        cache = context.informer("pods").cache
        cache.add_handler(lambda change: mixed.append({_image(each) for each in cache}))
        await roll(context, "app:2")
        await rolled_out(context, "deployments", "web")
        assert max(map(len, mixed)) == 1
        assert await sizes(context) == {"app:1": 0, "app:2": 4}


async def test_a_name_that_is_taken_is_a_collision_and_another_is_found() -> None:
    async with cluster() as context:
        wanted = deployment("web", 2)
        dry = await context.resource("deployments", "apps").create(wanted, dry_run=True)
        taken = new_replica_set({**dry, "status": {}}, 0, 1, bounds_of(dry))
        del taken["metadata"]["ownerReferences"]
        foreign = {"app": "foreign", HASH_LABEL: taken["metadata"]["labels"][HASH_LABEL]}
        taken["metadata"]["labels"] = foreign
        taken["spec"] |= {"selector": {"matchLabels": foreign}, "template": template("foreign", "other:1")}
        taken["spec"]["template"]["metadata"]["labels"] = foreign
        await context.resource("replicasets", "apps").create(taken)
        await context.resource("deployments", "apps").create(wanted)
        found = await rolled_out(context, "deployments", "web")
        assert found["status"]["collisionCount"] == 1


@pytest.mark.parametrize("limit", [0, 1])
async def test_the_history_is_cut(limit: int) -> None:
    async with cluster() as context:
        await context.resource("deployments", "apps").create(deployment("web", 1, revisionHistoryLimit=limit))
        for image in ("app:1", "app:2", "app:3", "app:4"):
            await roll(context, image)
            await rolled_out(context, "deployments", "web")

        async def cut() -> bool:
            return set(await sizes(context)) == {f"app:{number}" for number in range(4 - limit, 5)}

        await eventually(cut)


async def test_replica_sets_are_adopted_and_kept_by_their_template() -> None:
    async with cluster() as context:
        resource = context.resource("deployments", "apps")
        await resource.create(deployment("web", 2))
        await rolled_out(context, "deployments", "web")
        (old,) = (await context.resource("replicasets", "apps").list(Scope(namespace="default"))).items
        free = {"metadata": {"ownerReferences": None}}
        await context.resource("replicasets", "apps").patch(old["metadata"]["name"], free, "default")

        async def adopted() -> bool:
            (found,) = (await context.resource("replicasets", "apps").list(Scope(namespace="default"))).items
            return bool(found["metadata"].get("ownerReferences")) and bool(
                found["metadata"]["uid"] == old["metadata"]["uid"]
            )

        await eventually(adopted)
        await rolled_out(context, "deployments", "web")


async def test_many_changes_in_a_row_end_with_the_last() -> None:
    async with cluster() as context:
        await context.resource("deployments", "apps").create(deployment("web", 6))
        for number in range(2, 9):
            await roll(context, f"app:{number}")
            await patch(context, replicas=3 + number % 4)
            for _ in range(number * 7):
                await asyncio.sleep(0)
        found = await rolled_out(context, "deployments", "web")
        left = {image: size for image, size in (await sizes(context)).items() if size}
        assert left == {"app:8": found["spec"]["replicas"]}
