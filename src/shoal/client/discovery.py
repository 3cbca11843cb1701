"""The resources of a server: read once, and again when a kind is unknown, since definitions are added at run time.

Asks for the aggregated form, which is two requests for everything, and falls back to one request per group version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from shoal.client.resource import ResourceType
from shoal.errors import ApiError, NotFound

Fetch = Callable[[str, str], Awaitable[Any]]  # (path, accept) -> document

_JSON = "application/json"
_AGGREGATED = f"{_JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,{_JSON}"


class Discovery:
    """Kinds and their resources, in the server's order of preference."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._types: tuple[ResourceType, ...] = ()
        self._generation = 0  # counts refreshes, so that concurrent misses share one
        self._refreshing = asyncio.Lock()

    async def all(self, *, refresh: bool = False) -> tuple[ResourceType, ...]:
        if refresh or not self._types:
            await self._refresh(self._generation)
        return self._types

    async def find(self, kind: str, api_version: str = "") -> ResourceType:
        """The resource of a kind; ``NotFound`` when the server does not have it, also when asked again."""
        seen = self._generation
        found = self._look_up(kind, api_version)
        if found is None:
            await self._refresh(seen)
            found = self._look_up(kind, api_version)
        if found is None:
            wanted = f"{kind} of {api_version}" if api_version else kind
            raise NotFound(f"the server has no resource of kind {wanted}")
        return found

    def _look_up(self, kind: str, api_version: str) -> ResourceType | None:
        for resource in self._types:
            if resource.kind == kind and api_version in ("", resource.api_version):
                return resource
        return None

    async def _refresh(self, seen: int) -> None:
        async with self._refreshing:
            if self._generation != seen:
                return  # another caller has just done it
            found: list[ResourceType] = []
            for root in ("/api", "/apis"):
                document = await self._fetch(root, _AGGREGATED)
                if document.get("kind") == "APIGroupDiscoveryList":
                    found += _aggregated(document)
                else:
                    found += await self._legacy(root, document)
            self._types = tuple(found)
            self._generation += 1

    async def _legacy(self, root: str, document: Any) -> list[ResourceType]:
        found: list[ResourceType] = []
        for group, version in _group_versions(document):
            try:
                listed = await self._fetch(f"{root}/{group}/{version}" if group else f"{root}/{version}", _JSON)
            except ApiError:
                continue  # an unavailable group must not hide the others
            for item in listed.get("resources") or ():
                if "/" not in item["name"]:
                    found.append(ResourceType(group, version, item["name"], item["namespaced"], item["kind"]))
        return found


def _aggregated(document: Any) -> Iterator[ResourceType]:
    for group in document.get("items") or ():
        name = group["metadata"].get("name", "")
        for version in group.get("versions") or ():
            for item in version.get("resources") or ():
                kind = (item.get("responseKind") or {}).get("kind", "")
                yield ResourceType(name, version["version"], item["resource"], item["scope"] == "Namespaced", kind)


def _group_versions(document: Any) -> Iterable[tuple[str, str]]:
    """(group, version) in the order of preference."""
    for version in document.get("versions") or ():  # of /api
        yield "", version
    for group in document.get("groups") or ():  # of /apis
        preferred = (group.get("preferredVersion") or {}).get("version")
        versions = [version["version"] for version in group.get("versions") or ()]
        yield from ((group["name"], version) for version in sorted(versions, key=lambda v: v != preferred))
