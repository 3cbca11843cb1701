"""Watches the cluster with one reflector per kind, so that a kind that cannot be read does not affect the others.

The objects become rows in the machine, and the server's answers become the kind's status. Discovery looks for a kind
that the cluster does not serve until it appears. The rows of a kind that has disappeared are removed only after several
looks agree, since a server that has just started may not list all its resources yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.tasks import run_all, wait_first
from shoal.client import Client, ResourceType, Scope
from shoal.errors import Forbidden, NotFound, Unauthorized
from shoal.navigator.edge.discovery import KindDiscovery
from shoal.navigator.edge.kind_rows import FAILING, FORBIDDEN, MISSING, SYNCED, WAITING
from shoal.navigator.edge.reading import ROW, ReportedResource
from shoal.navigator.edge.reporting import Namespaces
from shoal.navigator.edge.rows import key_of
from shoal.navigator.model import CONTROL_PLANE_CONFIG, KINDS, ReportedKind
from shoal.reconcile.cache import Cache, Change, ChangeType
from shoal.reconcile.reflector import Reflector, ReflectorConfig

log = get_logger("navigator.edge.watching")

WATCHED: Mapping[str, ReportedKind] = {name: kind for name, kind in KINDS.items() if kind is not CONTROL_PLANE_CONFIG}
_GONE_AFTER = 3  # looks that agree


class RowSink(Protocol):
    """Receives rows and statuses."""

    def put(self, kind: str, key: str, data: bytes) -> object: ...

    def remove(self, kind: str, key: str) -> object: ...

    def ready(self, kind: str) -> object: ...

    def status(self, kind: str, state: str, error: str) -> object: ...


class _Watched:
    """One kind."""

    def __init__(self, kind: ReportedKind, rows: RowSink) -> None:
        self.kind = kind
        self.cache = Cache(transform=lambda obj: obj)
        self.gone = asyncio.Event()  # the server does not serve the resource
        self._rows = rows
        self._misses = 0
        self.cache.add_handler(self._changed)

    def _changed(self, change: Change) -> None:
        key = key_of(change.key.namespace, change.key.name)
        if change.type is ChangeType.DELETED:
            self._rows.remove(self.kind.name, key)
        else:
            assert change.new is not None
            self._rows.put(self.kind.name, key, change.new[ROW])

    def on_answer(self, error: Exception | None) -> None:
        """Set the status from the outcome of a request."""
        if error is None:
            self._misses = 0
            self._set(SYNCED if self.cache.synced.is_set() else WAITING)
        elif isinstance(error, Forbidden | Unauthorized):
            self._set(FORBIDDEN, str(error))
        elif isinstance(error, NotFound) and self.kind.optional:
            self.gone.set()
        else:
            self._set(FAILING, str(error))

    def missing(self) -> None:
        """Discovery does not list the resource."""
        self._set(MISSING)
        self._misses += 1
        if self._misses == _GONE_AFTER:
            self.cache.replace((), "")
            self._rows.ready(self.kind.name)

    def synced(self) -> None:
        self._rows.ready(self.kind.name)
        self._set(SYNCED)

    def _set(self, state: str, error: str = "") -> None:
        self._rows.status(self.kind.name, state, error)


class Watching:
    def __init__(
        self,
        client: Client,
        rows: RowSink,
        *,
        namespaces: Namespaces,
        clock: Clock,
        random: Callable[[], float],
        backoff: Backoff,
        discovery_s: float,
        kinds: Mapping[str, ReportedKind] = WATCHED,
    ) -> None:
        self._client = client
        self._namespaces = namespaces
        self._clock = clock
        self._random = random
        self._config = ReflectorConfig(backoff=backoff)
        self._kinds = {name: _Watched(kind, rows) for name, kind in kinds.items()}
        self._missing: frozenset[str] = frozenset()  # as last seen
        optional = [kind for kind in kinds.values() if kind.optional]
        self._discovery = KindDiscovery(
            client, optional, clock=clock, every_s=discovery_s, on_result=self._on_discovery
        )

    async def run(self) -> None:
        """Until cancelled."""
        parts = {f"edge/{name}": self._watch(watched) for name, watched in self._kinds.items()}
        await run_all(parts | {"edge/discovery": self._discovery.run()})

    def cache(self, kind: str) -> Cache:
        """The objects of a kind as they were read: ``{"metadata": {…}, "row": bytes}``."""
        return self._kinds[kind].cache

    def _on_discovery(self, missing: frozenset[str], error: Exception | None) -> None:
        if error is None and missing != self._missing:
            log.info("the cluster does not have all kinds", missing=sorted(missing))
            self._missing = missing
        for name, watched in self._kinds.items():
            if not watched.kind.optional:
                continue
            if error is not None:
                if name not in self._discovery.found:
                    watched.on_answer(error)
            elif name in missing:
                watched.missing()

    async def _watch(self, watched: _Watched) -> None:
        kind = watched.kind
        scope = Scope(field_selector=self._namespaces.selector(kind))
        while True:
            watched.gone.clear()
            version = await self._discovery.version_of(kind) if kind.optional else kind.versions[0]
            resource = ReportedResource(
                self._client,
                ResourceType(kind.group, version, kind.name, kind.namespaced, kind.kind),
                kind,
                self._namespaces,
                watched.on_answer,
            )
            watched.cache.synced.clear()
            reflector = Reflector(
                resource, watched.cache, clock=self._clock, random=self._random, scope=scope, config=self._config
            )
            await wait_first(self._reflect(reflector, watched), watched.gone.wait())
            log.info("the cluster does not serve the kind any more", kind=kind.name, version=version)
            self._discovery.recheck(kind.name)

    async def _reflect(self, reflector: Reflector, watched: _Watched) -> None:
        await run_all({watched.kind.name: reflector.run(), "synced": self._synced(watched)})

    @staticmethod
    async def _synced(watched: _Watched) -> None:
        await watched.cache.synced.wait()
        watched.synced()
