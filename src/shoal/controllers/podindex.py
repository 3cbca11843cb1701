"""The index of pods by node, for the node controllers."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.controllers.context import ControllerContext
from shoal.kube.objects import Obj
from shoal.reconcile import Informer

BY_NODE = "node"


def node_of_pod(pod: Obj) -> Iterable[str]:
    node = pod["spec"].get("nodeName")
    return (node,) if node else ()


def pods_by_node(context: ControllerContext) -> Informer:
    """The informer of pods, with the index by node."""
    return context.informer("pods", node=node_of_pod)
