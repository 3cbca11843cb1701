"""Parses the path of a Kubernetes API request. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTarget:
    """A resource, or one object of it. ``name`` is empty for all of them."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def target_of(path: str) -> RequestTarget | None:
    """None when the path is not that of a resource, for example discovery or health."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    # a namespace's own subresources look like resources in it
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    if rest[0] == "watch":
        return None  # the deprecated form of watches would not be filtered
    return RequestTarget(
        group=group, version=version, plural=rest[0], namespace=namespace,
        name=rest[1] if len(rest) > 1 else "", subresource="/".join(rest[2:]),
    )  # fmt: skip
