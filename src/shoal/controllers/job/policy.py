"""Applies a job's policies to its pods: which failures count, and when enough pods have succeeded. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shoal.controllers.job.indexes import Indexes, parse_indexes
from shoal.kube.objects import Obj


@dataclass(frozen=True, slots=True)
class PodFailureAction:
    """The action for a failed pod. ``message`` is why the job fails, if it does."""

    counts: bool = True
    action: str = ""
    message: str = ""


_COUNTS = PodFailureAction()


def pod_failure_action(policy: Obj | None, pod: Obj) -> PodFailureAction:
    """The action of the first matching rule; without one the failure counts."""
    for position, rule in enumerate((policy or {}).get("rules") or ()):
        what = _matched(rule, pod)
        if not what:
            continue
        action = rule["action"]
        if action == "Ignore":
            return PodFailureAction(counts=False, action=action)
        if action != "FailJob":
            return PodFailureAction(action=action)
        return PodFailureAction(action=action, message=f"{what} matching {action} rule at index {position}")
    return _COUNTS


def _matched(rule: Obj, pod: Obj) -> str:
    """A description of the match; empty if the rule does not match."""
    about, status = pod["metadata"], pod.get("status") or {}
    name = f"{about['namespace']}/{about['name']}"
    codes = rule.get("onExitCodes")
    if codes is not None:
        for field in ("containerStatuses", "initContainerStatuses"):
            for container in status.get(field) or ():
                code = _exit_code(container, codes)
                if code is not None:
                    return f"Container {container['name']} for pod {name} failed with exit code {code}"
        return ""
    patterns = [(each["type"], each.get("status", "True")) for each in rule.get("onPodConditions") or ()]
    for condition in status.get("conditions") or ():
        if (condition["type"], condition["status"]) in patterns:
            return f"Pod {name} has condition {condition['type']}"
    return ""


def _exit_code(container: Obj, requirement: Obj) -> int | None:
    """The exit code of a failed container that meets the requirement."""
    ended = (container.get("state") or {}).get("terminated")
    if ended is None or requirement.get("containerName") not in (None, container["name"]):
        return None
    code: int = ended.get("exitCode") or 0
    if code == 0 or (code in requirement["values"]) != (requirement["operator"] == "In"):
        return None
    return code


def fails_job(policy: Obj | None, failed: Iterable[Obj]) -> str:
    """Why a failed pod fails the whole job; empty if none does."""
    if policy is None:
        return ""
    return next((verdict.message for pod in failed if (verdict := pod_failure_action(policy, pod)).message), "")


def met_success(policy: Obj | None, completed: Indexes, completions: int) -> str:
    """A description of the success rule that is met; empty if none is."""
    if policy is None or not completed.intervals:
        return ""
    for position, rule in enumerate(policy.get("rules") or ()):
        if _is_met(rule, completed, completions):
            return f"Matched rules at index {position}"
    return ""


def _is_met(rule: Obj, completed: Indexes, completions: int) -> bool:
    count = rule.get("succeededCount")
    if rule.get("succeededIndexes") is None:
        return count is not None and len(completed) >= count
    required = parse_indexes(rule["succeededIndexes"], completions)
    if not required.intervals:
        return False
    done = required.overlap(completed)
    return done == len(required) or (count is not None and done >= count)
