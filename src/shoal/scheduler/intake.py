"""Applies informer events to the snapshot and the queue.

Handlers run synchronously in the informers' tasks. Between a decision and its binding a pod is *assumed* to be on its
node; the informer confirms it, and an assumption that is not confirmed in time is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shoal.base.clock import Clock
from shoal.kube.labels import Selector, from_object, from_set
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Change, ChangeType
from shoal.reconcile.keys import ObjectKey, key_of
from shoal.scheduler.hints import ClusterEvent, ClusterEventKind, may_help, node_facts
from shoal.scheduler.plan import Planner
from shoal.scheduler.preemption import DisruptionBudget
from shoal.scheduler.queue import QueueState, SchedulingQueue
from shoal.scheduler.shapes import PodInfo

_OVER = ("Succeeded", "Failed")
_NO_OBJECT: Obj = {}


class Intake:
    """Keeps snapshot and queue equal to the API's objects. ``wake`` is called when a pod may be ready."""

    def __init__(self, planner: Planner, queue: SchedulingQueue, *, clock: Clock, wake: Callable[[], None]) -> None:
        self._planner = planner
        self._snapshot = planner.snapshot
        self._queue = queue
        self._clock = clock
        self._wake = wake
        self._assumed: dict[str, float | None] = {}  # uid -> when the assumption expires; None: while it is being bound
        self._budgets: dict[ObjectKey, DisruptionBudget] = {}
        self.on_storage: Callable[[], None] = lambda: None

    # assuming

    def assume(self, pod: PodInfo, node: str) -> None:
        """Count the pod as on the node before the API shows it."""
        self._assumed[pod.uid] = None
        self._snapshot.withdraw(pod.uid)
        self._snapshot.hold(pod.shape)
        self._snapshot.add_pod(pod, node)
        self._happened(ClusterEvent(ClusterEventKind.POD_PLACED, pod=pod))

    def bound(self, pod: PodInfo, expires_s: float) -> None:
        """The API has accepted the binding; start the timeout of the assumption."""
        if pod.uid in self._assumed and expires_s:
            self._assumed[pod.uid] = self._clock.monotonic() + expires_s

    def forget(self, pod: PodInfo) -> bool:
        """Remove the assumption after a failed binding; return False if the pod was seen on the node or deleted
        meanwhile."""
        if pod.uid not in self._assumed:
            return False
        del self._assumed[pod.uid]
        self._remove(pod)
        return True

    def expire(self, now: float) -> list[PodInfo]:
        """Remove expired assumptions; return their pods."""
        late = {uid for uid, deadline in self._assumed.items() if deadline is not None and deadline <= now}
        pods = [pod for pod in self._snapshot.pods.values() if pod.uid in late] if late else []
        for pod in pods:
            self.forget(pod)
        return pods

    def assumed(self, uid: str) -> bool:
        return uid in self._assumed

    # pods

    def on_pod(self, change: Change) -> None:
        pod = change.new
        if pod is None or (pod.get("status") or _NO_OBJECT).get("phase") in _OVER:
            self._gone(change.key, change.object["metadata"].get("uid") or "")
        elif pod["spec"].get("nodeName"):
            self._placed(change.key, pod)
        else:
            self._pending(change.key, pod)

    def requeue(self, pods: Iterable[Obj]) -> None:
        """Queue pods that have no node and are neither queued nor assumed to be on one."""
        for pod in pods:
            key = key_of(pod)
            if not pod["spec"].get("nodeName") and self._queue.get(key) is None and key not in self._snapshot.pods:
                self.on_pod(Change(type=ChangeType.ADDED, key=key, new=pod))

    def _gone(self, key: ObjectKey, uid: str) -> None:
        self._unqueue(key)
        self._snapshot.withdraw(uid)
        self._assumed.pop(uid, None)
        known = self._snapshot.pods.get(key)
        if known is not None and known.uid == uid:
            self._remove(known)

    def _remove(self, pod: PodInfo) -> None:
        self._snapshot.remove_pod(pod)
        self._snapshot.let_go(pod.shape)
        self._happened(ClusterEvent(ClusterEventKind.POD_GONE, pod=pod))

    def _unqueue(self, key: ObjectKey) -> None:
        waiting = self._queue.delete(key)
        if waiting is not None:
            self._snapshot.let_go(waiting.pod.shape)

    def _placed(self, key: ObjectKey, obj: Obj) -> None:
        snapshot, node = self._snapshot, obj["spec"]["nodeName"]
        self._unqueue(key)
        info = snapshot.pod_info(obj)
        known = snapshot.pods.get(key)
        self._assumed.pop(info.uid, None)
        if known is not None and known.uid == info.uid and snapshot.nodes[known.slot].name == node:
            if known.shape is info.shape and known.terminating == info.terminating:
                known.obj = obj
                return
            happening = ClusterEventKind.POD_CHANGED
        else:
            happening = ClusterEventKind.POD_PLACED
        snapshot.hold(info.shape)
        if known is not None:
            snapshot.remove_pod(known)
            snapshot.let_go(known.shape)
        snapshot.withdraw(info.uid)
        snapshot.add_pod(info, node)
        self._happened(ClusterEvent(happening, pod=info))

    def _pending(self, key: ObjectKey, obj: Obj) -> None:
        if "deletionTimestamp" in obj["metadata"]:
            self._unqueue(key)
            self._snapshot.withdraw(obj["metadata"].get("uid") or "")
            return
        info = self._snapshot.pod_info(obj)
        if self._planner.profile(info.shape.scheduler) is None:
            return
        known = self._snapshot.pods.get(key)
        if known is not None:
            if known.uid == info.uid:
                known.obj = obj  # assumed: this event is older than its binding
                return
            self._remove(known)
        now = self._clock.monotonic()
        waiting = self._queue.get(key)
        # a new nomination is not in the status yet; one removed from the status no longer counts
        taken_back = waiting is not None and waiting.pod.nominated and not info.nominated
        self._snapshot.hold(info.shape)
        if waiting is not None and waiting.pod.uid == info.uid:
            self._snapshot.let_go(waiting.pod.shape)
            self._queue.update(info, now)
        else:
            if waiting is not None:
                self._unqueue(key)
            self._queue.add(info, now)
        self._snapshot.nominate(info, "" if taken_back else self._snapshot.nomination(info))
        self._wake()

    # nodes

    def on_node(self, change: Change) -> None:
        if change.new is None:
            self._snapshot.remove_node(change.key.name)
            self._happened(ClusterEvent(ClusterEventKind.NODE_GONE))
            return
        known = self._snapshot.by_name.get(change.key.name)
        is_new = known is None or known.obj is None
        generation = self._snapshot.generation
        self._snapshot.set_node(change.new)
        if generation != self._snapshot.generation and self._queue.size(QueueState.UNSCHEDULABLE):
            before = node_facts(change.old) if change.old is not None and not is_new else None
            happening = ClusterEventKind.NODE_ADDED if before is None else ClusterEventKind.NODE_CHANGED
            self._happened(ClusterEvent(happening, node=node_facts(change.new), before=before))

    # services and owners

    def on_namespace(self, change: Change) -> None:
        labels = None if change.new is None else change.new["metadata"].get("labels") or {}
        if self._snapshot.set_namespace(change.key.name, labels):
            self._planner.forget_tables()
            self._happened(ClusterEvent(ClusterEventKind.POD_CHANGED))

    def on_service(self, change: Change) -> None:
        if change.new is None:
            self._snapshot.remove_service(change.key)
        else:
            self._snapshot.set_service(change.new)
        self._happened(ClusterEvent(ClusterEventKind.SELECTORS))

    def on_owner(self, kind: str) -> Callable[[Change], None]:
        """A handler for controllers whose selectors define which pods are spread together."""

        def handle(change: Change) -> None:
            if change.new is None:
                self._snapshot.remove_owner(kind, change.key)
            elif change.old is None or change.type is ChangeType.ADDED:
                self._snapshot.set_owner(kind, change.key, _selector(kind, change.new))
                self._happened(ClusterEvent(ClusterEventKind.SELECTORS))

        return handle

    # storage and budgets

    def on_claim(self, change: Change) -> None:
        _keep(self._planner.volumes.claims, change.key, change.new)
        self._storage_changed()

    def on_volume(self, change: Change) -> None:
        _keep(self._planner.volumes.volumes, change.key.name, change.new)
        self._storage_changed()

    def on_class(self, change: Change) -> None:
        _keep(self._planner.volumes.classes, change.key.name, change.new)
        self._storage_changed()

    def _storage_changed(self) -> None:
        self._happened(ClusterEvent(ClusterEventKind.STORAGE))
        self.on_storage()

    def on_budget(self, change: Change) -> None:
        if change.new is None:
            self._budgets.pop(change.key, None)
        else:
            spec, status = change.new.get("spec") or {}, change.new.get("status") or {}
            self._budgets[change.key] = DisruptionBudget(
                change.key.namespace,
                from_object(spec.get("selector")),
                int(status.get("disruptionsAllowed") or 0),
                frozenset(status.get("disruptedPods") or ()),
            )
        preemption = self._planner.preemption
        preemption.budgets = tuple(self._budgets.values())
        preemption.budgets_generation += 1

    def _happened(self, event: ClusterEvent) -> None:
        if not self._queue.size(QueueState.UNSCHEDULABLE):
            return
        snapshot = self._snapshot
        if self._queue.move(lambda pod, plugins: may_help(event, pod, plugins, snapshot), self._clock.monotonic()):
            self._wake()


def _keep(objects: dict[ObjectKey, Obj] | dict[str, Obj], key: ObjectKey | str, obj: Obj | None) -> None:
    if obj is None:
        objects.pop(key, None)  # type: ignore[arg-type]
    else:
        objects[key] = obj  # type: ignore[index]


def _selector(kind: str, obj: Obj) -> Selector:
    selector = (obj.get("spec") or {}).get("selector")
    return from_set(selector) if kind == "ReplicationController" else from_object(selector)
