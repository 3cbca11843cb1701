"""Removes the finalizer from pods without a job: no job will count them."""

from __future__ import annotations

from shoal.controllers.context import ControllerContext
from shoal.controllers.job.claims import remove_finalizer
from shoal.controllers.job.model import has_finalizer, is_finished, is_ours
from shoal.errors import NotFound
from shoal.kube.objects import Obj
from shoal.reconcile import DONE, Informer, Result
from shoal.reconcile.keys import ObjectKey, controller_of


class OrphanController:
    """Reconciles pods with the finalizer that may have no job."""

    def __init__(self, context: ControllerContext, jobs: Informer, pods: Informer) -> None:
        self._jobs = jobs.cache
        self._pods = pods.cache
        self._resource, self._job_resource = context.resource("pods"), context.resource("jobs", "batch")

    async def reconcile(self, key: ObjectKey) -> Result:
        pod = self._pods.get(key)
        if pod is not None and self.is_orphan(pod) and await self._is_left(pod):
            await remove_finalizer(self._resource, pod)
        return DONE

    async def _is_left(self, pod: Obj) -> bool:
        """Whether the server has no job for it either: the cache of jobs may lag behind that of pods."""
        reference = controller_of(pod)
        if reference is None:
            return True
        namespace = pod["metadata"]["namespace"]
        if ObjectKey(namespace, reference["name"]) in self._jobs:
            return True
        try:
            job = await self._job_resource.get(reference["name"], namespace)
        except NotFound:
            return True
        return bool(job["metadata"]["uid"] != reference["uid"])

    def is_orphan(self, pod: Obj) -> bool:
        """Whether it is tracked for a job that is finished, deleted, or no longer its controller."""
        if not has_finalizer(pod):
            return False
        reference = controller_of(pod)
        if reference is None:
            return True
        if reference["kind"] != "Job" or reference["apiVersion"] != "batch/v1":
            return False
        job = self._jobs.get(ObjectKey(pod["metadata"]["namespace"], reference["name"]))
        if job is None or job["metadata"]["uid"] != reference["uid"]:
            return True
        return is_ours(job) and is_finished(job)
