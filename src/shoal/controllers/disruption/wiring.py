"""Watches budgets, their pods, and the workloads that define the desired number of pods."""

from __future__ import annotations

from shoal.controllers.context import ControllerContext
from shoal.controllers.disruption.reconcile import Budgets, counts_otherwise, size_changed
from shoal.controllers.disruption.scales import Scales


def add(context: ControllerContext) -> None:
    budgets, pods = context.informer("poddisruptionbudgets", "policy"), context.informer("pods")
    scales = Scales(context)
    shell = Budgets(context, budgets.cache, pods.cache, scales)
    controller = context.controller("disruption", shell.reconcile)
    controller.watches(budgets)
    controller.maps(pods, shell.of_pod, when=counts_otherwise)
    for informer in scales.informers.values():
        controller.maps(informer, shell.of_namespace, when=size_changed)
