"""Informer events update the snapshot and the queue; assumed pods are confirmed or dropped."""

from __future__ import annotations

from scheduler_builders import a_node, a_pod

from shoal.base.clock import FakeClock
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Change, ChangeType
from shoal.reconcile.keys import key_of
from shoal.scheduler.config import SchedulerConfig
from shoal.scheduler.intake import Intake
from shoal.scheduler.plan import Planner
from shoal.scheduler.queue import QueueState, SchedulingQueue
from shoal.scheduler.snapshot import Snapshot


class Side:
    """An intake and what it fills, with a clock that stands still."""

    def __init__(self) -> None:
        config = SchedulerConfig()
        self.clock = FakeClock()
        self.snapshot = Snapshot()
        self.queue = SchedulingQueue(config)
        self.woken = 0
        self.intake = Intake(Planner(self.snapshot, config), self.queue, clock=self.clock, wake=self.wake)

    def wake(self) -> None:
        self.woken += 1

    def pod(self, new: Obj | None, old: Obj | None = None) -> None:
        kind = ChangeType.DELETED if new is None else ChangeType.ADDED if old is None else ChangeType.UPDATED
        about = new if new is not None else old
        assert about is not None
        self.intake.on_pod(Change(type=kind, key=key_of(about), old=old, new=new))

    def node(self, new: Obj | None, old: Obj | None = None) -> None:
        about = new if new is not None else old
        assert about is not None
        self.intake.on_node(Change(type=ChangeType.UPDATED, key=key_of(about), old=old, new=new))

    def used(self, node: str) -> int:
        return self.snapshot.by_name[node].used_cpu


def test_a_pod_without_a_node_waits_and_one_with_a_node_takes_room() -> None:
    side = Side()
    side.node(a_node("n"))
    side.pod(a_pod("p", cpu="1"))
    assert len(side.queue) == 1 and side.woken and side.used("n") == 0
    side.pod(a_pod("p", cpu="1", node="n"))
    assert len(side.queue) == 0 and side.used("n") == 1000


def test_pods_that_are_over_or_gone_leave_their_room() -> None:
    side = Side()
    side.node(a_node("n"))
    for name in "ab":
        side.pod(a_pod(name, cpu="1", node="n"))
    done = a_pod("a", cpu="1", node="n")
    done["status"]["phase"] = "Succeeded"
    side.pod(done, a_pod("a", cpu="1", node="n"))
    assert side.used("n") == 1000
    side.pod(None, a_pod("b", cpu="1", node="n"))
    assert side.used("n") == 0


def test_an_assumed_pod_is_confirmed_by_the_informer_and_counted_once() -> None:
    side = Side()
    side.node(a_node("n"))
    side.pod(a_pod("p", cpu="1"))
    waiting = side.queue.pop(0.0)
    assert waiting is not None
    side.intake.assume(waiting.pod, "n")
    assert side.used("n") == 1000
    side.pod(a_pod("p", cpu="1"))  # an event from before the binding
    assert side.used("n") == 1000 and side.queue.size(QueueState.IN_FLIGHT) == 1
    side.pod(a_pod("p", cpu="1", node="n"))
    assert side.used("n") == 1000 and len(side.queue) == 0
    assert not side.intake.forget(waiting.pod)
    assert side.used("n") == 1000


def test_a_pod_seen_on_another_node_than_assumed_is_where_it_was_seen() -> None:
    side = Side()
    side.node(a_node("n"))
    side.node(a_node("m"))
    side.pod(a_pod("p", cpu="1"))
    waiting = side.queue.pop(0.0)
    assert waiting is not None
    side.intake.assume(waiting.pod, "n")
    side.pod(a_pod("p", cpu="1", node="m"))
    assert (side.used("n"), side.used("m")) == (0, 1000)


async def test_an_assumed_pod_that_is_never_seen_bound_is_forgotten_in_time() -> None:
    side = Side()
    side.node(a_node("n"))
    side.pod(a_pod("p", cpu="1"))
    waiting = side.queue.pop(0.0)
    assert waiting is not None
    side.intake.assume(waiting.pod, "n")
    assert side.intake.expire(side.clock.monotonic() + 1e6) == []  # it is still being bound
    side.intake.bound(waiting.pod, 30.0)
    await side.clock.advance(29)
    assert side.intake.expire(side.clock.monotonic()) == []
    await side.clock.advance(1)
    assert side.intake.expire(side.clock.monotonic()) == [waiting.pod]
    assert side.used("n") == 0


def test_a_pod_of_the_same_name_is_another_pod() -> None:
    side = Side()
    side.node(a_node("n"))
    side.pod(a_pod("p", cpu="1"))
    other = a_pod("p", cpu="2")
    other["metadata"]["uid"] = "another"
    side.pod(other)
    waiting = side.queue.pop(0.0)
    assert waiting is not None and waiting.pod.uid == "another" and len(side.queue) == 1


def test_a_heartbeat_of_a_node_moves_no_pod() -> None:
    side = Side()
    before = a_node("n", cpu="1")
    side.node(before)
    side.pod(a_pod("p", cpu="2"))
    waiting = side.queue.pop(0.0)
    assert waiting is not None
    side.queue.unschedulable(waiting, frozenset({"NodeResourcesFit"}), 0.0)
    generation = side.snapshot.generation
    heartbeat = a_node("n", cpu="1")
    heartbeat["status"]["conditions"] = [{"type": "Ready", "lastHeartbeatTime": "now"}]
    side.node(heartbeat, before)
    assert side.snapshot.generation == generation and waiting.place is QueueState.UNSCHEDULABLE
    side.node(a_node("n", cpu="2"), heartbeat)
    assert waiting.place is not QueueState.UNSCHEDULABLE


def test_a_nomination_survives_updates_that_do_not_have_it_yet() -> None:
    side = Side()
    side.node(a_node("n"))
    side.pod(a_pod("p", cpu="1"))
    waiting = side.queue.pop(0.0)
    assert waiting is not None
    side.snapshot.nominate(waiting.pod, "n")
    side.pod(a_pod("p", cpu="1"))
    assert "n" in side.snapshot.nominated
    side.pod(a_pod("p", cpu="1", nominated="n"))
    assert "n" in side.snapshot.nominated
    side.pod(a_pod("p", cpu="1"))  # another client removed the node again
    assert not side.snapshot.nominated


def test_a_pod_on_a_node_that_is_not_known_yet_counts_once_the_node_comes() -> None:
    side = Side()
    side.pod(a_pod("p", cpu="1", node="n"))
    assert side.snapshot.present == 0
    side.node(a_node("n"))
    assert side.snapshot.present == 1 and side.used("n") == 1000
    side.node(None, a_node("n"))
    assert side.snapshot.present == 0 and "n" in side.snapshot.by_name
    side.pod(None, a_pod("p", cpu="1", node="n"))
    assert "n" not in side.snapshot.by_name


def test_shapes_without_pods_are_forgotten_after_a_while() -> None:
    side = Side()
    for at in range(600):
        pod = a_pod(f"p{at}", cpu=f"{at + 1}m")
        side.pod(pod)
        side.pod(None, pod)
    assert len(side.snapshot.shapes) <= 256
