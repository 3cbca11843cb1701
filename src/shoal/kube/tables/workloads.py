"""Tables of workloads: the kinds of apps and batch, replication controllers, disruption budgets and templates."""

from __future__ import annotations

from typing import Final

from shoal.kube.objects import Obj
from shoal.kube.tables.printer import AGE, CONTAINERS, IMAGES, NAME, SELECTOR, Cells, Printer, column
from shoal.kube.tables.text import (
    NONE,
    UNSET,
    age,
    containers,
    deleting,
    epoch,
    human_duration,
    is_true,
    labels,
    metadata,
    name,
    selector,
    since,
    spec,
    status,
)


def _template(obj: Obj) -> Obj:
    return spec(obj).get("template") or {}


def _count(holder: Obj, field: str) -> int:
    return holder.get(field) or 0


def _pod_set(obj: Obj, now: float, chosen: str) -> Cells:
    current = status(obj)
    return [
        name(obj),
        _count(spec(obj), "replicas"),
        _count(current, "replicas"),
        _count(current, "readyReplicas"),
        age(obj, now),
        *containers(_template(obj)),
        chosen,
    ]


def _replica_set(obj: Obj, now: float) -> Cells:
    return _pod_set(obj, now, selector(spec(obj).get("selector")) or NONE)


def _replication_controller(obj: Obj, now: float) -> Cells:
    return _pod_set(obj, now, labels(spec(obj).get("selector")))


def _deployment(obj: Obj, now: float) -> Cells:
    current = status(obj)
    return [
        name(obj),
        f"{_count(current, 'readyReplicas')}/{_count(spec(obj), 'replicas')}",
        _count(current, "updatedReplicas"),
        _count(current, "availableReplicas"),
        age(obj, now),
        *containers(_template(obj)),
        selector(spec(obj).get("selector")),
    ]


def _stateful_set(obj: Obj, now: float) -> Cells:
    ready = f"{_count(status(obj), 'readyReplicas')}/{_count(spec(obj), 'replicas')}"
    return [name(obj), ready, age(obj, now), *containers(_template(obj))]


def _daemon_set(obj: Obj, now: float) -> Cells:
    current, template = status(obj), _template(obj)
    return [
        name(obj),
        _count(current, "desiredNumberScheduled"),
        _count(current, "currentNumberScheduled"),
        _count(current, "numberReady"),
        _count(current, "updatedNumberScheduled"),
        _count(current, "numberAvailable"),
        labels(spec(template).get("nodeSelector")),
        age(obj, now),
        *containers(template),
        selector(spec(obj).get("selector")) or NONE,
    ]


def _job(obj: Obj, now: float) -> Cells:
    return [
        name(obj),
        _job_status(obj),
        _completions(obj),
        _job_duration(status(obj), now),
        age(obj, now),
        *containers(_template(obj)),
        selector(spec(obj).get("selector")) or NONE,
    ]


def _job_status(obj: Obj) -> str:
    current = status(obj)
    for kind in ("Complete", "Failed"):
        if is_true(current, kind):
            return kind
    if deleting(obj):
        return "Terminating"
    for kind in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if is_true(current, kind):
            return kind
    return "Running"


def _completions(obj: Obj) -> str:
    succeeded = _count(status(obj), "succeeded")
    wanted = spec(obj).get("completions")
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    parallelism = _count(spec(obj), "parallelism")
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(current: Obj, now: float) -> str:
    start = epoch(current.get("startTime") or "")
    if start is None:
        return ""
    end = epoch(current.get("completionTime") or "")
    return human_duration((now if end is None else end) - start)


def _cron_job(obj: Obj, now: float) -> Cells:
    wanted, current = spec(obj), status(obj)
    job = spec(wanted.get("jobTemplate") or {})
    last = current.get("lastScheduleTime")
    suspend = wanted.get("suspend")
    return [
        name(obj),
        wanted.get("schedule") or "",
        wanted.get("timeZone") or NONE,
        UNSET if suspend is None else "True" if suspend else "False",
        len(current.get("active") or ()),
        since(last, now) if last else NONE,
        age(obj, now),
        *containers(job.get("template") or {}),
        selector(job.get("selector")) or NONE,
    ]


