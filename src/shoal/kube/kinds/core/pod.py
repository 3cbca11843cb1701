"""Pods: fields that clients may set, derived fields, and the rules of pod templates, which other kinds use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from shoal.errors import FieldError, forbidden, invalid
from shoal.kube.kinds.checks import NEGATIVE, Errors, validate_template_metadata
from shoal.kube.kinds.core.containers import check_image_spaces
from shoal.kube.kinds.core.paths import check_descending
from shoal.kube.kinds.core.pod_defaults import (
    default_pod,
    default_pod_level_resources,
    default_pod_spec,
    default_pod_template,
)
from shoal.kube.kinds.core.pod_spec import validate_pod_spec
from shoal.kube.kinds.core.pod_status import initial_status, prepare_status, qos_class, validate_status_update
from shoal.kube.kinds.core.pod_update import (
    MIRROR,
    prepare_ephemeral_containers,
    prepare_resize,
    prepare_update,
    validate_ephemeral_update,
    validate_resize_update,
    validate_spec_update,
)
from shoal.kube.kinds.core.pod_warnings import metadata_warnings, pod_warnings, template_warnings
from shoal.kube.kinds.core.scheduling import merge_label_keys
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules, SpecAlone

__all__ = [
    "POD",
    "default_pod",
    "default_pod_spec",
    "default_pod_template",
    "qos_class",
    "template_warnings",
    "validate_pod_spec",
    "validate_pod_template",
]

_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_DEFAULTS = ("runtime/default", "docker/default", "unconfined")
_is_cost = re.compile(r"0|-?[1-9][0-9]{0,9}").fullmatch
_NO_ANNOTATIONS: dict[str, str] = {}


def validate_pod_template(template: Obj, path: str, errors: list[FieldError]) -> None:
    """Append the errors of a template that has its defaults."""
    validate_template_metadata(template.get("metadata"), path, errors)
    spec = template.get("spec") or {}
    annotations = (template.get("metadata") or {}).get("annotations")
    if annotations:
        _check_annotations(annotations, spec, f"{path}.annotations", errors)
    validate_pod_spec(spec, f"{path}.spec", errors)
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        errors.append(forbidden(f"{path}.spec.ephemeralContainers", detail))


def _prepare_create(pod: Obj) -> None:
    spec = pod.setdefault("spec", {})
    if "affinity" in spec or "topologySpreadConstraints" in spec:
        merge_label_keys(pod)
    if spec.get("resources"):
        default_pod_level_resources(spec)
    pod["status"] = initial_status(pod)


def _check_pod(pod: Obj, errors: Errors) -> None:
    """Checks for creates and updates."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    annotations = metadata.get("annotations")
    if annotations:
        _check_annotations(annotations, spec, "metadata.annotations", errors)
    validate_pod_spec(spec, "spec", errors, pod_name=metadata.get("name", ""), is_pod=True)
    if not spec.get("serviceAccountName") and spec.get("volumes"):
        _check_no_tokens(spec["volumes"], errors)
    grace_s = spec.get("terminationGracePeriodSeconds")
    if grace_s is not None and grace_s < 0:
        errors.append(invalid("spec.terminationGracePeriodSeconds", grace_s, NEGATIVE))
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            check_image_spaces(container, f"spec.{field}[{index}]", errors)


