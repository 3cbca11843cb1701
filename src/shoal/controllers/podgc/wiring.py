"""All pods, and the nodes that should be there."""

from __future__ import annotations

from shoal.controllers.kit import Kit
from shoal.controllers.podgc.plan import TERMINATED_LIMIT
from shoal.controllers.podgc.reconcile import PodCollector
from shoal.controllers.podindex import pods_by_node
from shoal.controllers.rounds import Rounds


def add(kit: Kit, *, limit: int = TERMINATED_LIMIT) -> None:
    collector = PodCollector(kit, kit.informer("nodes").cache, pods_by_node(kit).cache, limit=limit)
    kit.manager.add(Rounds("pod-garbage-collector", collector.step, clock=kit.clock))
