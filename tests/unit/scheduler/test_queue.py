"""The queue: order, waiting times, and the events that move pods back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_builders import a_pod

from shoal.scheduler.config import SchedulerConfig
from shoal.scheduler.queue import QueueState, SchedulingQueue
from shoal.scheduler.shapes import PodInfo
from shoal.scheduler.snapshot import Snapshot

FIT = frozenset({"NodeResourcesFit"})


class Pods:
    def __init__(self) -> None:
        self.snapshot = Snapshot()

    def __call__(self, name: str, **extra: object) -> PodInfo:
        return self.snapshot.pod_info(a_pod(name, **extra))  # type: ignore[arg-type]


def a_queue() -> SchedulingQueue:
    return SchedulingQueue(SchedulerConfig())


def popped(queue: SchedulingQueue, now: float) -> str | None:
    waiting = queue.pop(now)
    return waiting.pod.key.name if waiting is not None else None


def test_higher_priority_is_first_and_then_the_earlier_pod() -> None:
    queue, pods = a_queue(), Pods()
    for at, (name, priority) in enumerate((("a", 0), ("b", 10), ("c", 0), ("d", 10), ("e", -5))):
        queue.add(pods(name, priority=priority), float(at))
    assert [popped(queue, 9.0) for _ in range(6)] == ["b", "d", "a", "c", "e", None]


def test_errors_back_off_from_one_second_doubling_to_ten() -> None:
    queue, pods = a_queue(), Pods()
    queue.add(pods("a"), 0.0)
    now, delays = 0.0, []
    for _ in range(6):
        waiting = queue.pop(now)
        assert waiting is not None
        queue.put_back(waiting, now)
        ends_at = queue.next_at()
        assert ends_at is not None
        assert queue.pop(ends_at - 0.001) is None
        delays.append(ends_at - now)
        now = ends_at
    assert delays == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_an_unschedulable_pod_waits_for_an_event_that_may_help_it() -> None:
    queue, pods = a_queue(), Pods()
    queue.add(pods("a"), 0.0)
    waiting = queue.pop(0.0)
    assert waiting is not None
    queue.unschedulable(waiting, FIT, 0.0)
    assert queue.move(lambda pod, plugins: plugins != FIT, 5.0) == 0
    assert popped(queue, 5.0) is None
    assert queue.move(lambda pod, plugins: plugins == FIT, 5.0) == 1
    assert popped(queue, 5.0) == "a"


def test_pods_refused_alike_are_asked_about_once() -> None:
    queue, pods, asked = a_queue(), Pods(), []
    for name in "abc":
        queue.add(pods(name), 0.0)
    for _ in range(3):
        waiting = queue.pop(0.0)
        assert waiting is not None
        queue.unschedulable(waiting, FIT, 0.0)

    def may_help(pod: PodInfo, plugins: frozenset[str]) -> bool:
        asked.append(pod.key.name)
        return True

    assert queue.move(may_help, 2.0) == 3
    assert len(asked) == 1


def test_a_moved_pod_still_backs_off_while_others_are_active_but_not_when_none_is() -> None:
    queue, pods = a_queue(), Pods()
    queue.add(pods("a"), 0.0)
    waiting = queue.pop(0.0)
    assert waiting is not None
    queue.unschedulable(waiting, FIT, 0.0)
    queue.add(pods("b"), 0.1)
    queue.move(lambda pod, plugins: True, 0.1)
    assert waiting.place is QueueState.BACKING_OFF
    assert [popped(queue, 0.2), popped(queue, 0.2)] == ["b", "a"]


def test_stuck_pods_are_tried_again_after_five_minutes() -> None:
    queue, pods = a_queue(), Pods()
    queue.add(pods("a"), 0.0)
    waiting = queue.pop(0.0)
    assert waiting is not None
    queue.unschedulable(waiting, FIT, 0.0)
    assert queue.flush(299.0) == 0
    assert queue.flush(300.0) == 1
    assert popped(queue, 300.0) == "a"


def test_a_gated_pod_waits_until_its_gates_are_lifted() -> None:
    queue, pods = a_queue(), Pods()
    queue.add(pods("a", schedulingGates=[{"name": "x"}]), 0.0)
    assert popped(queue, 1.0) is None
    assert queue.move(lambda pod, plugins: True, 1.0) == 0
    queue.update(pods("a"), 2.0)
    assert popped(queue, 2.0) == "a"


def test_a_stuck_pod_that_changes_its_shape_is_tried_again() -> None:
    queue, pods = a_queue(), Pods()
    queue.add(pods("a", cpu="2"), 0.0)
    waiting = queue.pop(0.0)
    assert waiting is not None
    queue.unschedulable(waiting, FIT, 0.0)
    queue.update(pods("a", cpu="2"), 5.0)
    assert waiting.place is QueueState.UNSCHEDULABLE
    queue.update(pods("a", cpu="1"), 5.0)
    assert popped(queue, 5.0) == "a"


def test_deleted_pods_are_never_handed_out() -> None:
    queue, pods = a_queue(), Pods()
    for name in "abc":
        queue.add(pods(name), 0.0)
    queue.delete(pods("b").key)
    assert [popped(queue, 1.0) for _ in range(3)] == ["a", "c", None]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5)), max_size=60))
def test_every_pod_is_in_exactly_one_place_whatever_happens(steps: list[tuple[int, int]]) -> None:
    queue, pods, now = a_queue(), Pods(), 0.0
    flying = {}
    known: set[str] = set()
    for what, which in steps:
        now += 0.7
        name = f"p{which}"
        if what == 0 and name not in known:
            queue.add(pods(name, priority=which), now)
            known.add(name)
        elif what == 1 and (waiting := queue.pop(now)) is not None:
            assert waiting.pod.key.name in known
            flying[waiting.pod.key.name] = waiting
        elif what == 2 and flying:
            queue.unschedulable(flying.pop(sorted(flying)[0]), FIT, now)
        elif what == 3 and flying:
            queue.put_back(flying.pop(sorted(flying)[0]), now)
        elif what == 4:
            queue.move(lambda pod, plugins: True, now)
        elif what == 5 and name in known:
            queue.delete(pods(name).key)
            known.discard(name)
            flying.pop(name, None)
        elif what == 6:
            queue.flush(now)
        assert len(queue) == len(known) == sum(queue.size(place) for place in QueueState)
        assert queue.size(QueueState.IN_FLIGHT) == len(flying)
    for waiting in flying.values():
        queue.put_back(waiting, now)
    queue.move(lambda pod, plugins: True, now)
    handed_out = []
    while (name_of := popped(queue, now + 100.0)) is not None:
        handed_out.append(name_of)
    assert sorted(handed_out) == sorted(known)
