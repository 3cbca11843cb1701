"""Watches nodes, their leases, and their pods."""

from __future__ import annotations

from shoal.client import Scope, builtin
from shoal.controllers.context import ControllerContext
from shoal.controllers.nodelifecycle.config import NodeLifecycleConfig
from shoal.controllers.nodelifecycle.reconcile import NodeMonitor, NodeTaints, matters
from shoal.controllers.periodic import PeriodicLoop
from shoal.controllers.podindex import pods_by_node

LEASE_NAMESPACE = "kube-node-lease"


def add(context: ControllerContext, config: NodeLifecycleConfig | None = None) -> None:
    nodes, pods = context.informer("nodes"), pods_by_node(context)
    leases = context.manager.informer(builtin("leases", "coordination.k8s.io"), Scope(namespace=LEASE_NAMESPACE))
    taints = NodeTaints(context, nodes.cache, pods.cache)
    context.controller("node-lifecycle", taints.reconcile, workers=8).watches(nodes, when=matters)
    rounds = NodeMonitor(context, nodes.cache, leases.cache, config or NodeLifecycleConfig())
    context.manager.add(PeriodicLoop("node-lifecycle/rounds", rounds.step, clock=context.clock))
