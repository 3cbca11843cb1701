"""Reconciles autoscalers when their spec changes, and every fifteen seconds."""

from __future__ import annotations

from shoal.controllers.autoscaling.reconcile import Autoscaler
from shoal.controllers.context import ControllerContext
from shoal.reconcile import Change


def add(context: ControllerContext) -> None:
    hpas = context.informer("horizontalpodautoscalers", "autoscaling")
    shell = Autoscaler(context, hpas.cache, context.informer("pods").cache)
    context.controller("horizontal-pod-autoscaler", shell.reconcile).watches(hpas, when=spec_differs)


def spec_differs(change: Change) -> bool:
    """A predicate: the controller's own status writes must not trigger an evaluation."""
    old, new = change.old, change.new
    return old is None or new is None or old["spec"] != new["spec"]
