"""Which shards may receive slots, and which only keep theirs."""

from __future__ import annotations

from dataclasses import replace

from shoal.sharding.leases import LeaseState
from shoal.sharding.manager.lifecycle import PodState, Shard, ShardPhase
from shoal.sharding.manager.view import members_of

RUNNING = Shard(name="a", phase=ShardPhase.RUNNING, lease=LeaseState.READY, pod=PodState.RUNNING, slots=10, joined=True)


def named(name: str, **fields: object) -> Shard:
    return replace(RUNNING, name=name, **fields)  # type: ignore[arg-type]


def test_a_successor_of_a_shard_without_slots_joins_normally():
    other, new = named("b"), named("a2", replaces="a", joined=False, slots=0)
    for gone in ({}, {"a": named("a", phase=ShardPhase.TERMINATED, slots=0)}):
        found = members_of({**gone, "b": other, "a2": new})
        assert (found.settled, found.joining, found.successors) == (("b",), ("a2",), {})


def test_in_an_update_slots_go_from_the_predecessor_only_to_its_successor():
    a, b = named("a", outdated=True), named("b", outdated=True)
    new = named("a2", replaces="a", joined=False, slots=0)
    waiting = members_of({each.name: each for each in (a, b, new)})
    assert (waiting.receiving, waiting.keeping, waiting.successors) == (("a", "b"), ("a2",), {})
    draining = replace(a, phase=ShardPhase.DRAINING, reason="Updated")
    found = members_of({each.name: each for each in (draining, b, new)})
    assert found.successors == {"a": "a2"}
    assert found.receiving == ("a2",)
    assert found.keeping == ("b",)


def test_draining_leaving_unhealthy_and_expired_shards_receive_no_slots():
    shards = [
        named("ok"), named("draining", phase=ShardPhase.DRAINING), named("leaving", leaving=True),
        named("unwell", unhealthy=True), named("late", lease=LeaseState.EXPIRED), named("new", joined=False),
    ]  # fmt: skip
    found = members_of({each.name: each for each in shards})
    assert (found.settled, found.joining) == (("ok",), ("new",))
    assert set(found.keeping) == {"leaving", "unwell", "late"}
