"""Adds all controllers of a cluster, each with Kubernetes' name for its service account and its event source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from shoal.controllers.autoscaling import wiring as autoscaling
from shoal.controllers.context import ControllerContext
from shoal.controllers.cronjob import wiring as cronjob
from shoal.controllers.daemonset import wiring as daemonset
from shoal.controllers.deployment import wiring as deployment
from shoal.controllers.disruption import wiring as disruption
from shoal.controllers.endpoints import wiring as endpoints
from shoal.controllers.endpointslice import wiring as endpointslice
from shoal.controllers.garbagecollector import wiring as garbagecollector
from shoal.controllers.job import wiring as job
from shoal.controllers.mirroring import wiring as mirroring
from shoal.controllers.namespace import wiring as namespace
from shoal.controllers.nodelifecycle import wiring as nodelifecycle
from shoal.controllers.nodelifecycle.config import NodeLifecycleConfig
from shoal.controllers.persistentvolume import wiring as persistentvolume
from shoal.controllers.persistentvolume.config import VolumeConfig
from shoal.controllers.podgc import wiring as podgc
from shoal.controllers.replicaset import wiring as replicaset
from shoal.controllers.replicationcontroller import wiring as replicationcontroller
from shoal.controllers.servicecidr import wiring as servicecidr
from shoal.controllers.statefulset import wiring as statefulset
from shoal.controllers.taints import wiring as taints
from shoal.controllers.ttl import wiring as ttl

Add = Callable[[ControllerContext], None]


def add_all(
    context_of: Callable[[str], ControllerContext], volumes: VolumeConfig, lifecycle: NodeLifecycleConfig | None = None
) -> None:
    """Add every controller; ``context_of`` returns the context of a service account in kube-system."""
    for account, component, add in _controllers(volumes, lifecycle):
        context = context_of(account)
        add(replace(context, events=context.events.named(component)))


def _controllers(volumes: VolumeConfig, lifecycle: NodeLifecycleConfig | None) -> list[tuple[str, str, Add]]:
    return [
        ("deployment-controller", "deployment-controller", deployment.add),
        ("replicaset-controller", "replicaset-controller", replicaset.add),
        ("replication-controller", "replication-controller", replicationcontroller.add),
        ("statefulset-controller", "statefulset-controller", statefulset.add),
        ("daemon-set-controller", "daemonset-controller", daemonset.add),
        ("job-controller", "job-controller", job.add),
        ("cronjob-controller", "cronjob-controller", cronjob.add),
        ("ttl-after-finished-controller", "ttl-after-finished-controller", ttl.add),
        ("endpointslice-controller", "endpoint-slice-controller", endpointslice.add),
        ("endpoint-controller", "endpoint-controller", endpoints.add),
        ("endpointslicemirroring-controller", "endpoint-slice-mirroring-controller", mirroring.add),
        ("service-cidrs-controller", "ipallocator-repair-controller", servicecidr.add),
        ("namespace-controller", "namespace-controller", namespace.add),
        ("node-controller", "node-controller", partial(nodelifecycle.add, config=lifecycle)),
        ("node-controller", "taint-eviction-controller", taints.add),
        ("pod-garbage-collector", "pod-garbage-collector", podgc.add),
        ("disruption-controller", "controllermanager", disruption.add),
        ("persistent-volume-binder", "persistentvolume-controller", partial(persistentvolume.add, config=volumes)),
        ("horizontal-pod-autoscaler", "horizontal-pod-autoscaler", autoscaling.add),
        # last: it shares the informers of all others
        ("generic-garbage-collector", "garbage-collector-controller", garbagecollector.add),
    ]
