"""StatefulSets against an API server: order, identity, claims, updates, restarts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from shoal.client import PatchType, Scope
from shoal.controllers.context import ControllerContext
from shoal.controllers.revisions.plan import HASH_LABEL, new_revision
from shoal.controllers.statefulset import wiring as stateful_sets
from shoal.kube.objects import Obj
from shoal.reconcile import ChangeType
from shoal.testing.controllers import Play, PodPlayer, rolled_out, running
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually
from shoal.testing.workloads import stateful_set

CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


@asynccontextmanager
async def cluster(player: PodPlayer | None = None) -> AsyncIterator[ControllerContext]:
    player = player or PodPlayer()
    async with local_server() as server, running(server, [stateful_sets.add, player.add]) as context:
        yield context


async def change(context: ControllerContext, **spec: Any) -> None:
    await context.resource("statefulsets", "apps").patch("web", {"spec": spec}, "default", type=PatchType.STRATEGIC)


async def roll(context: ControllerContext, image: str) -> None:
    await change(context, template={"spec": {"containers": [{"name": "main", "image": image}]}})


def story(context: ControllerContext) -> list[str]:
    """What happens to pods: who comes, becomes ready, goes."""
    told: list[str] = []

    def tell(change: Any) -> None:
        if change.type is ChangeType.ADDED:
            told.append(f"+{change.key.name}")
        elif change.type is ChangeType.DELETED:
            told.append(f"-{change.key.name}")
        elif _ready(change.new) and not _ready(change.old):
            told.append(f"!{change.key.name}")

    context.informer("pods").cache.add_handler(tell)
    return told


def _ready(pod: Obj) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or ())


async def test_pods_come_go_and_change_in_their_order() -> None:
    async with cluster() as context:
        told = story(context)
        await context.resource("statefulsets", "apps").create(stateful_set("web", 3))
        await rolled_out(context, "statefulsets", "web")
        assert told == ["+web-0", "!web-0", "+web-1", "!web-1", "+web-2", "!web-2"]
        told.clear()
        await roll(context, "app:2")
        await rolled_out(context, "statefulsets", "web")
        assert told == [f"{what}web-{number}" for number in (2, 1, 0) for what in "-+!"]
        told.clear()
        await context.resource("statefulsets", "apps").scale("web", 1, "default")
        await rolled_out(context, "statefulsets", "web")
        assert told == ["-web-2", "-web-1"]


async def test_claims_follow_their_pods_and_outlive_them() -> None:
    async with cluster() as context:
        sets = context.resource("statefulsets", "apps")
        await sets.create(stateful_set("web", 2, volumeClaimTemplates=[CLAIM]))
        await rolled_out(context, "statefulsets", "web")
        pod = await context.resource("pods").get("web-1", "default")
        assert pod["spec"]["hostname"] == "web-1"
        sources = [
            v["persistentVolumeClaim"]["claimName"] for v in pod["spec"]["volumes"] if "persistentVolumeClaim" in v
        ]
        assert sources == ["data-web-1"]
        await sets.scale("web", 0, "default")
        await rolled_out(context, "statefulsets", "web")
        claims = (await context.resource("persistentvolumeclaims").list(Scope(namespace="default"))).items
        assert sorted(each["metadata"]["name"] for each in claims) == ["data-web-0", "data-web-1"]


async def test_claims_get_owners_by_the_retention_policy() -> None:
    async with cluster() as context:
        policy = {"whenScaled": "Delete", "whenDeleted": "Delete"}
        made = stateful_set("web", 2, volumeClaimTemplates=[CLAIM], persistentVolumeClaimRetentionPolicy=policy)
        await context.resource("statefulsets", "apps").create(made)
        await rolled_out(context, "statefulsets", "web")

        async def owners(name: str) -> list[str]:
            claim = await context.resource("persistentvolumeclaims").get(name, "default")
            return [each["kind"] for each in claim["metadata"].get("ownerReferences") or ()]

        assert await owners("data-web-1") == ["StatefulSet"]
        await context.resource("statefulsets", "apps").scale("web", 1, "default")
        await rolled_out(context, "statefulsets", "web")
        assert await owners("data-web-1") == ["Pod"]  # with it the garbage collector takes the claim
        assert await owners("data-web-0") == ["StatefulSet"]


async def test_a_partition_stages_a_rollout_and_revisions_are_kept() -> None:
    async with cluster() as context:
        sets = context.resource("statefulsets", "apps")
        await sets.create(stateful_set("web", 3))
        await rolled_out(context, "statefulsets", "web")
        await change(context, updateStrategy={"rollingUpdate": {"partition": 2}})
        await roll(context, "app:2")

        async def staged() -> bool:
            status = (await sets.get("web", "default"))["status"]
            return bool(status.get("updatedReplicas") == 1 and status.get("readyReplicas") == 3)

        await eventually(staged)
        status = (await sets.get("web", "default"))["status"]
        assert status["currentRevision"] != status["updateRevision"]
        await change(context, updateStrategy={"rollingUpdate": {"partition": 0}})
        found = await rolled_out(context, "statefulsets", "web")
        assert found["status"]["currentRevision"] == found["status"]["updateRevision"]
        revisions = (await context.resource("controllerrevisions", "apps").list(Scope(namespace="default"))).items
        assert sorted(each["revision"] for each in revisions) == [1, 2]
        await roll(context, "app:1")
        await rolled_out(context, "statefulsets", "web")
        revisions = (await context.resource("controllerrevisions", "apps").list(Scope(namespace="default"))).items
        assert sorted(each["revision"] for each in revisions) == [2, 3]


async def test_one_that_is_being_deleted_is_left_alone() -> None:
    async with cluster() as context:
        sets = context.resource("statefulsets", "apps")
        await sets.create(stateful_set("web", 2, about={"finalizers": ["example.io/hold"]}))
        await rolled_out(context, "statefulsets", "web")
        await sets.delete("web", "default")
        await context.resource("pods").delete("web-1", "default")
        await eventually(lambda: len(context.informer("pods").cache) == 1)
        await sets.patch("web", {"spec": {"replicas": 5}}, "default")
        await sets.create(stateful_set("other", 1))
        await rolled_out(context, "statefulsets", "other")  # whatever was to happen has happened by now
        assert sorted(key.name for key in context.informer("pods").cache.keys()) == ["other-0", "web-0"]


async def test_a_revisions_name_that_is_taken_is_a_collision() -> None:
    async with cluster() as context:
        made = stateful_set("web", 1)
        dry = await context.resource("statefulsets", "apps").create(made, dry_run=True)
        taken = new_revision(dry, {}, 1, 0, HASH_LABEL)
        foreign = {"name": taken["metadata"]["name"], "namespace": "default"}
        await context.resource("controllerrevisions", "apps").create({**taken, "metadata": foreign, "data": {"a": "b"}})
        await context.resource("statefulsets", "apps").create(made)
        found = await rolled_out(context, "statefulsets", "web")
        assert found["status"]["collisionCount"] == 1
        assert found["status"]["updateRevision"] != foreign["name"]


async def test_the_history_of_revisions_is_cut() -> None:
    async with cluster() as context:
        await context.resource("statefulsets", "apps").create(stateful_set("web", 1, revisionHistoryLimit=2))
        for number in range(1, 7):
            await roll(context, f"app:{number}")
            await rolled_out(context, "statefulsets", "web")

        async def cut() -> bool:
            found = (await context.resource("controllerrevisions", "apps").list(Scope(namespace="default"))).items
            return sorted(each["revision"] for each in found) == [4, 5, 6]

        await eventually(cut)


async def test_a_failed_pod_comes_back_under_its_name() -> None:
    player = PodPlayer()
    async with cluster(player) as context:
        await context.resource("statefulsets", "apps").create(stateful_set("web", 2))
        await rolled_out(context, "statefulsets", "web")
        first = await context.resource("pods").get("web-0", "default")
        uid = first["metadata"]["uid"]
        player.play = lambda pod: Play.FAILED if pod["metadata"]["uid"] == uid else Play.READY
        player.replay()

        async def back() -> bool:
            found = await context.resource("pods").get("web-0", "default")
            return found["metadata"]["uid"] != uid and _ready(found)

        await eventually(back)
        await rolled_out(context, "statefulsets", "web")


async def test_parallel_pods_do_not_wait_for_each_other() -> None:
    player = PodPlayer(lambda pod: Play.PENDING)
    async with cluster(player) as context:
        await context.resource("statefulsets", "apps").create(stateful_set("web", 20, podManagementPolicy="Parallel"))
        await eventually(lambda: len(context.informer("pods").cache) == 20)
        player.play = lambda pod: Play.READY
        player.replay()
        await rolled_out(context, "statefulsets", "web")


async def test_another_pod_with_the_name_is_reported_and_waited_for() -> None:
    async with cluster() as context:
        stranger = {
            "metadata": {"name": "web-0", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        await context.resource("pods").create(stranger)
        await context.resource("statefulsets", "apps").create(stateful_set("web", 1))

        async def reported() -> bool:
            events = (await context.resource("events").list(Scope(namespace="default"))).items
            return any("Create Pod web-0 in StatefulSet web failed error" in each["message"] for each in events)

        await eventually(reported)
        await context.resource("pods").delete("web-0", "default")
        await rolled_out(context, "statefulsets", "web")
