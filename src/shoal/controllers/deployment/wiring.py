"""Watches Deployments, their ReplicaSets and, for those that recreate, the pods that have to end first."""

from __future__ import annotations

from shoal.controllers.context import ControllerContext
from shoal.controllers.deployment.reconcile import DeploymentController
from shoal.controllers.pods.owners import selector_of
from shoal.controllers.pods.pace import Pace
from shoal.controllers.pods.status import is_terminal, is_terminating
from shoal.controllers.pods.triggers import Triggers
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Change
from shoal.reconcile.keys import ObjectKey, controller_of


def _everything(replica_set: Obj) -> str:
    version: str = replica_set["metadata"]["resourceVersion"]
    return version


def add(context: ControllerContext) -> None:
    work = DeploymentController(context)
    controller = context.controller("deployment", work.reconcile, workers=10)
    controller.watches(work.deployments)
    for informer in (work.replica_sets, work.pods):
        controller.maps(informer, lambda obj: ())  # only to wait for its cache; the handlers below enqueue keys
    pace = Pace(controller.queue, context.clock, window_s=0.0)
    work.replica_sets.cache.add_handler(
        Triggers(
            kind="Deployment",
            group="apps",
            owners=work.deployments.cache,
            selector_of=selector_of,
            pace=pace,
            facts=_everything,
            counts=lambda obj: not is_terminating(obj),
        )  # fmt: skip
    )

    def on_pod(change: Change) -> None:
        """A pod was deleted or has ended: a Deployment with strategy Recreate may wait for it."""
        pod = change.object
        if change.new is not None and not (is_terminal(change.new) and change.old and not is_terminal(change.old)):
            return
        reference = controller_of(pod)
        if reference is None or reference["kind"] != "ReplicaSet":
            return
        namespace = pod["metadata"]["namespace"]
        replica_set = work.replica_sets.cache.get(ObjectKey(namespace, reference["name"]))
        parent = controller_of(replica_set) if replica_set is not None else None
        key = ObjectKey(namespace, parent["name"]) if parent is not None else None
        deployment = work.deployments.cache.get(key) if key is not None else None
        if key is not None and deployment is not None:
            if (deployment["spec"].get("strategy") or {}).get("type") == "Recreate":
                controller.queue.add(key)

    work.pods.cache.add_handler(on_pod)
