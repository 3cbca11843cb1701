"""Watches services, their pods, nodes for zones, and slices for changes by other clients."""

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

WINDOW_S: Final = 0.25  # pods change in bursts: at most one write per slice in this time


def add(context: ControllerContext) -> None:
    work = EndpointSliceController(context)
    controller = context.controller("endpointslice", work.reconcile, workers=5)
    controller.watches(work.services)
    for informer in (work.pods, work.nodes, work.slices):
        controller.maps(informer, lambda obj: ())  # only to wait for its cache; the handlers below enqueue keys
    pace = Pace(controller.queue, context.clock, window_s=WINDOW_S)
    work.pods.cache.add_handler(PodWatcher(work.services.cache, pace.soon))

    def on_slice(change: Change) -> None:
        """Another client changed a slice, or the cache shows an awaited write."""
        for state in (change.old, change.new):
            if state is None or manager_of(state) != CONTROLLER_NAME:
                continue
            key = service_key_of(state)
            if key in work.waiting or change.new is None or not work.writer.wrote(change.new):
                pace.soon(key)

    def on_node(change: Change) -> None:
        """A node whose pods were left out was added, or the zone of a node changed."""
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
