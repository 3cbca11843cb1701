"""Admission policies and their bindings, validating and mutating."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from shoal.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from shoal.kube.kinds.checks import (
    Errors,
    check_enum,
    check_label_selector,
    check_required_enum,
    check_required_name,
    check_syntax,
)
from shoal.kube.kinds.checks import check_conditions as check_status_conditions
from shoal.kube.kinds.common import deep_same, fill, read, spec_of
from shoal.kube.kinds.extension.matching import (
    FAILURE_POLICIES,
    REINVOCATION_POLICIES,
    check_about_request,
    check_conditions,
    check_match,
    default_match,
)
from shoal.kube.names import (
    is_dns1035_label,
    is_dns1123_subdomain,
    is_path_segment_name,
    is_qualified_name,
)
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

if TYPE_CHECKING:
    from shoal.kube.cel.admission import VariableScope

_MAX_AUDIT_ANNOTATIONS: Final = 20
_MAX_VALUE_EXPRESSION: Final = 5 * 1024
_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_ACTIONS: Final = ("Audit", "Deny", "Warn")
_NOT_FOUND_ACTIONS: Final = ("Allow", "Deny")
_PATCH_TYPES: Final = {"JSONPatch": "jsonPatch", "ApplyConfiguration": "applyConfiguration"}
_PATCH_VALUES: Final = {"JSONPatch": ("list(JSONPatch)",), "ApplyConfiguration": ("Object",)}
_MUTATING_OPERATIONS: Final = frozenset({"*", "CONNECT", "CREATE", "UPDATE"})
_NO_CHECKS: Final = "validations or auditAnnotations must contain at least one item"
_is_identifier = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*").fullmatch
_RESERVED: Final = frozenset(
    "true false null in as break const continue else for function if import let loop package namespace return var "
    "void while".split()
)


def _default_policy(obj: Obj) -> None:
    spec = spec_of(obj)
    fill(spec, "failurePolicy", "Fail")
    if spec.get("matchConstraints") is not None:
        default_match(spec["matchConstraints"])


def _default_binding(obj: Obj) -> None:
    match = spec_of(obj).get("matchResources")
    if match is not None:
        default_match(match)


def _check_param_kind(kind: Obj, path: str, errors: Errors) -> None:
    version = kind.get("apiVersion") or ""
    where = f"{path}.apiVersion"
    if not version:
        errors.append(required(where))
    elif version.count("/") > 1:
        errors.append(invalid(where, version, f"unexpected GroupVersion string: {version}"))
    else:
        group, _, name = version.rpartition("/")
        faults = is_dns1123_subdomain(group) if group else ()
        if faults:
            errors.append(invalid(where, group, ",".join(faults)))
        faults = is_dns1035_label(name)
        if not name:
            errors.append(invalid(where, version, "version must be specified"))
        elif faults:
            errors.append(invalid(where, name, ",".join(faults)))
    name = kind.get("kind") or ""
    if not name:
        errors.append(required(f"{path}.kind"))
    elif faults := is_dns1035_label(name.lower()):
        text = "may have mixed case, but should otherwise match: " + ",".join(faults)
        errors.append(invalid(f"{path}.kind", name, text))


def _check_variables(spec: Obj, errors: Errors, *, always: bool) -> VariableScope:
    """The scope of a policy's expressions; ``variables`` is in it if there are any, or ``always``."""
    from shoal.kube.cel import CompileError  # large, and only needed here
    from shoal.kube.cel.admission import Variables, VariableScope

    scope = VariableScope(params=spec.get("paramKind") is not None)
    variables = spec.get("variables") or ()
    if not variables and not always:
        return scope
    known = Variables(variables, scope)
    for position, variable in enumerate(variables):
        path, name = f"spec.variables[{position}]", variable.get("name") or ""
        if not name.strip():
            errors.append(required(f"{path}.name", "name is not specified"))
        elif not _is_identifier(name) or name in _RESERVED:
            errors.append(invalid(f"{path}.name", name, "must be a valid CEL identifier"))
        expression = variable.get("expression") or ""
        if not expression.strip():
            errors.append(required(f"{path}.expression", "expression is not specified"))
        else:
            program = known.programs[variable.get("name") or ""]
            if isinstance(program, CompileError):
                errors.append(invalid(f"{path}.expression", expression, f"compilation failed: {program}"))
    return replace(scope, variables=known.type)


