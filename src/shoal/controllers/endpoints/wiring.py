"""Watches services, their pods, and Endpoints that are deleted or were left over from before the start."""

from __future__ import annotations

from typing import Final

from shoal.controllers.context import ControllerContext
from shoal.controllers.endpoints.reconcile import EndpointsController
from shoal.controllers.endpointslice.selection import PodWatcher
from shoal.controllers.pods.pace import Pace
from shoal.reconcile.cache import Change

WINDOW_S: Final = 0.5  # one object holds all addresses: it is not written for every new pod


def add(context: ControllerContext) -> None:
    work = EndpointsController(context)
    controller = context.controller("endpoints", work.reconcile, workers=5)
    controller.watches(work.services)
    for informer in (work.pods, work.endpoints):
        controller.maps(informer, lambda obj: ())  # only to wait for its cache; the handlers below enqueue keys
    pace = Pace(controller.queue, context.clock, window_s=WINDOW_S)
    work.pods.cache.add_handler(PodWatcher(work.services.cache, pace.soon))

    def on_endpoints(change: Change) -> None:
        """Endpoints were deleted, existed before this process (their service may be gone), or were changed by another
        client; those that never had a service are ignored."""
        if change.new is None or not work.endpoints.synced:
            controller.queue.add(change.key)
        elif change.old is not None and not work.wrote(change.new) and work.services.cache.get(change.key) is not None:
            pace.soon(change.key)

    work.endpoints.cache.add_handler(on_endpoints)
