"""Discovers the resources of a server and their verbs, for controllers that work on all kinds.

Each resource is listed once, in the server's preferred version.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shoal.client import Client, ResourceType

_ACCEPT = {"accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}


@dataclass(frozen=True, slots=True)
class ServedResource:
    type: ResourceType
    verbs: frozenset[str]

    def can(self, *verbs: str) -> bool:
        return self.verbs.issuperset(verbs)


@dataclass(frozen=True, slots=True)
class Discovered:
    """``stale`` names the group versions whose own server did not respond: their resources may be out of date."""

    resources: tuple[ServedResource, ...]
    stale: tuple[str, ...] = ()


async def discover(client: Client) -> Discovered:
    """Read the server's discovery now."""
    resources: list[ServedResource] = []
    stale: list[str] = []
    for root in ("/api", "/apis"):
        document = await client.request("GET", root, headers=_ACCEPT)
        for group in document.get("items") or ():
            resources += _preferred(group)
            name = group["metadata"].get("name", "")
            stale += (f"{name}/{v['version']}" for v in group.get("versions") or () if v.get("freshness") == "Stale")
    return Discovered(tuple(resources), tuple(stale))


def _preferred(group: Any) -> Iterator[ServedResource]:
    """The resources of a group, each in the first version that has it; versions are in order of preference."""
    seen: set[str] = set()
    name = group["metadata"].get("name", "")
    for version in group.get("versions") or ():
        for item in version.get("resources") or ():
            plural = item["resource"]
            if plural in seen:
                continue
            seen.add(plural)
            kind = (item.get("responseKind") or {}).get("kind", "")
            kept = ResourceType(name, version["version"], plural, item["scope"] == "Namespaced", kind)
            yield ServedResource(kept, frozenset(item.get("verbs") or ()))
