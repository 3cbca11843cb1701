"""Reads one ShardConfig and its objects from the caches and from this manager's own recent writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shoal.crds.shard import ConfigSpec, InstanceSpec, InstanceStatus, read_config, read_instance
from shoal.kube.labels import from_set
from shoal.kube.objects import Obj
from shoal.reconcile import Cache, Informer
from shoal.reconcile.keys import ObjectKey, version_of
from shoal.sharding.leases import LeaseState, ShardLease, read_lease, state_of
from shoal.sharding.manager.memory import ManagerMemory
from shoal.sharding.manager.overlay import Overlay
from shoal.sharding.manager.pods import BuiltinWorker
from shoal.sharding.model import CONFIG_LABEL, TABLES, SlotEntry, read_table, table_name


@dataclass(frozen=True, slots=True)
class ObservedInstance:
    obj: Obj
    spec: InstanceSpec
    status: InstanceStatus

    @property
    def name(self) -> str:
        found: str = self.obj["metadata"]["name"]
        return found


@dataclass(frozen=True, slots=True)
class ObservedLease:
    obj: Obj
    lease: ShardLease
    state: LeaseState
    observed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    key: ObjectKey
    config: Obj
    spec: ConfigSpec
    instances: Mapping[str, ObservedInstance]
    leases: Mapping[str, ObservedLease]
    pods: Mapping[str, Obj]
    tables: Mapping[int, Obj]
    entries: tuple[SlotEntry, ...]  # empty unless all tables are there


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerInformers:
    """The informers of a manager."""

    configs: Informer
    instances: Informer
    tables: Informer
    leases: Informer
    pods: Informer


class Observer:
    """Reads the caches, and the overlays with writes that the caches do not show yet."""

    def __init__(
        self,
        sources: ManagerInformers,
        configs: Overlay,
        instances: Overlay,
        tables: Overlay,
        leases: Overlay,
        pods: Overlay,
        *,
        builtin: BuiltinWorker,
    ) -> None:
        self._sources = sources
        self._configs = configs
        self._instances = instances
        self._tables = tables
        self._leases = leases
        self._pods = pods
        self._builtin = builtin
        self._parsed: dict[tuple[str, str], tuple[str, tuple[SlotEntry, ...]]] = {}

    def observe(self, key: ObjectKey, memory: ManagerMemory, now_s: float) -> Observed | None:
        config = self._sources.configs.cache.get(key)
        if config is None:
            self._forget(key)
            return None
        config = self._configs.over_one(config)
        instances = {}
        for obj in self._of(key, self._sources.instances.cache, self._instances):
            instances[obj["metadata"]["name"]] = ObservedInstance(obj, *read_instance(obj))
        tables = {}
        by_name = {obj["metadata"]["name"]: obj for obj in self._of(key, self._sources.tables.cache, self._tables)}
        for index in range(TABLES):
            if (found := by_name.get(table_name(key.name, index))) is not None:
                tables[index] = found
        entries: tuple[SlotEntry, ...] = ()
        if len(tables) == TABLES:
            entries = tuple(entry for index in range(TABLES) for entry in self._read(tables[index]))
        return Observed(
            key=key,
            config=config,
            spec=self._builtin.completed(read_config(config)),
            instances=instances,
            leases={
                obj["metadata"]["name"]: self._seen(obj, memory, now_s)
                for obj in self._of(key, self._sources.leases.cache, self._leases)
            },
            pods={obj["metadata"]["name"]: obj for obj in self._of(key, self._sources.pods.cache, self._pods)},
            tables=tables,
            entries=entries,
        )

    def note_lease(self, obj: Obj, memory: ManagerMemory, now_s: float) -> ShardLease:
        """Record that a Lease was seen."""
        lease = read_lease(obj)
        memory.observations.saw(lease, now_s)
        return lease

    def _seen(self, obj: Obj, memory: ManagerMemory, now_s: float) -> ObservedLease:
        lease = read_lease(obj)
        observed_s = memory.observations.saw(lease, now_s)
        return ObservedLease(obj, lease, state_of(lease, observed_s, now_s), observed_s)

    def _of(self, key: ObjectKey, cache: Cache, overlay: Overlay) -> list[Obj]:
        cached = cache.select(from_set({CONFIG_LABEL: key.name}), namespace=key.namespace)
        return overlay.over(cached, key.namespace, key.name, CONFIG_LABEL)

    def _read(self, table: Obj) -> tuple[SlotEntry, ...]:
        place = table["metadata"]["namespace"], table["metadata"]["name"]
        known = self._parsed.get(place)
        version = version_of(table)
        if known is None or known[0] != version:
            known = self._parsed[place] = version, read_table(table)
        return known[1]

    def _forget(self, key: ObjectKey) -> None:
        for index in range(TABLES):
            self._parsed.pop((key.namespace, table_name(key.name, index)), None)
