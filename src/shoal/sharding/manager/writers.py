"""Writes of the manager: fenced clients with overlays of recent writes, events, metrics, the clock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from shoal.base.clock import Clock
from shoal.client import Client, ResourceClient, ResourceType, builtin
from shoal.crds.shard import API_VERSION, GROUP, VERSION
from shoal.errors import Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.reconcile import EventRecorder, EventType
from shoal.reconcile.keys import version_of
from shoal.sharding.manager.metrics import ShardMetrics
from shoal.sharding.manager.overlay import Overlay

CONFIGS = ResourceType(GROUP, VERSION, "shardconfigs", True, "ShardConfig")
INSTANCES = ResourceType(GROUP, VERSION, "shardinstances", True, "ShardInstance")
TABLE = ResourceType(GROUP, VERSION, "shardslots", True, "ShardSlots")
STATES = ResourceType(GROUP, VERSION, "shardstates", True, "ShardState")
LEASES = builtin("leases", "coordination.k8s.io")
PODS = builtin("pods")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterDeps:
    """``client``'s writes carry the leader's fence."""

    client: Client
    events: EventRecorder
    clock: Clock
    metrics: ShardMetrics
    new_suffix: Callable[[], str]
    kept_s: float = 60.0  # a terminated shard is shown for this long


class ResourceWriter:
    """Writes one resource; the server's answers stay in the overlay until the cache shows them."""

    def __init__(self, resource: ResourceClient, overlay: Overlay) -> None:
        self._resource = resource
        self.overlay = overlay

    async def create(self, obj: Obj) -> Obj:
        return self._note(await self._resource.create(obj))

    async def replace(self, obj: Obj) -> Obj:
        return self._note(await self._resource.replace(obj))

    async def replace_status(self, obj: Obj) -> Obj:
        return self._note(await self._resource.replace_status(obj))

    async def delete(self, obj: Obj) -> None:
        """Delete the object with this uid. If it is gone or replaced, the next pass decides again."""
        about = obj["metadata"]
        with suppress(NotFound, Conflict):
            await self._resource.delete(about["name"], about["namespace"], uid=about["uid"])
            self.overlay.deleted(obj)

    async def delete_unchanged(self, obj: Obj) -> None:
        about = obj["metadata"]
        with suppress(NotFound, Conflict):
            await self._resource.delete(
                about["name"], about["namespace"], uid=about["uid"], resource_version=version_of(obj)
            )
            self.overlay.deleted(obj)

    def _note(self, obj: Obj) -> Obj:
        obj["metadata"].pop("managedFields", None)
        self.overlay.wrote(obj)
        return obj


class Writers:
    def __init__(self, deps: WriterDeps) -> None:
        client = deps.client
        self.clock = deps.clock
        self.metrics = deps.metrics
        self.new_suffix = deps.new_suffix
        self.kept_s = deps.kept_s
        self._events = deps.events
        self.configs = ResourceWriter(client.of(CONFIGS), Overlay(deps.clock))
        self.instances = ResourceWriter(client.of(INSTANCES), Overlay(deps.clock))
        self.tables = ResourceWriter(client.of(TABLE), Overlay(deps.clock))
        self.leases = ResourceWriter(client.of(LEASES), Overlay(deps.clock))
        self.pods = ResourceWriter(client.of(PODS), Overlay(deps.clock))
        self.states = client.of(STATES)

    def record_event(self, obj: Obj, reason: str, message: str, *, warning: bool = False) -> None:
        kind = EventType.WARNING if warning else EventType.NORMAL
        typed = obj if "kind" in obj else {"apiVersion": API_VERSION, **obj}
        self._events.record(typed, kind, reason, message)


def config_reference(config: Obj) -> Obj:
    about = config["metadata"]
    return {
        "apiVersion": API_VERSION, "kind": "ShardConfig", "name": about["name"], "uid": about["uid"],
        "controller": True,
    }  # fmt: skip
