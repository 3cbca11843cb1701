"""Watches all pods and nodes."""

from __future__ import annotations

from shoal.controllers.context import ControllerContext
from shoal.controllers.periodic import PeriodicLoop
from shoal.controllers.podgc.plan import TERMINATED_LIMIT
from shoal.controllers.podgc.reconcile import PodCollector
from shoal.controllers.podindex import pods_by_node


def add(context: ControllerContext, *, limit: int = TERMINATED_LIMIT) -> None:
    collector = PodCollector(context, context.informer("nodes").cache, pods_by_node(context).cache, limit=limit)
    context.manager.add(PeriodicLoop("pod-garbage-collector", collector.step, clock=context.clock))
