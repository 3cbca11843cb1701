"""Compiled FlowSchemas: match requests and name the flow of each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shoal.kube.objects import Obj

_ACCOUNT = "system:serviceaccount:"
_ALL = ("*",)


@dataclass(frozen=True, slots=True)
class Digest:
    """The attributes of a request that schemas match. ``resource`` has its subresource after a slash; ``path`` is set
    for non-resource requests."""

    user: str
    groups: tuple[str, ...]
    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    path: str = ""


Match = Callable[[Digest], bool]


class Schema:
    """One FlowSchema."""

    __slots__ = ("_rules", "dispatched", "distinguisher", "level_name", "name", "precedence", "rejected", "uid")

    def __init__(self, obj: Obj) -> None:
        metadata, spec = obj["metadata"], obj.get("spec") or {}
        self.name: str = metadata["name"]
        self.uid: str = metadata.get("uid") or ""
        self.precedence: int = spec.get("matchingPrecedence") or 1000
        self.level_name: str = (spec.get("priorityLevelConfiguration") or {}).get("name") or ""
        self.distinguisher: str = (spec.get("distinguisherMethod") or {}).get("type") or ""
        self.dispatched = 0
        self.rejected: dict[str, int] = {}  # by reason
        self._rules = [_rule(each) for each in spec.get("rules") or ()]

    def matches(self, digest: Digest) -> bool:
        return any(rule(digest) for rule in self._rules)

    def flow_of(self, digest: Digest) -> str:
        """The name of the request's flow: unique over all schemas."""
        if self.distinguisher == "ByUser":
            return f"{self.name}/{digest.user}"
        if self.distinguisher == "ByNamespace":
            return f"{self.name}/{digest.namespace}"
        return self.name


def in_order(schemas: Sequence[Schema]) -> list[Schema]:
    """The order in which schemas are tried: precedence, then name."""
    return sorted(schemas, key=lambda schema: (schema.precedence, schema.name))


def _rule(rule: Obj) -> Match:
    subjects = [_subject(each) for each in rule.get("subjects") or ()]
    resources = [_resource_rule(each) for each in rule.get("resourceRules") or ()]
    urls = [_url_rule(each) for each in rule.get("nonResourceRules") or ()]

    def matches(digest: Digest) -> bool:
        if not any(subject(digest) for subject in subjects):
            return False
        return any(each(digest) for each in (urls if digest.path else resources))

    return matches


def _subject(subject: Obj) -> Match:
    kind = subject.get("kind")
    if kind == "User":
        name = (subject.get("user") or {}).get("name")
        return lambda digest: name in ("*", digest.user)
    if kind == "Group":
        group = (subject.get("group") or {}).get("name")
        return lambda digest: group == "*" or group in digest.groups
    account = subject.get("serviceAccount") or {}
    start = f"{_ACCOUNT}{account.get('namespace')}:"
    if account.get("name") == "*":
        return lambda digest: digest.user.startswith(start)
    full = f"{start}{account.get('name')}"
    return lambda digest: digest.user == full


def _one_of(values: Sequence[str]) -> Callable[[str], bool]:
    if tuple(values) == _ALL:
        return lambda value: True
    chosen = frozenset(values)
    return chosen.__contains__


def _resource_rule(rule: Obj) -> Match:
    verb, group = _one_of(rule.get("verbs") or ()), _one_of(rule.get("apiGroups") or ())
    resource, namespace = _one_of(rule.get("resources") or ()), _one_of(rule.get("namespaces") or ())
    cluster = bool(rule.get("clusterScope"))

    def matches(digest: Digest) -> bool:
        if not (verb(digest.verb) and resource(digest.resource) and group(digest.group)):
            return False
        return namespace(digest.namespace) if digest.namespace else cluster

    return matches


def _url_rule(rule: Obj) -> Match:
    verb = _one_of(rule.get("verbs") or ())
    urls: Sequence[str] = rule.get("nonResourceURLs") or ()
    exact = frozenset(urls)
    # a rule for /healthz also matches the paths below it
    starts = tuple(url.removesuffix("*").rstrip("/") + "/" for url in urls if url != "*")

    def matches(digest: Digest) -> bool:
        if not verb(digest.verb):
            return False
        return "*" in exact or digest.path in exact or digest.path.startswith(starts)

    return matches
