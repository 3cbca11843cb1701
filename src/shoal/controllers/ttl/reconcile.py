"""Waits until a Job expires, reads it again from the server, and deletes it with its pods."""

from __future__ import annotations

from shoal.client import Propagation
from shoal.controllers.context import ControllerContext
from shoal.controllers.ttl.plan import expires_at
from shoal.errors import Conflict, NotFound
from shoal.reconcile import DONE, Cache, ObjectKey, Result


class FinishedJobs:
    def __init__(self, context: ControllerContext, jobs: Cache) -> None:
        self._context = context
        self._jobs = jobs
        self._resource = context.resource("jobs", "batch")

    async def reconcile(self, key: ObjectKey) -> Result:
        job = self._jobs.get(key)
        at = expires_at(job) if job is not None else None
        if job is None or at is None:
            return DONE
        left_s = at - self._context.clock.wall_s()
        if left_s > 0:
            return Result(after_s=left_s)
        try:
            fresh = await self._resource.get(key.name, key.namespace)
            at = expires_at(fresh)
            if at is None or at > self._context.clock.wall_s():
                return DONE  # the TTL was changed; the watch enqueues it again
            await self._resource.delete(
                key.name, key.namespace, propagation=Propagation.FOREGROUND, uid=fresh["metadata"]["uid"],
                resource_version=fresh["metadata"]["resourceVersion"],
            )  # fmt: skip
        except NotFound:
            pass
        except Conflict:
            return Result(after_s=1.0)
        return DONE
