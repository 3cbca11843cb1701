"""Tables of every kind as kubectl shows them, and their documents."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.kube import tables
from shoal.kube.resources import BUILTIN, Resource
from shoal.kube.times import format_time

NOW = 1_700_000_000.0
MINUTE, HOUR, DAY = 60, 3600, 86400
YEAR = 365 * DAY
SHIP = Resource(group="example.com", version="v1", plural="ships", kind="Ship", custom=True)


def ago(seconds: float) -> str:
    return format_time(NOW - seconds)


def resource(kind: str, version: str = "") -> Resource:
    return next(r for r in BUILTIN if r.kind == kind and version in ("", r.version))


def obj(spec: Any = None, status: Any = None, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"metadata": {"name": "x", "creationTimestamp": ago(300), **more.pop("metadata", {})}}
    if spec is not None:
        made["spec"] = spec
    if status is not None:
        made["status"] = status
    return made | more


def row(kind: Resource, thing: dict[str, Any], now: float, use: tables.Printer | None = None) -> list[Any]:
    """The cells of an object, one for each column."""
    cells: list[Any] = tables.list_table(kind, [thing], {}, "None", now, use)["rows"][0]["cells"]
    return cells


def columns(kind: Resource) -> list[dict[str, Any]]:
    definitions: list[dict[str, Any]] = tables.list_table(kind, [], {}, "None", NOW)["columnDefinitions"]
    return definitions


TEMPLATE = {"spec": {"containers": [{"name": "a", "image": "i1"}, {"name": "b", "image": "i2"}]}}
BY_APP = {"matchLabels": {"app": "x"}}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1.9, "0s"),
        (-0.5, "0s"),
        (0, "0s"),
        (1.9, "1s"),
        (119.9, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (10 * MINUTE - 1, "9m59s"),
        (10 * MINUTE, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + MINUTE, "3h1m"),
        (8 * HOUR - 1, "7h59m"),
        (8 * HOUR, "8h"),
        (48 * HOUR - 1, "47h"),
        (48 * HOUR, "2d"),
        (49 * HOUR, "2d1h"),
        (8 * DAY - 1, "7d23h"),
        (8 * DAY, "8d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + 30 * HOUR, "2y1d"),
        (8 * YEAR - 1, "7y364d"),
        (8 * YEAR, "8y"),
        (30 * YEAR, "30y"),
    ],
)
def test_ages_are_written_to_two_or_three_figures(seconds: float, text: str) -> None:
    assert tables.human_duration(seconds) == text


def metric(kind: str, field: str, target: Any, current: Any = None, **more: Any) -> tuple[Any, Any]:
    status = {} if current is None else {"type": kind, field: {"current": current}}
    return {"type": kind, field: {"target": target, **more}}, status


def hpa(*metrics: tuple[Any, Any]) -> dict[str, Any]:
    return obj(
        {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 5, "metrics": [m[0] for m in metrics]},
        {"currentReplicas": 3, "currentMetrics": [m[1] for m in metrics]},
    )


CPU = metric("Resource", "resource", {"averageUtilization": 80}, {"averageUtilization": 42}, name="cpu")
COUNTS = {"used": {"pods": "1", "limits.cpu": "2"}, "hard": {"pods": "10", "limits.cpu": "4", "requests.cpu": "1"}}


@pytest.mark.parametrize(
    ("kind", "thing", "cells"),
    [
        (
            "Deployment",
            obj(
                {"replicas": 3, "selector": BY_APP, "template": TEMPLATE},
                {"readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2},
            ),
            ["x", "2/3", 1, 2, "5m", "a,b", "i1,i2", "app=x"],
        ),
        ("Deployment", obj({"replicas": 0}), ["x", "0/0", 0, 0, "5m", "", "", ""]),
        (
            "ReplicaSet",
            obj({"replicas": 3, "selector": BY_APP, "template": TEMPLATE}, {"replicas": 2, "readyReplicas": 1}),
            ["x", 3, 2, 1, "5m", "a,b", "i1,i2", "app=x"],
        ),
        (
            "ReplicationController",
            obj({"replicas": 1, "selector": {"b": "2", "a": "1"}, "template": TEMPLATE}),
            ["x", 1, 0, 0, "5m", "a,b", "i1,i2", "a=1,b=2"],
        ),
        (
            "StatefulSet",
            obj({"replicas": 3, "template": TEMPLATE}, {"readyReplicas": 1}),
            ["x", "1/3", "5m", "a,b", "i1,i2"],
        ),
        (
            "DaemonSet",
            obj(
                {"template": {"spec": {**TEMPLATE["spec"], "nodeSelector": {"disk": "ssd"}}}, "selector": {}},
                {
                    "desiredNumberScheduled": 5,
                    "currentNumberScheduled": 4,
                    "numberReady": 3,
                    "updatedNumberScheduled": 2,
                    "numberAvailable": 1,
                },
            ),
            ["x", 5, 4, 3, 2, 1, "disk=ssd", "5m", "a,b", "i1,i2", "<none>"],
        ),
        (
            "Job",
            obj(
                {"completions": 3, "template": TEMPLATE, "selector": BY_APP},
                {
                    "succeeded": 3,
                    "startTime": ago(250),
                    "completionTime": ago(200),
                    "conditions": [{"type": "Complete", "status": "True"}],
                },
            ),
            ["x", "Complete", "3/3", "50s", "5m", "a,b", "i1,i2", "app=x"],
        ),
        (
            "Job",
            obj({"parallelism": 4}, {"startTime": ago(30)}),
            ["x", "Running", "0/1 of 4", "30s", "5m", "", "", "<none>"],
        ),
        ("Job", obj({"parallelism": 1}), ["x", "Running", "0/1", "", "5m", "", "", "<none>"]),
        (
            "CronJob",
            obj(
                {"schedule": "*/5 * * * *", "suspend": False, "jobTemplate": {"spec": {"template": TEMPLATE}}},
                {"active": [{}, {}], "lastScheduleTime": ago(59)},
            ),
            ["x", "*/5 * * * *", "<none>", "False", 2, "59s", "5m", "a,b", "i1,i2", "<none>"],
        ),
        (
            "CronJob",
            obj({"schedule": "@daily", "timeZone": "Etc/UTC", "suspend": True}),
            ["x", "@daily", "Etc/UTC", "True", 0, "<none>", "5m", "", "", "<none>"],
        ),
        ("PodTemplate", obj(template={**TEMPLATE, "metadata": {"labels": {"a": "b"}}}), ["x", "a,b", "i1,i2", "a=b"]),
        (
            "ControllerRevision",
            obj(
                revision=4,
                metadata={
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Other", "name": "o"},
                        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": True},
                    ]
                },
            ),
            ["x", "statefulset.apps/db", 4, "5m"],
        ),
        (
            "PodDisruptionBudget",
            obj({"minAvailable": "50%"}, {"disruptionsAllowed": 2}),
            ["x", "50%", "N/A", 2, "5m"],
        ),
        ("PodDisruptionBudget", obj({"maxUnavailable": 0}), ["x", "N/A", "0", 0, "5m"]),
        ("HorizontalPodAutoscaler", hpa(CPU), ["x", "Deployment/d", "cpu: 42%/80%", "<unset>", 5, 3, "5m"]),
        ("HorizontalPodAutoscaler", hpa(), ["x", "Deployment/d", "<none>", "<unset>", 5, 3, "5m"]),
        (
            "HorizontalPodAutoscaler",
            hpa(
                metric("Resource", "resource", {"averageUtilization": 80}, name="cpu"),
                metric("External", "external", {"averageValue": "100m"}, {"averageValue": "50m"}),
                CPU,
            ),
            ["x", "Deployment/d", "cpu: <unknown>/80%, 50m/100m (avg) + 1 more...", "<unset>", 5, 3, "5m"],
        ),
        (
            "HorizontalPodAutoscaler",
            hpa(
                metric("Pods", "pods", {"averageValue": "1000m"}, {"averageValue": "500m"}),
                metric(
                    "ContainerResource",
                    "containerResource",
                    {"averageValue": "1Gi"},
                    {"averageValue": "512Mi"},
                    name="memory",
                ),
            ),
            ["x", "Deployment/d", "500m/1, memory: 512Mi/1Gi", "<unset>", 5, 3, "5m"],
        ),
        (
            "HorizontalPodAutoscaler",
            hpa(metric("Object", "object", {"value": "10"}, {"value": "7"}), metric("New", "new", {})),
            ["x", "Deployment/d", "7/10, <unknown type>", "<unset>", 5, 3, "5m"],
        ),
        (
            "Service",
            obj(
                {
                    "type": "NodePort",
                    "clusterIPs": ["10.0.0.1"],
                    "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}],
                    "selector": {"app": "x"},
                }
            ),
            ["x", "NodePort", "10.0.0.1", "<none>", "80:30080/TCP,53/UDP", "5m", "app=x"],
        ),
        (
            "Service",
            obj({"type": "ClusterIP", "clusterIPs": ["None"]}),
            ["x", "ClusterIP", "None", "<none>", "<none>", "5m", "<none>"],
        ),
        (
            "Service",
            obj({"type": "ClusterIP", "externalIPs": ["1.1.1.1", "2.2.2.2"]}),
            ["x", "ClusterIP", "<none>", "1.1.1.1,2.2.2.2", "<none>", "5m", "<none>"],
        ),
        (
            "Service",
            obj({"type": "LoadBalancer"}),
            ["x", "LoadBalancer", "<none>", "<pending>", "<none>", "5m", "<none>"],
        ),
        (
            "Service",
            obj(
                {"type": "LoadBalancer", "externalIPs": ["9.9.9.9"]},
                {"loadBalancer": {"ingress": [{"ip": "5.5.5.5"}, {"hostname": "lb.example.com"}]}},
            ),
            ["x", "LoadBalancer", "<none>", "5.5.5.5,lb.example.com,9.9.9.9", "<none>", "5m", "<none>"],
        ),
        (
            "Service",
            obj({"type": "ExternalName", "externalName": "db.example.com"}),
            ["x", "ExternalName", "<none>", "db.example.com", "<none>", "5m", "<none>"],
        ),
        ("Endpoints", obj(), ["x", "<none>", "5m"]),
        (
            "Endpoints",
            obj(
                subsets=[
                    {"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "ports": [{"port": 80}, {"port": 81}]},
                    {"addresses": [{"ip": "10.0.0.9"}]},
                ]
            ),
            ["x", "10.0.0.1:80,[fd00::1]:80,10.0.0.1:81 + 2 more...", "5m"],
        ),
        (
            "EndpointSlice",
            obj(
                addressType="IPv4",
                ports=[{"port": 80}, {"name": "web"}, {}],
                endpoints=[{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}],
            ),
            ["x", "IPv4", "80,web,*", "10.0.0.1,10.0.0.2", "5m"],
        ),
        ("EndpointSlice", obj(addressType="IPv4", endpoints=[]), ["x", "IPv4", "<unset>", "<unset>", "5m"]),
        (
            "Ingress",
            obj(
                {"ingressClassName": "nginx", "rules": [{"host": f"{c}.io"} for c in "abcde"], "tls": [{}]},
                {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}},
            ),
            ["x", "nginx", "a.io,b.io,c.io + 2 more...", "lb.example.com", "80, 443", "5m"],
        ),
        ("Ingress", obj({"rules": [{}]}), ["x", "<none>", "*", "", "80", "5m"]),
        (
            "IngressClass",
            obj(
                {"controller": "c", "parameters": {"kind": "P", "apiGroup": "g.io", "name": "p"}},
                metadata={"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
            ),
            ["x (default)", "c", "P.g.io/p", "5m"],
        ),
        (
            "NetworkPolicy",
            obj(
                {
                    "podSelector": {
                        "matchLabels": {"z": "1"},
                        "matchExpressions": [
                            {"key": "b", "operator": "In", "values": ["2", "1"]},
                            {"key": "a", "operator": "NotIn", "values": ["3"]},
                            {"key": "d", "operator": "DoesNotExist"},
                            {"key": "c", "operator": "Exists"},
                        ],
                    }
                }
            ),
            ["x", "a notin (3),b in (1,2),c,!d,z=1", "5m"],
        ),
        ("NetworkPolicy", obj({"podSelector": {}}), ["x", "<none>", "5m"]),
        (
            "StorageVersionMigration",
            obj(
                {"resource": {"group": "g.io", "resource": "crons"}},
                {"conditions": [{"type": "Running", "status": "False"}, {"type": "Succeeded", "status": "True"}]},
            ),
            ["x", "crons.g.io", "Succeeded"],
        ),
        ("StorageVersionMigration", obj({"resource": {"resource": "pods"}}), ["x", "pods", "Unknown"]),
        ("ServiceCIDR", obj({"cidrs": ["10.0.0.0/16", "fd00::/64"]}), ["x", "10.0.0.0/16,fd00::/64", "5m"]),
        (
            "IPAddress",
            obj({"parentRef": {"resource": "services", "namespace": "n", "name": "s"}}),
            ["x", "services/n/s", "5m"],
        ),
        (
            "Node",
            obj(
                {"unschedulable": True},
                {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "addresses": [{"type": "InternalIP", "address": "10.1.1.1"}],
                    "nodeInfo": {
                        "kubeletVersion": "v1.37.0",
                        "osImage": "Linux",
                        "kernelVersion": "6.1",
                        "architecture": "amd64",
                        "containerRuntimeVersion": "process://1",
                    },
                },
                metadata={
                    "labels": {
                        "node-role.kubernetes.io/worker": "",
                        "node-role.kubernetes.io/control-plane": "",
                        "kubernetes.io/role": "edge",
                    }
                },
            ),
            ["x", "Ready,SchedulingDisabled", "control-plane,edge,worker", "5m", "v1.37.0"]
            + ["10.1.1.1", "<none>", "Linux", "6.1 (amd64)", "process://1"],
        ),
        (
            "Node",
            obj({}, {"conditions": [{"type": "Ready", "status": "Unknown"}]}),
            ["x", "NotReady", "<none>", "5m", "", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"],
        ),
        ("Namespace", obj({}, {"phase": "Active"}), ["x", "Active", "5m"]),
        ("ConfigMap", obj(data={"a": "1"}, binaryData={"b": "Mg=="}), ["x", 2, "5m"]),
        ("Secret", obj(type="Opaque", data={"a": "MQ=="}), ["x", "Opaque", 1, "5m"]),
        ("ServiceAccount", obj(), ["x", "5m"]),
        ("ComponentStatus", obj(), ["x", "Unknown", "", ""]),
        (
            "ComponentStatus",
            obj(conditions=[{"type": "Healthy", "status": "False", "message": "m", "error": "e"}]),
            ["x", "Unhealthy", "m", "e"],
        ),
        ("ResourceQuota", obj({}, COUNTS), ["x", "pods: 1/10, requests.cpu: 0/1", "limits.cpu: 2/4", "5m"]),
        ("Lease", obj({"holderIdentity": "me"}), ["x", "me", "5m"]),
        (
            "PriorityClass",
            obj(value=1000, globalDefault=True, preemptionPolicy="Never"),
            ["x", 1000, True, "5m", "Never"],
        ),
        ("RuntimeClass", obj(handler="runc"), ["x", "runc", "5m"]),
        (
            "FlowSchema",
            obj(
                {
                    "priorityLevelConfiguration": {"name": "p"},
                    "matchingPrecedence": 9,
                    "distinguisherMethod": {"type": "ByUser"},
                },
                {"conditions": [{"type": "Dangling", "status": "False"}]},
            ),
            ["x", "p", 9, "ByUser", "5m", "False"],
        ),
        ("PriorityLevelConfiguration", obj({"type": "Exempt"}), ["x", "Exempt", *["<none>"] * 4, "5m"]),
        (
            "PriorityLevelConfiguration",
            obj(
                {
                    "type": "Limited",
                    "limited": {
                        "nominalConcurrencyShares": 30,
                        "limitResponse": {"queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50}},
                    },
                }
            ),
            ["x", "Limited", 30, 64, 6, 50, "5m"],
        ),
        (
            "PersistentVolume",
            obj(
                {
                    "capacity": {"storage": "5Gi"},
                    "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "claimRef": {"namespace": "n", "name": "c"},
                    "storageClassName": "fast",
                    "volumeMode": "Filesystem",
                },
                {"phase": "Bound"},
            ),
            ["x", "5Gi", "RWO,RWX", "Retain", "Bound", "n/c", "fast", "<unset>", "", "5m", "Filesystem"],
        ),
        (
            "PersistentVolumeClaim",
            obj(
                {
                    "volumeName": "v",
                    "storageClassName": "fast",
                    "volumeMode": "Block",
                    "volumeAttributesClassName": "gold",
                },
                {"phase": "Bound", "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOncePod"]},
            ),
            ["x", "Bound", "v", "5Gi", "RWOP", "fast", "gold", "5m", "Block"],
        ),
        (
            "PersistentVolumeClaim",
            obj({}, {"phase": "Pending"}, metadata={"deletionTimestamp": ago(1)}),
            ["x", "Terminating", "", "", "", "", "<unset>", "5m", "<unset>"],
        ),
        (
            "StorageClass",
            obj(
                provisioner="p",
                allowVolumeExpansion=True,
                metadata={"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            ),
            ["x (default)", "p", "Delete", "Immediate", True, "5m"],
        ),
        (
            "VolumeAttachment",
            obj({"attacher": "a", "source": {"persistentVolumeName": "v"}, "nodeName": "n"}, {"attached": True}),
            ["x", "a", "v", "n", True, "5m"],
        ),
        ("VolumeAttributesClass", obj(driverName="d"), ["x", "d", "5m"]),
        (
            "CSIDriver",
            obj({"tokenRequests": [{"audience": "a"}, {"audience": "b"}], "volumeLifecycleModes": ["Ephemeral"]}),
            ["x", True, False, False, "a,b", False, "Ephemeral", "5m"],
        ),
        ("CSINode", obj({"drivers": [{}, {}]}), ["x", 2, "5m"]),
        ("CSIStorageCapacity", obj(storageClassName="s"), ["x", "s", "<unset>"]),
        ("DeviceClass", obj(), ["x", "5m"]),
        ("ResourceClaim", obj({}), ["x", "pending", "5m"]),
        ("ResourceClaim", obj({}, {"allocation": {}, "reservedFor": [{}]}), ["x", "allocated,reserved", "5m"]),
        (
            "ResourceSlice",
            obj({"nodeName": "n", "driver": "d", "pool": {"name": "p"}}),
            ["x", "n", "d", "p", "5m"],
        ),
        (
            "ClusterRoleBinding",
            obj(
                roleRef={"kind": "ClusterRole", "name": "view"},
                subjects=[
                    {"kind": "User", "name": "u1"},
                    {"kind": "User", "name": "u2"},
                    {"kind": "Group", "name": "g"},
                    {"kind": "ServiceAccount", "namespace": "n", "name": "s"},
                ],
            ),
            ["x", "ClusterRole/view", "5m", "u1, u2", "g", "n/s"],
        ),
        ("Role", obj(), ["x", ago(300)]),
        ("ClusterRole", obj(), ["x", ago(300)]),
        ("LimitRange", obj(), ["x", ago(300)]),
        (
            "CertificateSigningRequest",
            obj(
                {"signerName": "s", "username": "u", "expirationSeconds": 3600},
                {"conditions": [{"type": "Approved"}], "certificate": "x"},
            ),
            ["x", "5m", "s", "u", "60m", "Approved,Issued"],
        ),
        ("CertificateSigningRequest", obj({}), ["x", "5m", "<none>", "", "<none>", "Pending"]),
        ("ClusterTrustBundle", obj({"signerName": "s/x"}), ["x", "s/x"]),
        ("ClusterTrustBundle", obj({}), ["x", "<none>"]),
        (
            "PodCertificateRequest",
            obj({"podName": "p", "serviceAccountName": "a", "nodeName": "n", "signerName": "s/x"}),
            ["x", "p", "a", "n", "s/x", "Pending", "5m"],
        ),
        (
            "PodCertificateRequest",
            obj({}, status={"conditions": [{"type": "Denied", "status": "True"}]}),
            ["x", "", "", "", "", "Denied", "5m"],
        ),
        ("ValidatingWebhookConfiguration", obj(webhooks=[{}, {}]), ["x", 2, "5m"]),
        ("MutatingWebhookConfiguration", obj(), ["x", 0, "5m"]),
        (
            "ValidatingAdmissionPolicy",
            obj({"validations": [{}], "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}),
            ["x", 1, "v1/ConfigMap", "5m"],
        ),
        ("MutatingAdmissionPolicy", obj({"mutations": [{}, {}]}), ["x", 2, "<unset>", "5m"]),
        (
            "ValidatingAdmissionPolicyBinding",
            obj({"policyName": "p", "paramRef": {"name": "c"}}),
            ["x", "p", "*/c", "5m"],
        ),
        (
            "CustomResourceDefinition",
            obj(
                {
                    "group": "example.com",
                    "scope": "Namespaced",
                    "names": {"kind": "Ship", "shortNames": ["sh"]},
                    "versions": [
                        {"name": "v1beta1", "served": True},
                        {"name": "v1", "served": True, "storage": True},
                        {"name": "v0"},
                    ],
                },
                {"conditions": [{"type": "Established", "status": "True"}]},
            ),
            ["x", "Namespaced", "v1(storage),v1beta1", ago(300), "example.com", "Ship", "sh", True],
        ),
        (
            "APIService",
            obj(
                {"service": {"namespace": "n", "name": "s"}},
                {"conditions": [{"type": "Available", "status": "False", "reason": "Down"}]},
            ),
            ["x", "n/s", "False (Down)", "5m"],
        ),
        (
            "APIService",
            obj({}, {"conditions": [{"type": "Available", "status": "True"}]}),
            ["x", "Local", "True", "5m"],
        ),
    ],
)
def test_a_row_of_each_kind(kind: str, thing: dict[str, Any], cells: list[Any]) -> None:
    assert row(resource(kind), thing, NOW) == cells


@pytest.mark.parametrize(
    ("conditions", "deleted", "text"),
    [
        ((), False, "Running"),
        (("Complete",), True, "Complete"),
        (("Failed",), False, "Failed"),
        ((), True, "Terminating"),
        (("Suspended",), False, "Suspended"),
        (("FailureTarget",), False, "FailureTarget"),
        (("SuccessCriteriaMet",), False, "SuccessCriteriaMet"),
    ],
)
def test_how_far_a_job_is(conditions: tuple[str, ...], deleted: bool, text: str) -> None:
    job = obj({}, {"conditions": [{"type": kind, "status": "True"} for kind in conditions]})
    if deleted:
        job["metadata"]["deletionTimestamp"] = ago(1)
    assert row(resource("Job"), job, NOW)[1] == text


def test_events_of_both_versions_show_the_same() -> None:
    old = obj(
        type="Warning",
        reason="Failed",
        message=" could not \n",
        involvedObject={"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"},
        source={"component": "kubelet", "host": "n1"},
        firstTimestamp=ago(600),
        lastTimestamp=ago(10),
        count=7,
    )
    new = obj(
        type="Warning",
        reason="Failed",
        note=" could not \n",
        regarding={"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"},
        deprecatedSource={"component": "kubelet", "host": "n1"},
        deprecatedFirstTimestamp=ago(600),
        deprecatedLastTimestamp=ago(10),
        deprecatedCount=7,
    )
    expected = ["10s", "Warning", "Failed", "pod/p", "spec.containers{c}", "kubelet, n1", "could not", "10m", 7, "x"]
    assert row(resource("Event"), old, NOW) == expected
    newer = next(r for r in BUILTIN if r.group == "events.k8s.io")
    assert row(newer, new, NOW) == expected


def test_an_event_without_old_times_uses_its_event_time_and_series() -> None:
    single = obj(eventTime=ago(60), reportingComponent="kopf", involvedObject={"kind": "Namespace"})
    cells = row(resource("Event"), single, NOW)
    assert (cells[0], cells[3], cells[5], cells[7], cells[8]) == ("60s", "namespace", "kopf", "60s", 1)
    series = {**single, "series": {"count": 4, "lastObservedTime": ago(5)}}
    cells = row(resource("Event"), series, NOW)
    assert (cells[0], cells[7], cells[8]) == ("5s", "60s", 4)
    assert row(resource("Event"), obj(), NOW)[0] == "<unknown>"


def test_the_first_version_of_autoscalers_shows_its_one_metric() -> None:
    thing = obj(
        {
            "scaleTargetRef": {"kind": "Deployment", "name": "d"},
            "minReplicas": 1,
            "maxReplicas": 5,
            "targetCPUUtilizationPercentage": 80,
        },
        {"currentReplicas": 3},
    )
    cells = row(resource("HorizontalPodAutoscaler", "v1"), thing, NOW)
    assert cells == ["x", "Deployment/d", "cpu: <unknown>/80%", "1", 5, 3, "5m"]


@pytest.mark.parametrize("kind", BUILTIN, ids=lambda r: f"{r.group}/{r.version}/{r.kind}")
def test_every_kind_has_one_cell_for_each_column_even_when_nothing_is_set(kind: Resource) -> None:
    for thing in ({}, {"metadata": {}}, obj(), obj({}, {})):
        assert len(row(kind, thing, NOW)) == len(columns(kind))


@pytest.mark.parametrize("kind", BUILTIN, ids=lambda r: f"{r.group}/{r.version}/{r.kind}")
def test_every_column_is_fully_defined_and_one_names_the_object(kind: Resource) -> None:
    definitions = columns(kind)
    for definition in definitions:
        assert definition.keys() == {"name", "type", "format", "description", "priority"}
        assert definition["type"] in {"string", "integer", "number", "boolean", "date"}
        assert definition["description"]
    assert any(d["name"] == "Name" and d["format"] == "name" for d in definitions)


def test_a_broken_time_is_shown_and_not_raised() -> None:
    assert row(resource("Namespace"), obj(metadata={"creationTimestamp": "soon"}), NOW)[2] == "<invalid>"


# Custom resources.

SHIP_COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "Crew."},
    {"name": "Load", "type": "number", "jsonPath": ".spec.load", "priority": 1},
    {"name": "Ready", "type": "boolean", "jsonPath": ".status.ready"},
    {"name": "Port", "type": "string", "jsonPath": ".spec.port", "format": "name"},
    {"name": "Sailed", "type": "date", "jsonPath": ".status.sailed"},
]


def test_custom_columns_follow_the_name() -> None:
    printer = tables.custom_printer(SHIP_COLUMNS)
    assert [c["name"] for c in printer.columns] == ["Name", "Size", "Load", "Ready", "Port", "Sailed"]
    assert printer.columns[1]["description"] == "Crew."
    assert printer.columns[2]["description"] == "Custom resource definition column (in JSONPath format): .spec.load"
    assert [c["priority"] for c in printer.columns] == [0, 0, 1, 0, 0, 0]
    ship = obj({"size": 3, "load": 1.5, "port": "Hull"}, {"ready": False, "sailed": ago(90)})
    assert row(SHIP, ship, NOW, printer) == ["x", 3, 1.5, False, "Hull", "90s"]


def test_custom_columns_can_look_into_lists() -> None:
    path = '.status.conditions[?(@.type=="Ready")].status'
    printer = tables.custom_printer([{"name": "Ready", "type": "string", "jsonPath": path}])
    conditions = [{"type": "Painted", "status": "False"}, {"type": "Ready", "status": "True"}]
    assert row(SHIP, obj({}, {"conditions": conditions}), NOW, printer) == ["x", "True"]
    assert row(SHIP, obj({}, {"conditions": conditions[:1]}), NOW, printer) == ["x", None]


def test_absent_custom_cells_are_null() -> None:
    printer = tables.custom_printer(SHIP_COLUMNS)
    assert row(SHIP, obj(), NOW, printer) == ["x", None, None, None, None, None]
    assert row(SHIP, obj({"size": None, "port": None}), NOW, printer) == ["x", None, None, None, None, None]
    assert row(SHIP, obj("text"), NOW, printer) == ["x", None, None, None, None, None]


def test_custom_cells_of_another_type_than_the_column() -> None:
    printer = tables.custom_printer(SHIP_COLUMNS)
    ship = obj({"size": "three", "load": True, "port": {"b": 1, "a": [True]}}, {"ready": "yes", "sailed": 5})
    assert row(SHIP, ship, NOW, printer) == ["x", None, None, None, '{"a":[true],"b":1}', None]
    for value, text in ((7, "7"), (True, "true"), (1.5, "1.5"), ([1, "a"], '[1,"a"]')):
        assert row(SHIP, obj({"port": value}), NOW, printer)[4] == text
    assert row(SHIP, obj({"size": 3.9}), NOW, printer)[1] == 3
    assert row(SHIP, obj({}, {"sailed": "never"}), NOW, printer)[5] == "<invalid>"


def test_custom_resources_without_columns_show_their_age() -> None:
    assert [c["name"] for c in columns(SHIP)] == ["Name", "Age"]
    assert row(SHIP, obj(), NOW) == ["x", "5m"]


# Documents.


def test_a_list_becomes_a_table_with_metadata_rows() -> None:
    meta = {"resourceVersion": "12", "continue": "abc", "remainingItemCount": 5}
    space = obj({}, {"phase": "Active"})
    table = tables.list_table(resource("Namespace"), [space], meta, "Metadata", NOW)
    assert table["kind"] == "Table"
    assert table["apiVersion"] == "meta.k8s.io/v1"
    assert table["metadata"] == meta
    assert table["columnDefinitions"] == columns(resource("Namespace"))
    assert table["rows"] == [
        {
            "cells": ["x", "Active", "5m"],
            "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": space["metadata"]},
        }
    ]


def test_rows_have_the_requested_part_of_the_object() -> None:
    space = obj({}, {"phase": "Active"})
    bare = tables.list_table(resource("Namespace"), [space], {}, "None", NOW)
    assert bare["rows"][0]["object"] is None
    full = tables.list_table(resource("Namespace"), [space], {}, "Object", NOW)
    assert full["rows"][0]["object"] == {"kind": "Namespace", "apiVersion": "v1", **space}


def test_an_empty_list_has_columns_and_no_rows() -> None:
    table = tables.list_table(resource("Pod"), [], {"resourceVersion": "1"}, "Metadata", NOW)
    assert table["rows"] == []
    assert table["columnDefinitions"]


def test_one_object_becomes_a_table_of_its_version() -> None:
    table = tables.object_table(resource("Namespace"), obj(metadata={"resourceVersion": "7"}), "Metadata", NOW)
    assert table["metadata"] == {"resourceVersion": "7"}
    assert len(table["rows"]) == 1


def test_only_the_first_watch_event_defines_the_columns() -> None:
    space = obj(metadata={"resourceVersion": "7"})
    first = tables.watch_table(resource("Namespace"), space, True, "Metadata", NOW)
    later = tables.watch_table(resource("Namespace"), space, False, "Metadata", NOW)
    assert first["columnDefinitions"] == columns(resource("Namespace"))
    assert later["columnDefinitions"] == []
    assert first["rows"] == later["rows"]
    assert later["metadata"] == {"resourceVersion": "7"}


def test_the_bookmark_that_ends_the_initial_events_keeps_its_metadata() -> None:
    bookmark = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}
    table = tables.watch_table(resource("Pod"), bookmark, True, "None", NOW)
    assert table["rows"][0]["object"]["metadata"] == bookmark["metadata"]


def test_partial_objects_keep_only_metadata() -> None:
    space = obj({"a": 1})
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": space["metadata"]}
    assert tables.partial_object(space) == partial
    assert tables.partial_list([space], {"resourceVersion": "3"}) == {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "3"},
        "items": [partial],
    }
