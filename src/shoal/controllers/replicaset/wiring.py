"""Watches ReplicaSets and their pods."""

from __future__ import annotations

from typing import Final

from shoal.controllers.context import ControllerContext
from shoal.controllers.pods.owners import selector_of
from shoal.controllers.pods.pace import Pace
from shoal.controllers.pods.triggers import Triggers
from shoal.controllers.replicaset.reconcile import ReplicaController, ReplicatedKind
from shoal.reconcile import Controller

REPLICA_SET: Final = ReplicatedKind(
    "replicasets", "apps", "apps/v1", "ReplicaSet", selector_of, reports_terminating=True, has_siblings=True
)


def add(context: ControllerContext) -> None:
    wire(context, "replicaset", REPLICA_SET)


def wire(context: ControllerContext, name: str, kind: ReplicatedKind) -> Controller:
    """A controller for a replicated kind."""
    work = ReplicaController(context, kind)
    controller = context.controller(name, work.reconcile, workers=10, timeout_s=120.0)
    controller.watches(work.owners)
    controller.maps(work.pods, lambda pod: ())  # wait for this cache; the triggers decide what is enqueued
    work.pods.cache.add_handler(
        Triggers(
            kind=kind.kind,
            group=kind.group,
            owners=work.owners.cache,
            selector_of=kind.selector_of,
            pace=Pace(controller.queue, context.clock),
        )  # fmt: skip
    )
    return controller
