"""Reconciles pods when they are placed, and all pods of a node when its NoExecute taints change."""

from __future__ import annotations

from shoal.controllers.context import ControllerContext
from shoal.controllers.podindex import pods_by_node
from shoal.controllers.taints.reconcile import Evictor, taints_changed


def add(context: ControllerContext) -> None:
    nodes, pods = context.informer("nodes"), pods_by_node(context)
    evictor = Evictor(context, nodes.cache, pods.cache)
    controller = context.controller("taint-eviction", evictor.reconcile, workers=8)
    controller.watches(pods, when=evictor.concerns)
    controller.maps(nodes, evictor.pods_of, when=taints_changed)
