"""Environment of containers: variables, their sources, and the fields of the pod that they can refer to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shoal.errors import invalid, not_supported, required
from shoal.kube.kinds.checks import Errors, check_required_name, check_syntax, quantity_of
from shoal.kube.kinds.core.paths import check_no_backsteps
from shoal.kube.names import (
    is_config_map_key,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_env_var_name,
    is_qualified_name,
)
from shoal.kube.objects import Obj

_ENV_FIELDS = frozenset({
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
    "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
})  # fmt: skip
VOLUME_FIELDS: Final = frozenset(
    {"metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid"}
)
_KNOWN_FIELDS = _ENV_FIELDS | VOLUME_FIELDS | {"spec.restartPolicy", "spec.schedulerName", "status.phase"}
_RESOURCE_FIELDS = frozenset({
    "limits.cpu", "limits.memory", "limits.ephemeral-storage",
    "requests.cpu", "requests.memory", "requests.ephemeral-storage",
})  # fmt: skip
_HUGE_PAGE_FIELDS = ("requests.hugepages-", "limits.hugepages-")
_CPU_DIVISORS = frozenset({"1m", "1"})
_SIZE_DIVISORS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_DIVISOR_NAMES = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")


def check_env(variables: list[Obj], path: str, errors: Errors) -> None:
    for index, variable in enumerate(variables):
        name = variable.get("name")
        if not name:
            errors.append(required(f"{path}[{index}].name"))
        else:
            for text in is_env_var_name(name):
                errors.append(invalid(f"{path}[{index}].name", name, text))
        source = variable.get("valueFrom")
        if source is not None:
            _check_value_from(source, variable.get("value"), f"{path}[{index}].valueFrom", errors)


def _check_value_from(source: Obj, value: str | None, path: str, errors: Errors) -> None:
    found = [field for field in _SOURCES if source.get(field) is not None]
    for field in found:
        where, reference = f"{path}.{field}", source[field]
        if field == "fieldRef":
            check_field_ref(reference, _ENV_FIELDS, where, errors)
        elif field == "resourceFieldRef":
            check_resource_field_ref(reference, where, errors, in_volume=False)
        elif field == "fileKeyRef":
            _check_file_key(reference, where, errors)
        else:
            check_syntax(reference.get("name", ""), is_dns1123_subdomain, f"{where}.name", errors)
            check_required_name(reference.get("key"), is_config_map_key, f"{where}.key", errors)
    if not found:
        listed = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        errors.append(invalid(path, "", f"must specify one of: {listed}"))
    elif value:
        errors.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(found) > 1:
        errors.append(invalid(path, "", "may not have more than one field specified at a time"))


def _check_file_key(reference: Obj, path: str, errors: Errors) -> None:
    check_required_name(reference.get("key"), is_env_var_name, f"{path}.key", errors)
    check_required_name(reference.get("volumeName"), is_dns1123_label, f"{path}.volumeName", errors)
    if not reference.get("path"):
        errors.append(required(f"{path}.path"))
    else:
        check_no_backsteps(reference["path"], f"{path}.path", errors)


def check_field_ref(reference: Obj, allowed: Iterable[str], path: str, errors: Errors) -> None:
    """A reference to a field of the pod, such as ``metadata.labels['app']``."""
    version, field_path = reference.get("apiVersion"), reference.get("fieldPath")
    if not version:
        errors.append(required(f"{path}.apiVersion"))
        return
    if not field_path:
        errors.append(required(f"{path}.fieldPath"))
        return
    field, subscript = _split_subscript(field_path)
    fault = _conversion_fault(version, field, subscript)
    if fault:
        errors.append(invalid(f"{path}.fieldPath", field_path, f"error converting fieldPath: {fault}"))
    elif subscript is not None:
        key = subscript.lower() if field == "metadata.annotations" else subscript
        check_syntax(key, is_qualified_name, path, errors)
    elif field not in allowed:
        errors.append(not_supported(f"{path}.fieldPath", field, allowed))


def _split_subscript(field_path: str) -> tuple[str, str | None]:
    if not field_path.endswith("']"):
        return field_path, None
    field, bracket, subscript = field_path[:-2].partition("['")
    return (field, subscript) if bracket and field else (field_path, None)


def _conversion_fault(version: str, field: str, subscript: str | None) -> str:
    if version != "v1":
        return f"unsupported pod version: {version}"
    if subscript is not None and field not in ("metadata.labels", "metadata.annotations"):
        return f"field label does not support subscript: {field}"
    if field not in _KNOWN_FIELDS and field != "spec.host":
        return f"field label not supported: {field}"
    return ""


def check_resource_field_ref(reference: Obj, path: str, errors: Errors, *, in_volume: bool) -> None:
    """A reference to a request or limit of a container."""
    resource = reference.get("resource", "")
    if in_volume and not reference.get("containerName"):
        errors.append(required(f"{path}.containerName"))
    elif not resource:
        errors.append(required(f"{path}.resource"))
    elif resource not in _RESOURCE_FIELDS and not resource.startswith(_HUGE_PAGE_FIELDS):
        errors.append(not_supported(f"{path}.resource", resource, _RESOURCE_FIELDS))
    divisor = quantity_of(reference.get("divisor", "0"))
    if divisor.mantissa:
        _check_divisor(resource, str(divisor), f"{path}.divisor", errors)


def _check_divisor(resource: str, divisor: str, path: str, errors: Errors) -> None:
    kind = resource.partition(".")[2]
    if resource in ("limits.cpu", "requests.cpu"):
        if divisor not in _CPU_DIVISORS:
            detail = "only divisor's values 1m and 1 are supported with the cpu resource"
            errors.append(invalid(path, resource, detail))
        return
    named = "hugepages" if resource.startswith(_HUGE_PAGE_FIELDS) else _DIVISOR_NAMES.get(kind)
    if named and divisor not in _SIZE_DIVISORS:
        detail = f"only divisor's values {', '.join(_SIZE_DIVISORS)} are supported with the {named} resource"
        errors.append(invalid(path, resource, detail))


def check_env_from(sources: list[Obj], path: str, errors: Errors) -> None:
    for index, source in enumerate(sources):
        prefix = source.get("prefix")
        if prefix:
            check_syntax(prefix, is_env_var_name, f"{path}[{index}].prefix", errors)
        found = [field for field in ("configMapRef", "secretRef") if source.get(field) is not None]
        for field in found:
            name = source[field].get("name")
            check_required_name(name, _reference_faults, f"{path}[{index}].{field}.name", errors)
        if not found:
            errors.append(invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(found) > 1:
            errors.append(invalid(path, "", "may not have more than one field specified at a time"))


def _reference_faults(name: str) -> tuple[str, ...]:
    """As in Kubernetes, these names may end in a dash."""
    return is_dns1123_subdomain(name[:-2] + "a" if len(name) > 1 and name.endswith("-") else name)
