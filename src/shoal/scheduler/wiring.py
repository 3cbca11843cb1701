"""Builds a scheduler and connects it to the resources that it watches."""

from __future__ import annotations

from collections.abc import Callable

from shoal.base.clock import Clock
from shoal.base.metrics import Metrics
from shoal.client import builtin
from shoal.reconcile import EventRecorder, Manager
from shoal.reconcile.cache import Handler
from shoal.scheduler.config import SchedulerConfig
from shoal.scheduler.intake import Intake
from shoal.scheduler.metrics import SchedulerMetrics
from shoal.scheduler.service import Scheduler

_OWNERS = (("replicationcontrollers", "", "ReplicationController"), ("replicasets", "apps", "ReplicaSet"),
           ("statefulsets", "apps", "StatefulSet"))  # fmt: skip


def handlers(intake: Intake) -> list[tuple[str, str, Handler]]:
    """The watched resources, as plural and group, with their handlers; in the order in which they must be added."""
    # nodes, services and owners before pods, which refer to them
    found: list[tuple[str, str, Handler]] = [("nodes", "", intake.on_node), ("namespaces", "", intake.on_namespace)]
    found += [("services", "", intake.on_service)]
    found += [(plural, group, intake.on_owner(kind)) for plural, group, kind in _OWNERS]
    found += [
        ("persistentvolumeclaims", "", intake.on_claim),
        ("persistentvolumes", "", intake.on_volume),
        ("storageclasses", "storage.k8s.io", intake.on_class),
        ("poddisruptionbudgets", "policy", intake.on_budget),
        ("pods", "", intake.on_pod),
    ]
    return found


def build(
    manager: Manager,
    *,
    clock: Clock,
    random: Callable[[], float],
    metrics: Metrics,
    events: EventRecorder,
    config: SchedulerConfig | None = None,
) -> Scheduler:
    """A scheduler that the manager runs while it leads. The caller runs ``events``."""
    scheduler = Scheduler(
        manager.client, clock=clock, random=random, events=events, metrics=SchedulerMetrics(metrics), config=config
    )
    for plural, group, handler in handlers(scheduler.intake):
        manager.informer(builtin(plural, group)).cache.add_handler(handler)
    pods = manager.informer(builtin("pods"))
    pods.on_resync.append(lambda: scheduler.intake.requeue(pods.cache))
    manager.add(scheduler)
    return scheduler
