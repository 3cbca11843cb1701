"""Pods that wait for a node.

    active          ready, by priority and then by time
    backing off     failed recently: 1 s, doubling to 10 s
    unschedulable   no node fits: until an event could help, or for five minutes
    gated           with scheduling gates

Pure: ``now`` is an argument everywhere, and nothing waits. Popped pods are *in flight* until they are done or put back.
When nothing is active, pods in backoff because no node fitted are popped early, since they delay no other pod.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum

from shoal.reconcile.keys import ObjectKey
from shoal.scheduler.config import SchedulerConfig
from shoal.scheduler.shapes import PodInfo


class QueueState(Enum):
    ACTIVE = "active"
    BACKING_OFF = "backing off"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in flight"


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod in the queue."""

    pod: PodInfo
    added_at: float  # when it was queued; orders pods of one priority
    place: QueueState = QueueState.ACTIVE
    attempts: int = 0
    since: float = 0.0  # when it last failed
    plugins: frozenset[str] = frozenset()  # that refused it
    failed: bool = False  # failed by an error, not because no node fits
    ticket: int = 0  # number of its valid heap entry; entries with another number are stale
    message: str = ""


_Entry = tuple[float, float, int, QueuedPod]


def gates_of(pod: PodInfo) -> list[str]:
    return [gate.get("name", "") for gate in pod.obj["spec"].get("schedulingGates") or ()]


