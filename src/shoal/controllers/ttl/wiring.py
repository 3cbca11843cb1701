"""Watches Jobs."""

from __future__ import annotations

from shoal.controllers.context import ControllerContext
from shoal.controllers.ttl.plan import expires_at
from shoal.controllers.ttl.reconcile import FinishedJobs


def add(context: ControllerContext) -> None:
    jobs = context.informer("jobs", "batch")
    controller = context.controller("ttl-after-finished", FinishedJobs(context, jobs.cache).reconcile)
    controller.watches(jobs, when=lambda change: change.new is not None and expires_at(change.new) is not None)
