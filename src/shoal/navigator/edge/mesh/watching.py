"""Watches istiod's Deployments and the ConfigMap of each with the mesh configuration; reports control planes as rows.
If a configuration cannot be read, the kind has an error and the control plane is reported without it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import orjson

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.supervision import supervise
from shoal.base.tasks import OwnedTasks, beside, cancel_all
from shoal.client import Client, Scope, builtin
from shoal.errors import Forbidden
from shoal.kube.objects import Obj
from shoal.navigator.edge.kind_objects import KindObjects
from shoal.navigator.edge.kind_rows import FAILING, FORBIDDEN, SYNCED
from shoal.navigator.edge.mesh.plan import Istiod, control_plane, istiod_of, mesh_config
from shoal.navigator.edge.reading import ROW, MonitoredResource
from shoal.navigator.edge.rows import RowSink, key_of
from shoal.navigator.model import CONTROL_PLANE_CONFIG
from shoal.reconcile.cache import Change, ChangeType
from shoal.reconcile.informer import Informer
from shoal.reconcile.reflector import ReflectorConfig

KIND = CONTROL_PLANE_CONFIG.name
_MAYBE = b"istiod"
Place = tuple[str, str]  # namespace and name of a ConfigMap


class ControlPlanes:
    """``deployments`` is the cache of reported Deployments."""

    def __init__(
        self,
        client: Client,
        rows: RowSink,
        deployments: KindObjects,
        *,
        clock: Clock,
        random: Callable[[], float],
        backoff: Backoff,
    ) -> None:
        self._client = client
        self._rows = rows
        self._deployments = deployments
        self.clock = clock
        self.tasks = OwnedTasks()
        self._random = random
        self._config = ReflectorConfig(backoff=backoff, watch_list=False)
        self._found: dict[str, Istiod] = {}  # by key of the Deployment
        self._reads: dict[Place, _Read] = {}
        self._changed = asyncio.Event()

    @property
    def found(self) -> tuple[Istiod, ...]:
        """The control planes of the cluster."""
        return tuple(self._found.values())

    async def run(self) -> None:
        """Until cancelled."""
        self._deployments.add_handler(self._deployment)
        try:
            await self._deployments.synced.wait()
            while True:
                await self._follow()
                self._report()
                await self._changed.wait()
                self._changed.clear()
        finally:
            self._deployments.remove_handler(self._deployment)
            await self.tasks.close()
            self._reads.clear()

    def _deployment(self, change: Change) -> None:
        key = key_of(change.key.namespace, change.key.name)
        data = b"" if change.type is ChangeType.DELETED else change.object[ROW]
        istiod = istiod_of(orjson.loads(data)) if _MAYBE in data else None
        if istiod is not None and self._found.get(key) != istiod:
            self._found[key] = istiod
            self._changed.set()
        elif istiod is None and self._found.pop(key, None) is not None:
            self._rows.remove(KIND, key)
            self._changed.set()

    async def _follow(self) -> None:
        wanted = {(each.namespace, each.config_map) for each in self._found.values()}
        for place in [place for place in self._reads if place not in wanted]:
            await cancel_all(self._reads.pop(place).task)
        for place in wanted:
            if place not in self._reads:
                self._reads[place] = _Read(self, place)

    def informer(self, place: Place, on_answer: Callable[[Exception | None], None]) -> Informer:
        resource = MonitoredResource(self._client, builtin("configmaps"), on_answer)
        scope = Scope(namespace=place[0], field_selector=f"metadata.name={place[1]}")
        return Informer(resource, clock=self.clock, random=self._random, scope=scope, config=self._config)

    def changed(self) -> None:
        self._changed.set()

    def _report(self) -> None:
        state, error = SYNCED, ""
        for istiod in self._found.values():
            read = self._reads[istiod.namespace, istiod.config_map]
            if not read.answered:
                return  # reported once its ConfigMap has been read
            mesh: Obj = {}
            try:
                mesh = read.mesh()
            except ValueError as problem:
                state, error = FAILING, str(problem)
            if read.error is not None:
                state = FORBIDDEN if isinstance(read.error, Forbidden) else FAILING
                error = str(read.error)
            self._rows.put(KIND, *control_plane(istiod, mesh))
        self._rows.ready(KIND)
        self._rows.status(KIND, state, error)


class _Read:
    """Watches one ConfigMap."""

    def __init__(self, owner: ControlPlanes, place: Place) -> None:
        self._owner = owner
        self._place = place
        self.error: Exception | None = None
        self._informer = owner.informer(place, self._on_answer)
        self._informer.cache.add_handler(lambda change: owner.changed())
        reading = supervise("edge/mesh-config", self._run, clock=owner.clock, detail=f"{place[0]}/{place[1]}")
        self.task = owner.tasks.start(reading, name=f"edge/mesh-config/{place[0]}/{place[1]}")

    async def _run(self) -> None:
        async with beside(self._synced(), name="edge/mesh-config/synced"):
            await self._informer.run()

    async def _synced(self) -> None:
        await self._informer.cache.synced.wait()
        self._owner.changed()

    def _on_answer(self, error: Exception | None) -> None:
        if (error is None) != (self.error is None) or str(error) != str(self.error):
            self.error = error
            self._owner.changed()

    @property
    def answered(self) -> bool:
        return self._informer.synced or self.error is not None

    def mesh(self) -> Obj:
        for config_map in self._informer.cache:
            return mesh_config(config_map)
        return {}
