"""Watches StatefulSets, their pods and revisions, and deletions of claims."""

from __future__ import annotations

from shoal.controllers.context import ControllerContext
from shoal.controllers.pods.owners import selector_of
from shoal.controllers.pods.pace import Pace
from shoal.controllers.pods.triggers import Triggers
from shoal.controllers.statefulset.identity import claim_templates
from shoal.controllers.statefulset.model import parent_and_ordinal
from shoal.controllers.statefulset.reconcile import StatefulSetController
from shoal.reconcile import Change
from shoal.reconcile.keys import key_of


def add(context: ControllerContext) -> None:
    work = StatefulSetController(context)
    controller = context.controller("statefulset", work.reconcile, workers=5)
    controller.watches(work.owners)
    for informer in (work.pods, work.claims, work.history.informer):
        controller.maps(informer, lambda obj: ())  # only to wait for its cache; the handlers below enqueue keys
    work.pods.cache.add_handler(
        Triggers(
            kind="StatefulSet",
            group="apps",
            owners=work.owners.cache,
            selector_of=selector_of,
            pace=Pace(controller.queue, context.clock, window_s=0.05),
        )  # fmt: skip
    )

    def on_claim(change: Change) -> None:
        """A claim was deleted: a pod may wait for that, or need a new one."""
        if change.new is not None:
            return
        about = change.object["metadata"]
        prefix = parent_and_ordinal(about["name"])[0]
        for owner in work.owners.cache.select(namespace=about["namespace"]):
            name = owner["metadata"]["name"]
            if any(prefix == f"{template['metadata']['name']}-{name}" for template in claim_templates(owner)):
                controller.queue.add(key_of(owner))

    work.claims.cache.add_handler(on_claim)
