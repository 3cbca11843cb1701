"""Decides which namespaces are watched, and how: the whole cluster at once, or namespace by namespace. Pure.

Without names the whole cluster is watched, and the excluded namespaces are left out. Names are watched one by one, so
that rights in these namespaces suffice. Patterns choose among the namespaces that exist, which the edge must be
allowed to list; a pattern that matches very many is watched with the whole cluster, since each namespace costs a
connection per kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shoal.navigator.edge.config import NamespaceConfig
from shoal.navigator.edge.reporting import Namespaces, is_pattern
from shoal.navigator.model import ReportedKind
from shoal.reconcile.keys import ObjectKey

_ALL = NamespaceConfig()


@dataclass(frozen=True, slots=True)
class WatchScope:
    """One watch of a kind: of one namespace, or of the whole cluster without what ``limits`` leaves out."""

    namespace: str = ""
    limits: NamespaceConfig = _ALL

    def covers(self, key: ObjectKey) -> bool:
        return not self.namespace or key.namespace == self.namespace


def watched_namespaces(config: NamespaceConfig, existing: Iterable[str]) -> frozenset[str] | None:
    """The namespaces to watch one by one; None: the whole cluster. ``existing`` matters for patterns only."""
    if not config.include:
        return None
    wants = Namespaces(config).wants
    names = {name for name in config.include if not is_pattern(name) and wants(name)}
    if not needs_list(config):
        return frozenset(names)
    names |= {name for name in existing if wants(name)}
    return frozenset(names) if len(names) <= config.one_by_one else None


def needs_list(config: NamespaceConfig) -> bool:
    """Whether the choice depends on the namespaces that exist."""
    return any(is_pattern(name) for name in config.include)


def scopes_of(kind: ReportedKind, config: NamespaceConfig, chosen: frozenset[str] | None) -> frozenset[WatchScope]:
    if chosen is None or not kind.namespaced:
        return frozenset({WatchScope("", config)})
    return frozenset(WatchScope(name) for name in chosen)
