"""The scheduler on an API server, as users see it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from scheduled_cluster import PODS, Cluster, a_cluster, a_scheduler

from shoal.base.clock import FakeClock
from shoal.client import Disconnected, LostLease
from shoal.kube.objects import Obj
from shoal.scheduler.config import Profile, SchedulerConfig
from shoal.scheduler.queue import QueueState
from shoal.scheduler.service import Scheduler
from shoal.testing.waiting import eventually


@asynccontextmanager
async def on_a_cluster() -> AsyncIterator[tuple[Cluster, Scheduler]]:
    async with a_cluster() as cluster, a_scheduler(cluster) as scheduler:
        yield (cluster, scheduler)


async def test_a_pod_is_bound_and_an_event_says_where() -> None:
    async with on_a_cluster() as (cluster, scheduler):
        await cluster.node("a")
        await cluster.pod("p", cpu="1")
        assert await cluster.node_of("p") == "a"
        event = await cluster.event("p", "Scheduled")
        assert event["message"] == "Successfully assigned default/p to a"
        assert event["type"] == "Normal"
        assert (await cluster.condition("p", status="True"))["type"] == "PodScheduled"


async def test_a_pod_that_does_not_fit_says_why_and_is_placed_when_it_does() -> None:
    async with on_a_cluster() as (cluster, scheduler):
        await cluster.node("small", cpu="1")
        await cluster.node("closed", unschedulable=True)
        await cluster.pod("p", cpu="2")
        expected = (
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. preemption: 0/2 nodes are "
            "available: 2 Preemption is not helpful for scheduling."
        )
        condition = await cluster.condition("p")
        assert (condition["reason"], condition["message"]) == ("Unschedulable", expected)
        event = await cluster.event("p", "FailedScheduling")
        assert (event["type"], event["message"]) == ("Warning", expected)
        await cluster.node("large", cpu="4")
        assert await cluster.node_of("p") == "large"


async def test_without_any_node_a_pod_waits_for_the_first() -> None:
    async with on_a_cluster() as (cluster, scheduler):
        await cluster.pod("p")
        assert (await cluster.condition("p"))["message"] == "no nodes available to schedule pods"
        await cluster.node("a")
        assert await cluster.node_of("p") == "a"


async def test_room_that_a_deleted_pod_leaves_is_used() -> None:
    async with on_a_cluster() as (cluster, scheduler):
        await cluster.node("a", cpu="1")
        await cluster.pod("first", cpu="1")
        await cluster.node_of("first")
        await cluster.pod("second", cpu="1")
        await cluster.condition("second")
        await cluster.server.delete(f"{PODS}/first", {"gracePeriodSeconds": 0})
        assert await cluster.node_of("second") == "a"


async def test_decisions_count_pods_that_are_only_being_bound() -> None:
    async with on_a_cluster() as (cluster, scheduler):
        for name in ("a", "b", "c"):
            await cluster.node(name)
        port = [{"containerPort": 80, "hostPort": 80}]
        await asyncio.gather(*(cluster.pod(f"p{at}", ports=port) for at in range(3)))
        assert {await cluster.node_of(f"p{at}") for at in range(3)} == {"a", "b", "c"}
        await cluster.pod("p3", ports=port)
        assert "didn't have free ports" in (await cluster.condition("p3"))["message"]


async def test_a_gated_pod_is_placed_when_its_gates_are_lifted() -> None:
    async with on_a_cluster() as (cluster, scheduler):
        await cluster.node("a")
        await cluster.pod("gated", schedulingGates=[{"name": "example.com/wait"}])
        await cluster.pod("free")
        assert await cluster.node_of("free") == "a"
        assert "nodeName" not in (await cluster.get("gated"))["spec"]
        explained = scheduler.explain("default", "gated")
        assert explained is not None
        assert explained.waiting == "waiting for scheduling gates: [example.com/wait]"
        await cluster.server.patch(f"{PODS}/gated", {"spec": {"schedulingGates": []}})
        assert await cluster.node_of("gated") == "a"


async def test_pods_of_other_schedulers_are_left_alone_and_each_profile_has_its_own_rules() -> None:
    profiles = (Profile(), Profile(name="careless", disabled=frozenset({"NodeResourcesFit"})))
    async with a_cluster() as cluster, a_scheduler(cluster, config=SchedulerConfig(profiles=profiles)):
        await cluster.node("a", cpu="1")
        await cluster.pod("foreign", schedulerName="elsewhere")
        await cluster.pod("strict", cpu="2")
        await cluster.pod("careless", cpu="2", schedulerName="careless")
        assert await cluster.node_of("careless") == "a"
        await cluster.condition("strict")
        foreign = await cluster.get("foreign")
        assert "nodeName" not in foreign["spec"] and not foreign["status"].get("conditions")


async def test_preemption_marks_and_deletes_victims_and_the_pod_gets_their_place() -> None:
    async with on_a_cluster() as (cluster, scheduler):
        await cluster.node("a", cpu="1")
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        await cluster.server.post(classes, {"metadata": {"name": "high"}, "value": 1000})
        await cluster.pod("victim", cpu="1")
        await cluster.node_of("victim")
        pod = await cluster.pod("urgent", cpu="1", priorityClassName="high")
        target = await cluster.condition("victim", "DisruptionTarget", "True")
        assert target["reason"] == "PreemptionByScheduler"
        assert target["message"] == "default-scheduler: preempting to accommodate a higher priority pod"
        event = await cluster.event("victim", "Preempted")
        assert event["message"] == f"Preempted by pod {pod['metadata']['uid']} on node a"

        async def going() -> bool:
            return "deletionTimestamp" in (await cluster.get("victim"))["metadata"]

        await eventually(going)
        assert (await cluster.get("urgent"))["status"]["nominatedNodeName"] == "a"
        await cluster.pod("bystander", cpu="1")
        await cluster.condition("bystander")
        # no agent runs here: the test says that the victim has ended
        await cluster.server.delete(f"{PODS}/victim", {"gracePeriodSeconds": 0})
        assert await cluster.node_of("urgent") == "a"
        assert "nodeName" not in (await cluster.get("bystander"))["spec"]


async def test_a_binding_that_fails_is_tried_again_and_holds_no_room_meanwhile() -> None:
    failures = iter((Disconnected("cut"), Disconnected("cut again")))
    tried = []

    def fails(method: str, target: str) -> Exception | None:
        if target.endswith("/binding"):
            tried.append(target)
            return next(failures, None)
        return None

    clock = FakeClock()
    async with a_cluster(clock) as cluster, a_scheduler(cluster, clock=clock, fails=fails) as scheduler:
        await cluster.node("a", cpu="1")
        await cluster.pod("p", cpu="1")

        async def failed(count: int) -> bool:
            return len(tried) == count and scheduler.queue.size(QueueState.BACKING_OFF) == 1

        await eventually(lambda: failed(1))
        assert not scheduler.planner.snapshot.pods
        await clock.advance(0.9)
        assert len(tried) == 1
        await clock.advance(0.2)
        await eventually(lambda: failed(2))
        await clock.advance(2.1)
        assert await cluster.node_of("p") == "a"
        assert len(tried) == 3


async def test_a_binding_whose_answer_is_lost_is_not_made_twice() -> None:
    async with a_cluster() as cluster:
        transport = cluster.server.transport
        lost = []

        real = transport.request

        async def request(method: str, target: str, **options: object) -> object:
            reply = await real(method, target, **options)
            if target.endswith("/binding") and not lost:
                lost.append(target)
                raise Disconnected("the answer was lost")
            return reply

        transport.request = request  # type: ignore[method-assign]
        async with a_scheduler(cluster) as scheduler:
            await cluster.node("a")
            await cluster.node("b")
            await cluster.pod("p")
            await cluster.node_of("p")

            async def settled() -> bool:
                return not len(scheduler.queue) and len(scheduler.planner.snapshot.pods) == 1

            await eventually(settled)
            assert lost


async def test_a_new_scheduler_sees_what_is_placed_and_places_the_rest() -> None:
    async with a_cluster() as cluster:
        await cluster.node("a", cpu="2")
        async with a_scheduler(cluster):
            await cluster.pod("first", cpu="1")
            await cluster.node_of("first")
        await cluster.pod("second", cpu="1")
        await cluster.pod("third", cpu="1")
        async with a_scheduler(cluster) as scheduler:

            async def settled() -> bool:
                return scheduler.queue.size(QueueState.UNSCHEDULABLE) == 1 == len(scheduler.queue)

            await eventually(settled)
            pods = (await cluster.server.get(PODS))["items"]
            assert Counter(pod["spec"].get("nodeName") for pod in pods) == {"a": 2, None: 1}


async def test_pods_of_a_replicaset_spread_over_nodes_and_zones() -> None:
    async with on_a_cluster() as (cluster, scheduler):
        for at in range(6):
            await cluster.node(f"n{at}", zone=f"z{at % 3}")
        template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        body = {"metadata": {"name": "r"}, "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template}}
        owner = await cluster.server.post("/apis/apps/v1/namespaces/default/replicasets", body)
        reference = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "r",
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        for at in range(12):
            about = {"name": f"p{at}", "labels": {"app": "a"}, "ownerReferences": [reference]}
            await cluster.server.post(PODS, {"metadata": about, "spec": template["spec"]})
        nodes = Counter([await cluster.node_of(f"p{at}") for at in range(12)])
        assert nodes == {f"n{at}": 2 for at in range(6)}


async def test_a_claim_that_waits_for_its_first_consumer_gets_the_node_and_the_pod_waits_for_it() -> None:
    async with on_a_cluster() as (cluster, scheduler):
        await cluster.node("a")
        storage_class = {
            "metadata": {"name": "late"},
            "provisioner": "example.com/p",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        await cluster.server.post("/apis/storage.k8s.io/v1/storageclasses", storage_class)
        claims = "/api/v1/namespaces/default/persistentvolumeclaims"
        spec = {
            "storageClassName": "late",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        await cluster.server.post(claims, {"metadata": {"name": "data"}, "spec": spec})
        await cluster.pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])

        async def selected() -> Obj | None:
            claim = await cluster.server.get(f"{claims}/data")
            annotations = claim["metadata"].get("annotations") or {}
            return claim if annotations.get("volume.kubernetes.io/selected-node") == "a" else None

        claim = await eventually(selected)
        assert "nodeName" not in (await cluster.get("p"))["spec"]
        claim["spec"]["volumeName"] = "pv"  # what the volume controller would do
        claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
        await cluster.server.put(f"{claims}/data", claim)
        assert await cluster.node_of("p") == "a"


async def test_every_decision_can_be_asked_for() -> None:
    async with on_a_cluster() as (cluster, scheduler):
        await cluster.node("a", cpu="4")
        await cluster.node("b", cpu="1")
        await cluster.pod("p", cpu="2")
        await cluster.node_of("p")
        explained = scheduler.explain("default", "p")
        assert explained is not None and explained.last is not None
        assert (explained.last.node, explained.last.feasible, explained.last.nodes) == ("a", 1, 2)
        assert explained.last.scores["NodeResourcesFit"] > 0
        await cluster.pod("q", cpu="8")
        await cluster.condition("q")
        explained = scheduler.explain("default", "q")
        assert explained is not None and explained.last is not None
        assert explained.waiting == "unschedulable" and explained.last.node == ""
        assert explained.message == "0/2 nodes are available: 2 Insufficient cpu."
        assert [row.refusal.reasons for row in explained.nodes if row.refusal] == [("Insufficient cpu",)] * 2
        assert scheduler.explain("default", "unknown") is None


async def test_a_pod_deleted_while_it_waits_is_forgotten() -> None:
    async with on_a_cluster() as (cluster, scheduler):
        await cluster.pod("p")
        await cluster.condition("p")
        await cluster.server.delete(f"{PODS}/p")

        async def forgotten() -> bool:
            return len(scheduler.queue) == 0

        await eventually(forgotten)
        await cluster.node("a")
        await cluster.pod("q")
        assert await cluster.node_of("q") == "a"


async def test_a_scheduler_that_lost_its_lease_fails_instead_of_idling() -> None:
    """The process must restart: a scheduler that only stopped would hold its lease and schedule nothing."""

    def fails(method: str, target: str) -> Exception | None:
        return LostLease("another leads") if target.split("?")[0].endswith("/binding") else None

    async with a_cluster() as cluster:
        await cluster.node("a")
        with pytest.raises(BaseExceptionGroup) as raised:
            async with a_scheduler(cluster, fails=fails):
                await cluster.pod("p")
                await asyncio.Event().wait()
        assert raised.value.subgroup(LostLease) is not None
