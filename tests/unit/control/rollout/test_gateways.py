"""Which version a gateway's pods run while another one is rolled out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.control.rollout.gateways import GatewayFacts, ToldGateway, share, step
from shoal.control.rollout.goals import FULL, NOTHING
from shoal.control.rollout.model import RegionGoal


def goal(weight: int, size: int) -> RegionGoal:
    return RegionGoal(weight=weight, count=max(1, -(-weight * size // FULL)))


def facts(size: int = 1, weight: int = 50, *, told: ToldGateway | None = None, **more: object) -> GatewayFacts:
    given: dict[str, object] = {"ready": 0, "pods": 0, "available": size, "is_settled": True}
    return GatewayFacts(size=size, told=told or ToldGateway(kept=size), goal=goal(weight, size), **(given | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("size", "weight", "count", "kept"),
    [(1, 50, 1, 1), (2, 50, 1, 1), (3, 50, 2, 2), (4, 50, 2, 2), (4, 10, 1, 4), (10, 10, 1, 9), (10, 90, 9, 1)],
)
def test_a_weight_is_a_share_of_the_pods_and_surges_where_they_do_not_divide(
    size: int, weight: int, count: int, kept: int
) -> None:
    begun = step(facts(size, weight))
    assert begun == ToldGateway(count=count, kept=size), "first the candidates"
    assert step(facts(size, weight, told=begun, ready=count)) == ToldGateway(count=count, kept=kept)


def test_its_own_pods_are_exchanged_while_the_candidates_serve_and_then_those_go() -> None:
    told = ToldGateway(count=2, kept=2)
    promoted = step(facts(4, FULL, told=told, ready=2, available=2))
    assert promoted == ToldGateway(count=2, kept=4, promoted=True)
    assert step(facts(4, FULL, told=promoted, ready=2, is_settled=False)) == promoted
    assert step(facts(4, FULL, told=promoted, ready=2)) == ToldGateway(count=0, kept=4, promoted=True)


def test_it_has_its_weight_once_everything_is_as_told() -> None:
    told = ToldGateway(count=1, kept=1)
    assert share(facts(told=told, ready=0)).weight == 0
    assert share(facts(told=told, ready=1, is_settled=False)).weight == 0
    assert share(facts(told=told, ready=1)).weight == share(facts(told=told, ready=1)).routed == 50
    done = ToldGateway(count=0, kept=1, promoted=True)
    assert share(facts(weight=FULL, told=replace(done, count=1), ready=1)).weight == 0, "the candidate is still there"
    assert share(facts(weight=FULL, told=done)).weight == FULL


def test_what_is_taken_back_is_gone_when_no_pod_of_it_is_left() -> None:
    back = replace(facts(ready=1, pods=1), goal=NOTHING)
    assert (step(back), share(back).routed) == (ToldGateway(kept=1), 1)
    assert share(replace(back, ready=0, pods=0, is_settled=False)).routed == 1, "its own pods are exchanged back"
    assert share(replace(back, ready=0, pods=0)).routed == 0


def test_an_agent_that_cannot_run_both_exchanges_all_pods_at_the_first_step() -> None:
    told = step(facts(can_split=False))
    assert told == ToldGateway(kept=1, promoted=True)
    assert share(facts(told=told, can_split=False)).weight == 50, "the step is done"
    assert step(facts(told=told)) == told, "its agent was upgraded meanwhile"
    assert share(facts(told=told, can_split=False, is_settled=False)).weight == 0


@given(
    size=st.integers(1, 12),
    weights=st.lists(st.integers(1, 99), min_size=1, max_size=4).map(sorted),
    comes_up=st.lists(st.integers(0, 12), min_size=1, max_size=30),
)
def test_ready_pods_never_are_fewer_than_it_should_have_and_told_twice_is_told_once(
    size: int, weights: list[int], comes_up: list[int]
) -> None:
    told = ToldGateway(kept=size)
    for weight in [*weights, FULL]:
        for ready in [*comes_up, size]:
            at = facts(size, weight, told=told, ready=min(ready, told.count), pods=told.count)
            told = step(at)
            assert min(ready, told.count) + told.kept >= size or told.promoted
            assert told.kept >= 1
            assert told.promoted or step(replace(at, told=told)) == told
    assert told == ToldGateway(count=0, kept=size, promoted=True)
