"""When pods are evicted from tainted nodes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.controllers.taints.plan import STAYS, leaves_at, tolerates
from shoal.kube.times import format_time

TAINT = {"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": format_time(1000)}


def a_pod(*tolerations, came_at=0):
    about = {"name": "p", "creationTimestamp": format_time(came_at)}
    return {"metadata": about, "spec": {"tolerations": list(tolerations)}, "status": {}}


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoSchedule"}, False),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "operator": "Equal", "value": "w"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"value": "v"}, False),
    ],
)
def test_what_tolerates_a_taint(toleration, expected):
    assert tolerates(toleration, TAINT) is expected


def test_numbers_are_compared():
    taint = {**TAINT, "value": "5"}
    assert tolerates({"key": "k", "operator": "Lt", "value": "6"}, taint)
    assert not tolerates({"key": "k", "operator": "Gt", "value": "6"}, taint)
    assert not tolerates({"key": "k", "operator": "Gt", "value": "1"}, TAINT)


def test_without_toleration_a_pod_leaves_at_once_and_with_one_never_or_in_time():
    exists = {"key": "k", "operator": "Exists"}
    assert leaves_at(a_pod(), [TAINT]) == 0.0
    assert leaves_at(a_pod(exists), [TAINT]) == STAYS
    assert leaves_at(a_pod({**exists, "tolerationSeconds": 300}), [TAINT]) == 1300.0
    assert leaves_at(a_pod({**exists, "tolerationSeconds": -1}), [TAINT]) == 1000.0
    assert leaves_at(a_pod({**exists, "tolerationSeconds": 300}, came_at=5000), [TAINT]) == 5300.0
    assert leaves_at(a_pod(exists), []) == STAYS


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 2000), st.one_of(st.none(), st.integers(0, 600))), min_size=1, max_size=5))
def test_the_shortest_time_of_all_taints_counts(pairs):
    taints = [{"key": str(n), "effect": "NoExecute", "timeAdded": format_time(at)} for n, (at, _) in enumerate(pairs)]
    tolerations = [
        {"key": str(n), "operator": "Exists"} | ({} if seconds is None else {"tolerationSeconds": seconds})
        for n, (_, seconds) in enumerate(pairs)
    ]
    ends = [at + seconds for at, seconds in pairs if seconds is not None]
    assert leaves_at(a_pod(*tolerations), taints) == min(ends, default=STAYS)
