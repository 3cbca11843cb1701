"""Watches services, the pods behind them, and Endpoints that go or that nobody looked after while this was away."""

from __future__ import annotations

from typing import Final

from shoal.controllers.context import ControllerContext
from shoal.controllers.endpoints.reconcile import EndpointsController
from shoal.controllers.endpointslice.selection import PodWatcher
from shoal.controllers.pods.pace import Pace
from shoal.reconcile.cache import Change

WINDOW_S: Final = 0.5  # one object holds all addresses: it is not written for each pod that comes


def add(context: ControllerContext) -> None:
    work = EndpointsController(context)
    controller = context.controller("endpoints", work.reconcile, workers=5)
    controller.watches(work.services)
    for informer in (work.pods, work.endpoints):
        controller.maps(informer, lambda obj: ())  # wait for the cache; the handlers below decide what is enqueued
    pace = Pace(controller.queue, context.clock, window_s=WINDOW_S)
    work.pods.cache.add_handler(PodWatcher(work.services.cache, pace.soon))

    def on_endpoints(change: Change) -> None:
        """They went, or were there before this process: their service may be gone. Or somebody else changed them; those
        that never had a service are not ours."""
        if change.new is None or not work.endpoints.synced:
            controller.queue.add(change.key)
        elif change.old is not None and not work.wrote(change.new) and work.services.cache.get(change.key) is not None:
            pace.soon(change.key)

    work.endpoints.cache.add_handler(on_endpoints)
