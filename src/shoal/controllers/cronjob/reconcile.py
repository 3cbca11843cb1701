"""Starts the jobs of CronJobs at their times, and tracks them in the status."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from shoal.client import Propagation, TransportError
from shoal.controllers.context import ControllerContext
from shoal.controllers.cronjob.due import Due, parse_due, zone_of
from shoal.controllers.cronjob.plan import (
    NoStart,
    ScheduleError,
    Skip,
    job_of,
    job_reference,
    next_delay_s,
    plan_active,
    plan_history,
    plan_start,
    status_of,
)
from shoal.controllers.job.model import finished_as
from shoal.controllers.pods.control import namespace_ends
from shoal.controllers.pods.expectations import RECHECK_S, Expectations
from shoal.controllers.pods.owners import by_controller, controlled_by
from shoal.controllers.pods.status import is_terminating
from shoal.errors import AlreadyExists, ApiError, NotFound
from shoal.kube.objects import Obj
from shoal.reconcile import DONE, EventType, Result
from shoal.reconcile.keys import ObjectKey, controller_of

_UNSUPPORTED = (
    "CRON_TZ or TZ used in schedule {} is not officially supported, see "
    "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
)


class CronJobController:
    """Reconciles CronJobs."""

    def __init__(self, context: ControllerContext) -> None:
        self.crons = context.informer("cronjobs", "batch")
        self.jobs = context.informer("jobs", "batch", controller=by_controller)
        self._clock = context.clock
        self._events = context.events
        self._resource, self._job_resource = context.resource("cronjobs", "batch"), context.resource("jobs", "batch")
        self._expectations = Expectations(context.clock)
        self._uids: dict[ObjectKey, str] = {}

    async def reconcile(self, key: ObjectKey) -> Result:
        cron = self.crons.cache.get(key)
        if cron is None:
            self._expectations.forget(self._uids.pop(key, ""))
            return DONE
        uid = self._uids[key] = cron["metadata"]["uid"]
        if not self._expectations.satisfied(uid):
            return Result(after_s=RECHECK_S)
        jobs = controlled_by(self.jobs.cache, cron)
        active, last_success = await self._account(cron, jobs)
        for job in plan_history(cron, jobs):
            await self._delete(cron, job)
        scheduled: float | None = None
        failure: ApiError | TransportError | None = None
        schedule = self._schedule(cron)
        if schedule is not None:
            try:
                active, scheduled = await self._start(cron, active, schedule)
            except (ApiError, TransportError) as error:
                failure = error
        status = status_of(cron, active, last_success, scheduled)
        if status != (cron.get("status") or {}):
            cron = await self._resource.replace_status({**cron, "status": status})
            self._expectations.wrote(uid, self.crons.cache, cron)
        if failure is not None:
            raise failure
        return Result(after_s=next_delay_s(cron, self._clock.wall_s(), schedule) if schedule is not None else None)

    async def _account(self, cron: Obj, jobs: Sequence[Obj]) -> tuple[list[Obj], str]:
        """The references of running jobs, and the last success."""
        plan = plan_active(cron, jobs)
        for job in plan.completed:
            text = f"Saw completed job: {job['metadata']['name']}, condition: {finished_as(job)}"
            self._events.record(cron, EventType.NORMAL, "SawCompletedJob", text)
        for job in plan.unexpected:
            text = f"Saw a job that the controller did not create or forgot: {job['metadata']['name']}"
            self._events.record(cron, EventType.WARNING, "UnexpectedJob", text)
        active = list(plan.active)
        for reference in plan.missing:
            if not await self._exists(reference):
                text = f"Active job went missing: {reference['name']}"
                self._events.record(cron, EventType.NORMAL, "MissingJob", text)
                active.remove(reference)
        return active, plan.last_success

    async def _exists(self, reference: Obj) -> bool:
        """Ask the server, because the cache may lag."""
        try:
            await self._job_resource.get(reference["name"], reference["namespace"])
        except NotFound:
            return False
        return True

    def _schedule(self, cron: Obj) -> Due | None:
        """The schedule to follow; None if suspended or invalid."""
        spec = cron["spec"]
        zone, text = spec.get("timeZone") or "", spec["schedule"]
        if is_terminating(cron):
            return None
        try:
            zone_of(zone)
        except ValueError as error:
            self._warn(cron, "UnknownTimeZone", f'invalid timeZone: "{zone}": {error}')
            return None
        if spec.get("suspend"):
            return None
        if "TZ" in text:
            self._warn(cron, "UnsupportedSchedule", _UNSUPPORTED.format(f'"{text}"'))
        try:
            return parse_due(text, zone)
        except ValueError as error:
            self._warn(cron, "UnparseableSchedule", f'unparseable schedule: "{text}" : {error}')
            return None

    async def _start(self, cron: Obj, active: list[Obj], schedule: Due) -> tuple[list[Obj], float | None]:
        """Start a due job; return the jobs that then run, and the time of the started one."""
        try:
            decided = plan_start(cron, active, self._clock.wall_s(), schedule)
        except ScheduleError as error:
            self._warn(cron, "InvalidSchedule", f"invalid schedule: {cron['spec']['schedule']} : {error}")
            return active, None
        if decided.many_missed:
            text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
            self._warn(cron, "TooManyMissedTimes", text)
        if isinstance(decided, NoStart):
            self._record_skipped(cron, decided)
            return active, None
        for reference in decided.replaces:
            await self._replace(cron, reference)
        left = [reference for reference in active if reference not in decided.replaces]
        job = await self._create(cron, decided.at)
        if job is None or any(reference["uid"] == job["metadata"]["uid"] for reference in left):
            return left, None
        return [*left, job_reference(job)], decided.at

    def _record_skipped(self, cron: Obj, decided: NoStart) -> None:
        if decided.why is Skip.TOO_LATE:
            at = datetime.fromtimestamp(decided.at, UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
            self._warn(cron, "MissSchedule", f"Missed scheduled time to start a job: {at}")
        elif decided.why is Skip.ACTIVE:
            text = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self._events.record(cron, EventType.NORMAL, "JobAlreadyActive", text)

    async def _create(self, cron: Obj, at: float) -> Obj | None:
        """The job of that time, created now or earlier; None if another owner has its name."""
        made = job_of(cron, at)
        try:
            job = await self._job_resource.create(made)
        except AlreadyExists:
            # An earlier attempt created it but did not write the status.
            job = await self._job_resource.get(made["metadata"]["name"], made["metadata"]["namespace"])
            owner = controller_of(job)
            return job if owner is not None and owner["uid"] == cron["metadata"]["uid"] else None
        except ApiError as error:
            if not namespace_ends(error):
                self._warn(cron, "FailedCreate", f"Error creating job: {error}")
            raise
        self._expectations.wrote(cron["metadata"]["uid"], self.jobs.cache, job)
        self._events.record(cron, EventType.NORMAL, "SuccessfulCreate", f"Created job {job['metadata']['name']}")
        return job

    async def _replace(self, cron: Obj, reference: Obj) -> None:
        try:
            job = await self._job_resource.get(reference["name"], reference["namespace"])
        except NotFound:
            return
        except ApiError as error:
            self._warn(cron, "FailedGet", f"Get job: {error}")
            raise
        await self._delete(cron, job, raises=True)

    async def _delete(self, cron: Obj, job: Obj, *, raises: bool = False) -> bool:
        """Delete a job and its pods; return whether it is deleted."""
        about = job["metadata"]
        try:
            await self._job_resource.delete(
                about["name"], about["namespace"], uid=about["uid"], propagation=Propagation.BACKGROUND
            )
        except NotFound:
            return True
        except ApiError as error:
            self._warn(cron, "FailedDelete", f"Deleted job: {error}")
            if raises:
                raise
            return False
        self._expectations.deleted(cron["metadata"]["uid"], self.jobs.cache, job)
        self._events.record(cron, EventType.NORMAL, "SuccessfulDelete", f"Deleted job {about['name']}")
        return True

    def _warn(self, cron: Obj, reason: str, text: str) -> None:
        self._events.record(cron, EventType.WARNING, reason, text)
