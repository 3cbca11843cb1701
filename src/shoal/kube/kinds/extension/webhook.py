"""Webhook configurations: defaults and validation of both kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shoal.errors import FieldError, duplicate, invalid, not_supported, required
from shoal.kube.kinds.checks import Errors, check_enum, check_label_selector, check_syntax
from shoal.kube.kinds.common import deep_same, read
from shoal.kube.kinds.extension.matching import (
    FAILURE_POLICIES,
    MATCH_POLICIES,
    REINVOCATION_POLICIES,
    check_conditions,
    check_rule,
    default_rules,
)
from shoal.kube.names import is_dns1035_label, is_dns1123_subdomain
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules
from shoal.kube.webhooks import client_config_errors

_REVIEW_VERSIONS: Final = ("v1", "v1beta1")
_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
_OLD_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun", "Some", "Unknown")  # accepted if the old object already has them


def _default_hook(hook: Obj) -> None:
    hook.setdefault("failurePolicy", "Fail")
    hook.setdefault("matchPolicy", "Equivalent")
    hook.setdefault("namespaceSelector", {})
    hook.setdefault("objectSelector", {})
    hook.setdefault("timeoutSeconds", 10)
    service = read(hook, "clientConfig").get("service")
    if service is not None:
        service.setdefault("port", 443)
    default_rules(hook.get("rules"))


def _default_validating(obj: Obj) -> None:
    for hook in obj.get("webhooks") or ():
        _default_hook(hook)


def _default_mutating(obj: Obj) -> None:
    for hook in obj.get("webhooks") or ():
        _default_hook(hook)
        hook.setdefault("reinvocationPolicy", "Never")


def _check_name(name: str, path: str, errors: Errors) -> None:
    if not name:
        errors.append(required(path))
        return
    faults = is_dns1123_subdomain(name)
    if faults:
        errors.append(invalid(path, name, ",".join(faults)))
    elif name.count(".") < 2:
        errors.append(invalid(path, name, "should be a domain with at least three segments separated by dots"))


def _check_versions(versions: list[str], path: str, errors: Errors, *, known: bool) -> None:
    if not versions:
        errors.append(required(path, f"must specify one of {', '.join(_REVIEW_VERSIONS)}"))
        return
    for position, version in enumerate(versions):
        if version in versions[:position]:
            errors.append(invalid(f"{path}[{position}]", version, "duplicate version"))
            continue
        check_syntax(version, is_dns1035_label, f"{path}[{position}]", errors)
    if known and not set(versions).intersection(_REVIEW_VERSIONS):
        text = f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"
        errors.append(invalid(path, versions, text))


def _check_hook(hook: Obj, path: str, errors: Errors, *, effects: tuple[str, ...], conditions: bool) -> None:
    _check_name(hook.get("name") or "", f"{path}.name", errors)
    for position, rule in enumerate(hook.get("rules") or ()):
        check_rule(rule, f"{path}.rules[{position}]", errors)
    for name, choices in (
        ("failurePolicy", FAILURE_POLICIES),
        ("matchPolicy", MATCH_POLICIES),
        ("reinvocationPolicy", REINVOCATION_POLICIES),
    ):
        if hook.get(name) is not None:
            check_enum(hook[name], choices, f"{path}.{name}", errors)
    effect = hook.get("sideEffects")
    if effect is None:
        errors.append(required(f"{path}.sideEffects", f"must specify one of {', '.join(effects)}"))
    elif effect not in effects:
        errors.append(not_supported(f"{path}.sideEffects", effect, effects))
    timeout = hook.get("timeoutSeconds")
    if timeout is not None and not 1 <= timeout <= 30:
        text = "the timeout value must be between 1 and 30 seconds"
        errors.append(invalid(f"{path}.timeoutSeconds", timeout, text))
    for name in ("namespaceSelector", "objectSelector"):
        check_label_selector(hook.get(name), f"{path}.{name}", errors)
    errors.extend(client_config_errors(read(hook, "clientConfig"), f"{path}.clientConfig"))
    if conditions:
        check_conditions(hook.get("matchConditions") or (), f"{path}.matchConditions", errors)


def _check(obj: Obj, old: Obj | None) -> list[FieldError]:
    """Values that the old object already has are accepted, even if they are no longer allowed."""
    errors: Errors = []
    hooks, before = obj.get("webhooks") or [], (old or {}).get("webhooks") or []
    clean = all(hook.get("sideEffects") in _SIDE_EFFECTS for hook in before)
    known = all(set(hook.get("admissionReviewVersions") or _REVIEW_VERSIONS) & {*_REVIEW_VERSIONS} for hook in before)
    unique = len({hook.get("name") for hook in before}) == len(before)
    kept = len(hooks) == len(before) and all(
        deep_same(mine.get("matchConditions"), theirs.get("matchConditions"))
        for mine, theirs in zip(hooks, before, strict=True)
    )
    seen: set[str] = set()
    for position, hook in enumerate(hooks):
        path = f"webhooks[{position}]"
        effects = _SIDE_EFFECTS if clean else _OLD_SIDE_EFFECTS
        _check_hook(hook, path, errors, effects=effects, conditions=not kept)
        versions = hook.get("admissionReviewVersions") or []
        _check_versions(versions, f"{path}.admissionReviewVersions", errors, known=known)
        name = hook.get("name") or ""
        if unique and name and name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
    return errors


def _validate(obj: Obj) -> list[FieldError]:
    return _check(obj, None)


def _rules(default: Callable[[Obj], None]) -> KindRules:
    return KindRules(default=default, validate_create=_validate, validate_update=_check)


VALIDATING: Final = _rules(_default_validating)
MUTATING: Final = _rules(_default_mutating)
