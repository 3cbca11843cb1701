"""Watches Endpoints that users write, their services, and the slices that mirror them."""

from __future__ import annotations

from shoal.controllers.context import ControllerContext
from shoal.controllers.endpointslice.reconcile import manager_of, service_key_of
from shoal.controllers.mirroring.plan import CONTROLLER_NAME
from shoal.controllers.mirroring.reconcile import MirroringController
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Change
from shoal.reconcile.keys import ObjectKey


def add(context: ControllerContext) -> None:
    work = MirroringController(context)
    controller = context.controller("endpointslice-mirroring", work.reconcile, workers=5)
    for informer in (work.endpoints, work.services, work.slices):
        controller.maps(informer, lambda obj: ())  # only to wait for its cache; the handlers below enqueue keys

    def on_endpoints(change: Change) -> None:
        service = work.services.cache.get(change.key)
        if service is None or not _selects(service):
            controller.queue.add(change.key)

    def on_service(change: Change) -> None:
        """A service was added or deleted, or its selector was added or removed."""
        if change.old is not None and change.new is not None and _selects(change.old) == _selects(change.new):
            return
        if change.key in work.endpoints.cache or change.old is not None:
            controller.queue.add(change.key)

    def on_slice(change: Change) -> None:
        """Another client changed a slice, or the cache shows an awaited write."""
        for state in (change.old, change.new):
            if state is None or manager_of(state) != CONTROLLER_NAME:
                continue
            key = service_key_of(state)
            if key in work.waiting or change.new is None or not work.writer.wrote(change.new):
                controller.queue.add(key)

    def mirrored() -> list[ObjectKey]:
        """Endpoints, and slices whose endpoints are gone."""
        ours = [each for each in work.slices.cache if manager_of(each) == CONTROLLER_NAME]
        return [*work.endpoints.cache.keys(), *map(service_key_of, ours)]

    controller.resyncs(work.endpoints, mirrored)
    work.endpoints.cache.add_handler(on_endpoints)
    work.services.cache.add_handler(on_service)
    work.slices.cache.add_handler(on_slice)


def _selects(service: Obj) -> bool:
    return service["spec"].get("selector") is not None
