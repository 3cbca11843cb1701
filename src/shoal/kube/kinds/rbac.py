"""rbac.authorization.k8s.io: roles, bindings, and aggregation of ClusterRoles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shoal.errors import FieldError, invalid, not_supported, required
from shoal.kube.kinds.checks import Errors, check_label_selector, check_syntax, path_segment_name
from shoal.kube.kinds.common import check_frozen, child, fill, read, selector_matches
from shoal.kube.names import is_dns1123_subdomain, is_path_segment_name
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

GROUP: Final = "rbac.authorization.k8s.io"
_ROLE_KINDS: Final = ("ClusterRole", "Role")
_SUBJECT_KINDS: Final = ("Group", "ServiceAccount", "User")


def _default_binding(obj: Obj) -> None:
    fill(child(obj, "roleRef"), "apiGroup", GROUP)
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            fill(subject, "apiGroup", GROUP)


def check_policy_rule(rule: Obj, path: str, errors: Errors, *, namespaced: bool) -> None:
    if not rule.get("verbs"):
        errors.append(required(f"{path}.verbs", "verbs must contain at least one value"))
    urls = rule.get("nonResourceURLs")
    if urls:
        if namespaced:
            text = "namespaced rules cannot apply to non-resource URLs"
            errors.append(invalid(f"{path}.nonResourceURLs", urls, text))
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            text = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(invalid(f"{path}.nonResourceURLs", urls, text))
        return
    if not rule.get("apiGroups"):
        errors.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        errors.append(required(f"{path}.resources", "resource rules must supply at least one resource"))


def _check_rules(obj: Obj, errors: Errors, *, namespaced: bool) -> None:
    for position, rule in enumerate(obj.get("rules") or ()):
        check_policy_rule(rule, f"rules[{position}]", errors, namespaced=namespaced)


def _validate_role(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_rules(obj, errors, namespaced=True)
    return errors


def _validate_cluster_role(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_rules(obj, errors, namespaced=False)
    aggregation = obj.get("aggregationRule")
    if aggregation is not None:
        path = "aggregationRule.clusterRoleSelectors"
        selectors = aggregation.get("clusterRoleSelectors") or ()
        if not selectors:
            text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            errors.append(required(path, text))
        for position, selector in enumerate(selectors):
            check_label_selector(selector, f"{path}[{position}]", errors)
    return errors


def _check_role_ref(obj: Obj, kinds: tuple[str, ...], errors: Errors) -> None:
    reference = read(obj, "roleRef")
    group, kind = reference.get("apiGroup") or "", reference.get("kind") or ""
    if group != GROUP:
        errors.append(not_supported("roleRef.apiGroup", group, (GROUP,)))
    if kind not in kinds:
        errors.append(not_supported("roleRef.kind", kind, kinds))
    name = reference.get("name")
    if not name:
        errors.append(required("roleRef.name"))
    else:
        check_syntax(name, is_path_segment_name, "roleRef.name", errors)


def _check_subject(subject: Obj, path: str, errors: Errors, *, namespaced: bool) -> None:
    name, kind, group = subject.get("name"), subject.get("kind") or "", subject.get("apiGroup") or ""
    if not name:
        errors.append(required(f"{path}.name"))
    if kind == "ServiceAccount":
        if name:
            check_syntax(name, is_dns1123_subdomain, f"{path}.name", errors)
        if group:
            errors.append(not_supported(f"{path}.apiGroup", group, ("",)))
        if not namespaced and not subject.get("namespace"):
            errors.append(required(f"{path}.namespace"))
    elif kind in _SUBJECT_KINDS:
        if group != GROUP:
            errors.append(not_supported(f"{path}.apiGroup", group, (GROUP,)))
    else:
        errors.append(not_supported(f"{path}.kind", kind, _SUBJECT_KINDS))


def _check_binding(obj: Obj, *, namespaced: bool) -> list[FieldError]:
    errors: Errors = []
    _check_role_ref(obj, _ROLE_KINDS if namespaced else ("ClusterRole",), errors)
    for position, subject in enumerate(obj.get("subjects") or ()):
        _check_subject(subject, f"subjects[{position}]", errors, namespaced=namespaced)
    return errors


def _validate_binding(obj: Obj) -> list[FieldError]:
    return _check_binding(obj, namespaced=True)


def _validate_cluster_binding(obj: Obj) -> list[FieldError]:
    return _check_binding(obj, namespaced=False)


def _validate_binding_update(new: Obj, old: Obj) -> list[FieldError]:
    errors = _check_binding(new, namespaced=True)
    check_frozen(new.get("roleRef"), old.get("roleRef"), "roleRef", errors)
    return errors


def _validate_cluster_binding_update(new: Obj, old: Obj) -> list[FieldError]:
    errors = _check_binding(new, namespaced=False)
    check_frozen(new.get("roleRef"), old.get("roleRef"), "roleRef", errors)
    return errors


def aggregated_rules(role: Obj, roles: Iterable[Obj]) -> list[Obj]:
    """The rules that a role with an ``aggregationRule`` gets from ``roles``, ordered by selector, then by name, without
    duplicates."""
    selectors = read(role, "aggregationRule").get("clusterRoleSelectors") or ()
    own = role["metadata"]["name"]
    others = sorted((r for r in roles if r["metadata"]["name"] != own), key=lambda each: str(each["metadata"]["name"]))
    found: list[Obj] = []
    for selector in selectors:
        for other in others:
            if selector_matches(selector, other["metadata"].get("labels") or {}):
                found.extend(rule for rule in other.get("rules") or () if rule not in found)
    return found


RULES: dict[tuple[str, str, str], KindRules] = {
    (GROUP, "v1", "Role"): KindRules(
        validate_create=_validate_role,
        validate_update=lambda new, old: _validate_role(new),
        name_errors=path_segment_name,
    ),
    (GROUP, "v1", "ClusterRole"): KindRules(
        validate_create=_validate_cluster_role,
        validate_update=lambda new, old: _validate_cluster_role(new),
        name_errors=path_segment_name,
    ),
    (GROUP, "v1", "RoleBinding"): KindRules(
        default=_default_binding,
        validate_create=_validate_binding,
        validate_update=_validate_binding_update,
        name_errors=path_segment_name,
    ),
    (GROUP, "v1", "ClusterRoleBinding"): KindRules(
        default=_default_binding,
        validate_create=_validate_cluster_binding,
        validate_update=_validate_cluster_binding_update,
        name_errors=path_segment_name,
    ),
}
