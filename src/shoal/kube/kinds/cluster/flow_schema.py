"""FlowSchema: which requests go to which priority level."""

from __future__ import annotations

from functools import cache
from typing import Final

from shoal.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from shoal.kube.kinds import bootstrap_flowcontrol
from shoal.kube.kinds.checks import Errors, check_syntax
from shoal.kube.kinds.common import deep_same, fill, read, spec_of
from shoal.kube.names import is_dns1123_label, is_dns1123_subdomain
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_MAX_PRECEDENCE: Final = 10_000
_DISTINGUISHERS: Final = ("ByNamespace", "ByUser")
_SUBJECTS: Final = {"Group": "group", "ServiceAccount": "serviceAccount", "User": "user"}
_VERBS: Final = frozenset(
    {"get", "list", "create", "update", "delete", "deletecollection", "patch", "watch", "proxy"}
)  # fmt: skip


def _default(obj: Obj) -> None:
    fill(spec_of(obj), "matchingPrecedence", 1000)


@cache
def _mandatory() -> dict[str, Obj]:
    """The specs of the mandatory schemas, by name."""
    schemas = bootstrap_flowcontrol.flow_schemas()
    wanted = bootstrap_flowcontrol.MANDATORY
    return {each["metadata"]["name"]: each["spec"] for each in schemas if each["metadata"]["name"] in wanted}


def _check_precedence(spec: Obj, name: str, errors: Errors) -> None:
    path, value = "spec.matchingPrecedence", spec.get("matchingPrecedence") or 0
    if value <= 0:
        errors.append(invalid(path, value, "must be a positive value"))
    if value > _MAX_PRECEDENCE:
        errors.append(invalid(path, value, f"must not be greater than {_MAX_PRECEDENCE}"))
    if value == 1 and name != "exempt":
        errors.append(invalid(path, value, "only the schema named 'exempt' may have matchingPrecedence 1"))


def _check_subject(subject: Obj, path: str, errors: Errors) -> None:
    kind = subject.get("kind") or ""
    wanted = _SUBJECTS.get(kind)
    if wanted is None:
        errors.append(not_supported(f"{path}.kind", kind, _SUBJECTS))
        return
    named = subject.get(wanted)
    if named is None:
        errors.append(required(f"{path}.{wanted}", f"{wanted} is required when subject kind is '{kind}'"))
    else:
        _check_subject_name(named, kind, f"{path}.{wanted}", errors)
    for other, field in _SUBJECTS.items():
        if other != kind and subject.get(field) is not None:
            text = f"{field} is forbidden when subject kind is not '{other}'"
            errors.append(forbidden(f"{path}.{field}", text))


def _check_subject_name(named: Obj, kind: str, path: str, errors: Errors) -> None:
    name = named.get("name")
    if not name:
        errors.append(required(f"{path}.name"))
    if kind != "ServiceAccount":
        return
    if name and name != "*":
        check_syntax(name, is_dns1123_subdomain, f"{path}.name", errors)
    namespace = named.get("namespace")
    if namespace:
        check_syntax(namespace, is_dns1123_label, f"{path}.namespace", errors)
    else:
        errors.append(required(f"{path}.namespace", "must specify namespace for service account"))


def _check_verbs(verbs: list[str], path: str, errors: Errors) -> None:
    if not verbs:
        errors.append(required(f"{path}.verbs", "verbs must contain at least one value"))
    elif "*" in verbs:
        if len(verbs) > 1:
            errors.append(invalid(f"{path}.verbs", verbs, "if '*' is present, must not specify other verbs"))
    elif not _VERBS.issuperset(verbs):
        errors.append(not_supported(f"{path}.verbs", verbs, _VERBS))


def _check_wildcard_list(values: list[str], path: str, noun: str, errors: Errors) -> None:
    if not values:
        article = "api group" if noun == "api groups" else "resource"
        errors.append(required(path, f"resource rules must supply at least one {article}"))
    elif len(values) > 1 and "*" in values:
        errors.append(invalid(path, values, f"if '*' is present, must not specify other {noun}"))


