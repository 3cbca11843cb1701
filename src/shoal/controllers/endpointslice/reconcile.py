"""Keeps the slices of services in sync with the selected pods."""

from __future__ import annotations

from shoal.controllers.context import ControllerContext
from shoal.controllers.endpointslice.model import CONTROLLER_NAME, MANAGED_BY, SERVICE_NAME, ZONE
from shoal.controllers.endpointslice.plan import plan_slices
from shoal.controllers.endpointslice.selection import pods_of, selects_pods
from shoal.controllers.endpointslice.trigger import TriggerTimes
from shoal.controllers.endpointslice.writer import SliceWriter
from shoal.controllers.pods.expectations import RECHECK_S
from shoal.errors import ApiError, Conflict
from shoal.kube.objects import Obj
from shoal.reconcile import DONE, EventType, Result
from shoal.reconcile.cache import Cache
from shoal.reconcile.keys import ObjectKey

BY_SERVICE = "service"  # the name of the index of slices


def service_key_of(piece: Obj) -> ObjectKey:
    """The service of a slice; with an empty name if the slice has none."""
    about = piece["metadata"]
    return ObjectKey(about["namespace"], (about.get("labels") or {}).get(SERVICE_NAME, ""))


def manager_of(piece: Obj) -> str:
    """The manager of a slice, from its label."""
    found: str = (piece["metadata"].get("labels") or {}).get(MANAGED_BY, "")
    return found


def by_service(piece: Obj) -> tuple[str, ...]:
    """The index function of slices: service and manager."""
    return (f"{service_key_of(piece)} {manager_of(piece)}",)


def slices_of(slices: Cache, key: ObjectKey, manager: str) -> tuple[Obj, ...]:
    """The slices of a service with this manager; the cache needs the index."""
    return slices.by_index(BY_SERVICE, f"{key} {manager}")


class EndpointSliceController:
    """Reconciles services."""

    def __init__(self, context: ControllerContext) -> None:
        self.services = context.informer("services")
        self.pods = context.informer("pods")
        self.nodes = context.informer("nodes")
        self.slices = context.informer("endpointslices", "discovery.k8s.io", **{BY_SERVICE: by_service})
        self.writer = SliceWriter(context, self.slices.cache)
        self.waiting: set[ObjectKey] = set()  # services that wait until the cache shows their last writes
        self.lost: dict[str, set[ObjectKey]] = {}  # unknown nodes, and the services that leave out pods on them
        self._events = context.events
        self._triggers = TriggerTimes()
        self._uids: dict[ObjectKey, str] = {}

    async def reconcile(self, key: ObjectKey) -> Result:
        service = self.services.cache.get(key)
        if service is None:
            self._forget(key)
            return DONE
        if not selects_pods(service):
            return DONE
        uid = self._uids[key] = service["metadata"]["uid"]
        if not self.writer.caught_up(uid):
            self.waiting.add(key)
            return Result(after_s=RECHECK_S)
        self.waiting.discard(key)
        pods = pods_of(service, self.pods.cache)
        trigger = self._triggers.observe(key, service, pods)
        present = slices_of(self.slices.cache, key, CONTROLLER_NAME)
        plan = plan_slices(service, pods, present, zone_of=self._zone_of, trigger=trigger)
        for node in plan.lost_nodes:
            self.lost.setdefault(node, set()).add(key)
        try:
            await self.writer.apply(uid, plan.changes)
        except Conflict:
            raise
        except ApiError as error:
            text = f"Error updating Endpoint Slices for Service {key}: {error}"
            self._events.record(service, EventType.WARNING, "FailedToUpdateEndpointSlices", text)
            raise
        return DONE

    def _zone_of(self, name: str) -> str | None:
        node = self.nodes.cache.get(ObjectKey("", name)) if name else None
        if node is None:
            return None
        return (node["metadata"].get("labels") or {}).get(ZONE) or ""

    def _forget(self, key: ObjectKey) -> None:
        # the garbage collector deletes its slices, which it owns
        self._triggers.forget(key)
        self.waiting.discard(key)
        self.writer.forget(self._uids.pop(key, ""))
