"""Watches the cluster with one reflector per kind, or one per kind and namespace (``shoal.navigator.edge.scopes``), so
that a kind or a namespace that cannot be read does not affect the others.

The objects become rows in the machine, and the server's answers become the kind's status. Discovery finds a kind
that the cluster does not serve when it appears. The rows of a kind that has disappeared are removed only after several
looks agree, since a server that has just started may not list all its resources yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.tasks import cancel_all, run_all, wait_first
from shoal.client import Client, Disconnected, ResourceType, Scope
from shoal.errors import Forbidden, NotFound
from shoal.navigator.edge.config import EventsConfig, KubernetesConfig, NamespaceConfig
from shoal.navigator.edge.discovery import LOOKS, KindDiscovery
from shoal.navigator.edge.kind_objects import KindObjects, ScopeObjects
from shoal.navigator.edge.kind_rows import FAILING, FORBIDDEN, MISSING
from shoal.navigator.edge.newest import NewestRows
from shoal.navigator.edge.reading import ROW, ReportedResource
from shoal.navigator.edge.reporting import Namespaces
from shoal.navigator.edge.rows import RowSink, key_of
from shoal.navigator.edge.scopes import WatchScope, needs_list, scopes_of, watched_namespaces
from shoal.navigator.model import WATCHED, ReportedKind
from shoal.reconcile.cache import Change, ChangeType
from shoal.reconcile.keys import ObjectKey
from shoal.reconcile.reflector import Reflector, ReflectorConfig

log = get_logger("navigator.edge.watching")

_NAMESPACES = "namespaces"


class _Watched:
    """One kind."""

    def __init__(self, kind: ReportedKind, rows: RowSink) -> None:
        self.kind = kind
        self.objects = KindObjects()
        self.gone = asyncio.Event()  # the server does not serve the resource
        self.rescoped = asyncio.Event()  # other namespaces are to be watched
        self._rows = rows
        self._misses = 0
        self.objects.add_handler(self._changed)

    def _changed(self, change: Change) -> None:
        key = key_of(change.key.namespace, change.key.name)
        if change.type is ChangeType.DELETED:
            self._rows.remove(self.kind.name, key)
        else:
            assert change.new is not None
            self._rows.put(self.kind.name, key, change.new[ROW])

    def on_answer(self, held: ScopeObjects, error: Exception | None, *, most_failures: int = 0) -> None:
        """Set the status from the outcome of a request."""
        if isinstance(error, NotFound) and self.kind.optional:
            self.gone.set()
            return
        if error is None:
            self._misses = 0
        held.answered(error, most_failures=most_failures)
        self.settle()

    def failed(self, error: Exception) -> None:
        """Something that all watches of the kind need has failed."""
        refused = isinstance(error, Forbidden)
        self._rows.status(self.kind.name, FORBIDDEN if refused else FAILING, str(error))

    def missing(self) -> None:
        """Discovery does not list the resource."""
        self._rows.status(self.kind.name, MISSING, "")
        self._misses += 1
        if self._misses == LOOKS:
            self.objects.clear()
            self._rows.ready(self.kind.name)

    def settle(self) -> None:
        """Report how the watches stand together."""
        self.objects.settle()
        if self.objects.synced.is_set():
            self._rows.ready(self.kind.name)
        self._rows.status(self.kind.name, *self.objects.state())


class Watching:
    def __init__(
        self,
        client: Client,
        rows: RowSink,
        *,
        namespaces: NamespaceConfig,
        kubernetes: KubernetesConfig,
        events: EventsConfig,
        clock: Clock,
        random: Callable[[], float],
        discovery_s: float,
        kinds: Mapping[str, ReportedKind] = WATCHED,
    ) -> None:
        self._client = client
        self._namespaces = namespaces
        self._clock = clock
        self._random = random
        self._kubernetes = kubernetes
        self._configured = asyncio.Event()  # replaced whenever the settings change
        self._other_retries = asyncio.Event()  # replaced whenever those of retries do
        self._newest = {name: NewestRows(rows, events.most) for name, kind in kinds.items() if kind.transient}
        self._kinds = {name: _Watched(kind, self._newest.get(name, rows)) for name, kind in kinds.items()}
        self._missing: frozenset[str] = frozenset()  # as last seen
        self._existing: set[str] = set()  # namespaces, when patterns choose among them
        optional = [kind for kind in kinds.values() if kind.optional]
        self._discovery = KindDiscovery(
            client, optional, clock=clock, every_s=discovery_s, on_result=self._on_discovery, random=random
        )
        self._kinds[_NAMESPACES].objects.add_handler(self._namespace)

    async def run(self) -> None:
        """Until cancelled."""
        parts = {f"edge/{name}": self._watch(watched) for name, watched in self._kinds.items()}
        await run_all(parts | {"edge/discovery": self._discovery.run()})

    def configure(
        self, namespaces: NamespaceConfig, kubernetes: KubernetesConfig, events: EventsConfig, discovery_s: float
    ) -> None:  # fmt: skip
        """Take other settings: watches begin and end as they demand, and kinds that were given up are read again."""
        if kubernetes != self._kubernetes:
            self._other_retries.set()
            self._other_retries = asyncio.Event()
        self._namespaces, self._kubernetes, self._discovery.every_s = namespaces, kubernetes, discovery_s
        for name, newest in self._newest.items():
            newest.configure(name, events.most)
        self._configured.set()
        self._configured = asyncio.Event()
        self._rescope()

    def unreachable(self, reason: str) -> None:
        """The API server does not answer, although no watch has ended."""
        for name, watched in self._kinds.items():
            if not watched.kind.optional or name in self._discovery.found:
                watched.failed(Disconnected(reason))

    def reachable(self) -> None:
        """It answers again: the watches stand as they did."""
        for name, watched in self._kinds.items():
            if not watched.kind.optional or name in self._discovery.found:
                watched.settle()

    def objects(self, kind: str) -> KindObjects:
        """The objects of a kind as they were read: ``{"metadata": {…}, "row": bytes}``."""
        return self._kinds[kind].objects

    @property
    def namespaces(self) -> frozenset[str] | None:
        """The namespaces that are watched one by one; None: the whole cluster."""
        return watched_namespaces(self._namespaces, self._existing)

    def _namespace(self, change: Change) -> None:
        if change.type is ChangeType.DELETED:
            self._existing.discard(change.key.name)
        else:
            self._existing.add(change.key.name)
        if needs_list(self._namespaces):
            self._rescope()

    def _rescope(self) -> None:
        for watched in self._kinds.values():
            watched.rescoped.set()

    def _on_discovery(self, missing: frozenset[str], error: Exception | None) -> None:
        if error is None and missing != self._missing:
            log.info("the cluster does not have all kinds", missing=sorted(missing))
            self._missing = missing
        for name, watched in self._kinds.items():
            if not watched.kind.optional:
                continue
            if error is not None:
                if name not in self._discovery.found:
                    watched.failed(error)
            elif name in missing:
                watched.missing()

    async def _watch(self, watched: _Watched) -> None:
        kind = watched.kind
        while True:
            watched.gone.clear()
            version = await self._discovery.version_of(kind) if kind.optional else kind.versions[0]
            await wait_first(self._follow(watched, version), watched.gone.wait())
            log.info("the cluster does not serve the kind any more", kind=kind.name, version=version)
            self._discovery.recheck(kind.name)

    async def _follow(self, watched: _Watched, version: str) -> None:
        """Watch the namespaces that are wanted now, until cancelled."""
        running: dict[WatchScope, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                watched.rescoped.clear()
                if watched.kind.namespaced and not await self._chosen(watched):
                    continue
                wanted = scopes_of(watched.kind, self._namespaces, self.namespaces)
                for scope in wanted - running.keys():
                    held = watched.objects.scopes.get(scope) or watched.objects.add(scope)
                    held.begin()
                    name = f"edge/{watched.kind.name}/{scope.namespace}"
                    running[scope] = tasks.create_task(self._reflect(watched, held, version), name=name)
                await self._end(watched, wanted, running)
                watched.settle()
                await watched.rescoped.wait()

    async def _chosen(self, watched: _Watched) -> bool:
        """Wait until it is known which namespaces exist, if that matters; False: look again."""
        listed = self._kinds[_NAMESPACES].objects.synced
        if listed.is_set() or not needs_list(self._namespaces):
            return True
        await wait_first(listed.wait(), watched.rescoped.wait())
        return False

    async def _end(
        self, watched: _Watched, wanted: frozenset[WatchScope], running: dict[WatchScope, asyncio.Task[None]]
    ) -> None:  # fmt: skip
        unwanted = [scope for scope in watched.objects.scopes if scope not in wanted]
        await cancel_all(*(running.pop(scope) for scope in unwanted if scope in running))
        allows = Namespaces(self._namespaces).wants_key

        def still_wanted(key: ObjectKey) -> bool:
            return allows(watched.kind, key) and any(scope.covers(key) for scope in wanted)

        for scope in unwanted:
            watched.objects.drop(scope, still_wanted)

    async def _reflect(self, watched: _Watched, held: ScopeObjects, version: str) -> None:
        kind = watched.kind
        limits = Namespaces(held.scope.limits)
        resource = ReportedResource(
            self._client,
            ResourceType(kind.group, version, kind.name, kind.namespaced, kind.kind),
            kind,
            limits,
            lambda error: self._answered(watched, held, error),
        )
        scope = Scope(namespace=held.scope.namespace, field_selector=limits.selector(kind))
        while True:
            backoff = Backoff(base_s=self._kubernetes.retry_base_s, cap_s=self._kubernetes.retry_cap_s)
            reflector = Reflector(
                resource, held.cache, clock=self._clock, random=self._random, scope=scope,
                config=ReflectorConfig(backoff=backoff),
            )  # fmt: skip
            reading = run_all({kind.name: reflector.run(), "synced": self._synced(watched, held)})
            await wait_first(reading, held.given_up.wait(), self._other_retries.wait())
            if held.given_up.is_set():
                log.warning("a kind is not read any more", kind=kind.name, reason=held.error)
                await self._configured.wait()
            held.begin()

    def _answered(self, watched: _Watched, held: ScopeObjects, error: Exception | None) -> None:
        watched.on_answer(held, error, most_failures=self._kubernetes.retry_count)
        if error is None or watched.kind.name != _NAMESPACES or not needs_list(self._namespaces):
            return
        for other in self._kinds.values():
            if other.kind.namespaced and not other.objects.scopes:
                other.failed(error)  # patterns choose among namespaces that cannot be listed

    @staticmethod
    async def _synced(watched: _Watched, held: ScopeObjects) -> None:
        await held.cache.synced.wait()
        watched.on_answer(held, None)