class SchedulingQueue:
    """All waiting pods, each in one of the states."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self._waiting: dict[ObjectKey, QueuedPod] = {}
        self._active: list[_Entry] = []
        self._backoff: list[_Entry] = []  # ordered by the end of the backoff
        # unschedulable pods grouped by shape, plugins and named nodes
        self._stuck: dict[Hashable, dict[ObjectKey, QueuedPod]] = {}
        self._tickets = 0
        self._sizes = dict.fromkeys(QueueState, 0)

    def __len__(self) -> int:
        return len(self._waiting)

    def size(self, place: QueueState) -> int:
        return self._sizes[place]

    def get(self, key: ObjectKey) -> QueuedPod | None:
        return self._waiting.get(key)

    # adding and removing

    def add(self, pod: PodInfo, now: float) -> None:
        """Add a pod without a node."""
        waiting = self._waiting[pod.key] = QueuedPod(pod, now)
        self._sizes[QueueState.ACTIVE] += 1
        self._enter(waiting, QueueState.GATED if gates_of(pod) else QueueState.ACTIVE, now)

    def update(self, pod: PodInfo, now: float) -> None:
        """Update a waiting pod. If its shape changed or its gates were removed, it may fit now."""
        waiting = self._waiting[pod.key]
        before, place = waiting.pod, waiting.place
        if place is QueueState.UNSCHEDULABLE:
            self._leave_stuck(waiting)
        waiting.pod = pod
        if place is QueueState.GATED and not gates_of(pod):
            self._enter(waiting, QueueState.ACTIVE, now)
        elif place is QueueState.UNSCHEDULABLE:
            same = before.shape is pod.shape and before.pinned == pod.pinned and before.claims == pod.claims
            if same:
                self._join_stuck(waiting)
            else:
                self._retry(waiting, now)

    def delete(self, key: ObjectKey) -> QueuedPod | None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            if waiting.place is QueueState.UNSCHEDULABLE:
                self._leave_stuck(waiting)
            self._sizes[waiting.place] -= 1
            waiting.ticket = 0
        return waiting

    def pop(self, now: float) -> QueuedPod | None:
        """The next pod to place; None if none is ready."""
        self._end_backoffs(now)
        waiting = self._first(self._active)
        if waiting is None and self._backoff:
            waiting = self._first(self._backoff, early=True)
        if waiting is not None:
            self._enter(waiting, QueueState.IN_FLIGHT, now)
            waiting.attempts += 1
        return waiting

    def unschedulable(self, waiting: QueuedPod, plugins: frozenset[str], now: float) -> None:
        """Put a popped pod back because no node fits."""
        waiting.plugins, waiting.since, waiting.failed = plugins, now, False
        self._enter(waiting, QueueState.UNSCHEDULABLE, now)

    def put_back(self, waiting: QueuedPod, now: float) -> None:
        """Put a popped pod back after an error; it is retried after its backoff."""
        waiting.since, waiting.failed = now, True
        self._enter(waiting, QueueState.BACKING_OFF, now)

    # moving

    def move(self, may_help: Callable[[PodInfo, frozenset[str]], bool], now: float) -> int:
        """Retry the pods that an event could help. Checked once per group of pods with the same refusal."""
        moved = 0
        for group in tuple(self._stuck.values()):
            first = next(iter(group.values()))
            if may_help(first.pod, first.plugins):
                for waiting in tuple(group.values()):
                    self._leave_stuck(waiting)
                    self._retry(waiting, now)
                    moved += 1
        return moved

    def activate(self, key: ObjectKey, now: float) -> None:
        """Retry an unschedulable pod, whatever refused it."""
        waiting = self._waiting.get(key)
        if waiting is not None and waiting.place is QueueState.UNSCHEDULABLE:
            self._leave_stuck(waiting)
            self._retry(waiting, now)

    def flush(self, now: float) -> int:
        """Retry pods that have been unschedulable for too long."""
        old = [
            waiting
            for group in self._stuck.values()
            for waiting in group.values()
            if now - waiting.since >= self._config.unschedulable_s
        ]
        for waiting in old:
            self._leave_stuck(waiting)
            self._retry(waiting, now)
        return len(old)

    def next_at(self) -> float | None:
        """When the next backoff ends."""
        backoff = self._backoff
        while backoff and backoff[0][3].ticket != backoff[0][2]:
            heapq.heappop(backoff)
        return backoff[0][0] if backoff else None

    def backoff_s(self, attempts: int) -> float:
        config = self._config
        return min(config.max_backoff_s, config.backoff_s * 2.0 ** min(max(attempts - 1, 0), 30))

    def _retry(self, waiting: QueuedPod, now: float) -> None:
        over = waiting.since + self.backoff_s(waiting.attempts) <= now
        self._enter(waiting, QueueState.ACTIVE if over else QueueState.BACKING_OFF, now)

    def _end_backoffs(self, now: float) -> None:
        backoff = self._backoff
        while backoff and (backoff[0][0] <= now or backoff[0][3].ticket != backoff[0][2]):
            _, _, ticket, waiting = heapq.heappop(backoff)
            if waiting.ticket == ticket:
                self._enter(waiting, QueueState.ACTIVE, now)

    @staticmethod
    def _first(heap: list[_Entry], *, early: bool = False) -> QueuedPod | None:
        """The first valid entry; with ``early`` only pods that did not fail by an error."""
        kept: list[_Entry] = []
        found = None
        while heap and found is None:
            entry = heapq.heappop(heap)
            if entry[3].ticket == entry[2]:
                if early and entry[3].failed:
                    kept.append(entry)
                else:
                    found = entry[3]
        for entry in kept:
            heapq.heappush(heap, entry)
        return found

    def _enter(self, waiting: QueuedPod, place: QueueState, now: float) -> None:
        self._sizes[waiting.place] -= 1
        self._sizes[place] += 1
        waiting.place = place
        self._tickets += 1
        waiting.ticket = self._tickets
        if place is QueueState.ACTIVE:
            entry = (-waiting.pod.priority, waiting.added_at, waiting.ticket, waiting)
            heapq.heappush(self._active, entry)
        elif place is QueueState.BACKING_OFF:
            ends_at = waiting.since + self.backoff_s(waiting.attempts)
            heapq.heappush(self._backoff, (ends_at, waiting.added_at, waiting.ticket, waiting))
        elif place is QueueState.UNSCHEDULABLE:
            self._join_stuck(waiting)

    def _join_stuck(self, waiting: QueuedPod) -> None:
        self._stuck.setdefault(self._question(waiting), {})[waiting.pod.key] = waiting

    def _leave_stuck(self, waiting: QueuedPod) -> None:
        question = self._question(waiting)
        group = self._stuck[question]
        del group[waiting.pod.key]
        if not group:
            del self._stuck[question]

    @staticmethod
    def _question(waiting: QueuedPod) -> Hashable:
        pod = waiting.pod
        return pod.shape, waiting.plugins, pod.pinned, pod.claims, pod.key.namespace
