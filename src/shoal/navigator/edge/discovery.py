"""Finds the optional kinds that a cluster serves, and their versions; looks again while any is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from shoal.base.clock import Clock
from shoal.client import Client
from shoal.errors import NotFound
from shoal.navigator.model import ReportedKind


class KindDiscovery:
    """``found`` has the version of each kind that is served. After every look ``on_result`` is called
    with the kinds that are not served, or with the error."""

    def __init__(
        self,
        client: Client,
        kinds: Iterable[ReportedKind],
        *,
        clock: Clock,
        every_s: float,
        on_result: Callable[[frozenset[str], Exception | None], None],
    ) -> None:
        self._client = client
        self._kinds = tuple(kinds)
        self._clock = clock
        self.every_s = every_s
        self._on_result = on_result
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._changed = asyncio.Event()
        self.found: dict[str, str] = {}

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            try:
                found = await self._look()
            except Exception as error:  # after any error the known kinds are still watched
                self._on_result(frozenset(), error)
            else:
                self.found = found
                missing = frozenset(kind.name for kind in self._kinds if kind.name not in found)
                self._on_result(missing, None)
                if not missing:
                    self._wanted.clear()
                self._changed.set()
                self._changed = asyncio.Event()
            await self._clock.sleep(self.every_s)

    async def version_of(self, kind: ReportedKind) -> str:
        """Wait until the cluster serves the kind."""
        while (version := self.found.get(kind.name)) is None:
            await self._changed.wait()
        return version

    def recheck(self, kind: str) -> None:
        """The server does not serve the kind any more: look again."""
        self.found.pop(kind, None)
        self._wanted.set()

    async def _look(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for group in dict.fromkeys(kind.group for kind in self._kinds):
            kinds = [kind for kind in self._kinds if kind.group == group]
            versions = _versions(kinds, await self._served(group))
            if any(kind.versions[0] != versions.get(kind.name, kind.versions[0]) for kind in kinds):
                # A definition that appears between the requests is seen in the versions that were read after it.
                versions = _versions(kinds, await self._served(group))
            found |= versions
        return found

    async def _served(self, group: str) -> dict[str, frozenset[str]]:
        """Version → plurals, of those that any kind can use."""
        try:
            about = await self._client.request("GET", f"/apis/{group}")
        except NotFound:
            return {}
        usable = {version for kind in self._kinds if kind.group == group for version in kind.versions}
        served: dict[str, frozenset[str]] = {}
        for item in about.get("versions") or ():
            version = item["version"]
            if version not in usable:
                continue
            try:
                listed = await self._client.request("GET", f"/apis/{group}/{version}")
            except NotFound:
                continue  # it went between the two questions
            served[version] = frozenset(resource["name"] for resource in listed.get("resources") or ())
        return served


def _versions(kinds: Iterable[ReportedKind], served: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Kind → the first of its versions that is served."""
    chosen = ((kind.name, version) for kind in kinds for version in reversed(kind.versions))
    return {name: version for name, version in chosen if name in served.get(version, ())}
