"""Assignment of slots: every slot has one owner, and as few as possible move."""

from __future__ import annotations

from collections import Counter
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.sharding.model import SLOTS
from shoal.sharding.plan import BOUND, Members, choose_slot, rebalance, share_out
from shoal.sharding.ring import object_key, slot_of_key

NAMES = st.lists(st.from_regex(r"[a-z]{1,8}-[a-z0-9]{5}", fullmatch=True), min_size=1, max_size=12, unique=True)
STRATEGIES = ("consistent-hash", "round-robin", "least-loaded")
EVERY = pytest.mark.parametrize("strategy", STRATEGIES)


def grown(names: list[str], strategy: str) -> list[str]:
    owners = [""] * SLOTS
    for count in range(len(names)):
        members = Members(settled=tuple(names[:count]), joining=(names[count],))
        owners = share_out(owners, members, strategy)
    return owners


def moved(before: list[str], after: list[str]) -> list[int]:
    return [slot for slot in range(SLOTS) if before[slot] != after[slot]]


@EVERY
@settings(max_examples=12, deadline=None)
@given(names=NAMES, newcomer=st.from_regex(r"new-[a-z0-9]{5}", fullmatch=True))
def test_one_more_shard_takes_at_most_its_share_and_nothing_else_moves(strategy, names, newcomer):
    before = grown(names, strategy)
    after = share_out(before, Members(settled=tuple(names), joining=(newcomer,)), strategy)
    changed = moved(before, after)
    assert len(changed) <= 1.25 / (len(names) + 1) * SLOTS
    assert {after[slot] for slot in changed} <= {newcomer}
    assert newcomer in after
    assert set(after) <= {*names, newcomer}


@EVERY
def test_the_share_of_a_newcomer_is_bounded_also_where_the_ring_would_give_it_more(strategy):
    owners = [""] * SLOTS
    for size in range(64):
        known = tuple(f"web-{number}" for number in range(size))
        after = share_out(owners, Members(settled=known, joining=(f"web-{size}",)), strategy)
        if size:
            assert len(moved(owners, after)) <= 1.25 / (size + 1) * SLOTS
        owners = after


@EVERY
@settings(max_examples=12, deadline=None)
@given(names=NAMES, data=st.data())
def test_one_shard_fewer_moves_only_its_own_slots(strategy, names, data):
    before = grown(names, strategy)
    leaver = data.draw(st.sampled_from(names))
    rest = tuple(name for name in names if name != leaver)
    after = share_out(before, Members(settled=rest), strategy)
    if not rest:
        assert after == before  # it keeps its slots until another shard can take them
        return
    assert all(before[slot] == leaver for slot in moved(before, after))
    assert leaver not in after


@EVERY
@settings(max_examples=10, deadline=None)
@given(names=NAMES)
def test_no_shard_has_more_than_a_quarter_above_the_mean(strategy, names):
    counts = Counter(grown(names, strategy))
    assert sum(counts.values()) == SLOTS
    assert max(counts.values()) <= ceil(BOUND * SLOTS / len(names)) + 1
    assert set(counts) == set(names)


def test_hundreds_of_shards_all_get_slots():
    names = [f"web-{number}" for number in range(300)]
    counts = Counter(share_out([""] * SLOTS, Members(settled=tuple(names)), "consistent-hash"))
    assert max(counts.values()) <= ceil(BOUND * SLOTS / 300)


@EVERY
def test_the_plan_is_stable_while_a_join_is_under_way(strategy):
    names = ["a", "b", "c"]
    before = grown(names, strategy)
    members = Members(settled=tuple(names), joining=("d",))
    after = share_out(before, members, strategy)
    changed = moved(before, after)
    half = list(before)
    for slot in changed[: len(changed) // 2]:
        half[slot] = "d"
    again = share_out(half, members, strategy)
    assert again.count("d") == after.count("d")
    if strategy == "consistent-hash":
        assert again == after


def test_a_keeping_shard_neither_receives_nor_loses_slots():
    before = grown(["a", "b", "c"], "consistent-hash")
    after = share_out(before, Members(settled=("a",), keeping=("b",)), "consistent-hash")
    assert [owner for owner in after if owner == "b"] == [owner for owner in before if owner == "b"]
    assert {after[slot] for slot in moved(before, after)} == {"a"}


def test_a_successor_takes_exactly_the_slots_of_its_predecessor():
    before = grown(["a", "b", "c"], "consistent-hash")
    members = Members(settled=("b", "c"), joining=("a2",), successors={"a": "a2"})
    after = share_out(before, members, "consistent-hash")
    assert [("a2" if owner == "a" else owner) for owner in before] == after


def test_least_loaded_evens_out_weights_not_numbers():
    weights = [100.0 if slot < 8 else 1.0 for slot in range(SLOTS)]
    owners = share_out([""] * SLOTS, Members(settled=("a", "b", "c", "d")), "least-loaded", weights)
    sums = Counter[str]()
    for slot, owner in enumerate(owners):
        sums[owner] += weights[slot]
    assert max(sums.values()) - min(sums.values()) < 20


def test_load_moves_from_the_busiest_to_the_idlest_and_only_if_they_differ_enough():
    owners = grown(["a", "b", "c"], "round-robin")
    assert rebalance(owners, {"a": 0.6, "b": 0.5, "c": 0.45}, 0.2) == {}
    plan = rebalance(owners, {"a": 0.9, "b": 0.5, "c": 0.1}, 0.2)
    assert set(plan.values()) == {"c"}
    assert all(owners[slot] == "a" for slot in plan)
    assert 1 <= len(plan) <= owners.count("a") // 10


def test_a_rebalance_never_takes_more_weight_than_closes_the_gap():
    owners = ["a"] * 512 + ["b"] * 512
    weights = [1000.0] + [1.0] * 1023
    plan = rebalance(owners, {"a": 0.9, "b": 0.3}, 0.2, weights)
    taken = sum(weights[slot] for slot in plan)
    assert taken <= sum(weights[:512]) / 2 or len(plan) == 1


def test_new_objects_are_placed_by_key_in_turn_or_where_least_is_done():
    key = object_key("example.com", "Website", "default", "a")
    assert choose_slot("consistent-hash", key, turn=5) == slot_of_key(key)
    turns = [choose_slot("round-robin", "", turn=turn) for turn in range(SLOTS)]
    assert sorted(turns) == list(range(SLOTS))
    assert choose_slot("least-loaded", key, turn=3, idlest=(7, 9)) == 9
    assert choose_slot("least-loaded", key) == slot_of_key(key)
