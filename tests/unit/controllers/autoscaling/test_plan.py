"""The number of replicas for given metrics, and the limits of its changes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.controllers.autoscaling.behavior import limit, remember, rules_of
from shoal.controllers.autoscaling.metrics import selector_text
from shoal.controllers.autoscaling.model import Groups, MetricError, PodSample, ScaleHistory, Tolerance
from shoal.controllers.autoscaling.plan import (
    for_average,
    for_share,
    for_total,
    for_utilization,
    group_pods,
    pod_request,
)
from shoal.controllers.autoscaling.proposals import milli_text
from shoal.kube.times import format_time

NOW = 10_000.0
USUAL = Tolerance()


def samples(**milli):
    return {name: PodSample(milli=value, at=NOW, window_s=60.0) for name, value in milli.items()}


def groups(ready, unready=(), missing=(), ignored=()):
    return Groups(
        ready=ready, unready=frozenset(unready), missing=frozenset(missing), ignored=frozenset(ignored)
    )  # fmt: skip


def a_pod(name, phase="Running", *, ready="True", started=0.0, changed=0.0, deleting=False, cpu="1"):
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": format_time(changed)}
    about = {"name": name} | ({"deletionTimestamp": format_time(0)} if deleting else {})
    status = {"phase": phase, "startTime": format_time(started), "conditions": [condition]}
    container = {"name": "c", "resources": {"requests": {"cpu": cpu} if cpu else {}}}
    return {"metadata": about, "spec": {"containers": [container]}, "status": status}


def utilization(current, target, used, **more):
    requests = dict.fromkeys([*used, *more.get("missing", ()), *more.get("unready", ())], 1000)
    found = groups(more.pop("ready", len(used)), **more)
    return for_utilization(current, target, samples(**used), requests, found, USUAL)[0]


def test_replicas_follow_the_ratio_of_use_to_target():
    assert utilization(3, 50, {"a": 500, "b": 500, "c": 500}) == 3
    assert utilization(3, 30, {"a": 300, "b": 500, "c": 700}) == 5
    assert utilization(5, 50, dict.fromkeys("abcde", 100)) == 1
    assert utilization(3, 100, dict.fromkeys("abc", 1090)) == 3  # close enough
    assert utilization(3, 100, dict.fromkeys("abc", 910)) == 3
    assert utilization(3, 100, dict.fromkeys("abc", 1200)) == 4


def test_pods_without_samples_slow_the_change_down():
    assert utilization(4, 100, {"a": 1500, "b": 1500, "c": 1500}, missing=["d"]) == 5  # not 6: d is taken for idle
    assert utilization(4, 100, {"a": 500, "b": 500}, missing=["c", "d"]) == 3  # not 1: they are taken for busy
    assert utilization(4, 100, {"a": 1050, "b": 1050}, missing=["c"], ready=2) == 4
    assert utilization(3, 50, {"a": 1000}, unready=["b", "c"]) == 3  # they will take their part
    with pytest.raises(MetricError, match="might be unready"):
        utilization(3, 50, {"a": 1000}, unready=["a"])


def test_averages_need_no_requests():
    found = for_average(2, 100, samples(a=200, b=400), groups(2), USUAL)
    assert found == (6, 300)
    assert for_average(2, 100, samples(a=50, b=50), groups(2, missing=["c"]), USUAL)[0] == 2


def test_numbers_that_are_not_of_one_pod():
    assert for_total(3, 1000, 2000, 3, USUAL) == 6
    assert for_total(3, 1000, 1050, 3, USUAL) == 3
    assert for_total(0, 1000, 1500, 0, USUAL) == 2
    assert for_share(4, 1000, 8000, USUAL) == (8, 2000)
    assert for_share(4, 1000, 4100, USUAL) == (4, 1025)
    assert for_share(0, 1000, 2500, USUAL) == (3, 0)


def test_pods_are_grouped_by_what_their_samples_are_worth():
    pods = [
        a_pod("old"),
        a_pod("pending", "Pending"),
        a_pod("failed", "Failed"),
        a_pod("going", deleting=True),
        a_pod("unmeasured"),
        a_pod("warming", started=NOW - 60, changed=NOW - 30),  # ready for less than the window
        a_pod("warm", started=NOW - 200, changed=NOW - 100),
        a_pod("broken", ready="False", started=NOW - 4000, changed=NOW - 50),  # was ready once: counts
        a_pod("never", ready="False", started=NOW - 4000, changed=NOW - 3990),
    ]
    used = samples(**{pod["metadata"]["name"]: 1 for pod in pods if pod["metadata"]["name"] != "unmeasured"})
    found = group_pods(pods, used, "cpu", NOW)
    assert found.ready == 3  # old, warm, broken
    assert found.unready == {"pending", "warming", "never"}
    assert found.missing == {"unmeasured"}
    assert found.ignored == {"failed", "going"}
    assert group_pods(pods, used, "memory", NOW).ready == 5


def test_requests_are_summed_and_must_be_there():
    pod = a_pod("p", cpu="250m")
    pod["spec"]["initContainers"] = [
        {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        {"name": "first", "resources": {"requests": {"cpu": "9"}}},
    ]
    assert pod_request(pod, "cpu") == 1250
    assert pod_request(pod, "cpu", "c") == 250
    with pytest.raises(MetricError, match="missing request for cpu in container c of Pod q"):
        pod_request(a_pod("q", cpu=""), "cpu")


# -- limits ----------------------------------------------------------------------------------------------------------


def spec(most=100, least=1, **behavior):
    return {"minReplicas": least, "maxReplicas": most} | ({"behavior": behavior} if behavior else {})


def decide(found, current, wanted, history=None, now=NOW):
    return limit(found, current, wanted, history or ScaleHistory(), now)


def test_up_by_four_or_by_doubling_in_fifteen_seconds():
    assert decide(spec(), 1, 50).replicas == 5
    assert decide(spec(), 10, 50).replicas == 20
    assert decide(spec(), 10, 50).limited[1] == "ScaleUpLimit"
    history = ScaleHistory()
    remember(spec(), history, 10, 20, NOW)
    assert decide(spec(), 20, 50, history, NOW + 5).replicas == 20
    assert decide(spec(), 20, 50, history, NOW + 16).replicas == 40


def test_bounds_are_kept_and_reported():
    assert (decide(spec(8), 5, 50).replicas, decide(spec(8), 5, 50).limited[1]) == (8, "TooManyReplicas")
    fast = spec(8, 2, scaleDown={"stabilizationWindowSeconds": 0})
    assert (decide(fast, 5, 1).replicas, decide(fast, 5, 1).limited[1]) == (2, "TooFewReplicas")
    assert decide(spec(), 5, 6).limited == (
        "False", "DesiredWithinRange", "the desired count is within the acceptable range",
    )  # fmt: skip


def test_down_only_when_five_minutes_agree():
    history = ScaleHistory()
    assert decide(spec(), 10, 10, history, NOW).replicas == 10
    held = decide(spec(), 10, 3, history, NOW + 290)
    assert (held.replicas, held.able[1]) == (10, "ScaleDownStabilized")
    assert decide(spec(), 10, 4, history, NOW + 301).replicas == 4


def test_rules_of_users():
    slow = spec(scaleUp={"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]})
    assert decide(slow, 5, 50).replicas == 6
    never = spec(scaleDown={"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0})
    assert decide(never, 5, 1).replicas == 5
    both = [{"type": "Pods", "value": 1, "periodSeconds": 60}, {"type": "Percent", "value": 50, "periodSeconds": 60}]
    careful = spec(scaleDown={"policies": both, "selectPolicy": "Min", "stabilizationWindowSeconds": 0})
    assert decide(careful, 10, 1).replicas == 9
    bold = spec(scaleDown={"policies": both, "selectPolicy": "Max", "stabilizationWindowSeconds": 0})
    assert decide(bold, 10, 1).replicas == 5
    assert rules_of(spec(scaleUp={"tolerance": "50m"})).tolerance == Tolerance(0.05, 0.1)


def test_steady_on_the_way_up_takes_the_lowest_recent_recommendation():
    patient = spec(scaleUp={"stabilizationWindowSeconds": 60})
    history = ScaleHistory()
    decide(patient, 2, 3, history, NOW)
    held = decide(patient, 2, 6, history, NOW + 30)
    assert (held.replicas, held.able[1]) == (3, "ScaleUpStabilized")
    assert decide(patient, 3, 6, history, NOW + 95).replicas == 6


@settings(max_examples=200)
@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.floats(1.0, 400.0), st.integers(1, 200)), max_size=30),
    st.integers(1, 10),
    st.integers(10, 60),
)
def test_replicas_stay_within_bounds_and_end_where_the_metrics_are_steady(current, steps, least, most):
    current = min(max(current, least), most)
    history, now, bounds = ScaleHistory(), NOW, spec(most, least)
    for wait_s, wanted in [*steps, *[(400.0, 20)] * 12]:
        now += wait_s
        found = limit(bounds, current, wanted, history, now).replicas
        assert least <= found <= most
        assert wait_s <= 15 or found <= max(2 * current, current + 4)
        if found != current:
            remember(bounds, history, current, found, now)
        current = found
    assert current == min(max(20, least), most)


@settings(max_examples=200)
@given(st.lists(st.integers(0, 3000), min_size=1, max_size=10), st.integers(1, 200))
def test_with_all_pods_measured_the_formula_holds(used, target):
    names = {f"p{n}": value for n, value in enumerate(used)}
    ratio = sum(used) / len(used) / 10 / target
    expected = len(used) if USUAL.covers(ratio) else math.ceil(ratio * len(used))
    assert abs(utilization(len(used), target, names) - expected) <= 1


def test_selectors_and_quantities_are_written_as_queries_and_people_want_them():
    found = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["d", "e"]}]}
    assert selector_text(found) == "a=b,c in (d,e)"
    assert [milli_text(value) for value in (1500, 2000, 0)] == ["1500m", "2", "0"]
