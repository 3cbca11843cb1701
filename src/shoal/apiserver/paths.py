"""Parses URL paths into resource, object and subresource. Pure; the registry knows which of them exist."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.base.bounded_cache import bounded_cache

LONGEST = 2048  # limit for paths that are not proxied; the longest valid path is half as long


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """A parsed resource path. ``name`` empty: the collection. ``deprecated_watch``: /api/v1/watch/..."""

    group: str
    version: str
    plural: str
    namespace: str | None = None
    name: str = ""
    subresource: str = ""
    tail: str = ""  # what follows the subresource: only proxies and aggregated servers have such paths
    deprecated_watch: bool = False


@bounded_cache(4096)
def parse(path: str) -> ResourcePath | None:
    """The target of a resource path, or None when the path is not one (discovery, health, anything else)."""
    parts = path.split("/")
    if len(parts) < 4:
        return None
    if parts[1] == "api":
        group, version, rest = "", parts[2], parts[3:]
    elif parts[1] == "apis" and len(parts) >= 5:
        group, version, rest = parts[2], parts[3], parts[4:]
    else:
        return None
    if rest[-1] == "" and len(rest) > 1 and "proxy" not in rest:
        rest.pop()  # a trailing slash names the same thing
    watch = rest[0] == "watch" and len(rest) > 1
    if watch:
        rest = rest[1:]
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) >= 3 and not (len(rest) == 3 and rest[2] in ("finalize", "status")):
        namespace, rest = rest[1], rest[2:]
    if not version or "" in rest[:3] or namespace == "" or (not group and parts[1] == "apis"):
        return None  # a path with an empty segment must not be taken for the collection
    plural = rest[0]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if watch and subresource:
        return None
    if len(rest) > 3 and subresource != "proxy" and not group:
        return None
    return ResourcePath(group, version, plural, namespace, name, subresource, "/".join(rest[3:]), watch)


def is_too_long(path: str, target: ResourcePath | None) -> bool:
    """Whether a path is longer than any valid one. Decisions about paths are cached, so long ones are rejected."""
    passed_on = len(target.tail) if target is not None and target.subresource == "proxy" else 0
    return len(path) - passed_on > LONGEST
