"""The backoff of a job after failures: 10 seconds, doubling to 10 minutes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shoal.controllers.job.model import JobBackoff, failures_before
from shoal.controllers.pods.status import condition_of, created_at
from shoal.kube.objects import Obj
from shoal.kube.times import parse_epoch

BASE_S: Final = 10.0
CAP_S: Final = 600.0


def finished_at(pod: Obj) -> float:
    """The end of a pod: of its last container, else when it stopped being ready, was deleted, or was created."""
    ended = _containers_finished(pod)
    if ended is not None:
        return ended
    ready = condition_of(pod, "Ready")
    if ready is not None and ready["status"] == "False" and ready.get("lastTransitionTime"):
        return parse_epoch(ready["lastTransitionTime"])
    deleted = pod["metadata"].get("deletionTimestamp")
    if deleted:
        return parse_epoch(deleted) - (pod["metadata"].get("deletionGracePeriodSeconds") or 0)
    return created_at(pod)


def _containers_finished(pod: Obj) -> float | None:
    """The end of the last container; None if one still runs, or there is none."""
    status = pod.get("status") or {}
    started = pod["spec"].get("initContainers") or ()
    sidecars = {each["name"] for each in started if each.get("restartPolicy") == "Always"}
    initial = [each for each in status.get("initContainerStatuses") or () if each["name"] in sidecars]
    times: list[float] = []
    for container in (*(status.get("containerStatuses") or ()), *initial):
        text = ((container.get("state") or {}).get("terminated") or {}).get("finishedAt")
        if not text:
            return None
        times.append(parse_epoch(text))
    return max(times, default=None)


def after_pods(before: JobBackoff, succeeded: Sequence[Obj], failed: Sequence[Obj]) -> JobBackoff:
    """The state after these pods have ended; a success resets earlier failures."""
    times = sorted(map(finished_at, failed))
    if succeeded:
        last_success = max(map(finished_at, succeeded))
        times = [at for at in times if at > last_success]
        before = JobBackoff()
    if not times:
        return before
    return JobBackoff(before.failures + len(times), times[-1])


def remaining_s(backoff: JobBackoff, now: float) -> float:
    """How long until the next pod may be created."""
    if not backoff.failures:
        return 0.0
    delay_s = min(CAP_S, BASE_S * (1 << min(backoff.failures - 1, 30)))
    return max(0.0, backoff.last_at + delay_s - now)


def remaining_of_index_s(last_failed: Obj | None, now: float) -> float:
    """Like ``remaining_s`` for one index, whose last failed pod records the number of earlier failures."""
    if last_failed is None:
        return 0.0
    return remaining_s(JobBackoff(failures_before(last_failed) + 1, finished_at(last_failed)), now)
