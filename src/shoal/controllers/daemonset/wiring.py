"""Watches DaemonSets, their pods and revisions, and nodes."""

from __future__ import annotations

from typing import Any

from shoal.controllers.context import ControllerContext
from shoal.controllers.daemonset.reconcile import DaemonSetController
from shoal.controllers.pods.owners import selector_of
from shoal.controllers.pods.pace import Pace
from shoal.controllers.pods.triggers import Triggers, pod_facts
from shoal.kube.objects import Obj
from shoal.reconcile import Change


def _node_facts(node: Obj) -> Any:
    return node["metadata"].get("labels"), (node.get("spec") or {}).get("taints")


def _daemon_facts(pod: Obj) -> Any:
    return pod_facts(pod), pod["spec"].get("nodeName")


def add(context: ControllerContext) -> None:
    work = DaemonSetController(context)
    controller = context.controller("daemonset", work.reconcile, workers=2)
    controller.watches(work.owners)
    for informer in (work.pods, work.nodes, work.history.informer):
        controller.maps(informer, lambda obj: ())  # only to wait for its cache; the handlers below enqueue keys
    pace = Pace(controller.queue, context.clock)
    work.pods.cache.add_handler(
        Triggers(
            kind="DaemonSet",
            group="apps",
            owners=work.owners.cache,
            selector_of=selector_of,
            pace=pace,
            facts=_daemon_facts,
        )  # fmt: skip
    )

    def on_node(change: Change) -> None:
        """Enqueue all sets if a node's eligibility may have changed; heartbeats are ignored."""
        if change.old is not None and change.new is not None and _node_facts(change.old) == _node_facts(change.new):
            return
        for key in work.owners.cache.keys():
            pace.soon(key)

    work.nodes.cache.add_handler(on_node)
