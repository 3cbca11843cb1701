"""The audit policy: an audit.k8s.io/v1 Policy, checked and compiled. Pure except for ``load``.

Bodies with secrets are never recorded: requests for these resources have at most the level ``Metadata``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.errors import ConfigError

NONE, METADATA, REQUEST, REQUEST_RESPONSE = range(4)
LEVELS = ("None", "Metadata", "Request", "RequestResponse")
RECEIVED, STARTED, COMPLETE, PANIC = "RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"
STAGES = (RECEIVED, STARTED, COMPLETE, PANIC)
_TOKEN = "serviceaccounts/token"
_SECRET = frozenset({"secrets", "tokenreviews", "tokenrequests"})
_POLICY_FIELDS = frozenset({"apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"})
_RULE_FIELDS = frozenset(
    {
        "level",
        "users",
        "userGroups",
        "verbs",
        "resources",
        "namespaces",
        "nonResourceURLs",
        "omitStages",
        "omitManagedFields",
    }
)
_RESOURCE_FIELDS = frozenset({"group", "resources", "resourceNames"})


@dataclass(frozen=True, slots=True)
class AuditGrade:
    """The audit level of a request, and the stages to record."""

    level: int
    stages: frozenset[str] = frozenset(STAGES)
    managed_fields: bool = True
    confidential: bool = False  # error messages are not recorded either: they may quote the request


@dataclass(frozen=True, slots=True)
class AuditAttributes:
    """The attributes that rules match. ``resource`` has its subresource after a slash; ``path`` is for other paths."""

    user: str
    groups: tuple[str, ...]
    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


Match = Callable[[AuditAttributes], bool]


class AuditPolicy:
    """Rules in order; the first that matches decides."""

    def __init__(self, rules: Sequence[tuple[Match, AuditGrade]], *, by_name: bool, refusals: bool) -> None:
        self._rules = rules
        self.by_name = by_name  # whether an object's name matters
        self.refusals = refusals  # whether rejected requests are recorded without a matching rule

    def grade(self, asked: AuditAttributes) -> AuditGrade | None:
        """The grade of a request; None when it is not recorded."""
        for matches, grade in self._rules:
            if matches(asked):
                return _capped(asked, grade) if grade.level else None
        return None


def is_secret(resource: str) -> bool:
    """Whether request bodies of the resource contain secrets, in any API group."""
    return resource == _TOKEN or resource.partition("/")[0] in _SECRET


def _capped(asked: AuditAttributes, grade: AuditGrade) -> AuditGrade:
    if not is_secret(asked.resource):
        return grade
    return AuditGrade(METADATA, grade.stages, grade.managed_fields, confidential=True)


# -- the default -----------------------------------------------------------------------------------------------------

_CHANGES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_CHATTER = frozenset({("coordination.k8s.io", "leases"), ("", "events"), ("events.k8s.io", "events")})


def default_policy() -> AuditPolicy:
    """Metadata of all writes except to leases and events, and of all rejected requests."""

    def changes(asked: AuditAttributes) -> bool:
        return asked.verb in _CHANGES and not asked.path and (asked.group, asked.resource) not in _CHATTER

    stages = frozenset({STARTED, COMPLETE, PANIC})
    return AuditPolicy([(changes, AuditGrade(METADATA, stages))], by_name=False, refusals=True)


# -- from a file -----------------------------------------------------------------------------------------------------


def load(path: Path) -> AuditPolicy:
    """The policy in a YAML or JSON file; ConfigError names the field at fault and the fix."""
    import yaml

    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"audit policy {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"audit policy {path}: not YAML: {error}") from None
    try:
        return parse(content)
    except ConfigError as error:
        raise ConfigError(f"audit policy {path}: {error}") from None


def parse(content: Any) -> AuditPolicy:
    if not isinstance(content, dict):
        raise ConfigError("the file must hold one object; start it with apiVersion: audit.k8s.io/v1 and kind: Policy")
    if content.get("apiVersion") != "audit.k8s.io/v1":
        raise ConfigError(f"apiVersion is {content.get('apiVersion')!r}: use audit.k8s.io/v1")
    if content.get("kind") != "Policy":
        raise ConfigError(f"kind is {content.get('kind')!r}: use Policy")
    _known(content, _POLICY_FIELDS, "")
    omitted = _stages(content, "")
    managed = not _boolean(content, "omitManagedFields", "", default=False)
    rules = content.get("rules")
    if not isinstance(rules, list) or not rules:
        raise ConfigError("rules is empty: add at least one rule, such as {level: Metadata}")
    compiled = [_rule(rule, f"rules[{number}]", omitted, managed) for number, rule in enumerate(rules)]
    by_name = any(part.get("resourceNames") for rule in rules for part in rule.get("resources") or ())
    return AuditPolicy(compiled, by_name=by_name, refusals=False)


def _rule(rule: Any, at: str, omitted: frozenset[str], managed: bool) -> tuple[Match, AuditGrade]:
    if not isinstance(rule, dict):
        raise ConfigError(f"{at} must be an object with a level")
    _known(rule, _RULE_FIELDS, at)
    level = rule.get("level")
    if level not in LEVELS:
        raise ConfigError(f"{at}.level is {level!r}: choose from {', '.join(LEVELS)}")
    stages = frozenset(STAGES) - omitted - _stages(rule, at)
    managed = not _boolean(rule, "omitManagedFields", at, default=not managed)
    return _match(rule, at), AuditGrade(LEVELS.index(level), stages, managed)


def _match(rule: dict[str, Any], at: str) -> Match:
    users, groups = _texts(rule, "users", at), _texts(rule, "userGroups", at)
    verbs, namespaces = _texts(rule, "verbs", at), _texts(rule, "namespaces", at)
    urls = _texts(rule, "nonResourceURLs", at)
    parts = rule.get("resources") or []
    if not isinstance(parts, list):
        raise ConfigError(f"{at}.resources must be a list of objects with group and resources")
    resources = [_resources(part, f"{at}.resources[{number}]") for number, part in enumerate(parts)]
    for number, url in enumerate(urls):
        if url != "*" and not url.startswith("/"):
            raise ConfigError(f"{at}.nonResourceURLs[{number}] is {url!r}: it must begin with a slash")
        if "*" in url[:-1]:
            raise ConfigError(f"{at}.nonResourceURLs[{number}] is {url!r}: a star can only be the last character")
    if urls and (resources or namespaces):
        raise ConfigError(f"{at}.nonResourceURLs: a rule with resources cannot have URLs; make it two rules")
    exact = frozenset(urls)
    starts = tuple(url.rstrip("*") for url in urls if url.endswith("*"))

    def matches(asked: AuditAttributes) -> bool:
        if users and asked.user not in users:
            return False
        if groups and groups.isdisjoint(asked.groups):
            return False
        if verbs and asked.verb not in verbs:
            return False
        if namespaces or resources:
            if asked.path or (namespaces and asked.namespace not in namespaces):
                return False
            return not resources or any(each(asked) for each in resources)
        return not exact or (bool(asked.path) and (asked.path in exact or asked.path.startswith(starts)))

    return matches


def _resources(part: Any, at: str) -> Match:
    if not isinstance(part, dict):
        raise ConfigError(f"{at} must be an object with group and resources")
    _known(part, _RESOURCE_FIELDS, at)
    group = part.get("group") or ""
    if not isinstance(group, str) or "/" in group:
        raise ConfigError(f"{at}.group is {group!r}: give the group without its version")
    resources, names = _texts(part, "resources", at), _texts(part, "resourceNames", at)
    if names and not resources:
        raise ConfigError(f"{at}.resourceNames needs resources: add the resources that the names belong to")

    def matches(asked: AuditAttributes) -> bool:
        if group not in ("*", asked.group):
            return False
        if not resources:
            return True
        if names and asked.name not in names:
            return False
        plural, _, subresource = asked.resource.partition("/")
        return (
            asked.resource in resources
            or "*" in resources
            or f"{plural}/*" in resources
            or (subresource != "" and f"*/{subresource}" in resources)
        )

    return matches


def _known(content: dict[str, Any], fields: frozenset[str], at: str) -> None:
    for name in content:
        if name not in fields:
            where = f"{at}.{name}" if at else str(name)
            raise ConfigError(f"{where}: unknown field; known fields: {', '.join(sorted(fields))}")


def _texts(content: dict[str, Any], name: str, at: str) -> frozenset[str]:
    values = content.get(name) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ConfigError(f"{at}.{name} must be a list of strings")
    return frozenset(values)


def _stages(content: dict[str, Any], at: str) -> frozenset[str]:
    found = _texts(content, "omitStages", at or "the policy")
    for stage in sorted(found):
        if stage not in STAGES:
            where = f"{at}.omitStages" if at else "omitStages"
            raise ConfigError(f"{where} has {stage!r}: choose from {', '.join(STAGES)}")
    return found


def _boolean(content: dict[str, Any], name: str, at: str, *, default: bool) -> bool:
    value = content.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ConfigError(f"{at + '.' if at else ''}{name} is {value!r}: use true or false")
    return value
