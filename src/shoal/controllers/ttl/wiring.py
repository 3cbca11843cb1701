"""Jobs."""

from __future__ import annotations

from shoal.controllers.kit import Kit
from shoal.controllers.ttl.plan import expires_at
from shoal.controllers.ttl.reconcile import FinishedJobs


def add(kit: Kit) -> None:
    jobs = kit.informer("jobs", "batch")
    controller = kit.controller("ttl-after-finished", FinishedJobs(kit, jobs.cache).reconcile)
    controller.watches(jobs, when=lambda change: change.new is not None and expires_at(change.new) is not None)
