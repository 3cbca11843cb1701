"""Watches ReplicaSets and their pods."""

from __future__ import annotations

from typing import Final

from shoal.controllers.kit import Kit
from shoal.controllers.pods.owners import selector_of
from shoal.controllers.pods.pace import Pace
from shoal.controllers.pods.triggers import Triggers
from shoal.controllers.replicaset.reconcile import ReplicaController, ReplicatedKind
from shoal.reconcile import Controller

REPLICA_SET: Final = ReplicatedKind(
    "replicasets", "apps", "apps/v1", "ReplicaSet", selector_of, reports_terminating=True, has_siblings=True
)


def add(kit: Kit) -> None:
    wire(kit, "replicaset", REPLICA_SET)


def wire(kit: Kit, name: str, kind: ReplicatedKind) -> Controller:
    """A controller for a replicated kind."""
    work = ReplicaController(kit, kind)
    controller = kit.controller(name, work.reconcile, workers=10, timeout_s=120.0)
    controller.watches(work.owners)
    controller.maps(work.pods, lambda pod: ())  # wait for this cache; the triggers decide what is enqueued
    work.pods.cache.add_handler(
        Triggers(
            kind=kind.kind,
            group=kind.group,
            owners=work.owners.cache,
            selector_of=kind.selector_of,
            pace=Pace(controller.queue, kit.clock),
        )  # fmt: skip
    )
    return controller
