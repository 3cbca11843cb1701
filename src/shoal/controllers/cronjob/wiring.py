"""Watches CronJobs and their jobs; a timer starts the next time of a schedule."""

from __future__ import annotations

from shoal.controllers.context import ControllerContext
from shoal.controllers.cronjob.due import parse_due
from shoal.controllers.cronjob.plan import next_delay_s
from shoal.controllers.cronjob.reconcile import CronJobController
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Change


def add(context: ControllerContext) -> None:
    work = CronJobController(context)
    controller = context.controller("cronjob", work.reconcile, workers=5)
    controller.watches(work.crons, when=lambda change: not _rescheduled(change))
    controller.owns(work.jobs, kind="CronJob", group="batch", when=_matters)

    def on_cron(change: Change) -> None:
        """A changed schedule starts with its next time: its past times are not made up for."""
        if change.new is None or not _rescheduled(change):
            return
        try:
            schedule = parse_due(change.new["spec"]["schedule"], change.new["spec"].get("timeZone") or "")
        except ValueError:
            controller.queue.add(change.key)  # the reconcile reports the error
            return
        delay_s = next_delay_s(change.new, context.clock.wall_s(), schedule)
        if delay_s is not None:
            controller.queue.add_after(change.key, max(delay_s, 0.0))

    work.crons.cache.add_handler(on_cron)


def _rescheduled(change: Change) -> bool:
    if change.old is None or change.new is None:
        return False
    before, after = change.old["spec"], change.new["spec"]
    return bool(before["schedule"] != after["schedule"] or before.get("timeZone") != after.get("timeZone"))


def _matters(change: Change) -> bool:
    """Whether a job was added, deleted or has ended; changes of its counts are ignored."""
    if change.old is None or change.new is None:
        return True
    return _facts(change.old) != _facts(change.new)


def _facts(job: Obj) -> object:
    conditions = (job.get("status") or {}).get("conditions") or ()
    owners = job["metadata"].get("ownerReferences")
    return [(each["type"], each["status"]) for each in conditions], owners, job["metadata"].get("deletionTimestamp")
