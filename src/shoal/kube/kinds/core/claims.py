"""The spec of a persistent volume claim: in a claim, in a StatefulSet's template or in a pod's volume."""

from __future__ import annotations

from typing import Final

from shoal.errors import forbidden, invalid, not_supported, required
from shoal.kube.kinds.checks import (
    Errors,
    check_annotations,
    check_enum,
    check_label_selector,
    check_labels,
    check_positive_quantity,
    check_syntax,
)
from shoal.kube.names import is_dns1123_label, is_dns1123_subdomain
from shoal.kube.objects import Obj

ACCESS_MODES: Final = frozenset({"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"})
VOLUME_MODES: Final = frozenset({"Block", "Filesystem"})


def check_access_modes(modes: list[str] | None, path: str, errors: Errors, detail: str = "") -> None:
    if not modes:
        errors.append(required(path, detail))
        return
    for mode in modes:
        if mode not in ACCESS_MODES:
            errors.append(not_supported(path, mode, ACCESS_MODES))
    if "ReadWriteOncePod" in modes and any(m in ACCESS_MODES and m != "ReadWriteOncePod" for m in modes):
        errors.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))


def check_claim_spec(spec: Obj, path: str, errors: Errors, *, check_groups: bool = True) -> None:
    """``check_groups`` is off for claims whose data source was stored before groups were checked."""
    check_access_modes(spec.get("accessModes"), f"{path}.accessModes", errors, "at least 1 access mode is required")
    check_label_selector(spec.get("selector"), f"{path}.selector", errors)
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        errors.append(required(f"{path}.resources[storage]"))
    else:
        check_positive_quantity(size, f"{path}.resources[storage]", errors)
    for field in ("storageClassName", "volumeAttributesClassName"):
        if spec.get(field):
            check_syntax(spec[field], is_dns1123_subdomain, f"{path}.{field}", errors)
    if spec.get("volumeMode") is not None:
        check_enum(spec["volumeMode"], VOLUME_MODES, f"{path}.volumeMode", errors)
    _check_data_sources(spec, path, errors, check_groups)


def _check_data_sources(spec: Obj, path: str, errors: Errors, check_groups: bool) -> None:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    for field in ("dataSource", "dataSourceRef"):
        if spec.get(field) is not None:
            _check_data_source(spec[field], f"{path}.{field}", errors, check_groups)
    if source is None or reference is None:
        return
    if reference.get("namespace"):
        detail = "may not be specified when dataSourceRef.namespace is specified"
        errors.append(invalid(path, f"{path}.dataSource", detail))
    elif any(source.get(field) != reference.get(field) for field in ("apiGroup", "kind", "name")):
        errors.append(invalid(path, f"{path}.dataSource", "must match dataSourceRef"))


def _check_data_source(source: Obj, path: str, errors: Errors, check_groups: bool) -> None:
    for field in ("name", "kind"):
        if not source.get(field):
            errors.append(required(f"{path}.{field}"))
    group, kind = source.get("apiGroup"), source.get("kind", "")
    if not group and kind != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errors.append(invalid(path, kind, detail))
    if group and check_groups:
        check_syntax(group, is_dns1123_subdomain, f"{path}.apiGroup", errors)
    if source.get("namespace"):
        check_syntax(source["namespace"], is_dns1123_label, f"{path}.namespace", errors)


def check_claim_template(template: Obj, path: str, errors: Errors) -> None:
    """The template of a claim for a pod: its metadata may only have labels and annotations."""
    metadata = template.get("metadata") or {}
    check_annotations(metadata.get("annotations"), f"{path}.metadata.annotations", errors)
    check_labels(metadata.get("labels"), f"{path}.metadata.labels", errors)
    for field, value in metadata.items():
        if field not in ("annotations", "labels") and value:
            errors.append(forbidden(f"{path}.metadata.{field}", "cannot be set"))
    check_claim_spec(template.get("spec") or {}, f"{path}.spec", errors)


def merge_data_source(spec: Obj) -> None:
    """``dataSource`` and ``dataSourceRef`` have the same content: set the one that is absent, in place."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        spec["dataSourceRef"] = {field: source[field] for field in ("apiGroup", "kind", "name") if field in source}
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = {field: reference[field] for field in ("apiGroup", "kind", "name") if field in reference}
