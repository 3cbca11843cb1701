"""HorizontalPodAutoscaler: defaults, validation, and its two versions."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.kube.kinds import hpa, rules_for

CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
KIND = "HorizontalPodAutoscaler"


def test_an_autoscaler_gets_its_defaults(kinds: Any) -> None:
    spec = kinds.created(KIND)["spec"]
    assert spec["minReplicas"] == 1
    assert spec["metrics"] == [CPU]
    assert "behavior" not in spec


def test_behavior_is_filled_in_when_there_is_any(kinds: Any) -> None:
    edits = {"spec.behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}}
    assert kinds.created(KIND, edits)["spec"]["behavior"] == {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15},
            ],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": 60,
            "selectPolicy": "Max",
            "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
        },
    }


def metric(**fields: Any) -> dict[str, Any]:
    return {"spec.metrics": [fields]}


M = "spec.metrics[0]"
TARGET = {"type": "AverageValue", "averageValue": "10"}
CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({"spec.maxReplicas": 0}, [
        "spec.maxReplicas: Required value: must be set and greater than 0",
        "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
    ]),
    ({"spec.minReplicas": 9}, ["spec.maxReplicas: Invalid value: 5: must be greater than or equal to `minReplicas`"]),
    ({"spec.minReplicas": -1}, ["spec.minReplicas: Invalid value: -1: must be greater than or equal to 0"]),
    ({"spec.minReplicas": 0}, [
        "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas"
    ]),
    ({"spec.minReplicas": 0, **metric(type="External", external={"metric": {"name": "q"}, "target": TARGET})}, []),
    ({"spec.scaleTargetRef.name": ""}, ["spec.scaleTargetRef.name: Required value"]),
    ({"spec.scaleTargetRef.kind": "a/b"}, ["spec.scaleTargetRef.kind: Invalid value: \"a/b\": may not contain '/'"]),
    ({"spec.scaleTargetRef.apiVersion": "v1"}, [
        'spec.scaleTargetRef.apiVersion: Invalid value: "v1": apiVersion must specify API group'
    ]),
    ({"spec.scaleTargetRef": {"apiVersion": "v1", "kind": "ReplicationController", "name": "x"}}, []),
    (metric(type="Resource"), [f"{M}.resource: Required value: must populate information for the given metric source"]),
    (metric(type="Other", pods={"metric": {"name": "q"}, "target": TARGET}), [
        f'{M}.type: Unsupported value: "Other": '
        'supported values: "ContainerResource", "External", "Object", "Pods", "Resource"',
    ]),
    (metric(type="Pods", pods={"metric": {"name": "q"}, "target": TARGET}), []),
    (metric(type="Pods", pods={"metric": {}, "target": TARGET}), [
        f"{M}.pods.metric.name: Required value: must specify a metric name"
    ]),
    (metric(type="Pods", pods={"metric": {"name": "q"}, "target": {"type": "Value", "value": "0"}}), [
        f'{M}.pods.target.value: Invalid value: "0": must be positive',
        f"{M}.pods.target.averageValue: Required value: must specify a positive target averageValue",
    ]),
    (metric(type="Resource", resource={"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 0}}), [
        f"{M}.resource.target.averageUtilization: Invalid value: 0: must be greater than 0"
    ]),
    (metric(type="Resource", resource={"target": TARGET}), [
        f"{M}.resource.name: Required value: must specify a resource name"
    ]),
    (metric(type="Resource", resource={"name": "cpu", "target": {"type": "Much"}}), [
        f'{M}.resource.target.type: Invalid value: "Much": must be either Utilization, Value, or AverageValue',
        f"{M}.resource.target.averageUtilization: Required value: "
        "must set either a target raw value or a target utilization",
    ]),
    (metric(type="ContainerResource", containerResource={"name": "cpu", "container": "Web!", "target": TARGET}), [
        f'{M}.containerResource.container: Invalid value: "Web!": a lowercase RFC 1123 label must consist of lower case '
        "alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or "
        "'123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
    ]),
    (metric(type="External", external={"metric": {"name": "q"}, "target": {**TARGET, "value": "1"}}), [
        f"{M}.external.target.value: Forbidden: may not set both a target value for metric and a per-pod target"
    ]),
    (metric(type="Object", object={"metric": {"name": "q"}, "target": {"type": "Value", "value": "1"},
                                   "describedObject": {"kind": "Service", "name": "web"}}), []),
    (metric(type="Resource", resource=CPU["resource"], pods={"metric": {"name": "q"}, "target": TARGET}), [
        f"{M}.pods: Forbidden: must populate the given metric source only"
    ]),
    ({"spec.behavior": {"scaleUp": {"policies": []}}}, [
        "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy"
    ]),
    ({"spec.behavior": {"scaleUp": {"stabilizationWindowSeconds": 4000}}}, [
        "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 4000: must be less than or equal to 3600"
    ]),
    ({"spec.behavior": {"scaleUp": {"selectPolicy": "Any"}}}, [
        'spec.behavior.scaleUp.selectPolicy: Unsupported value: "Any": supported values: "Disabled", "Max", "Min"'
    ]),
    ({"spec.behavior": {"scaleUp": {"policies": [{"type": "Some", "value": 0, "periodSeconds": 2000}]}}}, [
        'spec.behavior.scaleUp.policies[0].type: Unsupported value: "Some": supported values: "Percent", "Pods"',
        "spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
        "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 2000: must be less than or equal to 1800",
    ]),
    ({"spec.behavior": {"scaleUp": {"tolerance": "-1"}}}, [
        'spec.behavior.scaleUp.tolerance: Invalid value: "-1": must be greater than or equal to 0'
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("edits", "expected"), CASES)
def test_what_is_wrong_with_an_autoscaler(kinds: Any, edits: dict[str, Any], expected: list[str]) -> None:
    assert kinds.faults(KIND, edits) == expected


def test_a_target_that_was_accepted_once_stays_accepted(kinds: Any) -> None:
    old = kinds.created(KIND, {"spec.scaleTargetRef.apiVersion": "v1"})
    assert kinds.rules(old).validate_update(copy.deepcopy(old), old) == []


def test_counts_in_a_status_are_not_negative(kinds: Any) -> None:
    assert kinds.status_faults(KIND, {"desiredReplicas": -1}) == [
        "status.desiredReplicas: Invalid value: -1: must be greater than or equal to 0"
    ]


# --- v1


def v1(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": KIND,
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 5,
            **spec,
        },
    }


def test_v1_gets_its_defaults() -> None:
    made = v1()
    rules_for("autoscaling", "v1", KIND).default(made)
    assert (made["spec"]["minReplicas"], made["spec"]["targetCPUUtilizationPercentage"]) == (1, 80)


def test_v1_is_validated_after_conversion_to_v2() -> None:
    rules = rules_for("autoscaling", "v1", KIND)
    assert rules.validate_create(v1(targetCPUUtilizationPercentage=50)) == []
    found = [str(error) for error in rules.validate_create(v1(targetCPUUtilizationPercentage=0))]
    assert found == ["spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0"]


def test_cpu_use_is_a_field_of_v1_and_a_metric_of_v2() -> None:
    converted = hpa.to_v2(v1(targetCPUUtilizationPercentage=50, minReplicas=2))
    assert converted["apiVersion"] == "autoscaling/v2"
    assert converted["spec"]["metrics"] == [hpa.cpu_metric(50)]
    assert hpa.to_v1(converted) == v1(targetCPUUtilizationPercentage=50, minReplicas=2)
    assert hpa.to_v2(v1())["spec"]["metrics"] == [CPU]


METRICS: list[dict[str, Any]] = [
    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
    {
        "type": "ContainerResource",
        "containerResource": {
            "name": "cpu", "container": "web", "target": {"type": "Utilization", "averageUtilization": 10},
        },
    },
    {"type": "Pods", "pods": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "5"}}},
    {
        "type": "External",
        "external": {
            "metric": {"name": "q", "selector": {"matchLabels": {"a": "b"}}},
            "target": {"type": "Value", "value": "5"},
        },
    },
    {
        "type": "Object",
        "object": {
            "metric": {"name": "q"},
            "describedObject": {"kind": "Service", "name": "web", "apiVersion": "v1"},
            "target": {"type": "AverageValue", "averageValue": "100m"},
        },
    },
]  # fmt: skip
STATUS = {
    "currentReplicas": 2,
    "desiredReplicas": 3,
    "lastScaleTime": "2030-01-01T00:00:00Z",
    "currentMetrics": [
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 40, "averageValue": "1"}}},
        {"type": "Pods", "pods": {"metric": {"name": "q"}, "current": {"averageValue": "4"}}},
    ],
    "conditions": [{"type": "AbleToScale", "status": "True", "reason": "Ready", "message": "as it should be"}],
}


def test_a_v2_object_survives_conversion_to_v1_and_back(kinds: Any) -> None:
    obj = kinds.created(KIND, {
        "spec.metrics": [*METRICS, hpa.cpu_metric(70)],
        "spec.behavior": {"scaleUp": {"tolerance": "100m"}},
        "metadata.annotations": {"kept": "1"},
        "status": STATUS,
    })  # fmt: skip
    before = copy.deepcopy(obj)
    narrow = hpa.to_v1(obj)
    assert obj == before
    assert narrow["spec"]["targetCPUUtilizationPercentage"] == 70
    assert narrow["status"]["currentCPUUtilizationPercentage"] == 40
    assert set(narrow["metadata"]["annotations"]) == {
        "kept", hpa.METRICS, hpa.CURRENT_METRICS, hpa.CONDITIONS, hpa.BEHAVIOR,
    }  # fmt: skip
    behavior = json.loads(narrow["metadata"]["annotations"][hpa.BEHAVIOR])
    assert behavior["ScaleUp"]["Policies"][0] == {"Type": "Pods", "Value": 4, "PeriodSeconds": 15}
    assert hpa.to_v2(narrow) == obj


def test_annotations_that_cannot_be_read_are_dropped() -> None:
    made = v1()
    made["metadata"]["annotations"] = {
        hpa.METRICS: '[{"type":"Resource","resource":{"name":"cpu","targetAverageUtilization":"ten"}}]',
        hpa.BEHAVIOR: "{",
        hpa.CONDITIONS: "7",
        hpa.CURRENT_METRICS: "[7]",
    }
    converted = hpa.to_v2(made)
    assert converted["spec"]["metrics"] == [CPU]
    assert "behavior" not in converted["spec"]
    assert "annotations" not in converted["metadata"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "1Gi", "Resource"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
        st.sampled_from(["type", "resource", "object", "target", "ScaleUp", "Policies", "metricSelector", "name"]), inner
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(JSON, JSON, JSON)
def test_annotations_with_anything_in_them_never_raise(metrics: Any, behavior: Any, status: Any) -> None:
    made = v1()
    made["metadata"]["annotations"] = {
        hpa.METRICS: json.dumps(metrics),
        hpa.BEHAVIOR: json.dumps(behavior),
        hpa.CURRENT_METRICS: json.dumps(status),
        hpa.CONDITIONS: json.dumps(status),
    }
    rules_for("autoscaling", "v1", KIND).validate_create(made)
    hpa.to_v1(hpa.to_v2(made))
