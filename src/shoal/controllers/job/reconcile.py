"""Runs jobs: creates and deletes their pods, counts finished pods, and finishes jobs."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.controllers.context import ControllerContext
from shoal.controllers.job.claims import JobClaimer, remove_finalizer
from shoal.controllers.job.model import (
    Ending,
    JobBackoff,
    JobCounts,
    JobView,
    has_finalizer,
    is_finished,
    is_ours,
)
from shoal.controllers.job.plan import observe, plan_pods, reached
from shoal.controllers.job.template import job_reference
from shoal.controllers.job.tracking import begin_status, conclude, same_status, settle, suspension, track
from shoal.controllers.pods.control import BURST, Call, Failure, PodControl, all_of
from shoal.controllers.pods.expectations import RECHECK_S, Expectations
from shoal.controllers.pods.owners import by_controller, selector_of
from shoal.controllers.pods.status import is_ready, is_terminating
from shoal.kube.objects import Obj
from shoal.reconcile import DONE, EventType, Result
from shoal.reconcile.keys import ObjectKey


class JobController:
    """Reconciles jobs."""

    def __init__(self, context: ControllerContext) -> None:
        self.jobs = context.informer("jobs", "batch")
        self.pods = context.informer("pods", controller=by_controller)
        self._clock = context.clock
        self._events = context.events
        self._resource, self._pod_resource = context.resource("jobs", "batch"), context.resource("pods")
        self._expectations = Expectations(context.clock)
        self._control = PodControl(context, self.pods.cache, self._expectations)
        self._claimer = JobClaimer(self._pod_resource, self.pods.cache, self._resource, self._expectations)
        self._uids: dict[ObjectKey, str] = {}
        self._backoffs: dict[str, JobBackoff] = {}  # by the job's uid; in memory only
        self._released: dict[str, set[str]] = {}  # pods whose finalizer is removed, until the cache shows it

    async def reconcile(self, key: ObjectKey) -> Result:
        job = self.jobs.cache.get(key)
        if job is None or job["metadata"]["uid"] != self._uids.get(key):
            self._forget(self._uids.pop(key, ""))
        if job is None or not is_ours(job):
            return DONE
        uid = self._uids[key] = job["metadata"]["uid"]
        if not self._expectations.satisfied(uid):
            return Result(after_s=RECHECK_S)
        if is_finished(job):
            self._forget(uid)
            return DONE
        return await self._sync(uid, job)

    async def _sync(self, uid: str, job: Obj) -> Result:
        pods = await self._claimer.claim(job, job_reference(job), selector_of(job))
        now = self._clock.wall_s()
        view = observe(job, pods, self._still_released(uid, pods), self._backoffs.get(uid, JobBackoff()), now)
        counts = JobCounts(len(view.active), view.ready, view.terminating)
        ending, failure, wait_s, managed = view.ending, None, view.deadline_s, False
        if ending is not None:
            counts, failure = await self._delete(job, counts, view.active)
            wait_s = None
        elif not is_terminating(job):
            managed = True
            plan = plan_pods(view, now)
            wait_s = min((each for each in (plan.wait_s, view.deadline_s) if each is not None), default=None)
            if plan.deletes:
                counts, failure = await self._discard(uid, job, counts, plan.deletes)
            elif plan.creates:
                outcome = await self._control.create(job, plan.creates)
                counts = JobCounts(counts.active + len(outcome.done), counts.ready, counts.terminating)
                failure = outcome.failure
        if ending is None:
            ending = reached(view, counts.active)
        elif failure is not None:
            ending = None  # running pods must stay tracked
        await self._report(uid, view, counts, ending, managed=managed)
        if failure is not None:
            raise failure
        return Result(after_s=wait_s)

    # pods

    async def _delete(self, job: Obj, counts: JobCounts, pods: Sequence[Obj]) -> tuple[JobCounts, Failure | None]:
        """Delete running pods; they stay tracked until they are counted."""
        for start in range(0, len(pods), BURST):
            batch = pods[start : start + BURST]
            outcome = await self._control.delete(job, batch)
            if outcome.failure is not None:
                return counts, outcome.failure
            counts = JobCounts(
                counts.active - len(batch), counts.ready - sum(map(is_ready, batch)), counts.terminating + len(batch)
            )
        return counts, None

    async def _discard(
        self, uid: str, job: Obj, counts: JobCounts, pods: Sequence[Obj]
    ) -> tuple[JobCounts, Failure | None]:  # fmt: skip
        """Delete surplus pods, which do not count as failures."""
        _, failure = await self._release(uid, [pod for pod in pods if has_finalizer(pod)])
        if failure is not None:
            return counts, failure
        return await self._delete(job, counts, pods)

    async def _release(self, uid: str, pods: Sequence[Obj]) -> tuple[set[str], Failure | None]:
        """Remove the finalizers; return the uids of the pods without one."""

        def call(pod: Obj) -> Call[tuple[str, Obj | None]]:
            async def remove() -> tuple[str, Obj | None]:
                return pod["metadata"]["uid"], await remove_finalizer(self._pod_resource, pod)

            return remove

        done, failure = await all_of([call(pod) for pod in pods])
        gone = {pod_uid for pod_uid, _ in done}
        if gone:
            self._released.setdefault(uid, set()).update(gone)
        for _, answer in done:
            if answer is not None:
                self._expectations.wrote(uid, self.pods.cache, answer)
        return gone, failure

    def _still_released(self, uid: str, pods: Sequence[Obj]) -> frozenset[str]:
        known = self._released.get(uid)
        if not known:
            return frozenset()
        known.intersection_update({pod["metadata"]["uid"] for pod in pods if has_finalizer(pod)})
        return frozenset(known)

    # status

    async def _report(
        self, uid: str, view: JobView, counts: JobCounts, ending: Ending | None, *, managed: bool
    ) -> None:
        """Record uncounted pods, remove their finalizers, count them; then finish the job if it is over."""
        job, now = view.job, self._clock.wall_s()
        status, happened = begin_status(view, counts, now), ""
        if managed and ending is None:
            status, happened = suspension(view, status, now)
        tracking = track(view, status, ending, now)
        if not same_status(tracking.status, job.get("status")):
            job = await self._write(uid, job, tracking.status)
        self._backoffs[uid] = view.backoff
        if happened:
            self._events.record(job, EventType.NORMAL, happened, f"Job {happened.lower()}")
        gone, failure = await self._release(uid, tracking.releases)
        status = settle(tracking.status, view.held - gone)
        finished = None
        if ending is not None and failure is None and not tracking.limited:
            finished = conclude(status, ending, now)
        if not same_status(finished or status, job.get("status")):
            job = await self._write(uid, job, finished or status)
        if finished is not None and ending is not None:
            self._record_ending(job, ending)
        if failure is not None:
            raise failure

    async def _write(self, uid: str, job: Obj, status: Obj) -> Obj:
        answer = await self._resource.replace_status({**job, "status": status})
        self._expectations.wrote(uid, self.jobs.cache, answer)
        return answer

    def _record_ending(self, job: Obj, ending: Ending) -> None:
        if not ending.success:
            self._events.record(job, EventType.WARNING, ending.reason, ending.message)
            return
        completions = job["spec"].get("completions")
        if completions is not None and (job["status"].get("succeeded") or 0) > completions:
            text = "Too many succeeded pods running after completion count reached"
            self._events.record(job, EventType.WARNING, "TooManySucceededPods", text)
        self._events.record(job, EventType.NORMAL, "Completed", "Job completed")

    def _forget(self, uid: str) -> None:
        self._expectations.forget(uid)
        self._backoffs.pop(uid, None)
        self._released.pop(uid, None)
