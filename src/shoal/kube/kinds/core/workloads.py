"""ReplicationControllers, PodTemplates and Bindings."""

from __future__ import annotations

from shoal.errors import FieldError, forbidden, invalid, not_supported, required
from shoal.kube.kinds.checks import Errors, check_nonnegative, check_syntax
from shoal.kube.kinds.core.pod import default_pod_template, template_warnings, validate_pod_template
from shoal.kube.names import is_dns1123_label, is_dns1123_subdomain
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_COUNTS = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration")


# --- ReplicationController


def _default_controller(controller: Obj) -> None:
    spec = controller.setdefault("spec", {})
    template = spec.get("template")
    if template is not None:
        labels = (template.get("metadata") or {}).get("labels")
        if labels:
            if not spec.get("selector"):
                spec["selector"] = dict(labels)
            metadata = controller.setdefault("metadata", {})
            if not metadata.get("labels"):
                metadata["labels"] = dict(labels)
        default_pod_template(template)
    if spec.get("replicas") is None:
        spec["replicas"] = 1


def _prepare_controller(controller: Obj) -> None:
    controller["status"] = {"replicas": 0}


def _validate_controller(controller: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = controller.get("spec") or {}
    check_nonnegative(spec.get("minReadySeconds"), "spec.minReadySeconds", errors)
    selector = spec.get("selector")
    if not selector:
        errors.append(required("spec.selector"))
    if spec.get("replicas") is None:
        errors.append(required("spec.replicas"))
    check_nonnegative(spec.get("replicas"), "spec.replicas", errors)
    template = spec.get("template")
    if template is None:
        errors.append(required("spec.template"))
        return errors
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector and any(labels.get(key) != value for key, value in selector.items()):
        detail = "`selector` does not match template `labels`"
        errors.append(invalid("spec.template.metadata.labels", labels, detail))
    validate_pod_template(template, "spec.template", errors)
    pod = template.get("spec") or {}
    if pod.get("restartPolicy") != "Always":
        path = "spec.template.spec.restartPolicy"
        errors.append(not_supported(path, pod.get("restartPolicy", ""), ("Always",)))
    if pod.get("activeDeadlineSeconds") is not None:
        detail = "activeDeadlineSeconds in ReplicationController is not Supported"
        errors.append(forbidden("spec.template.spec.activeDeadlineSeconds", detail))
    return errors


def _validate_controller_update(new: Obj, old: Obj) -> list[FieldError]:
    return _validate_controller(new)


def _validate_controller_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    status = new.get("status") or {}
    for field in _COUNTS:
        check_nonnegative(status.get(field), f"status.{field}", errors)
    replicas, ready = status.get("replicas", 0), status.get("readyReplicas", 0)
    for field in ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"):
        count = status.get(field, 0)
        if count > replicas:
            errors.append(invalid(f"status.{field}", count, "cannot be greater than status.replicas"))
    available = status.get("availableReplicas", 0)
    if available > ready:
        errors.append(invalid("status.availableReplicas", available, "cannot be greater than readyReplicas"))
    return errors


def _controller_warnings(controller: Obj) -> list[str]:
    found = []
    name = (controller.get("metadata") or {}).get("name", "")
    if name and (faults := is_dns1123_label(name)):
        listed = " ".join(faults)
        found.append(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
            f"a DNS label is recommended: [{listed}]"
        )
    template = (controller.get("spec") or {}).get("template")
    return found + list(template_warnings(template, "spec.template")) if template else found


def _replicas(controller: Obj) -> str:
    return str((controller.get("status") or {}).get("replicas") or 0)


# --- PodTemplate


def _default_template(template: Obj) -> None:
    default_pod_template(template.setdefault("template", {}))


def _validate_template(template: Obj) -> list[FieldError]:
    errors: Errors = []
    validate_pod_template(template.get("template") or {}, "template", errors)
    return errors


def _validate_template_update(new: Obj, old: Obj) -> list[FieldError]:
    return _validate_template(new)


def _template_warnings(template: Obj) -> list[str]:
    return list(template_warnings(template.get("template") or {}, "template"))


# --- Binding


def _validate_binding(binding: Obj) -> list[FieldError]:
    errors: Errors = []
    target = binding.get("target") or {}
    kind, name = target.get("kind", ""), target.get("name", "")
    if kind not in ("", "Node"):
        errors.append(not_supported("target.kind", kind, ("Node", "<empty>")))
    if not name:
        errors.append(required("target.name"))
    elif kind in ("", "Node"):
        check_syntax(name, is_dns1123_subdomain, "target.name", errors)
    return errors


REPLICATION_CONTROLLER = KindRules(
    default=_default_controller,
    prepare_create=_prepare_controller,
    validate_create=_validate_controller,
    validate_update=_validate_controller_update,
    validate_status=_validate_controller_status,
    warnings=_controller_warnings,
    selectable={"status.replicas": _replicas},
)
POD_TEMPLATE = KindRules(
    default=_default_template,
    validate_create=_validate_template,
    validate_update=_validate_template_update,
    warnings=_template_warnings,
)
BINDING = KindRules(validate_create=_validate_binding)
