"""Shared rules of long-running workloads: the selector, the template, and the counters in their status."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from shoal.errors import forbidden, invalid, not_supported, required
from shoal.kube.kinds.checks import Errors, check_label_selector
from shoal.kube.kinds.common import name_warning, read, selector_matches
from shoal.kube.kinds.core.pod import default_pod_template, template_warnings, validate_pod_template
from shoal.kube.objects import Obj

ABOVE_REPLICAS: Final = "cannot be greater than status.replicas"


def default_template(spec: Obj) -> None:
    """Fill in the template; an absent one is created, so that its defaults are visible."""
    template = spec.get("template")
    if template is None:
        template = spec["template"] = {}
    default_pod_template(template)


def template_warnings_of(obj: Obj) -> list[str]:
    """Warnings about the template."""
    return list(template_warnings(read(read(obj, "spec"), "template"), "spec.template"))


def replicated_warnings(obj: Obj) -> list[str]:
    return name_warning(obj) + template_warnings_of(obj)


def check_selector(spec: Obj, noun: str, errors: Errors) -> None:
    """The selector must be present, well formed and not empty: an empty one would select every pod of the namespace."""
    selector = spec.get("selector")
    if selector is None:
        errors.append(required("spec.selector"))
        return
    check_label_selector(selector, "spec.selector", errors)
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errors.append(invalid("spec.selector", selector, f"empty selector is invalid for {noun}"))


def check_template_labels(spec: Obj, errors: Errors) -> bool:
    """The selector must select the pods of the template; return whether it can be parsed."""
    selector = spec.get("selector")
    if not selector:
        return True
    labels = read(read(spec.get("template") or {}, "metadata"), "labels")
    matches = selector_matches(selector, labels)
    if matches is False:
        errors.append(
            invalid("spec.template.metadata.labels", labels or None, "`selector` does not match template `labels`")
        )
    return matches is not None


def check_long_running(template: Obj, noun: str, errors: Errors) -> None:
    """Pods of long-running workloads must have restartPolicy Always and no deadline."""
    pod = read(template, "spec")
    policy = pod.get("restartPolicy") or ""
    if policy != "Always":
        errors.append(not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
    if pod.get("activeDeadlineSeconds") is not None:
        path = "spec.template.spec.activeDeadlineSeconds"
        errors.append(forbidden(path, f"activeDeadlineSeconds in {noun} is not Supported"))


def check_replicated_template(spec: Obj, errors: Errors) -> None:
    """The template of a ReplicaSet or Deployment."""
    if not check_template_labels(spec, errors):
        errors.append(invalid("spec.selector", spec.get("selector"), "invalid label selector"))
        return
    template = read(spec, "template")
    validate_pod_template(template, "spec.template", errors)
    check_long_running(template, "ReplicaSet", errors)


def check_counters(status: Obj, limited: Collection[str], ready_name: str, errors: Errors) -> None:
    """No counter exceeds the number of replicas, and available replicas do not exceed ready ones."""
    replicas = status.get("replicas") or 0
    for name in limited:
        value = status.get(name) or 0
        if value > replicas:
            errors.append(invalid(f"status.{name}", value, ABOVE_REPLICAS))
    available = status.get("availableReplicas") or 0
    if available > (status.get("readyReplicas") or 0):
        errors.append(invalid("status.availableReplicas", available, f"cannot be greater than {ready_name}"))


def check_collision_count(new: Obj, old: Obj, errors: Errors) -> None:
    before = read(old, "status").get("collisionCount")
    after = read(new, "status").get("collisionCount")
    if before is not None and (after is None or after < before):
        errors.append(invalid("status.collisionCount", after or 0, "cannot be decremented"))