def _check_resource_rule(rule: Obj, path: str, errors: Errors) -> None:
    _check_verbs(rule.get("verbs") or [], path, errors)
    _check_wildcard_list(rule.get("apiGroups") or [], f"{path}.apiGroups", "api groups", errors)
    _check_wildcard_list(rule.get("resources") or [], f"{path}.resources", "resources", errors)
    namespaces = rule.get("namespaces") or []
    path = f"{path}.namespaces"
    if not namespaces and not rule.get("clusterScope"):
        text = "resource rules that are not cluster scoped must supply at least one namespace"
        errors.append(required(path, text))
    elif "*" in namespaces:
        if len(namespaces) > 1:
            errors.append(invalid(path, namespaces, "if '*' is present, must not specify other namespaces"))
    else:
        for position, namespace in enumerate(namespaces):
            for text in is_dns1123_label(namespace):
                intro = "each member of this list must be '*' or a DNS-1123 label; "
                errors.append(invalid(f"{path}[{position}]", namespace, intro + text))


def check_url_path(value: str, path: str, errors: Errors) -> None:
    """A path of the API; a star at its end matches any suffix."""
    if value == "/":
        return
    stars = value.count("*")
    if not value:
        fault = "must not be empty"
    elif not value.startswith("/"):
        fault = "must start with slash"
    elif " " in value:
        fault = "must not contain white-space"
    elif "//" in value:
        fault = "must not contain double slash"
    elif stars > 1 or (stars == 1 and not value.endswith("/*")):
        fault = "wildcard can only do suffix matching"
    else:
        return
    errors.append(invalid(path, value, fault))


def _check_url_rule(rule: Obj, path: str, errors: Errors) -> None:
    _check_verbs(rule.get("verbs") or [], path, errors)
    urls = rule.get("nonResourceURLs") or []
    path = f"{path}.nonResourceURLs"
    if not urls:
        errors.append(required(path, "nonResourceURLs must contain at least one value"))
    elif "*" in urls:
        if len(urls) > 1:
            errors.append(invalid(path, urls, "if '*' is present, must not specify other non-resource URLs"))
    else:
        for position, url in enumerate(urls):
            check_url_path(url, f"{path}[{position}]", errors)


def _check_rule(rule: Obj, path: str, errors: Errors) -> None:
    subjects = rule.get("subjects") or ()
    if not subjects:
        errors.append(required(f"{path}.subjects", "subjects must contain at least one value"))
    for position, subject in enumerate(subjects):
        _check_subject(subject, f"{path}.subjects[{position}]", errors)
    resources, urls = rule.get("resourceRules") or (), rule.get("nonResourceRules") or ()
    if not resources and not urls:
        text = "at least one of resourceRules and nonResourceRules has to be non-empty"
        errors.append(required(path, text))
    for position, each in enumerate(resources):
        _check_resource_rule(each, f"{path}.resourceRules[{position}]", errors)
    for position, each in enumerate(urls):
        _check_url_rule(each, f"{path}.nonResourceRules[{position}]", errors)


def check_conditions(obj: Obj, errors: Errors) -> None:
    """Every condition has a type, and no type occurs twice."""
    seen: set[str] = set()
    for position, condition in enumerate(read(obj, "status").get("conditions") or ()):
        path = f"status.conditions[{position}].type"
        kind = condition.get("type") or ""
        if kind in seen:
            errors.append(duplicate(path, kind))
        seen.add(kind)
        if not kind:
            errors.append(required(path))


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    name, spec = obj["metadata"].get("name") or "", read(obj, "spec")
    _check_precedence(spec, name, errors)
    method = spec.get("distinguisherMethod")
    if method is not None and method.get("type") not in _DISTINGUISHERS:
        errors.append(not_supported("spec.distinguisherMethod.type", method, _DISTINGUISHERS))
    level, path = read(spec, "priorityLevelConfiguration").get("name"), "spec.priorityLevelConfiguration.name"
    if level:
        check_syntax(level, is_dns1123_subdomain, path, errors)
    else:
        errors.append(required(path, "must reference a priority level"))
    for position, rule in enumerate(spec.get("rules") or ()):
        _check_rule(rule, f"spec.rules[{position}]", errors)
    fixed = _mandatory().get(name)
    if fixed is not None and not deep_same(spec, fixed):
        errors.append(invalid("spec", spec, f"spec of '{name}' must equal the fixed value"))
    check_conditions(obj, errors)
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    return _validate(new)


def validate_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    check_conditions(new, errors)
    return errors


RULES: Final = KindRules(
    default=_default,
    validate_create=_validate,
    validate_update=_validate_update,
    validate_status=validate_status,
)
