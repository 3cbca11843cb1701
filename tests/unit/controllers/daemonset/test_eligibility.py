"""Which nodes fit: names, labels, affinity, taints; and the additional tolerations of daemons."""

from __future__ import annotations

import pytest

from shoal.controllers.daemonset.backoff import FailedPods
from shoal.controllers.daemonset.eligibility import (
    Fit,
    affinity_matches,
    fit,
    node_of,
    pinned_to,
    tolerates,
    tolerations_of,
)
from shoal.kube.objects import Obj
from shoal.testing.workloads import node, pod

NODE = node("n1", {"zone": "a", "cores": "8"})


def taint(key: str, effect: str, value: str = "") -> Obj:
    return {"key": key, "effect": effect, "value": value}


def needs(*expressions: Obj, fields: tuple[Obj, ...] = ()) -> Obj:
    term: Obj = {}
    if expressions:
        term["matchExpressions"] = list(expressions)
    if fields:
        term["matchFields"] = list(fields)
    required = {"nodeSelectorTerms": [{"matchExpressions": [_is("zone", "nowhere")]}, term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def _is(key: str, *values: str, operator: str = "In") -> Obj:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("spec", "matches"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        ({"nodeSelector": {"missing": ""}}, False),
        (needs(_is("zone", "a", "b")), True),
        (needs(_is("zone", "b")), False),
        (needs(_is("zone", "a"), _is("cores", "4", operator="Gt")), True),
        (needs(_is("zone", "a"), _is("cores", "8", operator="Gt")), False),
        (needs(_is("cores", "9", operator="Lt")), True),
        (needs(_is("zone", "b", operator="NotIn")), True),
        (needs({"key": "zone", "operator": "Exists"}), True),
        (needs({"key": "zone", "operator": "DoesNotExist"}), False),
        (needs(), False),  # a term that asks for nothing matches nothing
        (needs(fields=(_is("metadata.name", "n1"),)), True),
        (needs(fields=(_is("metadata.name", "n2"),)), False),
        (needs(fields=(_is("metadata.name", "n2", operator="NotIn"),)), True),
        ({"nodeSelector": {"zone": "a"}, **needs(_is("zone", "b"))}, False),
    ],
)
def test_labels_and_affinity(spec: Obj, matches: bool) -> None:
    assert affinity_matches(spec, NODE) is matches


@pytest.mark.parametrize(
    ("toleration", "matches"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "k"}, False),
        ({}, False),
    ],
)
def test_a_toleration_and_a_taint(toleration: Obj, matches: bool) -> None:
    assert tolerates(toleration, taint("k", "NoSchedule", "v")) is matches


@pytest.mark.parametrize(
    ("taints", "expected"),
    [
        ([], Fit(True, True)),
        ([taint("k", "NoSchedule")], Fit(False, True)),
        ([taint("k", "NoExecute")], Fit(False, False)),
        ([taint("k", "PreferNoSchedule")], Fit(True, True)),
        ([taint("node.kubernetes.io/not-ready", "NoExecute"), taint("node.kubernetes.io/unschedulable", "NoSchedule")],
         Fit(True, True)),
        ([taint("node.kubernetes.io/not-ready", "NoSchedule")], Fit(False, True)),
        ([taint("node.kubernetes.io/network-unavailable", "NoSchedule")], Fit(False, True)),
    ],
)  # fmt: skip
def test_taints(taints: list[Obj], expected: Fit) -> None:
    assert fit({}, tolerations_of({}), node("n1", taints=taints)) == expected


def test_a_template_with_a_node_fits_only_that() -> None:
    assert fit({"nodeName": "n1"}, [], NODE).runs
    assert fit({"nodeName": "n2"}, [], NODE) == Fit(False, False)


def test_daemons_of_the_hosts_network_live_without_a_network() -> None:
    spec = {"hostNetwork": True}
    assert fit(
        spec, tolerations_of(spec), node("n1", taints=[taint("node.kubernetes.io/network-unavailable", "NoSchedule")])
    ).runs


def test_tolerations_are_added_once() -> None:
    spec = {"tolerations": tolerations_of({"tolerations": [{"key": "mine", "operator": "Exists"}]})}
    assert tolerations_of(spec) == spec["tolerations"]
    assert len(spec["tolerations"]) == 7


def test_a_pinned_pod_has_its_node_and_keeps_its_other_affinities() -> None:
    affinity = {"podAntiAffinity": {"x": 1}, **needs(_is("zone", "a"))["affinity"]}
    made = {"metadata": {}, "spec": {"affinity": pinned_to(affinity, "n7")}}
    assert node_of(made) == "n7"
    assert made["spec"]["affinity"]["podAntiAffinity"] == {"x": 1}
    assert affinity_matches(made["spec"], node("n7")) and not affinity_matches(made["spec"], NODE)
    assert node_of(pod(node="n8")) == "n8"
    assert node_of(pod(node="")) == ""


def test_failed_pods_wait_longer_each_time_on_each_node() -> None:
    failed, key, other = FailedPods(), ("u", 1, "n1"), ("u", 1, "n2")
    now, delays = 0.0, []
    for _ in range(12):
        assert failed.remaining_s(key, now) == 0
        failed.failed(key, now)
        delays.append(failed.remaining_s(key, now))
        now += delays[-1]
    assert delays[:4] == [1, 2, 4, 8]
    assert delays[-1] == 900
    assert failed.remaining_s(other, now) == 0
    failed.failed(key, now + 10_000)
    assert failed.remaining_s(key, now + 10_000) == 1  # it has been well for long
    failed.forget("u")
    assert failed.remaining_s(key, now + 10_000) == 0
