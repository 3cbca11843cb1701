"""The fields of rows, and the reported namespaces."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from shoal.kube.objects import Obj
from shoal.navigator.edge.config import NamespaceConfig
from shoal.navigator.edge.reporting import Namespaces, row_of
from shoal.navigator.model import KINDS


def pod(**more: Any) -> Obj:
    return {"metadata": {"name": "p", "namespace": "shop", "uid": "u", "resourceVersion": "7"}, **more}


def row(kind: str, obj: Obj) -> Obj:
    found: Obj = orjson.loads(row_of(KINDS[kind], "v1", obj))
    return found


def test_a_row_has_the_kind_and_leaves_out_fields_that_are_not_queried() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "a"}
    metadata = pod()["metadata"] | {"managedFields": [{}], "annotations": annotations}
    found = row("virtualservices", {"metadata": metadata, "spec": {"hosts": ["a"]}})
    assert found == {
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "spec": {"hosts": ["a"]},
        "metadata": {"name": "p", "namespace": "shop", "uid": "u", "annotations": {"team": "a"}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("pods", {"metadata": {"name": "p", "resourceVersion": "1"}}, {"metadata": {"name": "p", "resourceVersion": "2"}}),
        (
            "pods",
            {"status": {"conditions": [{"type": "Ready", "status": "True", "lastProbeTime": "1"}]}},
            {"status": {"conditions": [{"type": "Ready", "status": "True", "lastProbeTime": "2"}]}},
        ),
        (
            "nodes",
            {"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": "1"}], "images": [1]}},
            {"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": "2"}], "images": [2]}},
        ),
        (
            "endpointslices",
            {"metadata": {"name": "p", "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "1"}}},
            {"metadata": {"name": "p", "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2"}}},
        ),
        ("pods", {"spec": {"a": 1, "b": 2}}, {"spec": {"b": 2, "a": 1}}),
    ],
)  # fmt: skip
def test_changes_that_mean_nothing_are_no_changes(kind: str, one: Obj, other: Obj) -> None:
    assert row_of(KINDS[kind], "v1", pod() | one) == row_of(KINDS[kind], "v1", pod() | other)


def test_values_that_look_like_secrets_stay_in_the_cluster_and_the_object_is_not_touched() -> None:
    env = [{"name": "DB_PASSWORD", "value": "hunter2"}, {"name": "MODE", "value": "fast"}]
    spec = {"containers": [{"name": "a", "env": env}], "initContainers": [{"name": "b", "env": env[:1]}]}
    obj = pod(spec=spec)
    data = row_of(KINDS["pods"], "v1", obj)
    assert b"hunter2" not in data and b"fast" in data
    assert b"hunter2" not in row_of(KINDS["deployments"], "v1", pod(spec={"template": {"spec": spec}}))
    assert env[0]["value"] == "hunter2" and "resourceVersion" in obj["metadata"]


@pytest.mark.parametrize(
    ("include", "exclude", "wanted"),
    [
        ((), (), {"a", "b", "team-a", "team-b"}),
        (("a",), (), {"a"}),
        (("team-*",), ("team-b",), {"team-a"}),
        ((), ("team-*",), {"a", "b"}),
        (("a", "b"), ("b",), {"a"}),
    ],
)
def test_namespaces_are_chosen_by_patterns(
    include: tuple[str, ...], exclude: tuple[str, ...], wanted: set[str]
) -> None:
    chosen = Namespaces(NamespaceConfig(include=include, exclude=exclude))
    assert {name for name in ("a", "b", "team-a", "team-b") if chosen.wants(name)} == wanted
    assert chosen.wants("") and chosen.selector(KINDS["nodes"]) == ""


def test_namespaces_are_filtered_by_the_server_where_possible() -> None:
    chosen = Namespaces(NamespaceConfig(include=("a",), exclude=("b", "x-*")))
    assert chosen.selector(KINDS["pods"]) == "metadata.namespace!=b,metadata.namespace=a"
    assert chosen.selector(KINDS["namespaces"]) == "metadata.name!=b,metadata.name=a"
    assert Namespaces(NamespaceConfig(include=("a", "b"))).selector(KINDS["pods"]) == ""


@pytest.mark.parametrize(
    ("kind", "measured", "kept"),
    [
        (
            "horizontalpodautoscalers",
            {"currentMetrics": [{"type": "Resource"}], "conditions": [{"type": "AbleToScale"}]},
            {"currentReplicas": 2, "desiredReplicas": 3},
        ),
        (
            "shardinstances",
            {"lastHeartbeat": "2026-01-01T00:00:00Z", "healthStatus": {"healthy": True}, "queueDepth": 3},
            {"phase": "Running"},
        ),
        ("shardconfigs", {"queueDepth": 3}, {"currentShards": 2}),
    ],
)
def test_measurements_that_change_all_the_time_are_not_reported(kind: str, measured: Obj, kept: Obj) -> None:
    assert row(kind, pod(status={**kept, **measured}))["status"] == kept


def test_loads_of_shards_are_reported_in_tenths() -> None:
    shard = {"load": 0.4321, "phase": "Running"}
    assert row("shardinstances", pod(status=shard))["status"] == {"load": 0.4, "phase": "Running"}
    config = {"averageLoad": 0.81, "totalLoad": 1.62, "decision": "Scale up: load 0.81 is above 0.8 for 30s"}
    told = row("shardconfigs", pod(status=config, spec={"minShards": 1, "template": {"spec": {"containers": []}}}))
    assert told["status"] == {
        "averageLoad": 0.8,
        "totalLoad": 1.6,
        "decision": "Scale up: load 0.8 is above 0.8 for 30s",
    }
    assert told["spec"] == {"minShards": 1}, "the worker's pod may have secrets"
