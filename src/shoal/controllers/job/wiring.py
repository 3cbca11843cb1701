"""Watches jobs and their pods. Changes of pods are batched: a job of thousands of pods is not reconciled for each of
them."""

from __future__ import annotations

from typing import Any, Final

from shoal.client import TransportError
from shoal.controllers.context import ControllerContext
from shoal.controllers.job.model import has_finalizer, is_finished
from shoal.controllers.job.orphans import OrphanController
from shoal.controllers.job.reconcile import JobController
from shoal.controllers.pods.owners import controlled_by, selector_of
from shoal.controllers.pods.pace import Pace
from shoal.controllers.pods.status import restarts_of
from shoal.controllers.pods.triggers import Triggers, pod_facts
from shoal.errors import ApiError
from shoal.kube.objects import Obj
from shoal.reconcile import Result, spec_changed
from shoal.reconcile.cache import Change
from shoal.reconcile.keys import ObjectKey, key_of

WINDOW_S: Final = 0.2
RETRY_S: Final = 60.0


class _EvenPace(Pace):
    """A pace that always waits for the end of the window: no change of a job's pods is urgent."""

    def now(self, key: ObjectKey) -> None:
        self.soon(key)


def _facts(pod: Obj) -> Any:
    return pod_facts(pod), has_finalizer(pod), restarts_of(pod)


def add(context: ControllerContext) -> None:
    work = JobController(context)

    async def reconcile(key: ObjectKey) -> Result:
        try:
            return await work.reconcile(key)
        except (ApiError, TransportError):
            controller.queue.add_after(key, RETRY_S)  # at most: a quota may have been raised meanwhile
            raise

    controller = context.controller("job", reconcile, workers=5, timeout_s=120.0)
    controller.watches(work.jobs, when=spec_changed)
    controller.maps(work.pods, lambda pod: ())  # only to wait for its cache; the handlers below enqueue keys
    pace = _EvenPace(controller.queue, context.clock, window_s=WINDOW_S)
    work.pods.cache.add_handler(
        Triggers(
            kind="Job", group="batch", owners=work.jobs.cache, selector_of=selector_of, pace=pace, facts=_facts
        )  # fmt: skip
    )
    left = OrphanController(context, work.jobs, work.pods)
    orphans = context.controller("job-orphans", left.reconcile, workers=5)
    for informer in (work.jobs, work.pods):
        orphans.maps(informer, lambda obj: ())

    def on_job(change: Change) -> None:
        """The job changed, perhaps by the controller's own write. When it is over, its pods are orphans."""
        if change.new is not None and change.old is not None:
            pace.soon(change.key)
        if change.new is None or is_finished(change.new):
            for pod in controlled_by(work.pods.cache, change.object):
                if has_finalizer(pod):
                    orphans.queue.add(key_of(pod))

    def on_pod(change: Change) -> None:
        if change.new is not None and left.is_orphan(change.new):
            orphans.queue.add(change.key)

    orphans.resyncs(work.pods, lambda: [key_of(pod) for pod in work.pods.cache if left.is_orphan(pod)])
    work.jobs.cache.add_handler(on_job)
    work.pods.cache.add_handler(on_pod)
