"""Pods as they are placed, and all pods of a node when its NoExecute taints change."""

from __future__ import annotations

from shoal.controllers.kit import Kit
from shoal.controllers.podindex import pods_by_node
from shoal.controllers.taints.reconcile import Evictor, taints_changed


def add(kit: Kit) -> None:
    nodes, pods = kit.informer("nodes"), pods_by_node(kit)
    evictor = Evictor(kit, nodes.cache, pods.cache)
    controller = kit.controller("taint-eviction", evictor.reconcile, workers=8)
    controller.watches(pods, when=evictor.concerns)
    controller.maps(nodes, evictor.pods_of, when=taints_changed)
