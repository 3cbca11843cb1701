"""Budgets, the pods they count, and the workloads that say how many there should be."""

from __future__ import annotations

from shoal.controllers.disruption.reconcile import Budgets, counts_otherwise, size_changed
from shoal.controllers.disruption.scales import Scales
from shoal.controllers.kit import Kit


def add(kit: Kit) -> None:
    budgets, pods = kit.informer("poddisruptionbudgets", "policy"), kit.informer("pods")
    scales = Scales(kit)
    shell = Budgets(kit, budgets.cache, pods.cache, scales)
    controller = kit.controller("disruption", shell.reconcile)
    controller.watches(budgets)
    controller.maps(pods, shell.of_pod, when=counts_otherwise)
    for informer in scales.informers.values():
        controller.maps(informer, shell.of_namespace, when=size_changed)