def _check_validation(validation: Obj, scope: VariableScope, path: str, errors: Errors) -> None:
    expression = validation.get("expression") or ""
    if not expression.strip():
        errors.append(required(f"{path}.expression", "expression is not specified"))
    else:
        check_about_request(expression, f"{path}.expression", errors, scope, ("bool",))
    expression = validation.get("messageExpression") or ""
    if expression and not expression.strip():
        errors.append(invalid(f"{path}.messageExpression", expression, "must be non-empty if specified"))
    elif expression:
        without = replace(scope, authorizer=False)
        check_about_request(expression, f"{path}.messageExpression", errors, without, ("string",))
    message = validation.get("message") or ""
    if message and not message.strip():
        errors.append(invalid(f"{path}.message", message, "must be non-empty if specified"))
    elif "\n" in message.strip() or "\r" in message.strip():
        errors.append(invalid(f"{path}.message", message, "must not contain line breaks"))
    reason = validation.get("reason")
    if reason is not None:
        check_enum(reason, _REASONS, f"{path}.reason", errors)


def _check_audit_annotation(annotation: Obj, name: str, scope: VariableScope, path: str, errors: Errors) -> None:
    key = annotation.get("key") or ""
    if name:
        check_syntax(f"{name}/{key}", is_qualified_name, f"{path}.key", errors)
    else:
        errors.append(invalid(f"{path}.key", key, "requires metadata.name be non-empty"))
    expression = (annotation.get("valueExpression") or "").strip()
    where = f"{path}.valueExpression"
    if not expression:
        errors.append(required(where, "valueExpression is not specified"))
    elif len(expression) > _MAX_VALUE_EXPRESSION:
        errors.append(required(where, f"must not exceed {_MAX_VALUE_EXPRESSION} bytes in length"))
    else:
        check_about_request(expression, where, errors, scope, ("string", "null_type"))


def _check_common(spec: Obj, old: Obj | None, errors: Errors) -> None:
    """The fields of both kinds of policy that select requests."""
    check_required_enum(spec.get("failurePolicy"), FAILURE_POLICIES, "spec.failurePolicy", errors)
    kind = spec.get("paramKind")
    if kind is not None:
        _check_param_kind(kind, "spec.paramKind", errors)
    match, path = spec.get("matchConstraints"), "spec.matchConstraints"
    if match is None:
        errors.append(required(path))
    else:
        check_match(match, path, errors)
        if not match.get("resourceRules"):
            errors.append(required(f"{path}.resourceRules"))
    kept = old is not None and all(
        deep_same(spec.get(name), read(old, "spec").get(name)) for name in ("paramKind", "matchConditions")
    )
    if not kept:
        conditions = spec.get("matchConditions") or ()
        check_conditions(conditions, "spec.matchConditions", errors, params=kind is not None)


def _check_validating(obj: Obj, old: Obj | None) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    _check_common(spec, old, errors)
    scope = _check_variables(spec, errors, always=False)
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        errors.append(required("spec.validations", _NO_CHECKS))
        errors.append(required("spec.auditAnnotations", _NO_CHECKS))
    for position, validation in enumerate(validations):
        _check_validation(validation, scope, f"spec.validations[{position}]", errors)
    path = "spec.auditAnnotations"
    if len(annotations) > _MAX_AUDIT_ANNOTATIONS:
        text = f"must not have more than {_MAX_AUDIT_ANNOTATIONS} auditAnnotations"
        errors.append(invalid(path, annotations, text))
    seen: set[str] = set()
    for position, annotation in enumerate(annotations):
        where, key = f"{path}[{position}]", annotation.get("key") or ""
        _check_audit_annotation(annotation, obj["metadata"].get("name") or "", scope, where, errors)
        if key in seen:
            errors.append(duplicate(f"{where}.key", key))
        seen.add(key)
    return errors


def _check_mutation(mutation: Obj, scope: VariableScope, path: str, errors: Errors) -> None:
    kind = mutation.get("patchType") or ""
    wanted = _PATCH_TYPES.get(kind)
    if not kind:
        errors.append(required(f"{path}.patchType"))
    elif wanted is None:
        errors.append(not_supported(f"{path}.patchType", kind, _PATCH_TYPES))
    else:
        patch = mutation.get(wanted)
        if patch is None:
            errors.append(required(f"{path}.{wanted}", f"must be specified when patchType is {kind}"))
        else:
            expression = (patch.get("expression") or "").strip()
            if not expression:
                errors.append(required(f"{path}.{wanted}.expression"))
            else:
                check_about_request(expression, f"{path}.{wanted}.expression", errors, scope, _PATCH_VALUES[kind])
        for other in _PATCH_TYPES.values():
            if other != wanted and mutation.get(other) is not None:
                text = f"must not be specified when patchType is {kind}"
                errors.append(invalid(f"{path}.{other}", f"{{{other}}}", text))


