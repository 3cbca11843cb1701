"""Policy rules: matching, coverage of one rule by others, and messages about missing rules. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from json import dumps

from shoal.kube.objects import Obj

ALL = "*"
MAX_PARTS = 20_000
MAX_MISSING = 1_000
_FIELDS = (
    ("APIGroups", "apiGroups"),
    ("Resources", "resources"),
    ("NonResourceURLs", "nonResourceURLs"),
    ("ResourceNames", "resourceNames"),
    ("Verbs", "verbs"),
)


class Rule:
    """One compiled policy rule."""

    __slots__ = ("groups", "names", "prefixes", "raw", "resources", "urls", "verbs")

    def __init__(self, raw: Obj) -> None:
        self.raw = raw
        self.verbs = frozenset(raw.get("verbs") or ())
        self.groups = frozenset(raw.get("apiGroups") or ())
        self.resources = frozenset(raw.get("resources") or ())
        self.names = frozenset(raw.get("resourceNames") or ())
        self.urls = frozenset(raw.get("nonResourceURLs") or ())
        self.prefixes = tuple(url.rstrip(ALL) for url in self.urls if url.endswith(ALL))

    def allows(self, verb: str, group: str, resource: str, subresource: str, name: str) -> bool:
        if verb not in self.verbs and ALL not in self.verbs:
            return False
        if group not in self.groups and ALL not in self.groups:
            return False
        if self.names and name not in self.names:
            return False
        resources = self.resources
        if not subresource:
            return resource in resources or ALL in resources
        return f"{resource}/{subresource}" in resources or ALL in resources or f"*/{subresource}" in resources

    def allows_path(self, verb: str, path: str) -> bool:
        if verb not in self.verbs and ALL not in self.verbs:
            return False
        return path in self.urls or path.startswith(self.prefixes)

    def covers(self, other: Rule) -> bool:
        """Whether everything that ``other``, a rule with one value per field, allows is allowed by this one."""
        if not (ALL in self.verbs or other.verbs <= self.verbs):
            return False
        if not (ALL in self.groups or other.groups <= self.groups):
            return False
        if self.names and not (other.names and other.names <= self.names):
            return False
        if not all(self._covers_resource(resource) for resource in other.resources):
            return False
        return all(self._covers_url(url) for url in other.urls)

    def _covers_resource(self, resource: str) -> bool:
        if ALL in self.resources or resource in self.resources:
            return True
        _, slash, subresource = resource.partition("/")
        return bool(slash) and f"*/{subresource}" in self.resources

    def _covers_url(self, url: str) -> bool:
        return url in self.urls or url.startswith(self.prefixes)


def compiled(raw: Iterable[Obj] | None) -> tuple[Rule, ...]:
    return tuple(Rule(rule) for rule in raw or ())


def parts(rule: Obj) -> Iterator[Obj]:
    """The rule as rules with one value per field."""
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in rule.get("verbs") or ():
                part: Obj = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
                if rule.get("resourceNames"):
                    yield from ({**part, "resourceNames": [name]} for name in rule["resourceNames"])
                else:
                    yield part
    for url in rule.get("nonResourceURLs") or ():
        for verb in rule.get("verbs") or ():
            yield {"nonResourceURLs": [url], "verbs": [verb]}


def uncovered(owned: Sequence[Rule], wanted: Iterable[Obj]) -> list[Obj]:
    """The parts of ``wanted`` that no rule of ``owned`` covers; of very many, the first ones. What one rule covers as a
    whole is not taken apart, and what has more than ``MAX_PARTS`` of them is not covered: a rule's lists multiply, so
    that few bytes can stand for more questions than there is time for."""
    missing: list[Obj] = []
    looked_at = 0
    for rule in wanted:
        if _covered(owned, Rule(rule)):
            continue
        for part in parts(rule):
            looked_at += 1
            if looked_at > MAX_PARTS or not _covered(owned, Rule(part)):
                missing.append(part)
                if len(missing) >= MAX_MISSING or looked_at > MAX_PARTS:
                    return missing
    return missing


def _covered(owned: Sequence[Rule], part: Rule) -> bool:
    return any(rule.covers(part) for rule in owned)


def described(missing: Iterable[Obj]) -> list[str]:
    """Missing parts as Kubernetes lists them: verbs of one resource together, sorted."""
    gathered: dict[tuple[str, str, str], Obj] = {}
    texts = set()
    for part in missing:
        if part.get("nonResourceURLs"):
            texts.add(_text(part))
            continue
        place = (part["apiGroups"][0], part["resources"][0], (part.get("resourceNames") or ["\0"])[0])
        known = gathered.get(place)
        if known is None:
            gathered[place] = {**part, "verbs": list(part["verbs"])}
        else:
            known["verbs"] += part["verbs"]
    return sorted(texts | {_text(part) for part in gathered.values()})


def _text(rule: Obj) -> str:
    shown = [f"{label}:{quoted(rule[name])}" for label, name in _FIELDS if rule.get(name)]
    return "{" + ", ".join(shown) + "}"


def quoted(values: Iterable[str]) -> str:
    """``["a" "b"]``: a list of texts in messages."""
    return "[" + " ".join(quote(value) for value in values) + "]"


def quote(text: str) -> str:
    return dumps(text, ensure_ascii=False)
