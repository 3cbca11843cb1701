"""StorageVersionMigration: the request to write every object of a resource again, and how far that has come."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, invalid, required
from shoal.kube.kinds.checks import Errors, check_conditions
from shoal.kube.kinds.common import check_frozen, condition_is, read
from shoal.kube.names import is_dns1035_label, is_dns1123_subdomain
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_CONDITIONS: Final = "status.conditions"
_REVISION: Final = "status.resourceVersion"


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    resource = read(read(obj, "spec"), "resource")
    name, group = resource.get("resource") or "", resource.get("group") or ""
    if not name:
        errors.append(required("spec.resource.resource", "resource is required to be set"))
    elif faults := is_dns1035_label(name):
        errors.append(invalid("spec.resource.resource", name, ",".join(faults)))
    if group and (faults := is_dns1123_subdomain(group)):
        errors.append(invalid("spec.resource.group", group, ",".join(faults)))
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors = _validate(new)
    check_frozen(new.get("spec"), old.get("spec"), "spec", errors)
    return errors


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    status, before = read(new, "status"), read(old, "status")
    revision, conditions = status.get("resourceVersion") or "", status.get("conditions") or []
    if revision and not (revision.isascii() and revision.isdigit()):
        text = "resource version is not a well formed decimal number"
        errors.append(invalid(_REVISION, revision, text))
    check_conditions(conditions, _CONDITIONS, errors)
    if before.get("resourceVersion") and before["resourceVersion"] != revision:
        errors.append(invalid(_REVISION, revision, "field is immutable"))
    succeeded, failed = condition_is(conditions, "Succeeded"), condition_is(conditions, "Failed")
    if succeeded and failed:
        text = "Both success and failed conditions cannot be true at the same time"
        errors.append(invalid(_CONDITIONS, conditions, text))
    if condition_is(before.get("conditions"), "Succeeded") and not succeeded:
        text = "Success condition cannot be set to false once it is true"
        errors.append(invalid(_CONDITIONS, conditions, text))
    if condition_is(before.get("conditions"), "Failed") and not failed:
        text = "Failed condition cannot be set to false once it is true"
        errors.append(invalid(_CONDITIONS, conditions, text))
    return errors


RULES: dict[tuple[str, str, str], KindRules] = {
    ("storagemigration.k8s.io", "v1", "StorageVersionMigration"): KindRules(
        validate_create=_validate, validate_update=_validate_update, validate_status=_validate_status
    ),
}
