"""Nodes, the leases they renew, and the pods on them."""

from __future__ import annotations

from shoal.client import Scope, builtin
from shoal.controllers.kit import Kit
from shoal.controllers.nodelifecycle.config import NodeLifecycleConfig
from shoal.controllers.nodelifecycle.reconcile import NodeRounds, NodeTaints, matters
from shoal.controllers.podindex import pods_by_node
from shoal.controllers.rounds import Rounds

LEASE_NAMESPACE = "kube-node-lease"


def add(kit: Kit, config: NodeLifecycleConfig | None = None) -> None:
    nodes, pods = kit.informer("nodes"), pods_by_node(kit)
    leases = kit.manager.informer(builtin("leases", "coordination.k8s.io"), Scope(namespace=LEASE_NAMESPACE))
    taints = NodeTaints(kit, nodes.cache, pods.cache)
    kit.controller("node-lifecycle", taints.reconcile, workers=8).watches(nodes, when=matters)
    rounds = NodeRounds(kit, nodes.cache, leases.cache, config or NodeLifecycleConfig())
    kit.manager.add(Rounds("node-lifecycle/rounds", rounds.step, clock=kit.clock))
