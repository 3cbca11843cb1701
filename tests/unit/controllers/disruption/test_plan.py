"""The numbers of disruption budgets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.controllers.disruption.plan import (
    Expected,
    disrupted,
    expected,
    failed_status,
    healthy,
    needs_scale,
    status,
)
from shoal.kube.times import format_time


def a_pod(name, ready=True, deleting=False):
    about = {"name": name} | ({"deletionTimestamp": format_time(0)} if deleting else {})
    return {"metadata": about, "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}}


def a_budget(**found):
    return {"metadata": {"name": "b", "generation": 3}, "spec": {}, "status": found}


@pytest.mark.parametrize(
    ("spec", "present", "scale", "wanted"),
    [
        ({"minAvailable": 2}, 5, 0, Expected(5, 2)),
        ({"minAvailable": "50%"}, 5, 7, Expected(7, 4)),
        ({"minAvailable": "100%"}, 1, 3, Expected(3, 3)),
        ({"maxUnavailable": 1}, 5, 7, Expected(7, 6)),
        ({"maxUnavailable": "30%"}, 5, 7, Expected(7, 4)),
        ({"maxUnavailable": 9}, 5, 7, Expected(7, 0)),
        ({}, 4, 0, Expected(4, 0)),
    ],
)
def test_how_many_pods_there_should_be(spec, present, scale, wanted):
    assert expected(spec, present, scale) == wanted


def test_only_percentages_and_limits_of_absence_need_the_scale():
    assert [needs_scale(spec) for spec in ({"minAvailable": 1}, {"minAvailable": "1%"}, {"maxUnavailable": 0})] == [
        False, True, True,
    ]  # fmt: skip


def test_an_eviction_counts_until_the_pod_is_deleted_or_two_minutes_are_over():
    known = {"a": format_time(1000), "b": format_time(1000), "c": format_time(800), "gone": format_time(1000)}
    found = disrupted(known, [a_pod("a"), a_pod("b", deleting=True), a_pod("c"), a_pod("d")], 1030.0)
    assert found.pods == {"a": known["a"]}
    assert found.failed == ("c",)
    assert found.recheck_s == 90.0
    assert healthy([a_pod("a"), a_pod("b", deleting=True), a_pod("c", ready=False), a_pod("d")], found.pods) == 1


def test_the_status_has_the_allowed_disruptions():
    found = status(a_budget(), Expected(5, 3), 4, {}, 0.0)
    assert (found["disruptionsAllowed"], found["observedGeneration"]) == (1, 3)
    assert found["conditions"][0]["reason"] == "SufficientPods"
    short = status(a_budget(conditions=found["conditions"]), Expected(5, 3), 3, {}, 9.0)
    assert short["conditions"][0]["status"] == "False"
    assert short["conditions"][0]["lastTransitionTime"] == format_time(9.0)
    assert status(a_budget(), Expected(0, 0), 4, {}, 0.0)["disruptionsAllowed"] == 0


def test_no_disruption_is_allowed_if_the_desired_number_is_unknown():
    found = failed_status(a_budget(disruptionsAllowed=4, currentHealthy=5), "why", 0.0)
    assert (found["disruptionsAllowed"], found["currentHealthy"]) == (0, 5)
    assert found["conditions"][0]["reason"] == "SyncFailed"


@settings(max_examples=200)
@given(
    st.one_of(
        st.builds(lambda n: {"minAvailable": n}, st.integers(0, 20)),
        st.builds(lambda n: {"minAvailable": f"{n}%"}, st.integers(0, 100)),
        st.builds(lambda n: {"maxUnavailable": n}, st.integers(0, 20)),
        st.builds(lambda n: {"maxUnavailable": f"{n}%"}, st.integers(0, 100)),
    ),
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_taking_away_what_is_allowed_never_breaks_the_budget(spec, current, scale):
    wanted = expected(spec, current, scale)
    found = status(a_budget(), wanted, current, {}, 0.0)
    assert found["disruptionsAllowed"] >= 0
    assert found["disruptionsAllowed"] == 0 or current - found["disruptionsAllowed"] >= wanted.healthy