def _validate_create(pod: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_pod(pod, errors)
    spec = pod.get("spec") or {}
    if spec.get("ephemeralContainers"):
        errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("schedulingGates") and spec.get("nodeName"):
        errors.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return errors


def _spec_is_independent(pod: Obj) -> bool:
    """Whether the spec can be validated without the metadata. It cannot if it has ephemeral volumes, whose claims are
    named after the pod, or ``matchLabelKeys``, which refer to its labels."""
    spec = pod.get("spec") or {}
    if any(term.get(name) for term in _selecting_terms(spec) for name in ("matchLabelKeys", "mismatchLabelKeys")):
        return False  # their selectors get values of the pod's labels
    return not any("ephemeral" in volume for volume in spec.get("volumes") or ())


def _selecting_terms(spec: Obj) -> Iterator[Obj]:
    """All terms that select other pods."""
    yield from spec.get("topologySpreadConstraints") or ()
    affinity = spec.get("affinity") or {}
    for side in (affinity.get("podAffinity") or {}, affinity.get("podAntiAffinity") or {}):
        yield from side.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for each in side.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield each.get("podAffinityTerm") or {}


def _validate_rest(pod: Obj) -> list[FieldError]:
    """The remaining errors of a pod whose spec is valid."""
    errors: Errors = []
    annotations = (pod.get("metadata") or {}).get("annotations")
    if annotations:
        _check_annotations(annotations, pod.get("spec") or {}, "metadata.annotations", errors)
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_pod(new, errors)
    _check_annotation_changes(new, old, errors)
    validate_spec_update(new, old, errors)
    return errors


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_annotation_changes(new, old, errors)
    errors += validate_status_update(new, old)
    return errors


def _validate_ephemeral_containers(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_pod(new, errors)
    _check_annotation_changes(new, old, errors)
    validate_ephemeral_update(new, old, errors)
    return errors


def _validate_resize(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_pod(new, errors)
    validate_resize_update(new, old, errors)
    return errors


def _check_no_tokens(volumes: list[Obj], errors: Errors) -> None:
    for index, volume in enumerate(volumes):
        for position, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
            if source.get("serviceAccountToken") is not None:
                path = f"spec.volumes[{index}].projected.sources[{position}].serviceAccountToken"
                errors.append(forbidden(path, "must not be specified when serviceAccountName is not set"))


def _containers(spec: Obj) -> Iterator[Obj]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(field) or ()


def _check_annotations(annotations: dict[str, str], spec: Obj, path: str, errors: Errors) -> None:
    """Annotations with a meaning for pods."""
    for key, value in annotations.items():
        if key == MIRROR:
            if not spec.get("nodeName"):
                detail = "must set spec.nodeName if mirror pod annotation is set"
                errors.append(invalid(f"{path}[{key}]", value, detail))
        elif key == _DELETION_COST:
            if not _is_cost(value) or not -(2**31) <= int(value) < 2**31:
                errors.append(invalid(f"{path}[{key}]", value, "must be a 32bit integer"))
        elif key == _SECCOMP_POD or key.startswith(_SECCOMP_CONTAINER):
            _check_seccomp_annotation(value, f"{path}.{key}", errors)
        elif key.startswith(_APP_ARMOR):
            _check_app_armor_annotation(key, value, spec, f"{path}[{key}]", errors)


def _check_seccomp_annotation(profile: str, path: str, errors: Errors) -> None:
    if profile.startswith("localhost/"):
        check_descending(profile.removeprefix("localhost/"), path, errors)
    elif profile not in _SECCOMP_DEFAULTS:
        errors.append(invalid(path, profile, "must be a valid seccomp profile"))


def _check_app_armor_annotation(key: str, profile: str, spec: Obj, path: str, errors: Errors) -> None:
    name = key.removeprefix(_APP_ARMOR)
    if all(container.get("name") != name for container in _containers(spec)):
        errors.append(invalid(path, name, "container not found"))
    if profile not in ("", "runtime/default", "unconfined") and not profile.startswith("localhost/"):
        errors.append(invalid(path, profile, f'invalid AppArmor profile name: "{profile}"'))


def _check_annotation_changes(new: Obj, old: Obj, errors: Errors) -> None:
    """AppArmor profiles and the annotation of static pods cannot be changed."""
    now = (new.get("metadata") or {}).get("annotations") or _NO_ANNOTATIONS
    before = (old.get("metadata") or {}).get("annotations") or _NO_ANNOTATIONS
    if now == before:
        return
    for key in before:
        if now.get(key) == before[key]:
            continue
        if key.startswith(_APP_ARMOR):
            detail = "may not remove or update AppArmor annotations"
            errors.append(forbidden(f"metadata.annotations[{key}]", detail))
        elif key == MIRROR:
            detail = "may not remove or update mirror pod annotation"
            errors.append(forbidden(f"metadata.annotations[{key}]", detail))
    for key in now.keys() - before.keys():
        if key.startswith(_APP_ARMOR):
            errors.append(forbidden(f"metadata.annotations[{key}]", "may not add AppArmor annotations"))
        elif key == MIRROR:
            errors.append(forbidden(f"metadata.annotations[{key}]", "may not add mirror pod annotation"))


def _spec_text(field: str) -> Callable[[Obj], str]:
    return lambda pod: (pod.get("spec") or {}).get(field) or ""


def _status_text(field: str) -> Callable[[Obj], str]:
    return lambda pod: (pod.get("status") or {}).get(field) or ""


def _pod_ips(pod: Obj) -> str:
    status = pod.get("status") or {}
    return ",".join(entry.get("ip", "") for entry in status.get("podIPs") or ())


def _pod_ip(pod: Obj) -> str:
    return _pod_ips(pod).partition(",")[0]


def _host_network(pod: Obj) -> str:
    return "true" if (pod.get("spec") or {}).get("hostNetwork") else "false"


def _all_fields(pod: Obj) -> dict[str, str]:
    """All selectable fields in one pass, since every write needs them."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    addresses = ",".join(entry.get("ip", "") for entry in status["podIPs"]) if status.get("podIPs") else ""
    node = spec.get("nodeName") or ""
    return {
        "spec.nodeName": node,
        "spec.restartPolicy": spec.get("restartPolicy") or "",
        "spec.schedulerName": spec.get("schedulerName") or "",
        "spec.serviceAccountName": spec.get("serviceAccountName") or "",
        "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
        "spec.host": node,
        "status.phase": status.get("phase") or "",
        "status.podIP": addresses.partition(",")[0],
        "status.podIPs": addresses,
        "status.nominatedNodeName": status.get("nominatedNodeName") or "",
    }


POD = KindRules(
    default=default_pod,
    prepare_create=_prepare_create,
    prepare_update=prepare_update,
    prepare_status=prepare_status,
    validate_create=_validate_create,
    validate_update=_validate_update,
    validate_status=_validate_status,
    warnings=pod_warnings,
    selectable={
        "spec.nodeName": _spec_text("nodeName"),
        "spec.restartPolicy": _spec_text("restartPolicy"),
        "spec.schedulerName": _spec_text("schedulerName"),
        "spec.serviceAccountName": _spec_text("serviceAccountName"),
        "spec.hostNetwork": _host_network,
        "spec.host": _spec_text("nodeName"),
        "status.phase": _status_text("phase"),
        "status.podIP": _pod_ip,
        "status.podIPs": _pod_ips,
        "status.nominatedNodeName": _status_text("nominatedNodeName"),
    },
    all_fields=_all_fields,
    spec_alone=SpecAlone(applies=_spec_is_independent, validate_rest=_validate_rest, warnings_rest=metadata_warnings),
    indexed_fields=("spec.nodeName",),
    subresource_prepare={"ephemeralcontainers": prepare_ephemeral_containers, "resize": prepare_resize},
    subresource_validation={
        "ephemeralcontainers": _validate_ephemeral_containers,
        "resize": _validate_resize,
    },
)
