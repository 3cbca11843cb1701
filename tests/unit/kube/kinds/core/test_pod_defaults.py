"""Pods and templates get the defaults of Kubernetes, and no others."""

from __future__ import annotations

import pytest

from shoal.kube.kinds.core.pod import POD, default_pod_template, qos_class
from shoal.kube.kinds.core.pod_defaults import pull_policy_of
from shoal.kube.objects import Obj


def defaulted(spec: Obj) -> Obj:
    pod: Obj = {"metadata": {"name": "p"}, "spec": spec}
    POD.default(pod)
    made: Obj = pod["spec"]
    return made


def test_a_bare_pod_gets_every_default() -> None:
    assert defaulted({"containers": [{"name": "c", "image": "app"}]}) == {
        "containers": [
            {
                "name": "c",
                "image": "app",
                "imagePullPolicy": "Always",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "resources": {},
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }


def test_a_template_gets_no_service_links_and_no_requests() -> None:
    template: Obj = {"spec": {"containers": [{"name": "c", "image": "a:1", "resources": {"limits": {"cpu": "1"}}}]}}
    default_pod_template(template)
    assert "enableServiceLinks" not in template["spec"]
    assert template["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("app", "Always"),
        ("app:latest", "Always"),
        ("app:1", "IfNotPresent"),
        ("host:5000/team/app", "Always"),
        ("host:5000/team/app:2", "IfNotPresent"),
        ("app@sha256:" + "a" * 64, "IfNotPresent"),
        ("app:latest@sha256:" + "a" * 64, "Always"),
        ("", "IfNotPresent"),
        ("NOT an image", "IfNotPresent"),
    ],
)
def test_only_images_without_a_version_are_always_pulled(image: str, policy: str) -> None:
    assert pull_policy_of(image) == policy


def test_requests_are_filled_in_from_limits_and_amounts_rounded_up_to_milli() -> None:
    spec = defaulted(
        {"containers": [{"resources": {"limits": {"cpu": "100u", "memory": "1Gi"}, "requests": {"memory": "1"}}}]}
    )
    assert spec["containers"][0]["resources"] == {
        "limits": {"cpu": "1m", "memory": "1Gi"},
        "requests": {"cpu": "1m", "memory": "1"},
    }


def test_probes_ports_and_field_references() -> None:
    container = defaulted(
        {
            "containers": [
                {
                    "ports": [{"containerPort": 80}],
                    "livenessProbe": {"httpGet": {"port": 80}},
                    "readinessProbe": {"grpc": {"port": 1}, "periodSeconds": 5},
                    "lifecycle": {"preStop": {"httpGet": {"port": 1}}},
                    "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                }
            ]
        }
    )["containers"][0]
    counts = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert container["livenessProbe"] == {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, **counts}
    assert container["readinessProbe"] == {"grpc": {"port": 1, "service": ""}, **counts, "periodSeconds": 5}
    assert container["lifecycle"]["preStop"]["httpGet"] == {"port": 1, "path": "/", "scheme": "HTTP"}
    assert container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"


def test_host_network_puts_ports_on_the_host() -> None:
    spec = defaulted({"hostNetwork": True, "containers": [{"ports": [{"containerPort": 80}]}]})
    assert spec["containers"][0]["ports"][0]["hostPort"] == 80


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        ({}, {"emptyDir": {}}),
        ({"secret": {"secretName": "s"}}, {"secret": {"secretName": "s", "defaultMode": 420}}),
        ({"configMap": {"name": "c", "defaultMode": 0}}, {"configMap": {"name": "c", "defaultMode": 0}}),
        ({"hostPath": {"path": "/a"}}, {"hostPath": {"path": "/a", "type": ""}}),
        (
            {"rbd": {"image": "i"}},
            {"rbd": {"image": "i", "pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}},
        ),
        ({"iscsi": {"iqn": "i"}}, {"iscsi": {"iqn": "i", "iscsiInterface": "default"}}),
        (
            {"azureDisk": {"diskName": "d"}},
            {
                "azureDisk": {
                    "diskName": "d",
                    "cachingMode": "ReadWrite",
                    "fsType": "ext4",
                    "readOnly": False,
                    "kind": "Shared",
                }
            },
        ),
        ({"image": {"reference": "a:1"}}, {"image": {"reference": "a:1", "pullPolicy": "IfNotPresent"}}),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {
                "projected": {
                    "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
                    "defaultMode": 420,
                }
            },
        ),
        (
            {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"ephemeral": {"volumeClaimTemplate": {"spec": {"volumeMode": "Filesystem"}}}},
        ),
    ],
)
def test_volume_defaults(volume: Obj, expected: Obj) -> None:
    assert defaulted({"volumes": [{"name": "v", **volume}]})["volumes"] == [{"name": "v", **expected}]


def test_the_old_name_of_the_service_account_follows_the_new() -> None:
    assert defaulted({"serviceAccount": "a"})["serviceAccountName"] == "a"
    spec = defaulted({"serviceAccount": "a", "serviceAccountName": "b"})
    assert (spec["serviceAccount"], spec["serviceAccountName"]) == ("b", "b")


def test_negative_grace_becomes_one_second() -> None:
    assert defaulted({"terminationGracePeriodSeconds": -5})["terminationGracePeriodSeconds"] == 1


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"cpu": "0"}}], "BestEffort"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1"}, "requests": {"cpu": "1", "memory": "1"}}], "Guaranteed"),
        ([{"limits": {"cpu": "1000m", "memory": "1Ki"}, "requests": {"cpu": "1", "memory": "1024"}}], "Guaranteed"),
        ([{"limits": {"cpu": "1", "memory": "2"}, "requests": {"cpu": "1", "memory": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1"}, "requests": {"cpu": "1", "memory": "1"}}, {}], "Burstable"),
    ],
)
def test_quality_of_service(containers: list[Obj], expected: str) -> None:
    assert qos_class({"spec": {"containers": [{"resources": resources} for resources in containers]}}) == expected


def test_a_new_pod_is_pending_and_says_so_when_gated() -> None:
    pod: Obj = {"spec": {"schedulingGates": [{"name": "a"}]}, "status": {"phase": "Running", "podIP": "1.2.3.4"}}
    POD.prepare_create(pod)
    assert pod["status"] == {
        "phase": "Pending",
        "qosClass": "BestEffort",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ],
    }


def test_requests_of_the_whole_pod_come_from_its_containers_and_limits() -> None:
    pod: Obj = {
        "spec": {
            "resources": {"limits": {"cpu": "4", "memory": "1Gi"}},
            "containers": [{"resources": {"requests": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": "500m"}}}],
            "initContainers": [{"resources": {"requests": {"cpu": "2"}}}],
        }
    }
    POD.prepare_create(pod)
    assert pod["spec"]["resources"]["requests"] == {"cpu": "2", "memory": "1Gi"}


def test_label_keys_of_a_pod_are_merged_into_the_selectors_that_name_them() -> None:
    constraint: Obj = {"topologyKey": "z", "labelSelector": {}, "matchLabelKeys": ["hash", "absent"]}
    pod: Obj = {"metadata": {"labels": {"hash": "1"}}, "spec": {"topologySpreadConstraints": [constraint]}}
    POD.prepare_create(pod)
    assert constraint["labelSelector"] == {"matchExpressions": [{"key": "hash", "operator": "In", "values": ["1"]}]}
