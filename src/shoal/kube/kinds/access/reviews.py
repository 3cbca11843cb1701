"""Token and access reviews, which the server answers and does not store."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, forbidden, invalid, required
from shoal.kube.kinds.checks import Errors, check_syntax
from shoal.kube.kinds.common import read, spec_of
from shoal.kube.names import is_label_value, is_qualified_name
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

DEFAULT_TOKEN_S: Final = 3600
_MIN_TOKEN_S: Final = 600
_MAX_TOKEN_S: Final = 1 << 32
_ONE_OF: Final = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
_SERVER_METADATA: Final = frozenset({"managedFields", "uid", "creationTimestamp", "generation"})  # set by the server


def _default_token_request(obj: Obj) -> None:
    spec_of(obj).setdefault("expirationSeconds", DEFAULT_TOKEN_S)


def _validate_token_request(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    seconds = spec.get("expirationSeconds") or 0
    path = "spec.expirationSeconds"
    if seconds < _MIN_TOKEN_S:
        errors.append(invalid(path, seconds, "may not specify a duration less than 10 minutes"))
    if seconds > _MAX_TOKEN_S:
        errors.append(invalid(path, seconds, "may not specify a duration larger than 2^32 seconds"))
    return errors


def _validate_token_review(obj: Obj) -> list[FieldError]:
    if read(obj, "spec").get("token"):
        return []
    return [required("spec.token", "token is required for TokenReview in authentication")]


def _check_requirement(requirement: Obj, path: str, errors: Errors) -> None:
    """Unknown operators are accepted: a newer client may know them, and they only narrow the request."""
    operator, values = requirement.get("operator"), requirement.get("values")
    if operator in ("In", "NotIn") and not values:
        errors.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    if operator in ("Exists", "DoesNotExist") and values:
        text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        errors.append(forbidden(f"{path}.values", text))


def _check_selector(selector: Obj, name: str, errors: Errors) -> None:
    path = f"spec.resourceAttributes.{name}"
    raw, requirements = selector.get("rawSelector"), selector.get("requirements")
    if raw and requirements:
        text = "may not specified at the same time as requirements"
        errors.append(invalid(f"{path}.rawSelector", raw, text))
    if not raw and not requirements:
        text = f"when {path} is specified, requirements or rawSelector is required"
        errors.append(required(f"{path}.requirements", text))
    for position, requirement in enumerate(requirements or ()):
        where = f"{path}.requirements[{position}]"
        key = requirement.get("key") or ""
        if name == "labelSelector":
            _check_requirement(requirement, where, errors)
            check_syntax(key, is_qualified_name, f"{where}.key", errors)
            for index, value in enumerate(requirement.get("values") or ()):
                check_syntax(value, is_label_value, f"{where}.values[{index}]", errors)
        else:
            if not key:
                errors.append(required(f"{where}.key", "must be specified"))
            _check_requirement(requirement, where, errors)


def _check_attributes(spec: Obj, errors: Errors) -> None:
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (other is None):
        errors.append(invalid("spec", other, _ONE_OF))
    for name in ("fieldSelector", "labelSelector"):
        selector = (resource or {}).get(name)
        if selector is not None:
            _check_selector(selector, name, errors)


def _check_subject(spec: Obj, errors: Errors) -> None:
    if not spec.get("user") and not spec.get("groups"):
        errors.append(invalid("spec.user", spec.get("user") or "", "at least one of user or group must be specified"))


def _check_metadata(obj: Obj, allowed: frozenset[str], text: str, errors: Errors) -> None:
    metadata = read(obj, "metadata")
    if any(value for name, value in metadata.items() if name not in allowed):
        errors.append(invalid("metadata", metadata, text))


def _validate_access(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    _check_attributes(spec, errors)
    _check_subject(spec, errors)
    _check_metadata(obj, _SERVER_METADATA, "must be empty", errors)
    return errors


def _validate_self_access(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_attributes(read(obj, "spec"), errors)
    _check_metadata(obj, _SERVER_METADATA, "must be empty", errors)
    return errors


def _validate_local_access(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    _check_attributes(spec, errors)
    _check_subject(spec, errors)
    _check_metadata(obj, _SERVER_METADATA | {"namespace"}, "must be empty except for namespace", errors)
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None:
        namespace = resource.get("namespace") or ""
        if namespace != (read(obj, "metadata").get("namespace") or ""):
            path = "spec.resourceAttributes.namespace"
            errors.append(invalid(path, namespace, "must match metadata.namespace"))
    if other is not None:
        errors.append(invalid("spec.nonResourceAttributes", other, "disallowed on this kind of request"))
    return errors


def _validate_rules_review(obj: Obj) -> list[FieldError]:
    if read(obj, "spec").get("namespace"):
        return []
    return [required("spec.namespace", "no namespace on request")]


TOKEN_REQUEST: Final = KindRules(default=_default_token_request, validate_create=_validate_token_request)
TOKEN_REVIEW: Final = KindRules(validate_create=_validate_token_review)
SUBJECT_ACCESS_REVIEW: Final = KindRules(validate_create=_validate_access)
SELF_SUBJECT_ACCESS_REVIEW: Final = KindRules(validate_create=_validate_self_access)
LOCAL_SUBJECT_ACCESS_REVIEW: Final = KindRules(validate_create=_validate_local_access)
SELF_SUBJECT_RULES_REVIEW: Final = KindRules(validate_create=_validate_rules_review)
