"""Objects shown as another kind: Scale, and the two versions of events."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from shoal.errors import InternalError, Invalid
from shoal.kube.kinds.events import to_core_v1, to_events_v1
from shoal.kube.kinds.scale import ScalePaths, apply_scale, scale_of

META = {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7",
        "creationTimestamp": "2030-01-01T00:00:00Z", "labels": {"a": "b"}}  # fmt: skip


def workload(selector: Any, replicas: int | None = 3) -> dict[str, Any]:
    spec: dict[str, Any] = {"selector": selector}
    if replicas is not None:
        spec["replicas"] = replicas
    return {"metadata": dict(META), "spec": spec, "status": {"replicas": 2}}


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
def test_a_workload_is_seen_as_a_scale(kind: str) -> None:
    selector = {"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [
        {"key": "c", "operator": "In", "values": ["y", "x"]}, {"key": "d", "operator": "DoesNotExist"}]}  # fmt: skip
    assert scale_of(kind, workload(selector)) == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: META[name] for name in META if name != "labels"},
        "spec": {"replicas": 3},
        "status": {"replicas": 2, "selector": "a=1,b=2,c in (x,y),!d"},
    }


def test_the_selector_of_a_replication_controller_is_a_plain_map() -> None:
    made = scale_of("ReplicationController", workload({"a": "1"}))
    assert made["status"] == {"replicas": 2, "selector": "a=1"}


def test_a_scale_of_nothing_is_zero() -> None:
    made = scale_of("Deployment", {"metadata": {"name": "x"}})
    assert (made["spec"], made["status"]) == ({"replicas": 0}, {"replicas": 0})


PATHS = ScalePaths(".spec.size.wanted", ".status.size", ".status.labels")


def test_a_custom_resource_is_seen_through_its_paths() -> None:
    obj = {"metadata": dict(META), "spec": {"size": {"wanted": 4}}, "status": {"size": 1, "labels": "a=b"}}
    made = scale_of("Widget", obj, PATHS)
    assert (made["spec"], made["status"]) == ({"replicas": 4}, {"replicas": 1, "selector": "a=b"})
    apply_scale(obj, {"spec": {"replicas": 9}}, PATHS)
    assert obj["spec"] == {"size": {"wanted": 9}}


def test_a_custom_resource_without_replicas_has_no_scale() -> None:
    with pytest.raises(InternalError, match="does not exist"):
        scale_of("Widget", {"metadata": {}, "spec": {"size": 3}}, PATHS)


def test_a_scale_sets_replicas_and_what_the_writer_expects() -> None:
    obj = workload({"matchLabels": {"a": "1"}})
    scale = scale_of("Deployment", obj)
    scale["spec"]["replicas"] = 0
    scale["metadata"]["resourceVersion"] = "5"
    apply_scale(obj, scale)
    assert obj["spec"]["replicas"] == 0
    assert obj["metadata"]["resourceVersion"] == "5"
    apply_scale(obj, {"metadata": {"name": "web"}, "spec": {"replicas": 8}})
    assert (obj["spec"]["replicas"], obj["metadata"]["resourceVersion"]) == (8, "5")


def test_a_scale_below_zero_changes_nothing() -> None:
    obj = workload({"matchLabels": {"a": "1"}})
    before = copy.deepcopy(obj)
    with pytest.raises(Invalid) as caught:
        apply_scale(obj, {"metadata": {"name": "web"}, "spec": {"replicas": -1}})
    assert caught.value.message == (
        'Scale.autoscaling "web" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0'
    )
    assert obj == before


# --- events

CORE = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "web.1", "namespace": "shop"},
    "involvedObject": {"kind": "Pod", "name": "web-1"},
    "source": {"component": "watcher", "host": "node-1"},
    "message": "it runs",
    "firstTimestamp": "2030-01-01T00:00:00Z",
    "lastTimestamp": "2030-01-01T00:00:01Z",
    "count": 2,
    "reportingComponent": "shop.example/watcher",
    "reportingInstance": "watcher-1",
    "reason": "Started",
    "type": "Normal",
    "action": "Start",
    "eventTime": "2030-01-01T00:00:00.000000Z",
    "series": {"count": 2, "lastObservedTime": "2030-01-01T00:00:00.000000Z"},
    "related": {"kind": "Node", "name": "node-1"},
}


def test_an_event_comes_back_whole() -> None:
    before = copy.deepcopy(CORE)
    converted = to_events_v1(CORE)
    assert to_core_v1(converted) == CORE == before


def test_fields_of_events_have_their_names_in_the_other_group() -> None:
    converted = to_events_v1(CORE)
    assert converted["apiVersion"] == "events.k8s.io/v1"
    assert converted["regarding"] == CORE["involvedObject"]
    assert converted["note"] == "it runs"
    assert converted["deprecatedSource"] == CORE["source"]
    assert converted["deprecatedCount"] == 2
    assert converted["reportingController"] == "shop.example/watcher"
    assert converted["series"] == CORE["series"]
    assert not {"involvedObject", "message", "source", "count", "reportingComponent"} & set(converted)
