"""Matches writes to webhooks and policies: resource rules, selectors, and kinds that have several versions.

The part that depends only on the kind of write is computed once per kind and cached; each write is then matched by its
name, its labels and those of its namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from shoal.apiserver.admission.model import CREATE, UPDATE, Admission
from shoal.apiserver.registry import Registry, Served
from shoal.errors import NotFound
from shoal.kube import labels
from shoal.kube.labels import Selector

Seen = tuple[str, str, str]  # group, version and resource in which a configuration wants to see an object
NamespaceLabels = Callable[[str], Mapping[str, str] | None]

_NAMESPACES = "namespaces"
_MAX_CHOICES = 1_000


class _Rule:
    """One rule with its operations."""

    __slots__ = ("groups", "names", "operations", "resources", "scope", "versions")

    def __init__(self, rule: Mapping[str, Any]) -> None:
        self.operations = frozenset(rule.get("operations") or ())
        self.groups = frozenset(rule.get("apiGroups") or ())
        self.versions = frozenset(rule.get("apiVersions") or ())
        split = (text.partition("/") for text in rule.get("resources") or ())
        self.resources = tuple((name, sub) for name, _, sub in split)
        self.scope = rule.get("scope") or "*"
        self.names = frozenset(rule.get("resourceNames") or ())

    def takes(self, served: Served, operation: str, subresource: str) -> bool:
        """Whether the rule matches such a write, its name aside."""
        resource = served.resource
        if self.scope != "*" and (self.scope == "Namespaced") is not resource.namespaced:
            return False
        return (
            _listed(self.operations, operation)
            and _listed(self.groups, resource.group)
            and _listed(self.versions, resource.version)
            and any(
                name in ("*", resource.plural) and sub in ("*", subresource) for name, sub in self.resources
            )
        )  # fmt: skip


def _listed(choices: frozenset[str], wanted: str) -> bool:
    return wanted in choices or "*" in choices


class _Candidate(NamedTuple):
    """A rule that matches one kind of write, and the version in which it receives the object."""

    seen: Seen
    names: frozenset[str]  # empty: any


class _Choice(NamedTuple):
    candidates: tuple[_Candidate, ...]  # the first that takes the name decides
    excluding: tuple[_Candidate, ...]


_NOTHING = _Choice((), ())


class Match:
    """The writes that one configuration matches."""

    __slots__ = ("_choices", "_equivalent", "_excluding", "_rules", "_version", "namespaces", "objects")

    def __init__(
        self, match: Mapping[str, Any], rules: Sequence[Mapping[str, Any]], excluding: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self._rules = tuple(map(_Rule, rules))
        self._excluding = tuple(map(_Rule, excluding))
        self._equivalent = match.get("matchPolicy") == "Equivalent"
        self.namespaces = _selector(match.get("namespaceSelector"))
        self.objects = _selector(match.get("objectSelector"))
        self._choices: dict[tuple[Served, str, str], _Choice] = {}
        self._version = -1

    @classmethod
    def of_webhook(cls, hook: Mapping[str, Any]) -> Match:
        """The match of a webhook; without rules it matches nothing."""
        return cls(hook, hook.get("rules") or ())

    @classmethod
    def of_policy(cls, match: Mapping[str, Any] | None) -> Match:
        """The MatchResources of a policy or a binding; without rules they match everything."""
        match = match or {}
        return cls(match, match.get("resourceRules") or (_EVERYTHING,), match.get("excludeResourceRules") or ())

    def could(self, served: Served, operation: str, subresource: str, registry: Registry) -> bool:
        """Whether such a write can match at all; its name, its namespace and selectors aside."""
        choice = self._choice(served, operation, subresource, registry)
        return bool(choice.candidates) and all(each.names for each in choice.excluding)

    def matches(self, admission: Admission, registry: Registry, namespace_labels: NamespaceLabels) -> Seen | None:
        """The version in which the configuration receives this object; None when it does not match.

        Raise ``NotFound`` when the result depends on a namespace that does not exist.
        """
        choice = self._choice(admission.served, admission.operation, admission.subresource, registry)
        seen = _first(choice.candidates, admission.name)
        if seen is None or _first(choice.excluding, admission.name) is not None:
            return None
        if not self.objects.everything and not _selects(self.objects, admission):
            return None
        if not self.namespaces.everything and not self._in_namespace(admission, namespace_labels):
            return None
        return seen

    def _in_namespace(self, admission: Admission, namespace_labels: NamespaceLabels) -> bool:
        resource = admission.served.resource
        if resource.plural == _NAMESPACES:
            if not admission.subresource and admission.operation in (CREATE, UPDATE):
                return self.namespaces.matches(_labels(admission.object) or {})
            name = admission.namespace or admission.name
        elif not admission.namespace:
            return True  # a namespace selector does not exempt cluster-scoped objects
        else:
            name = admission.namespace
        found = namespace_labels(name)
        if found is None:
            raise NotFound.of(_NAMESPACES, "", name)
        return self.namespaces.matches(found)

    def _choice(self, served: Served, operation: str, subresource: str, registry: Registry) -> _Choice:
        if self._version != registry.version or len(self._choices) > _MAX_CHOICES:
            self._choices.clear()
            self._version = registry.version
        key = (served, operation, subresource)
        choice = self._choices.get(key)
        if choice is None:
            candidates = tuple(self._candidates(self._rules, key, registry))
            if candidates:
                choice = _Choice(candidates, tuple(self._candidates(self._excluding, key, registry)))
            else:
                choice = _NOTHING
            self._choices[key] = choice
        return choice

    def _candidates(
        self, rules: Sequence[_Rule], where: tuple[Served, str, str], registry: Registry
    ) -> Iterator[_Candidate]:
        """The version asked for comes first with all rules; other versions only after that, earlier rules first."""
        served, operation, subresource = where
        for rule in rules:
            if rule.takes(served, operation, subresource):
                yield _Candidate(_seen(served), rule.names)
        if self._equivalent:
            others = list(_equivalents(served, subresource, registry))
            for rule in rules:
                for other in others:
                    if rule.takes(other, operation, subresource):
                        yield _Candidate(_seen(other), rule.names)


_EVERYTHING: Mapping[str, Any] = {
    "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "scope": "*",
}  # fmt: skip


def _selector(selector: Mapping[str, Any] | None) -> Selector:
    """A missing selector matches everything."""
    return labels.EVERYTHING if not selector else labels.from_object(selector)


def _seen(served: Served) -> Seen:
    resource = served.resource
    return resource.group, resource.version, resource.plural


def _equivalents(served: Served, subresource: str, registry: Registry) -> Iterator[Served]:
    """Other versions and groups in which the same stored objects are served."""
    for other in registry:
        if other.key == served.key and other is not served:
            if not subresource or other.resource.subresource(subresource) is not None:
                yield other


def _first(candidates: tuple[_Candidate, ...], name: str) -> Seen | None:
    for seen, names in candidates:
        if not names or name in names:
            return seen
    return None


def _labels(obj: Mapping[str, Any] | None) -> Mapping[str, str] | None:
    """None for objects without metadata, such as connect options: no selector matches them."""
    metadata = None if obj is None else obj.get("metadata")
    return (metadata.get("labels") or {}) if isinstance(metadata, dict) else None


def _selects(selector: Selector, admission: Admission) -> bool:
    """Whether the selector matches the new or the old object."""
    for obj in (admission.object, admission.old):
        found = _labels(obj)
        if found is not None and selector.matches(found):
            return True
    return False
