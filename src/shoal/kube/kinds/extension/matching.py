"""Rules that webhooks and policies share: the requests that they apply to, and expressions that narrow them down."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from shoal.errors import duplicate, invalid, not_supported, required, too_many
from shoal.kube.kinds.checks import (
    Errors,
    check_enum,
    check_label_selector,
    check_required_enum,
    check_required_name,
    check_syntax,
)
from shoal.kube.names import is_path_segment_name, is_qualified_name
from shoal.kube.objects import Obj

if TYPE_CHECKING:
    from shoal.kube.cel.admission import VariableScope

FAILURE_POLICIES: Final = ("Fail", "Ignore")
MATCH_POLICIES: Final = ("Equivalent", "Exact")
REINVOCATION_POLICIES: Final = ("IfNeeded", "Never")
OPERATIONS: Final = frozenset({"*", "CONNECT", "CREATE", "DELETE", "UPDATE"})
_SCOPES: Final = ("*", "Cluster", "Namespaced")
_MAX_CONDITIONS: Final = 64


def default_rules(rules: Sequence[Obj] | None) -> None:
    for rule in rules or ():
        rule.setdefault("scope", "*")


def default_match(match: Obj) -> None:
    """Set the defaults of the MatchResources of a policy; webhooks have the same fields at their top level."""
    match.setdefault("matchPolicy", "Equivalent")
    match.setdefault("namespaceSelector", {})
    match.setdefault("objectSelector", {})
    default_rules(match.get("resourceRules"))
    default_rules(match.get("excludeResourceRules"))


def check_expression(
    text: str, path: str, errors: Errors, variables: tuple[str, ...], returns: tuple[str, ...] = ()
) -> None:
    """The text must be an expression over these variables, with a value of one of these types."""
    from shoal.kube.cel import CompileError, Env, compile  # large, and only needed here

    try:
        found = str(compile(text, Env.dynamic(*variables)).type)
    except CompileError as error:
        errors.append(invalid(path, text, f"compilation failed: {error}"))
        return
    if returns and found not in (*returns, "dyn"):
        wanted = returns[0] if len(returns) == 1 else f"one of [{' '.join(returns)}]"
        errors.append(invalid(path, text, f"must evaluate to {wanted}"))


def check_about_request(
    text: str, path: str, errors: Errors, scope: VariableScope, returns: tuple[str, ...] = ()
) -> None:
    """As ``check_expression``, with the variables of a request."""
    from shoal.kube.cel import CompileError, compile
    from shoal.kube.cel.admission import returning

    try:
        fault = returning(compile(text, scope.env()), returns)
    except CompileError as error:
        fault = f"compilation failed: {error}"
    if fault:
        errors.append(invalid(path, text, fault))


def check_rule(rule: Obj, path: str, errors: Errors, operations: Collection[str] = OPERATIONS) -> None:
    chosen = rule.get("operations") or []
    if not chosen:
        errors.append(required(f"{path}.operations"))
    if len(chosen) > 1 and "*" in chosen:
        text = "if '*' is present, must not specify other operations"
        errors.append(invalid(f"{path}.operations", chosen, text))
    for position, operation in enumerate(chosen):
        if operation not in operations:
            errors.append(not_supported(f"{path}.operations[{position}]", operation, operations))
    for name, noun in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = rule.get(name) or []
        if not values:
            errors.append(required(f"{path}.{name}"))
        if len(values) > 1 and "*" in values:
            text = f"if '*' is present, must not specify other {noun}"
            errors.append(invalid(f"{path}.{name}", values, text))
    for position, version in enumerate(rule.get("apiVersions") or ()):
        if not version:
            errors.append(required(f"{path}.apiVersions[{position}]"))
    _check_resources(rule.get("resources") or [], f"{path}.resources", errors)
    scope = rule.get("scope")
    if scope is not None:
        check_enum(scope, _SCOPES, f"{path}.scope", errors)


def _check_resources(resources: list[str], path: str, errors: Errors) -> None:
    if not resources:
        errors.append(required(path))
    whole: set[str] = set()  # x of x/*
    everywhere: set[str] = set()  # x of */x
    plain = False
    for position, resource in enumerate(resources):
        where = f"{path}[{position}]"
        if not resource:
            errors.append(required(where))
            continue
        name, slash, sub = resource.partition("/")
        if not slash:
            plain = resource != "*"
            continue
        if name in whole:
            errors.append(invalid(where, resource, f"if '{name}/*' is present, must not specify {resource}"))
        if sub in everywhere:
            errors.append(invalid(where, resource, f"if '*/{sub}' is present, must not specify {resource}"))
        if sub == "*":
            whole.add(name)
        if name == "*":
            everywhere.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        errors.append(invalid(path, resources, "if '*/*' is present, must not specify other resources"))
    if plain and "*" in resources:
        text = "if '*' is present, must not specify other resources without subresources"
        errors.append(invalid(path, resources, text))


def check_named_rules(rules: Sequence[Obj], path: str, errors: Errors) -> None:
    for position, rule in enumerate(rules):
        where = f"{path}[{position}]"
        names = rule.get("resourceNames") or ()
        for index, name in enumerate(names):
            check_syntax(name, is_path_segment_name, f"{where}.resourceNames[{index}]", errors)
            if name in names[:index]:
                errors.append(duplicate(f"{where}.resourceNames[{index}]", name))
        check_rule(rule, where, errors)


def check_match(match: Obj, path: str, errors: Errors) -> None:
    check_required_enum(match.get("matchPolicy"), MATCH_POLICIES, f"{path}.matchPolicy", errors)
    for name in ("namespaceSelector", "objectSelector"):
        selector = match.get(name)
        if selector is None:
            errors.append(required(f"{path}.{name}"))
        check_label_selector(selector, f"{path}.{name}", errors)
    for name in ("resourceRules", "excludeResourceRules"):
        check_named_rules(match.get(name) or (), f"{path}.{name}", errors)


def check_conditions(conditions: Sequence[Obj], path: str, errors: Errors, *, params: bool = False) -> None:
    """matchConditions: each a name and an expression."""
    from shoal.kube.cel.admission import VariableScope

    scope = VariableScope(params=params)
    if len(conditions) > _MAX_CONDITIONS:
        errors.append(too_many(path, len(conditions), _MAX_CONDITIONS))
    seen: set[str] = set()
    for position, condition in enumerate(conditions):
        where = f"{path}[{position}]"
        expression = (condition.get("expression") or "").strip()
        if not expression:
            errors.append(required(f"{where}.expression"))
        else:
            check_about_request(expression, f"{where}.expression", errors, scope, ("bool",))
        name = condition.get("name") or ""
        check_required_name(name, is_qualified_name, f"{where}.name", errors)
        if name and name in seen:
            errors.append(duplicate(f"{where}.name", name))
        seen.add(name)
