"""Hosts by Istio's rules: short names, wildcards, and visibility (``exportTo``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

EVERYWHERE, HERE, NOWHERE = "*", ".", "~"


def full_name(host: str, namespace: str, domain: str) -> str:
    """A host as written in a resource of ``namespace``. Only a name without dots is short: ``reviews.prod`` is taken as
    it is, and matches no service."""
    return host if "." in host or "*" in host else f"{host}.{namespace}.svc.{domain}"


def covers(pattern: str, host: str) -> bool:
    """Whether all that ``host`` means is meant by ``pattern`` too; either may begin with ``*``."""
    if pattern == host or pattern == "*":
        return True
    if not pattern.startswith("*"):
        return False
    return host.removeprefix("*").endswith(pattern[1:]) and len(host) >= len(pattern)


def overlap(one: str, other: str) -> bool:
    return covers(one, other) or covers(other, one)


def most_specific(patterns: Iterable[str], host: str) -> str | None:
    """The exact host among those that cover it, else the longest."""
    found = [pattern for pattern in patterns if covers(pattern, host)]
    if host in found:
        return host
    return max(found, key=len, default=None)


def visible(export_to: Sequence[str] | None, owner: str, reader: str) -> bool:
    """Whether a resource of namespace ``owner`` may be read in namespace ``reader``."""
    if not export_to:
        return True
    if NOWHERE in export_to:
        return False
    return EVERYWHERE in export_to or reader in export_to or (HERE in export_to and owner == reader)


def audience(export_to: Sequence[str] | None, owner: str) -> frozenset[str]:
    """The namespaces that may read it; ``*`` alone for all."""
    if not export_to or EVERYWHERE in export_to:
        return frozenset({EVERYWHERE})
    return frozenset(owner if name == HERE else name for name in export_to if name != NOWHERE)


def shared_audience(one: frozenset[str], other: frozenset[str]) -> bool:
    return bool(one & other) or (bool(one and other) and EVERYWHERE in one | other)
