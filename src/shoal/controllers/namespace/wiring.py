"""Namespaces, and the end of pods in those that are being emptied."""

from __future__ import annotations

from shoal.controllers.kit import Kit
from shoal.controllers.namespace.reconcile import NamespaceDeleter, deletion_began
from shoal.reconcile import ChangeType


def add(kit: Kit) -> None:
    deleter = NamespaceDeleter(kit)
    controller = kit.controller("namespace", deleter.reconcile, workers=10, timeout_s=300.0)
    controller.watches(kit.informer("namespaces"), when=deletion_began)
    controller.maps(kit.informer("pods"), deleter.namespaces_of, when=lambda change: change.type is ChangeType.DELETED)
