"""The order in which pods are deleted: each criterion decides only if all before it are equal; the order is total."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.controllers.pods.ranking import DELETION_COST, deletion_cost, rank_of, to_delete
from shoal.testing.workloads import NOW, pod

LATER = NOW + 1000.0


def cost(value: str) -> dict[str, str]:
    return {DELETION_COST: value}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"node": "", "phase": "Running"}, {"node": "n", "phase": "Pending"}),
        ({"phase": "Pending", "ready": True}, {"phase": "Unknown", "ready": False}),
        ({"phase": "Unknown", "ready": True}, {"phase": "Running", "ready": False}),
        ({"ready": False, "annotations": cost("9")}, {"ready": True, "annotations": cost("-9")}),
        ({"annotations": cost("-1")}, {}),
        ({}, {"annotations": cost("1")}),
        ({"ready_at": LATER - 1, "restarts": 0}, {"ready_at": LATER - 500, "restarts": 9}),
        ({"restarts": 2, "created_at": LATER - 500}, {"restarts": 1, "created_at": LATER - 1}),
        ({"created_at": LATER - 1}, {"created_at": LATER - 500}),
        ({"uid": "a"}, {"uid": "b"}),
    ],
)
def test_a_criterion_decides_over_all_that_follow(first: dict[str, Any], second: dict[str, Any]) -> None:
    one, other = pod(**{"uid": "z", **first}), pod(**{"uid": "y", **second})
    assert to_delete([other, one], [one, other], 1, LATER) == (one,)
    assert to_delete([one, other], [one, other], 1, LATER) == (one,)


def test_of_equal_pods_one_on_the_node_with_more_siblings_goes() -> None:
    crowded, alone = pod(node="a"), pod(node="b")
    related = [crowded, alone, pod(node="a"), pod(node="b", phase="Failed"), pod(node="b", deleting=True)]
    assert to_delete([alone, crowded], related, 1, LATER) == (crowded,)


def test_ages_of_one_power_of_two_are_equal() -> None:
    one, other = pod(uid="b", ready_at=LATER - 600), pod(uid="a", ready_at=LATER - 700)
    assert to_delete([one, other], [], 1, LATER) == (other,)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5),
        ("-5", -5),
        ("0", 0),
        ("", 0),
        ("+5", 0),
        ("05", 0),
        ("x", 0),
        ("2147483648", 0),
        ("-2147483648", -(2**31)),
    ],
)
def test_a_cost_that_cannot_be_read_is_none(text: str, number: int) -> None:
    assert deletion_cost(pod(annotations=cost(text))) == number


PODS = st.builds(
    pod,
    phase=st.sampled_from(["Pending", "Unknown", "Running", "Strange"]),
    ready=st.booleans(),
    ready_at=st.sampled_from([NOW, NOW + 500, LATER, LATER + 5]),
    node=st.sampled_from(["", "a", "b"]),
    annotations=st.sampled_from([None, cost("1"), cost("-1"), cost("no")]),
    restarts=st.integers(0, 2),
    created_at=st.sampled_from([NOW, NOW + 500, LATER]),
)


@given(st.lists(PODS, max_size=12), st.randoms(use_true_random=False), st.integers(0, 14))
def test_the_order_is_total_and_does_not_depend_on_where_pods_come_from(
    pods: list[Any], random: Any, count: int
) -> None:
    shuffled = random.sample(pods, len(pods))
    chosen = to_delete(pods, pods, count, LATER)
    assert len(chosen) == min(count, len(pods))
    names = {each["metadata"]["name"] for each in chosen}
    assert names == {each["metadata"]["name"] for each in to_delete(shuffled, shuffled, count, LATER)}
    ranks = [rank_of(each, 0, LATER) for each in pods]
    assert len(set(ranks)) == len(ranks)


@given(st.lists(PODS, min_size=1, max_size=12), st.integers(1, 12))
def test_no_ready_pod_goes_before_one_that_is_not_of_the_same_phase_and_node(pods: list[Any], count: int) -> None:
    chosen = {each["metadata"]["uid"] for each in to_delete(pods, pods, count, LATER)}
    for gone in pods:
        for kept in pods:
            if gone["metadata"]["uid"] in chosen and kept["metadata"]["uid"] not in chosen:
                same = bool(gone["spec"].get("nodeName")) == bool(kept["spec"].get("nodeName"))
                if same and gone["status"]["phase"] == kept["status"]["phase"]:
                    ready = [each["status"]["conditions"][0]["status"] == "True" for each in (gone, kept)]
                    assert not (ready[0] and not ready[1])
