"""The controller framework: informers, work queues, the reconcile loop, leader election, events.

pods = manager.informer(builtin("pods"))
sets = manager.informer(builtin("replicasets", "apps"))
manager.add(Controller("replicaset", reconcile, ...).watches(sets).owns(pods, kind="ReplicaSet", group="apps"))
await manager.run()
"""

from __future__ import annotations

from shoal.kube.objects import Obj
from shoal.reconcile.cache import Cache, Change, ChangeType, without_managed_fields
from shoal.reconcile.controller import (
    DONE,
    Controller,
    ControllerConfig,
    Result,
    Terminal,
    always,
    spec_changed,
)
from shoal.reconcile.events import EventRecorder, EventType, RecorderConfig
from shoal.reconcile.informer import Informer
from shoal.reconcile.keys import ObjectKey, controller_of, key_of
from shoal.reconcile.leader import ElectionConfig, Elector, LeaseLock, Lock, LockRecord
from shoal.reconcile.manager import Manager, ManagerHealth, Runnable
from shoal.reconcile.metrics import Outcome, ReconcileMetrics
from shoal.reconcile.queue import RateLimit, TokenBucket, WorkQueue
from shoal.reconcile.reflector import Reflector, ReflectorConfig
from shoal.reconcile.resync import ResyncConfig, ResyncMetrics

__all__ = [
    "DONE", "Cache", "Change", "ChangeType", "Controller", "ControllerConfig", "ElectionConfig", "Elector",
    "EventRecorder", "EventType", "ManagerHealth", "Informer", "LeaseLock", "Lock", "LockRecord", "Manager", "Obj",
    "ObjectKey", "Outcome", "RateLimit", "ReconcileMetrics", "RecorderConfig", "Reflector", "ReflectorConfig", "Result",
    "ResyncConfig", "ResyncMetrics", "Runnable", "Terminal", "TokenBucket", "WorkQueue", "always", "controller_of",
    "key_of", "spec_changed", "without_managed_fields",
]  # fmt: skip
