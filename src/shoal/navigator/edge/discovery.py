"""Finds the optional kinds that a cluster serves, and their versions.

It looks at the start, when a definition changes (``definitions``), when a kind is no longer served, and every ten
minutes while any is missing. Each time it looks more than once, since a server lists a new kind a moment after its
definition, and one that has just started may not list all of them yet. An edge that may not watch definitions looks
every minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.tasks import run_all, wait_first
from shoal.client import Client, builtin
from shoal.errors import Forbidden, NotFound
from shoal.navigator.edge.reading import MonitoredMetadata
from shoal.navigator.model import ReportedKind
from shoal.reconcile.cache import Cache, Change
from shoal.reconcile.reflector import Reflector, ReflectorConfig

LOOKS = 3  # in a row, which must agree before a kind counts as gone
_BLIND_S = 60.0  # between looks of an edge that may not watch definitions
_MISSING_S = 600.0  # between looks while a kind is missing and no definition changes
_AGAIN_S = 600.0  # until an edge that may not watch definitions tries it again
_BACKOFF = Backoff(base_s=0.8, cap_s=30.0)
_DEFINITIONS = builtin("customresourcedefinitions", "apiextensions.k8s.io")


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
        random: Callable[[], float],
    ) -> None:
        self._client = client
        self._kinds = tuple(kinds)
        self._clock = clock
        self.every_s = every_s
        self._on_result = on_result
        self._random = random
        self._groups = frozenset(kind.group for kind in self._kinds)
        self._wanted = asyncio.Event()
        self._left = LOOKS
        self._away = False  # definitions cannot be watched
        self._blind = False  # definitions may not be watched
        self._changed = asyncio.Event()
        self.found: dict[str, str] = {}

    async def run(self) -> None:
        await run_all({"edge/discovery/looking": self._looking(), "edge/discovery/definitions": self._definitions()})

    async def _looking(self) -> None:
        while True:
            try:
                found = await self._look()
            except Exception as error:  # after any error the known kinds are still watched
                self._on_result(frozenset(), error)
            else:
                self._left -= 1
                self.found = found
                missing = frozenset(kind.name for kind in self._kinds if kind.name not in found)
                self._on_result(missing, None)
                self._changed.set()
                self._changed = asyncio.Event()
                await self._until_wanted(bool(missing))
            await self._clock.sleep(self.every_s)

    async def _until_wanted(self, missing: bool) -> None:
        """Return when to look again, after a last pause."""
        if self._left > 0:
            return
        self._wanted.clear()
        if missing:
            longest_s = _BLIND_S if self._blind else _MISSING_S
            await wait_first(self._wanted.wait(), self._clock.sleep(longest_s))
        else:
            await self._wanted.wait()

    def _want(self) -> None:
        self._left = LOOKS
        self._wanted.set()

    async def _definitions(self) -> None:
        """Look again whenever a definition of one of the groups changes."""

        def changed(change: Change) -> None:
            if change.key.name.partition(".")[2] in self._groups:
                self._want()

        while True:
            refused = asyncio.Event()

            def answered(error: Exception | None, refused: asyncio.Event = refused) -> None:
                if error is None and self._away:
                    self._want()  # a server that was away may serve other kinds now
                self._away = error is not None
                self._blind = isinstance(error, Forbidden)
                if self._blind:
                    refused.set()
                    self._wanted.set()  # the pause is another one

            cache = Cache()
            cache.add_handler(changed)
            resource = MonitoredMetadata(self._client, _DEFINITIONS, answered)
            reflector = Reflector(
                resource, cache, clock=self._clock, random=self._random,
                config=ReflectorConfig(backoff=_BACKOFF, watch_list=False),
            )  # fmt: skip
            await wait_first(reflector.run(), refused.wait())
            await self._clock.sleep(_AGAIN_S)

    async def version_of(self, kind: ReportedKind) -> str:
        """Wait until the cluster serves the kind."""
        while (version := self.found.get(kind.name)) is None:
            await self._changed.wait()
        return version

    def recheck(self, kind: str) -> None:
        """The server does not serve the kind any more: look again."""
        self.found.pop(kind, None)
        self._want()

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
