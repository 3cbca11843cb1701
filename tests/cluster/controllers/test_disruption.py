"""Disruption budgets with pods, workloads and evictions, in virtual time."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from shoal.base.clock import FakeClock
from shoal.controllers.disruption import wiring
from shoal.errors import NotFound, TooManyRequests
from shoal.testing.controllers import running
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually

LABELS = {"app": "web"}
POD = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"}


@asynccontextmanager
async def guarded():
    clock = FakeClock()
    async with local_server(clock=clock) as server, running(server, [wiring.add], clock=clock) as context:
        yield World(context, clock)


class World:
    def __init__(self, context, clock):
        self.context, self.clock = context, clock
        self.pods = context.resource("pods")
        self.budgets = context.resource("poddisruptionbudgets", "policy")

    async def budget(self, **spec):
        spec["selector"] = {"matchLabels": LABELS}
        await self.budgets.create({"metadata": {"name": "b"}, "spec": spec}, "default")

    async def pod(self, name, owner=None):
        about = {"name": name, "labels": LABELS}
        if owner is not None:
            about["ownerReferences"] = [{
                "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"], "controller": True,
            }]  # fmt: skip
        pod = await self.pods.create({"metadata": about, "spec": POD}, "default")
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await self.pods.replace_status({**pod, "status": ready})

    async def replica_set(self, replicas):
        template = {"metadata": {"labels": LABELS}, "spec": {"containers": POD["containers"]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template}
        sets = self.context.resource("replicasets", "apps")
        return await sets.create({"metadata": {"name": "rs"}, "spec": spec}, "default")

    async def shows(self, allowed, current, desired, pods):
        async def check():
            found = (await self.budgets.get("b", "default")).get("status") or {}
            numbers = [found.get(k) for k in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")]
            assert numbers == [allowed, current, desired, pods]
            return True

        await eventually(check, timeout_s=5)


async def test_evictions_take_from_the_budget_and_a_pod_that_does_not_go_gives_back_after_two_minutes():
    async with guarded() as world:
        await world.budget(minAvailable=2)
        for name in "abc":
            await world.pod(name)
        await world.shows(1, 3, 2, 3)
        await world.pods.patch("a", {"metadata": {"finalizers": ["example.io/hold"]}}, "default")
        await world.pods.evict("a", "default")
        await world.shows(0, 2, 2, 3)
        with pytest.raises(TooManyRequests):
            await world.pods.evict("b", "default")


async def test_an_eviction_that_is_not_followed_by_a_deletion_is_forgotten():
    async with guarded() as world:
        await world.budget(minAvailable=1)
        for name in "ab":
            await world.pod(name)
        await world.shows(1, 2, 1, 2)
        budget = await world.budgets.get("b", "default")
        granted = {"a": world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")}
        spent = {**budget["status"], "disruptionsAllowed": 0, "disruptedPods": granted}
        await world.budgets.replace_status({**budget, "status": spent})
        await world.shows(0, 1, 1, 2)
        await world.clock.advance(125)
        await world.shows(1, 2, 1, 2)
        assert "disruptedPods" not in (await world.budgets.get("b", "default"))["status"]


async def test_the_owner_defines_the_expected_number_of_pods():
    async with guarded() as world:
        owner = await world.replica_set(4)
        await world.budget(maxUnavailable="25%")
        for name in "abcd":
            await world.pod(name, owner)
        await world.shows(1, 4, 3, 4)
        await world.context.resource("replicasets", "apps").scale("rs", 8, "default")
        await world.shows(0, 4, 6, 8)


async def test_an_owner_without_a_scale_means_that_nothing_may_go():
    async with guarded() as world:
        owner = await world.context.resource("configmaps").create({"metadata": {"name": "m"}}, "default")
        await world.budget(maxUnavailable=1)
        await world.pod("a", owner)

        async def refuses():
            found = (await world.budgets.get("b", "default"))["status"]
            return found["conditions"][0]["reason"] == "SyncFailed" and found["disruptionsAllowed"] == 0

        await eventually(refuses)
        with pytest.raises((TooManyRequests, NotFound)):
            await world.pods.evict("a", "default")
