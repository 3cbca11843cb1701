"""Builds the pods of a job, with the tracking finalizer and their completion index. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from shoal.controllers.job.model import (
    COMPLETION_INDEX,
    FAILURE_COUNT,
    FINALIZER,
    IGNORED_COUNT,
    count_annotation,
)
from shoal.controllers.job.policy import pod_failure_action
from shoal.controllers.pods.template import controller_reference, pod_of
from shoal.kube.objects import Obj

_ENV: Final = "JOB_COMPLETION_INDEX"
_PREFIX_LIMIT: Final = 58  # maximum length of a name before the server's five-letter suffix


def job_reference(job: Obj) -> Obj:
    return controller_reference(job, "batch/v1", "Job")


def plain_pods(job: Obj, count: int) -> list[Obj]:
    return [_tracked(pod_of(job["spec"]["template"], job, job_reference(job)))] * count


def indexed_pods(job: Obj, indexes: Iterable[int], replaced: Mapping[int, Obj]) -> list[Obj]:
    """``replaced`` are the failed pods that they replace."""
    base = _tracked(pod_of(job["spec"]["template"], job, job_reference(job)))
    spec = _with_index_variable(base["spec"])
    name = job["metadata"]["name"]
    about = base["metadata"]
    labels, annotations = about.get("labels") or {}, about.get("annotations") or {}
    pods: list[Obj] = []
    for index in indexes:
        mark = {COMPLETION_INDEX: str(index)}
        made = {
            **about,
            "generateName": _prefix(name, index),
            "labels": {**labels, **mark},
            "annotations": {**annotations, **mark, **_failure_counts(job, replaced.get(index))},
        }
        pods.append({**base, "metadata": made, "spec": {**spec, "hostname": f"{name}-{index}"}})
    return pods


def _tracked(pod: Obj) -> Obj:
    finalizers = pod["metadata"].get("finalizers") or []
    if FINALIZER in finalizers:
        return pod
    return {**pod, "metadata": {**pod["metadata"], "finalizers": [*finalizers, FINALIZER]}}


def _prefix(name: str, index: int) -> str:
    end = f"-{index}-"
    return f"{name[: _PREFIX_LIMIT - len(end)]}{end}"


def _with_index_variable(spec: Obj) -> Obj:
    made = dict(spec)
    for field in ("initContainers", "containers"):
        if spec.get(field):
            made[field] = [_with_variable(container) for container in spec[field]]
    return made


def _with_variable(container: Obj) -> Obj:
    env = container.get("env") or []
    if any(each["name"] == _ENV for each in env):
        return container
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}
    return {**container, "env": [*env, {"name": _ENV, "valueFrom": source}]}


def _failure_counts(job: Obj, replaced: Obj | None) -> dict[str, str]:
    """Earlier failures of the index, for jobs with a limit per index."""
    if job["spec"].get("backoffLimitPerIndex") is None:
        return {}
    failed = ignored = 0
    if replaced is not None:
        counts = pod_failure_action(job["spec"].get("podFailurePolicy"), replaced).counts
        failed = count_annotation(replaced, FAILURE_COUNT) + counts
        ignored = count_annotation(replaced, IGNORED_COUNT) + (not counts)
    found = {FAILURE_COUNT: str(failed)}
    return found | {IGNORED_COUNT: str(ignored)} if ignored else found
