"""Pods that only the pod collector removes, and Jobs past their time to live, in virtual time."""

from __future__ import annotations

from shoal.base.clock import FakeClock
from shoal.controllers.podgc import wiring
from shoal.controllers.ttl import wiring as ttl_wiring
from shoal.kube.times import format_time
from shoal.testing.controllers import running
from shoal.testing.servers import local_server

SPEC = {"containers": [{"name": "c", "image": "i"}]}


async def names(resource):
    return {each["metadata"]["name"] for each in (await resource.list()).items}


async def test_pods_of_nodes_that_are_gone_fail_and_go_after_the_quarantine():
    clock = FakeClock()
    async with local_server(clock=clock) as server, running(server, [wiring.add], clock=clock) as context:
        nodes, pods = context.resource("nodes"), context.resource("pods")
        for name in ("stays", "goes"):
            await nodes.create({"metadata": {"name": name}})
            await pods.create({"metadata": {"name": f"on-{name}"}, "spec": {**SPEC, "nodeName": name}}, "default")
        await pods.create({"metadata": {"name": "unplaced"}, "spec": SPEC}, "default")
        await nodes.delete("goes")
        async with server.watch("/api/v1/namespaces/default/pods?watch=1") as events:
            await clock.advance(35)
            assert await names(pods) == {"on-stays", "on-goes", "unplaced"}
            await clock.advance(30)
            assert await names(pods) == {"on-stays", "unplaced"}
            seen = []
            async for event in events:
                seen.append(event)
                if event["type"] == "DELETED":
                    break
        assert seen[-1]["object"]["status"]["phase"] == "Failed"
        assert seen[-1]["object"]["status"]["conditions"][-1]["reason"] == "DeletionByPodGC"


async def test_finished_pods_are_kept_up_to_a_limit():
    clock = FakeClock()

    def add(context):
        wiring.add(context, limit=2)

    async with local_server(clock=clock) as server, running(server, [add], clock=clock) as context:
        pods = context.resource("pods")
        for number in range(4):
            pod = await pods.create({"metadata": {"name": f"p{number}"}, "spec": SPEC}, "default")
            await pods.replace_status({**pod, "status": {"phase": "Succeeded"}})
            await clock.advance(1)
        await clock.advance(25)
        assert await names(pods) == {"p2", "p3"}


async def test_finished_jobs_go_when_their_time_is_over():
    clock = FakeClock()
    async with local_server(clock=clock) as server, running(server, [ttl_wiring.add], clock=clock) as context:
        jobs = context.resource("jobs", "batch")
        template = {"spec": {**SPEC, "restartPolicy": "Never"}}
        for name, ttl in (("short", 100), ("long", 86_400)):
            spec = {"template": template, "ttlSecondsAfterFinished": ttl}
            job = await jobs.create({"metadata": {"name": name}, "spec": spec}, "default")
            now = format_time(clock.wall_s())
            kinds = ("SuccessCriteriaMet", "Complete")
            conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds]
            status = {"startTime": now, "completionTime": now, "succeeded": 1, "conditions": conditions}
            await jobs.replace_status({**job, "status": status})
        await clock.advance(95)
        assert await names(jobs) == {"short", "long"}
        await clock.advance(10)
        ending = {j["metadata"]["name"] for j in (await jobs.list()).items if "deletionTimestamp" in j["metadata"]}
        assert ending == {"short"}  # in the foreground: the garbage collector does the rest
        await jobs.patch("long", {"spec": {"ttlSecondsAfterFinished": 200}}, "default")
        await clock.advance(120)
        ending = {j["metadata"]["name"] for j in (await jobs.list()).items if "deletionTimestamp" in j["metadata"]}
        assert ending == {"short", "long"}
