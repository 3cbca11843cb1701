"""Nodes that are lost and return, in virtual time: their status, taints and pods."""

from __future__ import annotations

from contextlib import asynccontextmanager

from shoal.base.clock import FakeClock
from shoal.controllers.nodelifecycle import wiring
from shoal.controllers.nodelifecycle.plan import ready_status
from shoal.controllers.taints import wiring as taints_wiring
from shoal.errors import Conflict
from shoal.kube.times import format_micro_time, format_time
from shoal.testing.controllers import running
from shoal.testing.servers import local_server

STEP_S = 5.0


class Fleet:
    """Nodes that renew their leases while they are alive, and pods on them."""

    def __init__(self, context, clock):
        self.context, self.clock = context, clock
        self.alive: set[str] = set()
        self.nodes, self.pods = context.resource("nodes"), context.resource("pods")
        self.leases = context.resource("leases", "coordination.k8s.io")

    def stamp(self):
        return format_time(self.clock.wall_s())

    async def node(self, name, zone=""):
        labels = {"topology.kubernetes.io/zone": zone} if zone else {}
        conditions = [self.ready()]
        await self.nodes.create({"metadata": {"name": name, "labels": labels}, "status": {"conditions": conditions}})
        await self.leases.create({"metadata": {"name": name}, "spec": self.lease(name)}, "kube-node-lease")
        self.alive.add(name)

    def ready(self, status="True"):
        return {"type": "Ready", "status": status, "reason": "KubeletReady", "lastHeartbeatTime": self.stamp()}

    def lease(self, name):
        return {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": format_micro_time(self.clock.wall_s())}

    async def pod(self, name, node, seconds=300):
        tolerations = [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
            | ({} if seconds is None else {"tolerationSeconds": seconds})
            for key in ("not-ready", "unreachable")
        ]
        spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": node, "tolerations": tolerations}
        pod = await self.pods.create({"metadata": {"name": name}, "spec": spec}, "default")
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await self.pods.replace_status({**pod, "status": status})

    async def live(self, seconds):
        """Let time pass while those who are alive say so."""
        for _ in range(int(seconds / STEP_S)):
            for name in sorted(self.alive):
                patch = {"spec": {"renewTime": format_micro_time(self.clock.wall_s())}}
                await self.leases.patch(name, patch, "kube-node-lease")
            await self.clock.advance(STEP_S)

    async def revive(self, name):
        self.alive.add(name)
        while True:
            node = await self.nodes.get(name)
            kept = [each for each in node["status"]["conditions"] if each["type"] != "Ready"]
            try:
                await self.nodes.replace_status({**node, "status": {"conditions": [*kept, self.ready()]}})
                return
            except Conflict:
                continue

    async def taints(self, name):
        found = ((await self.nodes.get(name)).get("spec") or {}).get("taints") or []
        return {(each["key"].removeprefix("node.kubernetes.io/"), each["effect"]) for each in found}

    async def left(self):
        return {
            each["metadata"]["name"]
            for each in (await self.pods.list()).items
            if not each["metadata"].get("deletionTimestamp")
        }


@asynccontextmanager
async def fleet(*nodes, **zones):
    clock = FakeClock()
    async with (
        local_server(clock=clock) as server,
        running(server, [wiring.add, taints_wiring.add], clock=clock) as context,
    ):
        made = Fleet(context, clock)
        for name in nodes:
            await made.node(name)
        for name, zone in zones.items():
            await made.node(name, zone)
        yield made


BOTH = {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}


async def test_a_lost_node_is_unknown_after_fifty_seconds_and_its_pods_leave_after_five_minutes():
    async with fleet("a", "b", "c") as world:
        await world.pod("tolerant", "a", None)
        await world.pod("usual", "a")
        await world.pod("elsewhere", "b")
        await world.live(30)
        world.alive.discard("a")
        await world.live(45)
        assert ready_status(await world.nodes.get("a")) == "True"
        await world.live(15)
        assert ready_status(await world.nodes.get("a")) == "Unknown"
        assert await world.taints("a") == BOTH
        conditions = (await world.pods.get("usual", "default"))["status"]["conditions"]
        assert [each["status"] for each in conditions if each["type"] == "Ready"] == ["False"]
        await world.live(280)
        assert await world.left() == {"tolerant", "usual", "elsewhere"}
        await world.live(30)
        assert await world.left() == {"tolerant", "elsewhere"}
        gone = await world.pods.get("usual", "default")
        assert "DeletionByTaintManager" in str(gone["status"]["conditions"])


async def test_a_node_that_comes_back_in_time_keeps_its_pods():
    async with fleet("a", "b", "c") as world:
        await world.pod("usual", "a")
        world.alive.discard("a")
        await world.live(120)
        assert await world.taints("a") == BOTH
        await world.revive("a")
        await world.live(600)
        assert await world.taints("a") == set()
        assert await world.left() == {"usual"}


async def test_when_all_nodes_are_lost_no_pod_is_evicted_for_a_day():
    async with fleet("a", "b", "c") as world:
        await world.pod("usual", "a")
        world.alive.clear()
        await world.clock.advance(86_400)
        assert ready_status(await world.nodes.get("a")) == "Unknown"
        assert await world.taints("a") == {("unreachable", "NoSchedule")}
        assert await world.left() == {"usual"}
        for name in ("a", "b"):
            await world.revive(name)
        await world.live(400)
        assert await world.taints("a") == set()
        assert ("unreachable", "NoExecute") in await world.taints("c")


async def test_a_zone_that_is_mostly_lost_stops_and_others_go_on_one_node_every_ten_seconds():
    bad = {f"bad-{n}": "small" for n in range(5)}
    good = {f"good-{n}": "healthy" for n in range(5)}
    async with fleet(**bad, **good) as world:
        world.alive -= {"bad-0", "bad-1", "bad-2", "good-0", "good-1"}
        await world.live(60)

        async def evicting(names):
            return [name for name in names if ("unreachable", "NoExecute") in await world.taints(name)]

        assert await evicting(bad) == []
        assert len(await evicting(good)) == 1
        await world.live(15)
        assert len(await evicting(good)) == 2
        await world.live(3600)
        assert await evicting(bad) == []
        assert ("unreachable", "NoSchedule") in await world.taints("bad-0")


async def test_cordoned_nodes_and_nodes_under_pressure_are_tainted():
    async with fleet("a") as world:
        await world.nodes.patch("a", {"spec": {"unschedulable": True}})
        pressure = {"type": "MemoryPressure", "status": "True"}
        node = await world.nodes.get("a")
        await world.nodes.replace_status({**node, "status": {"conditions": [world.ready(), pressure]}})
        await world.live(5)
        assert await world.taints("a") == {("unschedulable", "NoSchedule"), ("memory-pressure", "NoSchedule")}
        await world.nodes.patch("a", {"spec": {"unschedulable": None}})
        await world.live(5)
        assert await world.taints("a") == {("memory-pressure", "NoSchedule")}


async def test_a_taint_of_a_user_evicts_pods_that_do_not_tolerate_it():
    async with fleet("a") as world:
        await world.pod("usual", "a")
        await world.nodes.patch("a", {"spec": {"taints": [{"key": "gone", "effect": "NoExecute"}]}})
        await world.live(5)
        assert await world.left() == set()
