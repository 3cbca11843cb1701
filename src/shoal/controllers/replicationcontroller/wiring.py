"""Watches ReplicationControllers and their pods; the reconciler is that of ReplicaSets."""

from __future__ import annotations

from typing import Final

from shoal.controllers.context import ControllerContext
from shoal.controllers.pods.owners import set_selector_of
from shoal.controllers.replicaset.reconcile import ReplicatedKind
from shoal.controllers.replicaset.wiring import wire

REPLICATION_CONTROLLER: Final = ReplicatedKind(
    "replicationcontrollers", "", "v1", "ReplicationController", set_selector_of,
    reports_terminating=False, has_siblings=False,
)  # fmt: skip


def add(context: ControllerContext) -> None:
    wire(context, "replicationcontroller", REPLICATION_CONTROLLER)
