"""Computes when a finished Job expires."""

from __future__ import annotations

from shoal.kube.objects import Obj
from shoal.kube.times import parse_epoch


def expires_at(job: Obj) -> float | None:
    """The expiry as seconds since 1970; None for a Job that has not finished, has no TTL, or is terminating."""
    ttl_s = job["spec"].get("ttlSecondsAfterFinished")
    if ttl_s is None or job["metadata"].get("deletionTimestamp"):
        return None
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            at = condition.get("lastTransitionTime")
            return parse_epoch(at) + ttl_s if at else None
    return None
