"""The zeros of a kind: which fields are always there, and how they are filled in."""

from __future__ import annotations

import orjson
import pytest

from shoal.kube.objects import Obj
from shoal.kube.resources import BUILTIN
from shoal.kube.schema import Form, Type, type_of, type_of_kind
from shoal.kube.zeros import NO_ZEROS, fill, zeros_of

NODE_INFO = (
    "architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion",
    "machineID", "operatingSystem", "osImage", "systemUUID",
)  # fmt: skip
STATUSES: dict[tuple[str, str, str], Obj] = {
    ("", "v1", "Pod"): {},
    ("", "v1", "Service"): {"loadBalancer": {}},
    ("", "v1", "Node"): {
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "nodeInfo": dict.fromkeys(NODE_INFO, ""),
    },
    ("apps", "v1", "Deployment"): {},
    ("apps", "v1", "DaemonSet"): {
        "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
    },
    ("apps", "v1", "ReplicaSet"): {"replicas": 0},
    ("apps", "v1", "StatefulSet"): {"replicas": 0, "availableReplicas": 0},
    ("autoscaling", "v1", "HorizontalPodAutoscaler"): {"currentReplicas": 0, "desiredReplicas": 0},
    ("autoscaling", "v2", "HorizontalPodAutoscaler"): {"desiredReplicas": 0, "currentMetrics": None},
    ("networking.k8s.io", "v1", "Ingress"): {"loadBalancer": {}},
    ("policy", "v1", "PodDisruptionBudget"): {
        "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0,
    },
    ("storage.k8s.io", "v1", "VolumeAttachment"): {"attached": False},
}  # fmt: skip


def filled(group: str, version: str, kind: str, obj: Obj) -> Obj:
    fill(obj, zeros_of(type_of_kind(group, version, kind)).content)
    return obj


@pytest.mark.parametrize("kind", STATUSES, ids="/".join)
def test_a_new_status_has_the_zeros_that_kubernetes_sends(kind: tuple[str, str, str]) -> None:
    assert orjson.loads(zeros_of(type_of_kind(*kind)).new_status) == STATUSES[kind]


def test_the_status_of_every_kind_has_the_fields_that_its_schema_requires() -> None:
    for resource in BUILTIN:
        type_ = type_of_kind(resource.group, resource.version, resource.kind)
        if "status" in type_.fields:
            status = orjson.loads(zeros_of(type_).new_status)
            assert _missing(status, type_.fields["status"].type, "status") == [], resource.kind


def _missing(obj: Obj, type_: Type, path: str) -> list[str]:
    found = [f"{path}.{name}" for name in type_.required if obj.get(name) is None]
    for name, value in obj.items():
        if isinstance(value, dict) and type_.fields[name].type.form is Form.STRUCT:
            found += _missing(value, type_.fields[name].type, f"{path}.{name}")
    return found


def test_an_event_has_a_source_and_times() -> None:
    made = filled("", "v1", "Event", {"metadata": {}, "involvedObject": {"name": "a"}})
    assert made == {
        "metadata": {}, "involvedObject": {"name": "a"}, "source": {}, "firstTimestamp": None, "lastTimestamp": None,
        "eventTime": None, "reportingComponent": "", "reportingInstance": "",
    }  # fmt: skip


def test_an_optional_list_is_null_and_a_required_one_is_empty() -> None:
    assert filled("rbac.authorization.k8s.io", "v1", "Role", {}) == {"rules": None}
    limits = filled("", "v1", "LimitRange", {})
    assert limits == {"spec": {"limits": []}}
    assert filled("", "v1", "LimitRange", {})["spec"]["limits"] is not limits["spec"]["limits"]  # not shared


def test_values_that_are_there_stay() -> None:
    status = {"numberReady": 3, "desiredNumberScheduled": 4}
    fill(status, zeros_of(type_of_kind("apps", "v1", "DaemonSet")).status)
    assert status == {
        "numberReady": 3, "desiredNumberScheduled": 4, "currentNumberScheduled": 0, "numberMisscheduled": 0,
    }  # fmt: skip


def test_custom_resources_have_no_zeros() -> None:
    assert zeros_of(Type(Form.STRUCT, "example.com.v1.Thing")) is NO_ZEROS
    assert zeros_of(type_of("io.k8s.api.core.v1.ConfigMap")).content == ()
