"""Watches namespaces, and the end of pods in terminating ones."""

from __future__ import annotations

from shoal.controllers.context import ControllerContext
from shoal.controllers.namespace.reconcile import NamespaceDeleter, deletion_began
from shoal.reconcile import ChangeType


def add(context: ControllerContext) -> None:
    deleter = NamespaceDeleter(context)
    controller = context.controller("namespace", deleter.reconcile, workers=10, timeout_s=300.0)
    controller.watches(context.informer("namespaces"), when=deletion_began)
    controller.maps(
        context.informer("pods"), deleter.namespaces_of, when=lambda change: change.type is ChangeType.DELETED
    )
