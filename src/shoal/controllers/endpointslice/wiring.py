"""Watches services, the pods behind them, nodes for their zones, and slices that others change."""

from __future__ import annotations

from typing import Final

from shoal.controllers.context import ControllerContext
from shoal.controllers.endpointslice.model import CONTROLLER_NAME, ZONE
from shoal.controllers.endpointslice.reconcile import EndpointSliceController, manager_of, service_key_of
from shoal.controllers.endpointslice.selection import PodWatcher, selects_pods
from shoal.controllers.pods.pace import Pace
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Change
from shoal.reconcile.keys import key_of

WINDOW_S: Final = 0.25  # pods come and go in crowds: one write of a slice for all of this long


def add(context: ControllerContext) -> None:
    work = EndpointSliceController(context)
    controller = context.controller("endpointslice", work.reconcile, workers=5)
    controller.watches(work.services)
    for informer in (work.pods, work.nodes, work.slices):
        controller.maps(informer, lambda obj: ())  # wait for the cache; the handlers below decide what is enqueued
    pace = Pace(controller.queue, context.clock, window_s=WINDOW_S)
    work.pods.cache.add_handler(PodWatcher(work.services.cache, pace.soon))

    def on_slice(change: Change) -> None:
        """Somebody else changed a slice, or the cache shows what was waited for."""
        for state in (change.old, change.new):
            if state is None or manager_of(state) != CONTROLLER_NAME:
                continue
            key = service_key_of(state)
            if key in work.waiting or change.new is None or not work.writer.wrote(change.new):
                pace.soon(key)

    def on_node(change: Change) -> None:
        """A node that pods were left out for has come, or has got another zone."""
        if change.old is None:
            for key in work.lost.pop(change.key.name, ()):
                controller.queue.add(key)
        elif change.new is not None and _zone(change.old) != _zone(change.new):
            for service in work.services.cache:
                if selects_pods(service):
                    pace.soon(key_of(service))

    work.slices.cache.add_handler(on_slice)
    work.nodes.cache.add_handler(on_node)


def _zone(node: Obj) -> str:
    return (node["metadata"].get("labels") or {}).get(ZONE) or ""
