"""Phases and numbers of shards: exactly the transitions of the state machine, and updates that move each slot once."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from shoal.sharding.leases import LeaseState
from shoal.sharding.manager.lifecycle import (
    DRAIN_PHASE,
    NEXT,
    SCALE_DOWN,
    Create,
    Drain,
    IllegalTransition,
    Keep,
    PodState,
    Shard,
    ShardPhase,
    decide_phase,
    plan_shards,
    transition,
)

RUNNING = Shard(name="a", phase=ShardPhase.RUNNING, lease=LeaseState.READY, pod=PodState.RUNNING, slots=10, joined=True)


def named(name: str, **fields: object) -> Shard:
    return replace(RUNNING, name=name, **fields)  # type: ignore[arg-type]


def decision(**fields: object) -> str | None:
    found = decide_phase(named("a", **fields))
    return None if found is None else found.phase.value


def test_the_phases_are_those_of_the_documents():
    arrows = {(before.value, after.value) for before, ends in NEXT.items() for after in ends}
    assert arrows == {
        ("Pending", "Running"), ("Pending", "Failed"), ("Running", "Draining"), ("Running", "Failed"),
        ("Draining", "Terminated"), ("Draining", "Running"), ("Failed", "Running"), ("Failed", "Terminated"),
    }  # fmt: skip
    assert {phase.value for phase in ShardPhase} == {"Pending", "Running", "Draining", "Failed", "Terminated"}
    for before, after in product(ShardPhase, ShardPhase):
        if (before.value, after.value) not in arrows:
            with pytest.raises(IllegalTransition):
                transition(before, after)
    assert all(transition(before, after) is after for before, after in DRAIN_PHASE.items())


@pytest.mark.parametrize("phase", ShardPhase)
@pytest.mark.parametrize("lease", [None, *LeaseState])
@pytest.mark.parametrize("pod", PodState)
def test_decided_phases_follow_the_state_machine(phase, lease, pod):
    for slots, leaving, age_s in product((0, 5), (False, True), (0.0, 1000.0)):
        shard = named("a", phase=phase, lease=lease, pod=pod, slots=slots, leaving=leaving, phase_age_s=age_s)
        found = decide_phase(shard)
        if found is not None:
            assert found.phase in NEXT[phase]
            assert found.text
            if found.phase is ShardPhase.TERMINATED:
                assert slots == 0


def test_a_shard_runs_when_its_worker_holds_its_lease():
    assert decision(phase=ShardPhase.PENDING) == "Running"
    assert decision(phase=ShardPhase.PENDING, lease=None) is None
    assert decision(phase=ShardPhase.PENDING, lease=None, phase_age_s=301.0) == "Failed"
    assert decision(phase=ShardPhase.PENDING, lease=None, pod=PodState.ENDED) == "Failed"


def test_a_shard_fails_when_its_lease_is_gone_and_not_before():
    assert decision(lease=LeaseState.EXPIRED) is None
    assert decision(lease=LeaseState.UNCERTAIN) is None
    assert decision(lease=LeaseState.DEAD) == "Failed"
    assert decision(lease=None) == "Failed"


def test_a_leaving_shard_is_drained_first():
    assert decision(leaving=True) == "Draining"
    assert decision(drain=True) == "Draining"
    assert decision(unhealthy=True) == "Draining"
    assert decision(pod=PodState.LEAVING) == "Draining"


def test_a_drain_ends_with_the_last_slot_or_when_its_reason_ends():
    assert decision(phase=ShardPhase.DRAINING, reason="Requested", drain=True) is None
    assert decision(phase=ShardPhase.DRAINING, reason="Requested", drain=True, slots=0) == "Terminated"
    assert decision(phase=ShardPhase.DRAINING, reason="Requested", drain=False) == "Running"
    assert decision(phase=ShardPhase.DRAINING, reason="Unhealthy", unhealthy=False) == "Running"
    assert decision(phase=ShardPhase.DRAINING, reason=SCALE_DOWN) is None


def test_a_shard_whose_worker_left_runs_again_when_another_of_its_name_has_come():
    left = {"phase": ShardPhase.DRAINING, "reason": "Leaving", "slots": 3}
    assert decision(**left, lease=LeaseState.READY, leaving=True) is None
    assert decision(**left, lease=LeaseState.DEAD) is None
    assert decision(**left, lease=LeaseState.EXPIRED) is None
    assert decision(**left, lease=LeaseState.READY, pod=PodState.LEAVING) is None
    assert decision(**left, lease=LeaseState.READY) == "Running"


def test_a_failed_shard_comes_back_or_ends_when_its_slots_are_gone():
    assert decision(phase=ShardPhase.FAILED) == "Running"
    assert decision(phase=ShardPhase.FAILED, lease=LeaseState.DEAD, slots=0, phase_age_s=5.0) is None
    assert decision(phase=ShardPhase.FAILED, lease=LeaseState.DEAD, slots=0, phase_age_s=31.0) == "Terminated"
    assert decision(phase=ShardPhase.FAILED, lease=LeaseState.DEAD, slots=0, pod=PodState.MISSING) == "Terminated"
    assert decision(phase=ShardPhase.FAILED, lease=LeaseState.DEAD, slots=3, pod=PodState.MISSING) is None
    assert decision(phase=ShardPhase.TERMINATED) is None


def test_drains_for_size_are_cancelled_before_missing_shards_are_created():
    assert plan_shards([], 2, max_surge=1) == [Create(), Create()]
    draining = named("b", phase=ShardPhase.DRAINING, reason=SCALE_DOWN)
    assert plan_shards([named("a"), draining], 3, max_surge=1) == [Keep("b"), Create()]
    going = replace(draining, pod=PodState.LEAVING)
    assert plan_shards([named("a"), going], 2, max_surge=1) == [Create()]


def test_surplus_shards_with_the_least_work_are_removed_first():
    shards = [named("a", slots=300), named("b", slots=200), named("c", slots=250)]
    assert [order.name for order in plan_shards(shards, 2, max_surge=1) if isinstance(order, Drain)] == ["b"]
    waiting = named("d", phase=ShardPhase.PENDING, lease=None, slots=0)
    assert [order.name for order in plan_shards([*shards, waiting], 3, max_surge=1) if isinstance(order, Drain)] == [
        "d"
    ]


def test_a_failed_shard_that_may_come_back_is_not_replaced_yet():
    failed = named("b", phase=ShardPhase.FAILED, lease=LeaseState.DEAD)
    assert plan_shards([named("a"), failed], 2, max_surge=1) == []
    assert plan_shards([named("a"), replace(failed, pod=PodState.MISSING)], 2, max_surge=1) == [Create()]


def test_an_update_creates_the_successor_before_it_drains_the_predecessor():
    old = [named("a", outdated=True), named("b", outdated=True)]
    assert plan_shards(old, 2, max_surge=1) == [Create(replaces="a")]
    coming = named("a2", replaces="a", phase=ShardPhase.PENDING, lease=None, slots=0, joined=False)
    assert plan_shards([*old, coming], 2, max_surge=1) == []
    ready = replace(coming, phase=ShardPhase.RUNNING, lease=LeaseState.READY)
    assert plan_shards([*old, ready], 2, max_surge=1) == [Drain("a", "Updated", "a2 of the new template takes over")]
    emptied = named("a", outdated=True, phase=ShardPhase.TERMINATED, slots=0)
    assert plan_shards([emptied, old[1], replace(ready, joined=True, slots=10)], 2, max_surge=1) == [
        Create(replaces="b")
    ]
    assert plan_shards([named("a", outdated=True), named("b", outdated=True)], 2, max_surge=2) == [
        Create(replaces="a"), Create(replaces="b"),
    ]  # fmt: skip


def test_an_update_removes_a_predecessor_that_never_started():
    old = named("a", outdated=True, phase=ShardPhase.PENDING, lease=None, slots=0, joined=False)
    ready = named("a2", replaces="a", slots=0, joined=False)
    assert plan_shards([old, ready], 1, max_surge=1) == [Drain("a", "Updated", "a2 of the new template takes over")]
