"""APIService: the server of a group and version."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, invalid, not_supported, required
from shoal.kube.kinds.checks import CONDITION_STATUSES, Errors, check_syntax, path_segment_name
from shoal.kube.kinds.common import read
from shoal.kube.names import is_dns1035_label, is_dns1123_subdomain, is_port_number
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_KEPT_METADATA: Final = ("labels", "annotations", "finalizers", "ownerReferences")


def _default(obj: Obj) -> None:
    service = read(obj, "spec").get("service")
    if service is not None:
        service.setdefault("port", 443)


def _prepare_status(new: Obj, old: Obj) -> None:
    for name in _KEPT_METADATA:
        kept = old["metadata"].get(name)
        if kept is None:
            new["metadata"].pop(name, None)
        else:
            new["metadata"][name] = kept


def _check_service(spec: Obj, errors: Errors) -> None:
    service, bundle = spec.get("service"), spec.get("caBundle") or ""
    insecure, path = bool(spec.get("insecureSkipTLSVerify")), "spec.insecureSkipTLSVerify"
    if service is None:
        if bundle:
            text = "local APIServices may not have a caBundle"
            errors.append(invalid("spec.caBundle", f"{len(bundle)} bytes", text))
        if insecure:
            errors.append(invalid(path, True, "local APIServices may not have insecureSkipTLSVerify"))
        return
    for name in ("namespace", "name"):
        if not service.get(name):
            errors.append(required(f"spec.service.{name}"))
    port = service.get("port") or 0
    faults = is_port_number(port)
    if faults:
        errors.append(invalid("spec.service.port", port, "port is not valid: " + ", ".join(faults)))
    if insecure and bundle:
        errors.append(invalid(path, True, "may not be true if caBundle is present"))


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec, name = read(obj, "spec"), obj["metadata"].get("name") or ""
    group, version = spec.get("group") or "", spec.get("version") or ""
    if name != f"{version}.{group}":
        text = f'must be `spec.version+"."+spec.group`: "{version}.{group}"'
        errors.append(invalid("metadata.name", name, text))
    if group:
        check_syntax(group, is_dns1123_subdomain, "spec.group", errors)
    elif version != "v1":
        errors.append(required("spec.group", "only v1 may have an empty group and it better be legacy kube"))
    check_syntax(version, is_dns1035_label, "spec.version", errors)
    for field, limit in (("groupPriorityMinimum", 20_000), ("versionPriority", 1000)):
        value = spec.get(field) or 0
        if not 0 < value <= limit:
            errors.append(invalid(f"spec.{field}", value, f"must be positive and less than {limit}"))
    _check_service(spec, errors)
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    return _validate(new)


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    for position, condition in enumerate(read(new, "status").get("conditions") or ()):
        value = condition.get("status") or ""
        if value not in CONDITION_STATUSES:
            errors.append(not_supported(f"status.conditions[{position}].status", value, CONDITION_STATUSES))
    return errors


RULES: Final = KindRules(
    default=_default,
    prepare_status=_prepare_status,
    validate_create=_validate,
    validate_update=_validate_update,
    validate_status=_validate_status,
    name_errors=path_segment_name,
)
