"""DaemonSets against an API server: added, deleted and changed nodes; updates; failed pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from shoal.base.clock import Clock, FakeClock
from shoal.client import PatchType, Scope
from shoal.controllers.context import ControllerContext
from shoal.controllers.daemonset import wiring as daemon_sets
from shoal.kube.objects import Obj
from shoal.testing.controllers import Play, PodPlayer, rolled_out, running
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually
from shoal.testing.workloads import daemon_set, node


@asynccontextmanager
async def cluster(
    *nodes: Obj, player: PodPlayer | None = None, clock: Clock | None = None
) -> AsyncIterator[ControllerContext]:
    player = player or PodPlayer()
    async with (
        local_server(clock=clock) as server,
        running(server, [daemon_sets.add, player.add], clock=clock) as context,
    ):
        for each in nodes:
            await add_node(context, each)
        yield context


async def add_node(context: ControllerContext, made: Obj) -> None:
    """No node lifecycle controller runs here that would take away the taint of a new node."""
    await context.resource("nodes").create(made)
    taints = (made.get("spec") or {}).get("taints")
    await context.resource("nodes").patch(made["metadata"]["name"], {"spec": {"taints": taints}})


async def placed(context: ControllerContext, wanted: dict[str, int]) -> None:
    """Wait until the nodes have so many pods that stay."""

    async def check() -> bool:
        found: dict[str, int] = {}
        for each in (await context.resource("pods").list(Scope(namespace="default"))).items:
            if not each["metadata"].get("deletionTimestamp"):
                name = each["spec"].get("nodeName", "")
                found[name] = found.get(name, 0) + 1
        assert found == wanted, found
        return True

    await eventually(check)


async def roll(context: ControllerContext, image: str, **spec: Any) -> None:
    change = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}, **spec}}
    await context.resource("daemonsets", "apps").patch("web", change, "default", type=PatchType.STRATEGIC)


async def test_every_node_that_fits_has_one() -> None:
    tainted = node("c", taints=[{"key": "k", "effect": "NoSchedule"}])
    async with cluster(node("a", {"disk": "ssd"}), node("b"), tainted) as context:
        sets = context.resource("daemonsets", "apps")
        await sets.create(daemon_set("web"))
        found = await rolled_out(context, "daemonsets", "web")
        assert found["status"]["desiredNumberScheduled"] == 2
        await placed(context, {"a": 1, "b": 1})
        await add_node(context, node("d"))
        await placed(context, {"a": 1, "b": 1, "d": 1})
        await context.resource("nodes").patch("c", {"spec": {"taints": None}})
        await placed(context, {"a": 1, "b": 1, "c": 1, "d": 1})
        await sets.patch("web", {"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}}, "default")
        await placed(context, {"a": 1})
        await context.resource("nodes").patch("b", {"metadata": {"labels": {"disk": "ssd"}}})
        await placed(context, {"a": 1, "b": 1})
        await rolled_out(context, "daemonsets", "web")


async def test_a_cordoned_node_keeps_its_daemon_and_a_no_execute_taint_does_not() -> None:
    async with cluster(node("a"), node("b")) as context:
        await context.resource("daemonsets", "apps").create(daemon_set("web"))
        await placed(context, {"a": 1, "b": 1})
        cordon = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
        await context.resource("nodes").patch("a", {"spec": {"unschedulable": True, "taints": cordon}})
        drain = [{"key": "maintenance", "effect": "NoExecute"}]
        await context.resource("nodes").patch("b", {"spec": {"taints": drain}})
        await placed(context, {"a": 1})

        async def counted() -> bool:
            found = await context.resource("daemonsets", "apps").get("web", "default")
            return bool(found["status"]["desiredNumberScheduled"] == 1)

        await eventually(counted)


async def test_updates_roll_over_the_nodes_with_and_without_surge() -> None:
    async with cluster(*(node(f"n{number}") for number in range(5))) as context:
        await context.resource("daemonsets", "apps").create(daemon_set("web"))
        await rolled_out(context, "daemonsets", "web")
        least = [99]
        cache = context.informer("pods").cache

        def look(_: Any) -> None:
            nodes = {each["spec"].get("nodeName") for each in cache if _serves(each)}
            least[0] = min(least[0], len(nodes))

        cache.add_handler(look)
        await roll(context, "app:2")
        await rolled_out(context, "daemonsets", "web")
        assert least[0] == 4
        least[0] = 99
        surge = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 2}}
        await roll(context, "app:3", updateStrategy=surge)
        await rolled_out(context, "daemonsets", "web")
        assert least[0] == 5
        await placed(context, {f"n{number}": 1 for number in range(5)})
        revisions = (await context.resource("controllerrevisions", "apps").list(Scope(namespace="default"))).items
        assert sorted(each["revision"] for each in revisions) == [1, 2, 3]


def _serves(pod: Obj) -> bool:
    conditions = pod["status"].get("conditions") or ()
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


async def test_a_failing_daemon_is_replaced_ever_more_slowly() -> None:
    clock = FakeClock()
    player = PodPlayer(lambda pod: Play.FAILED)
    async with cluster(node("a"), player=player, clock=clock) as context:
        names: set[str] = set()
        context.informer("pods").cache.add_handler(lambda change: names.add(change.key.name))
        await context.resource("daemonsets", "apps").create(daemon_set("web"))
        await eventually(lambda: len(names) >= 2)

        async def elapse(seconds: int) -> int:
            for _ in range(seconds):
                await clock.advance(1.0)
                for _ in range(50):
                    await asyncio.sleep(0)
            return len(names)

        after_minute = await elapse(60)
        after_hour = await elapse(600)
        assert 4 <= after_minute <= 9
        assert after_hour - after_minute <= 5
        player.play = lambda pod: Play.READY
        await elapse(900)
        await rolled_out(context, "daemonsets", "web")
        events = (await context.resource("events").list(Scope(namespace="default"))).items
        assert any(each["reason"] == "FailedDaemonPod" for each in events)


async def test_on_delete_waits_for_the_user() -> None:
    async with cluster(node("a"), node("b")) as context:
        sets = context.resource("daemonsets", "apps")
        await sets.create(daemon_set("web", updateStrategy={"type": "OnDelete"}))
        await rolled_out(context, "daemonsets", "web")
        await roll(context, "app:2")

        async def seen() -> bool:
            found = await sets.get("web", "default")
            status = found["status"]
            return bool(
                status["observedGeneration"] == found["metadata"]["generation"]
                and status.get("updatedNumberScheduled", 0) == 0
            )

        await eventually(seen)
        for each in (await context.resource("pods").list(Scope(namespace="default"))).items:
            await context.resource("pods").delete(each["metadata"]["name"], "default")
        await rolled_out(context, "daemonsets", "web")
