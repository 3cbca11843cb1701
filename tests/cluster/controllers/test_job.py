"""Jobs from start to end, with simulated pods: counts, indexes, policies, suspension, and restarts."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from acting_as import acting_as
from lagging import Lagging

from shoal.base.clock import FakeClock
from shoal.client import Scope
from shoal.controllers.job import wiring
from shoal.controllers.job.model import COMPLETION_INDEX, FINALIZER
from shoal.testing.controllers import Play, PodPlayer, running
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually


def a_job(name="j", restart="Never", **spec):
    pod = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": restart}
    return {"metadata": {"name": name}, "spec": {"template": {"spec": pod}, **spec}}


class World:
    def __init__(self, context, server, player):
        self.context, self.server, self.player = context, server, player
        self.jobs, self.pods, self.events = (
            context.resource("jobs", "batch"),
            context.resource("pods"),
            context.resource("events"),
        )

    async def create(self, job):
        return await self.jobs.create(job, "default")

    async def get(self, name="j"):
        return await self.jobs.get(name, "default")

    async def status(self, name="j"):
        return (await self.get(name)).get("status") or {}

    async def conditions(self, name="j"):
        return {c["type"]: c for c in (await self.status(name)).get("conditions") or () if c["status"] == "True"}

    async def all_pods(self):
        return (await self.pods.list(Scope(namespace="default"))).items

    async def over(self, name="j"):
        found = await self.conditions(name)
        return found if "Complete" in found or "Failed" in found else None

    async def reasons(self):
        return {e["reason"] for e in (await self.events.list(Scope(namespace="default"))).items}


@asynccontextmanager
async def world(play=lambda pod: Play.SUCCEEDED, clock=None, **player):
    acting = PodPlayer(play, **player)
    async with local_server(clock=clock) as server:
        job = acting_as(server, "job-controller", wiring.add)
        async with running(server, [job, acting.add], clock=clock) as context:
            yield World(context, server, acting)


def index(pod):
    return int(pod["metadata"]["annotations"][COMPLETION_INDEX])


async def test_a_job_runs_its_pods_to_the_end_and_counts_each_once():
    async with world() as w:
        await w.create(a_job(completions=7, parallelism=3))
        found = await eventually(w.over)
        assert set(found) == {"SuccessCriteriaMet", "Complete"}
        assert found["Complete"]["reason"] == "CompletionsReached"
        assert found["Complete"]["message"] == "Reached expected number of succeeded pods"
        status = await w.status()
        assert status["succeeded"] == 7 and not status.get("failed") and not status.get("active")
        assert status["ready"] == status["terminating"] == 0 and not status.get("uncountedTerminatedPods")
        assert status["startTime"] <= status["completionTime"]
        pods = await w.all_pods()
        assert len(pods) == 7
        assert not any(FINALIZER in (p["metadata"].get("finalizers") or ()) for p in pods)
        assert {p["metadata"]["labels"]["job-name"] for p in pods} == {"j"}
        await eventually(lambda: _reasons(w, {"SuccessfulCreate", "Completed"}))


async def test_without_completions_one_success_is_enough():
    first = []

    def play(pod):
        first[:] = first or [pod["metadata"]["name"]]
        return Play.SUCCEEDED if pod["metadata"]["name"] == first[0] else Play.READY

    async with world(play) as w:
        await w.create(a_job(parallelism=3))

        async def one():
            status = await w.status()
            return status.get("succeeded") == 1 and status.get("active") == 2

        await eventually(one)
        assert len(await w.all_pods()) == 3
        w.player.play = lambda pod: Play.SUCCEEDED
        w.player.replay()
        await eventually(w.over)
        assert (await w.status())["succeeded"] == 3


async def test_each_pod_of_an_indexed_job_gets_its_index_and_all_complete():
    async with world() as w:
        await w.create(a_job(completions=5, parallelism=2, completionMode="Indexed"))
        await eventually(w.over)
        status = await w.status()
        assert (status["succeeded"], status["completedIndexes"]) == (5, "0-4")
        pods = sorted(await w.all_pods(), key=index)
        assert [index(p) for p in pods] == [0, 1, 2, 3, 4]
        for number, pod in enumerate(pods):
            assert pod["metadata"]["name"].startswith(f"j-{number}-")
            assert pod["metadata"]["labels"][COMPLETION_INDEX] == str(number)
            assert pod["spec"]["hostname"] == f"j-{number}"
            env = pod["spec"]["containers"][0]["env"][0]
            assert env["name"] == "JOB_COMPLETION_INDEX"
            assert env["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.labels['{COMPLETION_INDEX}']"


async def test_failures_are_tried_again_after_ever_longer_pauses_until_the_limit():
    clock = FakeClock()
    async with world(lambda pod: Play.FAILED, clock=clock) as w:
        await w.create(a_job(backoffLimit=3))
        made = []
        for second in range(120):
            await clock.advance(1)
            while len(made) < len(await w.all_pods()):
                made.append(second)
            if await w.over():
                break
        pauses = [b - a for a, b in zip(made, made[1:], strict=False)]
        assert len(made) == 4, made
        assert 9 <= pauses[0] <= 13 and 19 <= pauses[1] <= 23 and 39 <= pauses[2] <= 43, pauses
        found = await w.over()
        assert set(found) == {"FailureTarget", "Failed"}
        assert found["Failed"]["reason"] == "BackoffLimitExceeded"
        assert found["Failed"]["message"] == "Job has reached the specified backoff limit"
        assert (await w.status())["failed"] == 4


async def test_the_deadline_ends_a_job_and_its_pods():
    clock = FakeClock()
    async with world(lambda pod: Play.READY, clock=clock) as w:
        await w.create(a_job(activeDeadlineSeconds=60, parallelism=2, completions=2))
        await clock.advance(59)
        assert not await w.over() and (await w.status())["active"] == 2
        await clock.advance(5)
        found = await w.over()
        assert found["Failed"]["reason"] == "DeadlineExceeded"
        status = await w.status()
        assert status["failed"] == 2 and not status.get("active") and status["terminating"] == 0
        assert await w.all_pods() == []


async def test_a_job_fails_only_when_its_last_pod_has_ended():
    clock = FakeClock()
    async with world(lambda pod: Play.READY, clock=clock, ends=False) as w:
        await w.create(a_job(activeDeadlineSeconds=10))
        await clock.advance(15)
        found = await w.conditions()
        assert set(found) == {"FailureTarget"}
        assert (await w.status())["terminating"] == 1
        w.player.ends = True
        w.player.replay()
        await clock.advance(5)
        assert "Failed" in await w.conditions()


async def test_a_suspended_job_has_no_pods_and_counts_none_of_those_it_had():
    async with world(lambda pod: Play.READY) as w:
        await w.create(a_job(parallelism=2, completions=2))

        async def active(count):
            return (await w.status()).get("active", 0) == count

        await eventually(lambda: active(2))
        await w.jobs.patch("j", {"spec": {"suspend": True}}, "default")

        async def suspended():
            found = await w.conditions()
            return "Suspended" in found and await active(0) and not await w.all_pods()

        await eventually(suspended)
        status = await w.status()
        assert "startTime" not in status and not status.get("failed")
        await w.jobs.patch("j", {"spec": {"suspend": False}}, "default")
        w.player.play = lambda pod: Play.SUCCEEDED
        await eventually(w.over)
        status = await w.status()
        assert status["succeeded"] == 2 and not status.get("failed") and status["startTime"]
        by_type = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
        assert by_type["Suspended"] == ("False", "JobResumed")
        await eventually(lambda: _reasons(w, {"Suspended", "Resumed"}))


async def test_each_index_has_its_own_limit_of_failures():
    clock = FakeClock()

    def play(pod):
        return Play.FAILED if index(pod) in (1, 3) else Play.SUCCEEDED

    async with world(play, clock=clock) as w:
        await w.create(a_job(completions=4, parallelism=4, completionMode="Indexed", backoffLimitPerIndex=1))
        for _ in range(60):
            await clock.advance(1)
            if await w.over():
                break
        found = await w.over()
        assert found["Failed"]["reason"] == "FailedIndexes"
        status = await w.status()
        assert (status["completedIndexes"], status["failedIndexes"]) == ("0,2", "1,3")
        assert (status["succeeded"], status["failed"]) == (2, 4)


async def test_the_failure_policy_ends_the_job_or_ignores_the_pod():
    clock = FakeClock()
    async with world(lambda pod: Play.FAILED, clock=clock) as w:
        rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 2]}}
        await w.create(a_job("hard", podFailurePolicy={"rules": [rule]}))
        await clock.advance(3)
        found = await w.over("hard")
        assert found["Failed"]["reason"] == "PodFailurePolicy"
        name = (await w.all_pods())[0]["metadata"]["name"]
        text = f"Container c for pod default/{name} failed with exit code 1 matching FailJob rule at index 0"
        assert found["Failed"]["message"] == text
        rule = {"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [2]}}
        await w.create(a_job("soft", podFailurePolicy={"rules": [rule]}, backoffLimit=0))
        await clock.advance(60)
        assert not await w.over("soft") and not (await w.status("soft")).get("failed")
        assert len(await w.all_pods()) > 2


async def test_the_success_policy_ends_the_job_early():
    def play(pod):
        return Play.SUCCEEDED if index(pod) == 0 else Play.READY

    async with world(play) as w:
        policy = {"rules": [{"succeededIndexes": "0"}]}
        await w.create(a_job(completions=3, parallelism=3, completionMode="Indexed", successPolicy=policy))
        found = await eventually(w.over)
        assert found["Complete"]["reason"] == "SuccessPolicy"
        assert found["Complete"]["message"] == "Matched rules at index 0"
        assert (await w.status())["completedIndexes"] == "0"


async def test_an_elastic_job_shrinks_and_grows():
    async with world(lambda pod: Play.SUCCEEDED if index(pod) in (0, 3) else Play.READY) as w:
        await w.create(a_job(completions=4, parallelism=4, completionMode="Indexed"))

        async def done(text, active):
            status = await w.status()
            return status.get("completedIndexes") == text and status.get("active") == active

        await eventually(lambda: done("0,3", 2))
        await w.jobs.patch("j", {"spec": {"completions": 3, "parallelism": 3}}, "default")
        await eventually(lambda: done("0", 2))
        await w.jobs.patch("j", {"spec": {"completions": 5, "parallelism": 5}}, "default")
        w.player.play = lambda pod: Play.SUCCEEDED
        w.player.replay()
        await eventually(w.over)
        assert (await w.status())["completedIndexes"] == "0-4"


async def test_a_deleted_pod_is_replaced_by_the_replacement_policy():
    async with world(lambda pod: Play.READY) as w:
        await w.create(a_job("late", podReplacementPolicy="Failed"))

        async def one():
            return [p for p in await w.all_pods() if p.get("status", {}).get("phase") == "Running"]

        pod = (await eventually(one))[0]
        w.player.ends = False
        await w.pods.delete(pod["metadata"]["name"], "default")

        async def terminating():
            return (await w.status("late")).get("terminating") == 1

        await eventually(terminating)
        assert len(await w.all_pods()) == 1, "nothing new before it has ended"
        status = {**(await w.pods.get(pod["metadata"]["name"], "default")), "status": {"phase": "Failed"}}
        await w.pods.replace_status(status)
        w.player.ends = True
        w.player.replay()

        async def counted():
            return (await w.status("late")).get("failed") == 1

        await eventually(counted)


async def test_another_controllers_job_is_left_alone():
    async with world() as w:
        await w.create(a_job("theirs", managedBy="example.com/other"))
        await w.create(a_job("ours"))
        await eventually(lambda: w.over("ours"))
        assert await w.status("theirs") == {} and len(await w.all_pods()) == 1


async def test_pods_of_a_job_that_is_gone_are_not_held():
    async with world(lambda pod: Play.READY, ends=False) as w:
        job = await w.create(a_job())
        await eventually(w.all_pods)
        await w.jobs.delete("j", "default", uid=job["metadata"]["uid"])

        async def free():
            return not any(FINALIZER in (p["metadata"].get("finalizers") or ()) for p in await w.all_pods())

        await eventually(free)


async def test_a_job_adopts_pods_that_its_own_selector_selects_and_counts_them():
    async with world(lambda pod: Play.READY) as w:
        spec = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
        await w.pods.create({"metadata": {"name": "old", "labels": {"mine": "yes"}}, "spec": spec}, "default")
        job = a_job(manualSelector=True, selector={"matchLabels": {"mine": "yes"}})
        job["spec"]["template"]["metadata"] = {"labels": {"mine": "yes"}}
        await w.create(job)

        async def adopted():
            pod = await w.pods.get("old", "default")
            return pod["metadata"].get("ownerReferences") and FINALIZER in pod["metadata"].get("finalizers", ())

        await eventually(adopted)
        w.player.play = lambda pod: Play.SUCCEEDED
        w.player.replay()
        await eventually(w.over)
        assert (await w.status())["succeeded"] == 1 and len(await w.all_pods()) == 1


class CutOff:
    """A server that stops to answer one client after so many writes; the last of them is done all the same."""

    def __init__(self, server, writes):
        self.transport, self._inner, self._left = self, server.transport, writes
        self.over = asyncio.Event()

    async def request(self, method, target, **options):
        if "/events" in target:
            return await self._inner.request(method, target, **options)
        if self.over.is_set():
            raise RuntimeError("cut off")
        if method != "GET":
            self._left -= 1
            if self._left < 0:
                self.over.set()
        answer = await self._inner.request(method, target, **options)
        if self.over.is_set():
            raise RuntimeError("cut off")
        return answer

    async def stream(self, method, target, **options):
        return await self._inner.stream(method, target, **options)

    async def close(self):
        pass


async def _dies_and_returns(job, play):
    """Run the job with controllers that die after ever other numbers of writes; the job and its pods in the end."""

    async with local_server() as server:
        player = PodPlayer(play)
        async with running(server, [player.add]) as nodes:
            jobs, pods = nodes.resource("jobs", "batch"), nodes.resource("pods")
            await jobs.create(job, "default")
            lives = 0
            while not await _over(jobs):
                lives += 1
                cut = CutOff(server, lives * 7 % 11)
                async with running(cut, [wiring.add]):
                    await eventually(lambda cut=cut: _either(cut, jobs), timeout_s=20)
            assert lives >= 5
            return await jobs.get("j", "default"), (await pods.list()).items


async def test_controllers_that_die_at_any_write_neither_lose_nor_repeat_a_pod():
    job, pods = await _dies_and_returns(a_job(completions=25, parallelism=6), lambda pod: Play.SUCCEEDED)
    assert job["status"]["succeeded"] == 25 and not job["status"].get("failed")
    assert len(pods) == 25


async def test_controllers_that_die_at_any_write_complete_each_index_once():
    spec = {"completions": 20, "parallelism": 6, "completionMode": "Indexed", "backoffLimitPerIndex": 0}
    job, pods = await _dies_and_returns(
        a_job(**spec), lambda pod: Play.FAILED if index(pod) % 5 == 0 else Play.SUCCEEDED
    )
    status = job["status"]
    assert (status["succeeded"], status["failed"]) == (16, 4)
    assert (status["completedIndexes"], status["failedIndexes"]) == ("1-4,6-9,11-14,16-19", "0,5,10,15")
    assert sorted(map(index, pods)) == list(range(20))


async def test_a_cache_that_is_behind_makes_no_pod_too_many():
    for late in (("pods",), ("jobs",), ("pods", "jobs")):
        async with local_server() as server, running(server, [PodPlayer(lambda pod: Play.SUCCEEDED).add]) as nodes:
            jobs, pods = nodes.resource("jobs", "batch"), nodes.resource("pods")
            async with running(Lagging(server, 0.03, *late), [wiring.add]):
                await jobs.create(a_job(completions=12, parallelism=5), "default")
                await eventually(lambda jobs=jobs: _over(jobs), timeout_s=30)
            assert (await jobs.get("j", "default"))["status"]["succeeded"] == 12
            assert len((await pods.list()).items) == 12, late


async def test_a_job_of_a_thousand_pods_is_counted_in_few_writes():
    async with world() as w:
        writes = []
        w.context.informer("jobs", "batch").cache.add_handler(writes.append)
        await w.create(a_job(completions=1000, parallelism=500))
        await eventually(w.over, timeout_s=60)
        assert (await w.status())["succeeded"] == 1000
        assert len(writes) < 100
        assert len(await w.all_pods()) == 1000


async def _over(jobs):
    status = (await jobs.get("j", "default")).get("status") or {}
    return any(c["type"] in ("Complete", "Failed") for c in status.get("conditions") or ())


async def _either(cut, jobs):
    return cut.over.is_set() or await _over(jobs)


async def _reasons(w, wanted):
    return wanted <= await w.reasons()
