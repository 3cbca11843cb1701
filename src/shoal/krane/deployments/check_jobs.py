"""Checks of rollouts as Jobs: the object of one, and what its state says; pure.

A Job runs once beside the deployment that it is about: in its namespace, with its service account, placed as its pods,
reachable by its name. Its pods have none of the labels by which Services, policies and the deployment find instances.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shoal.krane.deployments import pod
from shoal.krane.deployments.rendering import Rendering
from shoal.krane.labels import CHECK_JOB, CHECKED, COMPONENT, ENVIRONMENT, PROJECT, WORKSPACE, label_value, owner_labels
from shoal.krane.owner import Owner
from shoal.kube.objects import Obj
from shoal.wire.fleet.v1 import cluster_pb as pb

COMPONENT_CHECK = "check"
KEPT_S = 3600  # a Job that has ended and that nobody has deleted goes by itself
MESSAGE_LENGTH = 900
_UNCLEAR_ENDS = ("OOMKilled", "ContainerStatusUnknown", "DeadlineExceeded")  # the cluster ended it


def job_object(state: pb.DeploymentState, job: pb.CheckJob, owner: Owner, how: Rendering) -> Obj:
    """``how`` are the rules of the deployment: the program may do what its containers may."""
    labels = {
        **owner_labels(owner), COMPONENT: COMPONENT_CHECK, CHECKED: label_value(state.deployment), CHECK_JOB: job.id,
        **{name: label_value(id_) for name, id_ in
           ((WORKSPACE, state.workspace), (PROJECT, state.project), (ENVIRONMENT, state.environment)) if id_},
    }  # fmt: skip
    spec: Obj = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": job.timeout_seconds,
        "ttlSecondsAfterFinished": KEPT_S,
        "template": {"metadata": {"labels": dict(labels)}, "spec": pod.check_spec(state, job, how)},
    }
    about = {"name": job.id, "namespace": state.namespace, "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": spec}


def result_of(id_: str, job: Obj | None, pods: Iterable[Obj], last: str = "") -> pb.CheckJobResult:
    """``job`` is None where the cluster has none any more. ``last`` is what was said of it before: the pods of a Job
    that took too long are gone."""
    if job is None:
        return broken(id_, "the Job was deleted in the cluster")
    ends, waits = _of_pods(pods)
    conditions = {
        each.get("type"): each
        for each in (job.get("status") or {}).get("conditions") or ()
        if each.get("status") == "True"
    }
    if "Complete" in conditions:
        return _result(id_, pb.CheckJobState.SUCCEEDED, ends.get("message") or "")
    failed = conditions.get("Failed")
    if failed is None:
        return _result(id_, pb.CheckJobState.RUNNING, waits)
    if failed.get("reason") == "DeadlineExceeded":
        limit_s = job["spec"].get("activeDeadlineSeconds") or 0
        return _result(
            id_, pb.CheckJobState.TIMED_OUT, f"it took longer than {limit_s} s" + (f": {last}" if last else "")
        )
    exit_code, reason = ends.get("exitCode"), ends.get("reason") or ""
    if not exit_code or reason in _UNCLEAR_ENDS:
        return broken(id_, reason or failed.get("message") or failed.get("reason") or "its pod is gone")
    return _result(id_, pb.CheckJobState.FAILED, ends.get("message") or "", exit_code)


def broken(id_: str, why: str) -> pb.CheckJobResult:
    """Its program did not run, or not to its end."""
    return _result(id_, pb.CheckJobState.BROKEN, why)


def _result(id_: str, state: pb.CheckJobState, message: str, exit_code: int = 0) -> pb.CheckJobResult:
    return pb.CheckJobResult(id=id_, state=state, exit_code=exit_code, message=message.strip()[-MESSAGE_LENGTH:])


def _of_pods(pods: Iterable[Obj]) -> tuple[Mapping[str, Any], str]:
    """How the container of the newest pod has ended, and what keeps it from running."""
    for each in sorted(pods, key=lambda one: str(one["metadata"].get("creationTimestamp") or ""), reverse=True):
        status = each.get("status") or {}
        for container in status.get("containerStatuses") or ():
            now = container.get("state") or {}
            if now.get("terminated"):
                return now["terminated"], ""
            if waits := now.get("waiting"):
                reason = waits.get("reason") or ""
                return {}, "" if reason in pod.STARTING else _said(reason, waits)
        for condition in status.get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return {}, _said(condition.get("reason") or "Unschedulable", condition)
        return {}, ""
    return {}, ""


def _said(reason: str, found: Obj) -> str:
    return f"{reason}: {found['message']}" if found.get("message") else reason
