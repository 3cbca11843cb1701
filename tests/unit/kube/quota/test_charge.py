"""Quotas: accepted and refused writes, messages, scopes, and counting."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.kube.quota import Count, QuotaRefused, charge, matches
from shoal.kube.quota.evaluators import evaluator_of

NOW = 1_700_000_000.0


def quota(hard: dict[str, str], used: dict[str, str] | None = None, name: str = "q", **spec: Any) -> dict[str, Any]:
    status = {"hard": hard, "used": dict.fromkeys(hard, "0") if used is None else used}
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"hard": hard, **spec}, "status": status}


def pod(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}], **spec}}


def refusal(quotas: list[dict[str, Any]], resource: str, new: dict[str, Any], old: Any = None) -> str:
    with pytest.raises(QuotaRefused) as caught:
        charge(quotas, resource, new, old, now=NOW)
    return str(caught.value)


def counted(spec: dict[str, Any], objects: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    """What a quota shows as used after all objects, by resource, were counted."""
    count = Count(spec)
    for resource in count.resources:
        for obj in objects.get(resource, []):
            count.add(resource, obj, NOW)
    return count.used()


def test_a_charge_is_added_to_every_quota_that_counts_it() -> None:
    quotas = [
        quota({"pods": "2"}, {"pods": "1"}),
        quota({"services": "1"}),
        quota({"requests.cpu": "2", "pods": "10"}, {"requests.cpu": "500m", "pods": "3"}),
    ]
    assert charge(quotas, "pods", pod({"cpu": "250m"}), None, now=NOW) == {
        0: {"pods": "2"},
        2: {"requests.cpu": "750m", "pods": "4"},
    }


def test_a_refusal_has_the_requested_used_and_limited_amounts() -> None:
    quotas = [quota({"pods": "2", "requests.cpu": "1", "memory": "1Gi"}, {"pods": "2", "requests.cpu": "900m", "memory": "0"})]  # fmt: skip
    assert refusal(quotas, "pods", pod({"cpu": "200m", "memory": "1Mi"})) == (
        "exceeded quota: q, requested: pods=1,requests.cpu=200m, used: pods=2,requests.cpu=900m, "
        "limited: pods=2,requests.cpu=1"
    )


def test_pods_have_to_say_what_a_quota_limits() -> None:
    obj = pod({"cpu": "1"})
    obj["spec"]["initContainers"] = [{"name": "i"}]
    assert refusal([quota({"limits.cpu": "1", "cpu": "1", "pods": "1"})], "pods", obj) == (
        "failed quota: q: must specify cpu for: i; limits.cpu for: c,i"
    )
    assert charge([quota({"requests.ephemeral-storage": "1Gi"})], "pods", pod(), None, now=NOW) == {}
    whole = pod(resources={"requests": {"cpu": "1"}})
    assert charge([quota({"cpu": "1"})], "pods", whole, None, now=NOW) == {0: {"cpu": "1"}}


def test_a_quota_that_was_not_counted_yet_lets_nothing_pass() -> None:
    assert refusal([quota({"pods": "1", "services": "1"}, {})], "pods", pod()) == (
        "status unknown for quota: q, resources: pods"
    )
    fresh = quota({"pods": "1"})
    del fresh["status"]
    assert charge([fresh], "pods", pod(), None, now=NOW) == {}  # it does not limit anything yet


def test_negative_amounts_cannot_make_room() -> None:
    assert refusal([quota({"requests.cpu": "1"})], "pods", pod({"cpu": "-1"})) == (
        "quota usage is negative for resource(s): cpu,requests.cpu"
    )


def test_an_update_is_charged_for_what_it_adds() -> None:
    quotas = [quota({"requests.storage": "10Gi", "persistentvolumeclaims": "1"}, {"requests.storage": "6Gi", "persistentvolumeclaims": "1"})]  # fmt: skip

    def claim(size: str) -> dict[str, Any]:
        return {"metadata": {"name": "c"}, "spec": {"resources": {"requests": {"storage": size}}}}

    larger = charge(quotas, "persistentvolumeclaims", claim("8Gi"), claim("5Gi"), now=NOW)
    assert larger == {0: {"requests.storage": "9Gi", "persistentvolumeclaims": "1"}}
    assert charge(quotas, "persistentvolumeclaims", claim("1Gi"), claim("5Gi"), now=NOW) == {}
    assert refusal(quotas, "persistentvolumeclaims", claim("10Gi"), claim("5Gi")) == (
        "exceeded quota: q, requested: requests.storage=5Gi, used: requests.storage=6Gi, limited: requests.storage=10Gi"
    )


def test_an_update_into_another_scope_is_charged_in_full() -> None:
    ending = quota({"pods": "1"}, scopes=["Terminating"])
    assert charge([ending], "pods", pod(activeDeadlineSeconds=5), pod(), now=NOW) == {0: {"pods": "1"}}
    assert charge([ending], "pods", pod(activeDeadlineSeconds=5), pod(activeDeadlineSeconds=9), now=NOW) == {}


def test_what_is_only_reported_is_not_refused() -> None:
    quotas = [quota({"requests.storage": "1Gi"}, {"requests.storage": "1Gi"})]
    old = {"metadata": {}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
    new = {**old, "status": {"allocatedResources": {"storage": "2Gi"}}}
    assert charge(quotas, "persistentvolumeclaims", new, old, now=NOW, enforced=False) == {
        0: {"requests.storage": "2Gi"}
    }


AFFINE = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": ["x"]}]}}
AVERSE = {
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": {"namespaceSelector": {}}}]
    }
}


def by_class(operator: str, *values: str, scope: str = "PriorityClass") -> dict[str, Any]:
    return {"scopeSelector": {"matchExpressions": [{"scopeName": scope, "operator": operator, "values": list(values)}]}}


@pytest.mark.parametrize(
    ("limited_to", "obj", "counted"),
    [
        ({}, pod(), True),
        ({"scopes": ["Terminating"]}, pod(), False),
        ({"scopes": ["Terminating"]}, pod(activeDeadlineSeconds=0), True),
        ({"scopes": ["NotTerminating"]}, pod(), True),
        ({"scopes": ["BestEffort"]}, pod(), True),
        ({"scopes": ["BestEffort"]}, pod({"cpu": "1"}), False),
        ({"scopes": ["NotBestEffort"]}, pod({"cpu": "1"}), True),
        ({"scopes": ["NotBestEffort", "Terminating"]}, pod({"cpu": "1"}), False),
        ({"scopes": ["PriorityClass"]}, pod(), False),
        ({"scopes": ["PriorityClass"]}, pod(priorityClassName="high"), True),
        (by_class("In", "high", "low"), pod(priorityClassName="high"), True),
        (by_class("In", "low"), pod(priorityClassName="high"), False),
        (by_class("In", "low"), pod(), False),
        (by_class("NotIn", "low"), pod(), True),
        (by_class("NotIn", "low"), pod(priorityClassName="low"), False),
        (by_class("Exists"), pod(priorityClassName="low"), True),
        (by_class("DoesNotExist"), pod(), True),
        (by_class("DoesNotExist"), pod(priorityClassName="low"), False),
        ({"scopes": ["CrossNamespacePodAffinity"]}, pod(), False),
        ({"scopes": ["CrossNamespacePodAffinity"]}, pod(affinity=AFFINE), True),
        ({"scopes": ["CrossNamespacePodAffinity"]}, pod(affinity=AVERSE), True),
        (by_class("Exists", scope="VolumeAttributesClass"), pod(), False),
    ],
)
def test_scopes_of_pods(limited_to: dict[str, Any], obj: dict[str, Any], counted: bool) -> None:
    assert matches(quota({"pods": "1"}, **limited_to), evaluator_of("pods"), obj) is counted


@pytest.mark.parametrize(
    ("limited_to", "names", "counted"),
    [
        (by_class("Exists", scope="VolumeAttributesClass"), {}, False),
        (by_class("Exists", scope="VolumeAttributesClass"), {"spec": "fast"}, True),
        (by_class("In", "slow", scope="VolumeAttributesClass"), {"spec": "fast", "current": "slow"}, True),
        (by_class("NotIn", "slow", scope="VolumeAttributesClass"), {}, True),
        ({"scopes": ["BestEffort"]}, {}, False),
    ],
)
def test_scopes_of_claims(limited_to: dict[str, Any], names: dict[str, str], counted: bool) -> None:
    claim = {
        "metadata": {},
        "spec": {"volumeAttributesClassName": names.get("spec")},
        "status": {"currentVolumeAttributesClassName": names.get("current")},
    }
    found = matches(quota({"persistentvolumeclaims": "1"}, **limited_to), evaluator_of("persistentvolumeclaims"), claim)
    assert found is counted


def test_a_quota_with_scopes_does_not_count_other_kinds() -> None:
    assert not matches(quota({"count/secrets": "1"}, scopes=["BestEffort"]), evaluator_of("secrets"), {})
    assert matches(quota({"count/secrets": "1"}), evaluator_of("secrets"), {})


def test_counting_again_sees_everything_a_quota_limits() -> None:
    objects = {
        "pods": [pod({"cpu": "1"}), pod({"cpu": "500m"}), pod({"cpu": "9"}) | {"status": {"phase": "Failed"}}],
        "widgets.example.com": [{}, {}],
    }
    spec = {"hard": dict.fromkeys(["pods", "count/pods", "requests.cpu", "count/widgets.example.com", "services"], "1")}
    assert counted(spec, objects) == {
        "pods": "2",
        "count/pods": "3",
        "requests.cpu": "1500m",
        "count/widgets.example.com": "2",
        "services": "0",
    }


def test_counting_again_keeps_to_the_scopes() -> None:
    objects = {"pods": [pod(), pod({"cpu": "1"}), pod(priorityClassName="high")]}
    best_effort = {"hard": {"pods": "9"}, "scopes": ["BestEffort"]}
    assert counted(best_effort, objects) == {"pods": "2"}
    high = {"hard": {"pods": "9"}, **by_class("In", "high")}
    assert counted(high, objects) == {"pods": "1"}


AMOUNTS = st.sampled_from(["0", "1m", "100m", "1", "1500m", "2"])


@given(st.lists(AMOUNTS, max_size=12), st.sampled_from(["1", "2", "5500m"]))
def test_charges_one_after_the_other_end_where_counting_ends_and_never_above_the_limit(
    sizes: list[str], limit: str
) -> None:
    current = quota({"requests.cpu": limit, "pods": "6"})
    kept = []
    for size in sizes:
        obj = pod({"cpu": size})
        try:
            changed = charge([current], "pods", obj, None, now=NOW)
        except QuotaRefused:
            continue
        kept.append(obj)
        current["status"]["used"] = changed.get(0, current["status"]["used"])
    assert current["status"]["used"] == counted(current["spec"], {"pods": kept})
    assert len(kept) <= 6
