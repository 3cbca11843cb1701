"""Data of jobs: constants, views of a job and its pods, counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shoal.controllers.job.indexes import Indexes
from shoal.controllers.pods.conditions import find_condition
from shoal.controllers.pods.status import is_terminating, phase_of
from shoal.kube.objects import Obj
from shoal.kube.times import format_time

FINALIZER: Final = "batch.kubernetes.io/job-tracking"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
FAILURE_COUNT: Final = "batch.kubernetes.io/job-index-failure-count"
IGNORED_COUNT: Final = "batch.kubernetes.io/job-index-ignored-failure-count"
CONTROLLER_NAME: Final = "kubernetes.io/job-controller"
MAX_UNCOUNTED: Final = 500
MAX_INT32: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class JobBackoff:
    """The number of failures since the last success, and the time of the last failure."""

    failures: int = 0
    last_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a job is over. ``recorded``: its status already has the reason, perhaps not yet the final condition."""

    success: bool
    reason: str
    message: str
    recorded: bool = False

    @property
    def interim(self) -> str:
        return "SuccessCriteriaMet" if self.success else "FailureTarget"

    @property
    def final(self) -> str:
        return "Complete" if self.success else "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job and its pods at one moment."""

    job: Obj
    pods: tuple[Obj, ...]
    held: frozenset[str]  # uids of pods with the finalizer: not counted yet, or being counted at the last stop
    active: tuple[Obj, ...]
    ready: int
    terminating: int
    succeeded: int  # counted or not
    failed: int
    ending: Ending | None
    completed: Indexes
    failed_indexes: Indexes | None  # None: failures are not counted per index
    delayed: dict[int, Obj]  # failed pods kept until their replacement has recorded the failure
    backoff: JobBackoff
    deadline_s: float | None  # time left until the active deadline


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Counts of pods after this pass's creations and deletions."""

    active: int
    ready: int
    terminating: int


def is_indexed(job: Obj) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def is_suspended(job: Obj) -> bool:
    return bool(job["spec"].get("suspend"))


def is_finished(job: Obj) -> bool:
    return bool(finished_as(job))


def finished_as(job: Obj) -> str:
    """``Complete``, ``Failed``, or empty while it is not finished."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            kind: str = condition["type"]
            return kind
    return ""


def is_ours(job: Obj) -> bool:
    """Whether this controller manages the job, and not another named in ``managedBy``."""
    return job["spec"].get("managedBy") in (None, CONTROLLER_NAME)


def has_finalizer(pod: Obj) -> bool:
    return FINALIZER in (pod["metadata"].get("finalizers") or ())


def waits_for_end(job: Obj) -> bool:
    """Whether a pod is replaced only after it has ended, not already while it terminates."""
    return bool(job["spec"].get("podReplacementPolicy") == "Failed")


def is_failed(pod: Obj, job: Obj) -> bool:
    """Whether a pod failed; a terminating pod counts, since it may disappear without a final phase."""
    phase = phase_of(pod)
    if phase == "Failed":
        return True
    return not waits_for_end(job) and is_terminating(pod) and phase != "Succeeded"


def index_of(pod: Obj) -> int | None:
    """The completion index of a pod, if it has one."""
    text = (pod["metadata"].get("annotations") or {}).get(COMPLETION_INDEX) or ""
    return int(text) if text.isascii() and text.isdigit() else None


def valid_index(pod: Obj, job: Obj) -> int | None:
    """The pod's index if it is valid for the job."""
    index = index_of(pod)
    return index if index is not None and index < (job["spec"].get("completions") or 0) else None


def count_annotation(pod: Obj, name: str) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(name) or ""
    number = int(text) if text.isascii() and text.isdigit() else 0
    return number if number <= MAX_INT32 else 0


def failures_before(pod: Obj) -> int:
    """Earlier failures of the pod's index, including ignored ones."""
    return count_annotation(pod, FAILURE_COUNT) + count_annotation(pod, IGNORED_COUNT)


def with_job_condition(
    conditions: Sequence[Obj], kind: str, status: str, reason: str, message: str, now: float
) -> tuple[list[Obj], bool]:
    """The list with the condition, and whether it changed. A condition that was never true is not added as false."""
    known = find_condition(conditions, kind)
    if known is None and status == "False":
        return list(conditions), False
    if known is not None and (known["status"], known.get("reason"), known.get("message")) == (status, reason, message):
        return list(conditions), False
    stamp = format_time(now)
    made = {
        "type": kind, "status": status, "lastProbeTime": stamp, "lastTransitionTime": stamp, "reason": reason,
        "message": message,
    }  # fmt: skip
    if known is None:
        return [*conditions, made], True
    return [made if each is known else each for each in conditions], True