def _pod_template(obj: Obj, now: float) -> Cells:
    template = obj.get("template") or {}
    return [name(obj), *containers(template), labels(metadata(template).get("labels"))]


def _controller_revision(obj: Obj, now: float) -> Cells:
    return [name(obj), _controller(obj), obj.get("revision") or 0, age(obj, now)]


def _controller(obj: Obj) -> str:
    for owner in metadata(obj).get("ownerReferences") or ():
        if owner.get("controller"):
            group = (owner.get("apiVersion") or "").rpartition("/")[0]
            kind = (owner.get("kind") or "").lower()
            return f"{kind}.{group}/{owner.get('name')}" if group else f"{kind}/{owner.get('name')}"
    return NONE


def _disruption_budget(obj: Obj, now: float) -> Cells:
    wanted = spec(obj)
    return [
        name(obj),
        str(wanted.get("minAvailable", "N/A")),
        str(wanted.get("maxUnavailable", "N/A")),
        _count(status(obj), "disruptionsAllowed"),
        age(obj, now),
    ]


_POD_SET_COLUMNS: Final = [
    NAME,
    column("Desired", "Desired number of pods.", "integer"),
    column("Current", "Pods that exist.", "integer"),
    column("Ready", "Pods that are ready.", "integer"),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
]

PRINTERS: Final = {
    ("", "ReplicationController"): Printer(_POD_SET_COLUMNS, _replication_controller),
    ("apps", "ReplicaSet"): Printer(_POD_SET_COLUMNS, _replica_set),
    ("apps", "Deployment"): Printer(
        [
            NAME,
            column("Ready", "Ready pods, of the desired number."),
            column("Up-to-date", "Pods made from the current template."),
            column("Available", "Pods that have been ready for long enough."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        _deployment,
    ),
    ("apps", "StatefulSet"): Printer(
        [NAME, column("Ready", "Ready pods, of the desired number."), AGE, CONTAINERS, IMAGES], _stateful_set
    ),
    ("apps", "DaemonSet"): Printer(
        [
            NAME,
            column("Desired", "Nodes that should run a pod.", "integer"),
            column("Current", "Nodes that run a pod and should.", "integer"),
            column("Ready", "Nodes whose pod is ready.", "integer"),
            column("Up-to-date", "Nodes whose pod is made from the current template.", "integer"),
            column("Available", "Nodes whose pod has been ready for long enough.", "integer"),
            column("Node Selector", "Labels a node must have to run a pod."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        _daemon_set,
    ),
    ("apps", "ControllerRevision"): Printer(
        [
            NAME,
            column("Controller", "Object that the revision belongs to."),
            column("Revision", "Number of the revision."),
            AGE,
        ],
        _controller_revision,
    ),
    ("batch", "Job"): Printer(
        [
            NAME,
            column("Status", "State of the job."),
            column("Completions", "Succeeded pods, of the desired number."),
            column("Duration", "Time from start to end, or until now."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        _job,
    ),
    ("batch", "CronJob"): Printer(
        [
            NAME,
            column("Schedule", "When jobs start, in cron form."),
            column("Timezone", "Time zone of the schedule."),
            column("Suspend", "Whether new jobs are suspended.", "boolean"),
            column("Active", "Jobs running now.", "integer"),
            column("Last Schedule", "Time since a job last started."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        _cron_job,
    ),
    ("", "PodTemplate"): Printer(
        [
            NAME,
            column("Containers", "Names of the containers in the template."),
            column("Images", "Images of the containers in the template."),
            column("Pod Labels", "Labels of pods made from the template."),
        ],
        _pod_template,
    ),
    ("policy", "PodDisruptionBudget"): Printer(
        [
            NAME,
            column("Min Available", "Pods that must stay available."),
            column("Max Unavailable", "Pods that may be unavailable."),
            column("Allowed Disruptions", "Pods that may be evicted now.", "integer"),
            AGE,
        ],
        _disruption_budget,
    ),
}
