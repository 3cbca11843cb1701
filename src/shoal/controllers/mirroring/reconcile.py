"""Keeps mirrored slices in sync with their Endpoints."""

from __future__ import annotations

from shoal.controllers.context import ControllerContext
from shoal.controllers.endpointslice.reconcile import BY_SERVICE, by_service, slices_of
from shoal.controllers.endpointslice.writer import SliceWriter
from shoal.controllers.mirroring.plan import CONTROLLER_NAME, MAX_PER_SUBSET, is_mirrored, plan_mirror
from shoal.controllers.pods.expectations import RECHECK_S
from shoal.reconcile import DONE, EventType, Result
from shoal.reconcile.keys import ObjectKey


class MirroringController:
    """Reconciles Endpoints."""

    def __init__(self, context: ControllerContext) -> None:
        self.endpoints = context.informer("endpoints")
        self.services = context.informer("services")
        self.slices = context.informer("endpointslices", "discovery.k8s.io", **{BY_SERVICE: by_service})
        self.writer = SliceWriter(context, self.slices.cache)
        self.waiting: set[ObjectKey] = set()  # keys that wait until the cache shows their last writes
        self._events = context.events

    async def reconcile(self, key: ObjectKey) -> Result:
        if not self.writer.caught_up(str(key)):
            self.waiting.add(key)
            return Result(after_s=RECHECK_S)
        self.waiting.discard(key)
        endpoints = self.endpoints.cache.get(key)
        present = slices_of(self.slices.cache, key, CONTROLLER_NAME)
        if endpoints is None or not is_mirrored(endpoints, self.services.cache.get(key)):
            for piece in present:
                await self.writer.delete(str(key), piece)
            return DONE
        plan = plan_mirror(endpoints, present)
        await self.writer.apply(str(key), plan.changes)
        if plan.changes and plan.invalid:
            text = f"Skipped {plan.invalid} invalid IP addresses when mirroring to EndpointSlices"
            self._events.record(endpoints, EventType.WARNING, "InvalidIPAddress", text)
        if plan.changes and plan.skipped:
            text = (
                f"A max of {MAX_PER_SUBSET} addresses can be mirrored to EndpointSlices per Endpoints subset. "
                f"{plan.skipped} addresses were skipped"
            )
            self._events.record(endpoints, EventType.WARNING, "TooManyAddressesToMirror", text)
        return DONE