def _check_operations(match: Obj | None, path: str, errors: Errors) -> None:
    """A mutating policy can match only requests with an object."""
    for rule in (match or {}).get("resourceRules") or ():
        for operation in rule.get("operations") or ():
            if operation not in _MUTATING_OPERATIONS:
                where = f"{path}.resourceRules.operations"
                errors.append(not_supported(where, operation, _MUTATING_OPERATIONS))


def _check_mutating(obj: Obj, old: Obj | None) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    _check_common(spec, old, errors)
    _check_operations(spec.get("matchConstraints"), "spec.matchConstraints", errors)
    scope = replace(_check_variables(spec, errors, always=True), patches=True)
    mutations = spec.get("mutations") or ()
    if not mutations:
        errors.append(required("spec.mutations", "mutations must contain at least one item"))
    for position, mutation in enumerate(mutations):
        _check_mutation(mutation, scope, f"spec.mutations[{position}]", errors)
    path = "spec.reinvocationPolicy"
    check_required_enum(spec.get("reinvocationPolicy"), REINVOCATION_POLICIES, path, errors)
    return errors


def _check_param_ref(reference: Obj, path: str, errors: Errors) -> None:
    name, selector = reference.get("name"), reference.get("selector")
    if name:
        check_syntax(name, is_path_segment_name, f"{path}.name", errors)
    check_label_selector(selector, f"{path}.selector", errors)
    if name and selector is not None:
        for field in ("name", "selector"):
            errors.append(forbidden(f"{path}.{field}", "name and selector are mutually exclusive"))
    if not name and selector is None:
        errors.append(required(path, "one of name or selector must be specified"))
    action = reference.get("parameterNotFoundAction")
    check_required_enum(action, _NOT_FOUND_ACTIONS, f"{path}.parameterNotFoundAction", errors)


def _check_actions(actions: list[str], path: str, errors: Errors) -> None:
    for position, action in enumerate(actions):
        if action not in _ACTIONS:
            errors.append(not_supported(f"{path}[{position}]", action, _ACTIONS))
        if action in actions[:position]:
            errors.append(duplicate(f"{path}[{position}]", action))
    if "Deny" in actions and "Warn" in actions:
        text = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        errors.append(invalid(path, actions, text))
    if not actions:
        errors.append(required(path, "at least one validation action is required"))


def _check_binding(spec: Obj, errors: Errors) -> None:
    check_required_name(spec.get("policyName"), is_dns1123_subdomain, "spec.policyName", errors)
    reference = spec.get("paramRef")
    if reference is not None:
        _check_param_ref(reference, "spec.paramRef", errors)
    match = spec.get("matchResources")
    if match is not None:
        check_match(match, "spec.matchResources", errors)


def _check_validating_binding(obj: Obj, old: Obj | None) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    _check_binding(spec, errors)
    _check_actions(spec.get("validationActions") or [], "spec.validationActions", errors)
    return errors


def _check_mutating_binding(obj: Obj, old: Obj | None) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    _check_binding(spec, errors)
    _check_operations(spec.get("matchResources"), "spec.matchResources", errors)
    return errors


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    status = read(new, "status")
    for position, warning in enumerate(read(status, "typeChecking").get("expressionWarnings") or ()):
        for name in ("warning", "fieldRef"):
            if not (warning.get(name) or "").strip():
                errors.append(required(f"status.typeChecking.expressionWarnings[{position}].{name}"))
    check_status_conditions(status.get("conditions"), "status.conditions", errors)
    return errors


def _rules(default: Callable[[Obj], None], check: Callable[[Obj, Obj | None], list[FieldError]]) -> KindRules:
    return KindRules(
        default=default,
        validate_create=lambda obj: check(obj, None),
        validate_update=check,
        validate_status=_validate_status,
    )


VALIDATING: Final = _rules(_default_policy, _check_validating)
MUTATING: Final = _rules(_default_policy, _check_mutating)
VALIDATING_BINDING: Final = _rules(_default_binding, _check_validating_binding)
MUTATING_BINDING: Final = _rules(_default_binding, _check_mutating_binding)
