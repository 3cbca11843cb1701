"""Namespaces, nodes, quotas, limit ranges, volumes and claims, events, endpoints, controllers, templates, bindings."""

from __future__ import annotations

import copy

import pytest

from shoal.kube.kinds import rules_for
from shoal.kube.kinds.core.namespace import NAMESPACE
from shoal.kube.kinds.core.node import NODE
from shoal.kube.kinds.core.quota import LIMIT_RANGE, RESOURCE_QUOTA
from shoal.kube.kinds.core.storage import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from shoal.kube.kinds.core.workloads import REPLICATION_CONTROLLER
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules


def create(rules: KindRules, obj: Obj) -> Obj:
    made = copy.deepcopy(obj)
    rules.default(made)
    rules.prepare_create(made)
    return made


def faults(kind: str, obj: Obj) -> list[str]:
    rules = rules_for("", "v1", kind)
    return [str(error) for error in rules.validate_create(create(rules, obj))]


def update(rules: KindRules, old: Obj, new: Obj) -> list[str]:
    before, made = copy.deepcopy(old), copy.deepcopy(new)
    rules.default(made)
    rules.prepare_update(made, old)
    found = [str(error) for error in rules.validate_update(made, old)]
    assert old == before
    return found


TEMPLATE: Obj = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
VOLUME: Obj = {"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"}}}
CLAIM: Obj = {"spec": {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}}
EVENT: Obj = {"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "a"}}
NEW_EVENT: Obj = {
    **EVENT,
    "eventTime": "2024-01-01T00:00:00.000000Z",
    "reportingComponent": "x.io/y",
    "reportingInstance": "i",
    "action": "Go",
    "reason": "Why",
}

CASES: list[tuple[str, Obj, list[str]]] = [
    ("Namespace", {"metadata": {"name": "a"}}, []),
    ("Namespace", {"spec": {"finalizers": ["mine"]}}, [
        'spec.finalizers: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified']),
    ("Node", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "podCIDR": "10.0.0.0/24"}}, []),
    ("Node", {"spec": {"taints": [{"key": "a"}]}}, ["metadata.taints[0].effect: Required value"]),
    ("Node", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}] * 2}}, [
        'metadata.taints[1]: Duplicate value: {"key":"a","effect":"NoSchedule"}: taints must be unique by key and effect pair']),
    ("Node", {"spec": {"podCIDRs": ["10.0.0.0/24", "10.0.1.0/24"]}}, [
        'spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.0.1.0/24"]: may specify no more than one CIDR for each IP family']),
    ("Node", {"status": {"capacity": {"pods": "1500m"}}}, [
        'status.capacity.pods: Invalid value: "1500m": must be an integer',
        'status.allocatable.pods: Invalid value: "1500m": must be an integer']),
    ("ResourceQuota", {"spec": {"hard": {"pods": "1", "requests.cpu": "1", "count/x.y.io": "3"}}}, []),
    ("ResourceQuota", {"spec": {"hard": {"apples": "1"}}}, [
        'spec.hard[apples]: Invalid value: "apples": must be a standard resource type or fully qualified',
        'spec.hard[apples]: Invalid value: "apples": must be a standard resource for quota']),
    ("ResourceQuota", {"spec": {"hard": {"pods": "1500m"}}}, ['spec.hard[pods]: Invalid value: "1500m": must be an integer']),
    ("ResourceQuota", {"spec": {"scopes": ["BestEffort", "NotBestEffort"]}}, [
        'spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes']),
    ("ResourceQuota", {"spec": {"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}}, [
        'spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource']),
    ("ResourceQuota", {"spec": {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}}}, [
        "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or "
        "'NotIn' for scope selector"]),
    ("LimitRange", {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}}, []),
    ("LimitRange", {"spec": {"limits": [{"type": "Pod", "default": {"cpu": "1"}}]}}, [
        "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'"]),
    ("LimitRange", {"spec": {"limits": [{"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}}, [
        'spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1']),
    ("LimitRange", {"spec": {"limits": [{"type": "Pod"}, {"type": "Pod"}]}}, [
        'spec.limits[1].type: Duplicate value: "Pod"']),
    ("LimitRange", {"spec": {"limits": [{"type": "PersistentVolumeClaim"}]}}, [
        "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided"]),
    ("LimitRange", {"spec": {"limits": [{"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}}]}}, [
        'spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000']),
    ("PersistentVolume", VOLUME, []),
    ("PersistentVolume", {}, [
        "spec.accessModes: Required value", "spec.capacity: Required value",
        'spec.capacity: Unsupported value: {}: supported values: "storage"', "spec: Required value: must specify a volume type"]),
    ("PersistentVolume", {"spec": {**VOLUME["spec"], "nfs": {"server": "a", "path": "/"}}}, [
        "spec.nfs: Forbidden: may not specify more than 1 volume type"]),
    ("PersistentVolume", {"spec": {**VOLUME["spec"], "hostPath": {"path": "/"}, "persistentVolumeReclaimPolicy": "Recycle"}}, [
        "spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'"]),
    ("PersistentVolume", {"spec": {"capacity": {"storage": "1"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/a"}}}, [
        "spec.nodeAffinity: Required value: Local volume requires node affinity"]),
    ("PersistentVolume", {"spec": {**VOLUME["spec"], "accessModes": ["ReadWriteOncePod", "ReadOnlyMany"]}}, [
        "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"]),
    ("PersistentVolumeClaim", CLAIM, []),
    ("PersistentVolumeClaim", {}, [
        "spec.accessModes: Required value: at least 1 access mode is required", "spec.resources[storage]: Required value"]),
    ("PersistentVolumeClaim", {"spec": {**CLAIM["spec"], "resources": {"requests": {"storage": "0"}}}}, [
        'spec.resources[storage]: Invalid value: "0": must be greater than zero']),
    ("PersistentVolumeClaim", {"spec": {**CLAIM["spec"], "dataSourceRef": {"kind": "Foo", "name": "a"}}}, [
        "spec.dataSource: Invalid value: \"Foo\": must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        "spec.dataSourceRef: Invalid value: \"Foo\": must be 'PersistentVolumeClaim' when referencing the default apiGroup"]),
    ("Event", EVENT, []),
    ("Event", {"metadata": {"namespace": "default"}}, []),
    ("Event", {"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "b"}}, [
        'involvedObject.namespace: Invalid value: "b": does not match event.namespace']),
    ("Event", {"metadata": {"namespace": "a"}}, ['involvedObject.namespace: Invalid value: "": does not match event.namespace']),
    ("Event", NEW_EVENT, []),
    ("Event", {**NEW_EVENT, "action": "x" * 129}, ['action: Invalid value: "": can have at most 128 characters']),
    ("Event", {**NEW_EVENT, "reason": ""}, ["reason: Required value"]),
    ("Endpoints", {"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]}, []),
    ("Endpoints", {"subsets": [{}]}, ["subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"]),
    ("Endpoints", {"subsets": [{"addresses": [{"ip": "169.254.0.1"}]}]}, [
        'subsets[0].addresses[0].ip: Invalid value: "169.254.0.1": may not be in the link-local range (169.254.0.0/16, '
        "fe80::/10)"]),
    ("Endpoints", {"subsets": [{"addresses": [{"ip": "1.1.1.1"}], "ports": [{"port": 1}, {"port": 2, "name": "b"}]}]}, [
        "subsets[0].ports[0].name: Required value"]),
    ("ReplicationController", {"spec": {"template": TEMPLATE}}, []),
    ("ReplicationController", {}, ["spec.selector: Required value", "spec.template: Required value"]),
    ("ReplicationController", {"spec": {"selector": {"x": "y"}, "template": TEMPLATE}}, [
        'spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`']),
    ("ReplicationController", {"spec": {"replicas": -1, "template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}}, [
        "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"']),
    ("PodTemplate", {"template": TEMPLATE}, []),
    ("PodTemplate", {}, ["template.spec.containers: Required value"]),
    ("Binding", {"target": {"kind": "Node", "name": "n"}}, []),
    ("Binding", {"target": {"kind": "Pod"}}, [
        'target.kind: Unsupported value: "Pod": supported values: "<empty>", "Node"', "target.name: Required value"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "obj", "expected"), CASES)
def test_creation(kind: str, obj: Obj, expected: list[str]) -> None:
    assert faults(kind, obj) == expected


# --- namespaces


def test_a_new_namespace_is_active_labelled_and_has_its_finalizer() -> None:
    assert create(NAMESPACE, {"metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "b"}}}) == {
        "metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def test_updates_of_a_namespace_change_neither_finalizers_nor_status() -> None:
    old = create(NAMESPACE, {"metadata": {"name": "a"}})
    new: Obj = {"metadata": {"name": "a"}, "status": {"phase": "Terminating"}}
    NAMESPACE.default(new)
    NAMESPACE.prepare_update(new, old)
    assert new == old


def test_the_phase_follows_the_deletion() -> None:
    alive = create(NAMESPACE, {"metadata": {"name": "a"}})
    ending: Obj = {**alive, "status": {"phase": "Terminating"}}
    deleted: Obj = {**ending, "metadata": {"name": "a", "deletionTimestamp": "2024-01-01T00:00:00Z"}}
    assert NAMESPACE.validate_status(alive, alive) == []
    assert NAMESPACE.validate_status(deleted, alive) == []
    assert [str(e) for e in NAMESPACE.validate_status(ending, alive)] == [
        "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
    ]
    finalize = NAMESPACE.subresource_validation["finalize"]
    assert finalize({"spec": {"finalizers": []}}, alive) == []
    assert len(finalize({"spec": {"finalizers": ["a b"]}}, alive)) == 2


# --- nodes


def test_node_defaults() -> None:
    node = create(NODE, {"spec": {"podCIDR": "10.0.0.0/24"}, "status": {"capacity": {"cpu": "4"}}})
    assert node["status"]["allocatable"] == {"cpu": "4"}
    assert node["spec"]["podCIDRs"] == ["10.0.0.0/24"]
    assert NODE.selectable["spec.unschedulable"](node) == "false"


def test_what_a_node_was_given_once_it_keeps() -> None:
    old: Obj = {"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "providerID": "a"}}
    assert update(NODE, old, {"spec": {**old["spec"], "unschedulable": True}}) == []
    assert update(NODE, old, {"spec": {"podCIDR": "10.0.1.0/24", "providerID": "b"}}) == [
        'spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid',
        "spec.providerID: Invalid value: null: field cannot be modified once set",
    ]
    assert update(NODE, {"spec": {}}, {"spec": {"podCIDR": "10.0.1.0/24"}}) == []


def test_a_node_has_each_address_once() -> None:
    address = {"type": "InternalIP", "address": "1.2.3.4"}
    found = NODE.validate_status({"status": {"addresses": [address, address]}}, {})
    assert [str(e) for e in found] == [
        'status.addresses[1]: Duplicate value: {"type":"InternalIP","address":"1.2.3.4"}'
    ]


# --- quotas


def test_limit_ranges_fill_in_defaults_from_the_bounds() -> None:
    item: Obj = {"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Gi"}, "default": {"memory": "2Gi"}}
    made = create(LIMIT_RANGE, {"spec": {"limits": [item]}})["spec"]["limits"][0]
    assert made["default"] == {"memory": "2Gi", "cpu": "2"}
    assert made["defaultRequest"] == {"memory": "2Gi", "cpu": "2"}
    only_min = create(LIMIT_RANGE, {"spec": {"limits": [{"type": "Container", "min": {"cpu": "1"}}]}})["spec"][
        "limits"
    ][0]
    assert "default" not in only_min
    assert only_min["defaultRequest"] == {"cpu": "1"}


def test_the_scopes_of_a_quota_are_for_life() -> None:
    old: Obj = {"spec": {"scopes": ["BestEffort"], "hard": {"pods": "1"}}}
    assert update(RESOURCE_QUOTA, old, {"spec": {"scopes": ["BestEffort"], "hard": {"pods": "2"}}}) == []
    assert update(RESOURCE_QUOTA, old, {"spec": {"scopes": ["Terminating"]}}) == [
        'spec.scopes: Invalid value: ["Terminating"]: field is immutable'
    ]
    assert RESOURCE_QUOTA.validate_status({"status": {"used": {"pods": "-1"}}}, old) != []
    quota: Obj = {"spec": {"hard": {"requests.cpu": "2", "limits.cpu": "1"}}}
    assert RESOURCE_QUOTA.warnings(quota) == ["ResourceQuota requests.cpu (2) should be less than limits.cpu (1)"]


# --- volumes and claims


def test_volumes_keep_their_source_and_mode() -> None:
    old = create(PERSISTENT_VOLUME, VOLUME)
    assert old["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert old["spec"]["volumeMode"] == "Filesystem"
    grown: Obj = {"spec": {**old["spec"], "capacity": {"storage": "2Gi"}, "claimRef": {"name": "c"}}}
    assert update(PERSISTENT_VOLUME, old, grown) == []
    moved: Obj = {"spec": {**old["spec"], "hostPath": {"path": "/b"}, "volumeMode": "Block"}}
    found = update(PERSISTENT_VOLUME, old, moved)
    assert found[0].startswith(
        "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation"
    )
    assert found[1] == 'volumeMode: Invalid value: "Block": field is immutable'


def test_claims_grow_once_bound_and_change_in_no_other_way() -> None:
    old = create(PERSISTENT_VOLUME_CLAIM, CLAIM)
    assert old["status"] == {"phase": "Pending"}
    bound: Obj = {**old, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
    size: Obj = {"spec": {**old["spec"], "resources": {"requests": {"storage": "2Gi"}}}}
    immutable = (
        "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName"
    )
    assert update(PERSISTENT_VOLUME_CLAIM, old, {"spec": {**old["spec"], "volumeName": "v"}}) == []
    assert update(PERSISTENT_VOLUME_CLAIM, old, {"spec": {**old["spec"], "storageClassName": "c"}}) == []
    assert update(PERSISTENT_VOLUME_CLAIM, bound, size) == []
    assert update(PERSISTENT_VOLUME_CLAIM, old, size)[0].startswith(immutable)
    assert update(PERSISTENT_VOLUME_CLAIM, bound, {"spec": {**old["spec"], "accessModes": ["ReadOnlyMany"]}})[
        0
    ].startswith(immutable)
    shrunk: Obj = {"spec": {**old["spec"], "resources": {"requests": {"storage": "512Mi"}}}}
    assert update(PERSISTENT_VOLUME_CLAIM, bound, shrunk) == [
        "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
    ]


def test_the_two_names_of_a_claims_source_are_one() -> None:
    source = {"kind": "PersistentVolumeClaim", "name": "a"}
    assert create(PERSISTENT_VOLUME_CLAIM, {"spec": {"dataSource": source}})["spec"]["dataSourceRef"] == source
    assert create(PERSISTENT_VOLUME_CLAIM, {"spec": {"dataSourceRef": source}})["spec"]["dataSource"] == source
    odd = create(PERSISTENT_VOLUME_CLAIM, {"spec": {"dataSource": {"kind": "Odd", "name": "a"}}})
    assert "dataSource" not in odd["spec"]


# --- events, endpoints, controllers


def test_fields_by_which_events_are_found() -> None:
    selectable = rules_for("", "v1", "Event").selectable
    event: Obj = {"involvedObject": {"uid": "u", "name": "n"}, "reportingComponent": "k", "type": "Warning"}
    assert selectable["involvedObject.uid"](event) == "u"
    assert selectable["source"](event) == "k"
    assert selectable["source"]({**event, "source": {"component": "s"}}) == "s"
    assert selectable["involvedObject.fieldPath"](event) == ""


def test_unchanged_endpoints_are_not_checked_again() -> None:
    rules = rules_for("", "v1", "Endpoints")
    odd: Obj = {"subsets": [{}]}
    assert rules.validate_update(odd, odd) == []
    assert rules.validate_update(odd, {}) != []


def test_a_controller_takes_selector_and_labels_from_its_template() -> None:
    made = create(REPLICATION_CONTROLLER, {"metadata": {}, "spec": {"template": TEMPLATE}})
    assert made["spec"]["selector"] == {"a": "b"}
    assert made["metadata"]["labels"] == {"a": "b"}
    assert made["spec"]["replicas"] == 1
    assert made["spec"]["template"]["spec"]["dnsPolicy"] == "ClusterFirst"
    status: Obj = {"status": {"replicas": 1, "readyReplicas": 2}}
    assert [str(e) for e in REPLICATION_CONTROLLER.validate_status(status, made)] == [
        "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"
    ]


# --- what is rare


@pytest.mark.parametrize(
    ("kind", "obj", "expected"),
    [
        ("Node", {"status": {"declaredFeatures": ["B", "A", "A", "bad"]}}, ["status.declaredFeatures[1]", "status.declaredFeatures[2]", "status.declaredFeatures[3]"]),
        ("Node", {"status": {"declaredFeatures": ["A" * 254]}}, ["status.declaredFeatures[0]"]),
        ("Node", {"status": {"nodeInfo": {"swap": {"capacity": 0}}, "allocatable": {"cpu": "-1"}}}, ["metadata.nodeSwapStatus.capacity", "status.allocatable.cpu"]),
        ("Node", {"spec": {"podCIDRs": ["x"], "taints": [{"key": "", "value": "a b", "effect": "Odd"}]}}, ["metadata.taints[0].key"] * 2 + ["metadata.taints[0].value", "metadata.taints[0].effect", "spec.podCIDRs[0]"]),
        ("ResourceQuota", {"spec": {"scopes": ["Odd"]}}, ["spec.scopes"]),
        ("ResourceQuota", {"spec": {"hard": {"cpu": "1"}, "scopeSelector": {"matchExpressions": [
            {"scopeName": "BestEffort", "operator": "In", "values": ["a"]}, {"scopeName": "NotBestEffort", "operator": "Exists", "values": ["a"]},
            {"scopeName": "Odd", "operator": "Odd"}]}}}, [
            "spec.scopeSelector.matchExpressions", "spec.scopeSelector.matchExpressions.operator", "spec.scopeSelector.matchExpressions.values",
            "spec.scopeSelector.matchExpressions.scopeName", "spec.scopeSelector.matchExpressions.operator", "spec.scopeSelector.matchExpressions"]),
        ("LimitRange", {"spec": {"limits": [{"type": "Container", "min": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}, "max": {"cpu": "3"}, "default": {"cpu": "4"}}]}}, ["spec.limits[0].defaultRequest[cpu]", "spec.limits[0].default[cpu]"]),
        ("LimitRange", {"spec": {"limits": [{"type": "Container", "default": {"x.io/a": "2"}, "defaultRequest": {"x.io/a": "1"}}]}}, ["spec.limits[0].defaultRequest[x.io/a]"]),
        ("LimitRange", {"spec": {"limits": [{"type": "Odd"}, {"type": "a b"}, {"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m", "odd": "1"}}]}}, ["spec.limits[0].type", "spec.limits[1].type", "spec.limits[2].maxLimitRequestRatio[odd]", "spec.limits[2].maxLimitRequestRatio[odd]", "spec.limits[2].maxLimitRequestRatio[cpu]"]),
        ("PersistentVolume", {"spec": {"capacity": {"storage": "0", "cpu": "1"}, "accessModes": ["Odd"], "persistentVolumeReclaimPolicy": "Odd",
            "volumeMode": "Odd", "storageClassName": "A", "volumeAttributesClassName": "", "nodeAffinity": {}, "csi": {"controllerExpandSecretRef": {}}}}, [
            "spec.accessModes", "spec.capacity", "spec.capacity[storage]", "spec.persistentVolumeReclaimPolicy", "spec.nodeAffinity.required",
            "spec.csi.driver", "spec.csi.volumeHandle", "spec.csi.controllerExpandSecretRef.name", "spec.csi.controllerExpandSecretRef.namespace",
            "spec.storageClassName", "spec.volumeMode", "spec.volumeAttributesClassName"]),
        ("PersistentVolume", {"spec": {**VOLUME["spec"], "volumeAttributesClassName": "a"}}, ["spec.csi"]),
        ("PersistentVolume", {"spec": {"capacity": {"storage": "1"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/../a"}, "nodeAffinity": {"required": {}}}}, ["spec.nodeAffinity.required.nodeSelectorTerms", "spec.local.path"]),
        ("PersistentVolume", {"spec": {"capacity": {"storage": "1"}, "accessModes": ["ReadWriteOnce"], "cinder": {"volumeID": "v", "secretRef": {"name": "a"}}}}, ["spec.cinder.secretRef.namespace"]),
        ("PersistentVolume", {"spec": {"capacity": {"storage": "1"}, "accessModes": ["ReadWriteOnce"], "azureFile": {"secretName": "a", "shareName": "b", "secretNamespace": ""}}}, ["spec.azureFile.secretNamespace"]),
        ("PersistentVolumeClaim", {"spec": {**CLAIM["spec"], "volumeMode": "Odd", "storageClassName": "A", "selector": {"matchLabels": {"a b": "c"}}}}, ["spec.selector.matchLabels", "spec.storageClassName", "spec.volumeMode"]),
        ("PersistentVolumeClaim", {"spec": {**CLAIM["spec"], "dataSource": {"kind": "PersistentVolumeClaim", "name": "a"}, "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "b"}}}, ["spec"]),
        ("PersistentVolumeClaim", {"spec": {**CLAIM["spec"], "dataSourceRef": {"kind": "Odd", "apiGroup": "A"}}}, ["spec.dataSource.name", "spec.dataSource.apiGroup", "spec.dataSourceRef.name", "spec.dataSourceRef.apiGroup"]),
        ("Event", {"metadata": {"namespace": "a"}, "eventTime": "2024-01-01T00:00:00.000000Z", "message": "x" * 1025}, ["involvedObject.namespace", "reportingComponent", "reportingComponent", "reportingComponent", "reportingInstance", "action", "reason", "message"]),
        ("Endpoints", {"subsets": [{"notReadyAddresses": [{"ip": "x", "hostname": "A", "nodeName": "B"}], "ports": [{"name": "A", "protocol": "Odd", "appProtocol": "a b"}]}]}, ["subsets[0].notReadyAddresses[0].ip", "subsets[0].notReadyAddresses[0].hostname", "subsets[0].notReadyAddresses[0].nodeName", "subsets[0].notReadyAddresses[0].ip", "subsets[0].ports[0].name", "subsets[0].ports[0].port", "subsets[0].ports[0].protocol", "subsets[0].ports[0].appProtocol"]),
        ("Endpoints", {"subsets": [{"addresses": [{"ip": ip} for ip in ("0.0.0.0", "127.0.0.1", "224.0.0.1", "ff02::1")]}]}, [f"subsets[0].addresses[{n}].ip" for n in range(4)]),
        ("ReplicationController", {"spec": {"minReadySeconds": -1, "template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "activeDeadlineSeconds": 1}}}}, ["spec.minReadySeconds", "spec.template.spec.activeDeadlineSeconds"]),
        ("Binding", {"target": {"name": "A"}}, ["target.name"]),
    ],
)  # fmt: skip
def test_rare_fields(kind: str, obj: Obj, expected: list[str]) -> None:
    assert [text.partition(": ")[0] for text in faults(kind, obj)] == expected


def test_volume_affinity_may_move_to_final_label_names_only() -> None:
    def affinity(key: str) -> Obj:
        term = {"matchExpressions": [{"key": key, "operator": "In", "values": ["z"]}]}
        return {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}

    old = create(PERSISTENT_VOLUME, {"spec": {**VOLUME["spec"], **affinity("failure-domain.beta.kubernetes.io/zone")}})
    assert update(PERSISTENT_VOLUME, old, {"spec": {**old["spec"], **affinity("topology.kubernetes.io/zone")}}) == []
    found = update(PERSISTENT_VOLUME, old, {"spec": {**old["spec"], **affinity("other")}})
    assert [text.partition(": ")[0] for text in found] == ["nodeAffinity"]
    plain = create(PERSISTENT_VOLUME, VOLUME)
    assert update(PERSISTENT_VOLUME, plain, {"spec": {**plain["spec"], **affinity("other")}}) == []


def test_volumes_take_an_expand_secret_later_and_keep_their_attributes_class() -> None:
    csi: Obj = {"driver": "d.io", "volumeHandle": "h"}
    spec: Obj = {
        "capacity": {"storage": "1"},
        "accessModes": ["ReadWriteOnce"],
        "csi": csi,
        "volumeAttributesClassName": "a",
    }
    old = create(PERSISTENT_VOLUME, {"spec": spec})
    secret = {"controllerExpandSecretRef": {"name": "s", "namespace": "n"}}
    assert update(PERSISTENT_VOLUME, old, {"spec": {**old["spec"], "csi": {**csi, **secret}}}) == []
    dropped = {field: value for field, value in old["spec"].items() if field != "volumeAttributesClassName"}
    assert update(PERSISTENT_VOLUME, old, {"spec": dropped}) == [
        "spec.volumeAttributesClassName: Forbidden: update from non-nil value to nil is forbidden"
    ]


def test_the_attributes_class_of_a_claim_is_not_taken_away() -> None:
    old = create(PERSISTENT_VOLUME_CLAIM, {"spec": {**CLAIM["spec"], "volumeAttributesClassName": "a"}})
    bound: Obj = {**old, "status": {"phase": "Bound", "currentVolumeAttributesClassName": "a"}}
    assert update(PERSISTENT_VOLUME_CLAIM, bound, {"spec": {**old["spec"], "volumeAttributesClassName": "b"}}) == []
    assert update(PERSISTENT_VOLUME_CLAIM, bound, {"spec": {**old["spec"], "volumeAttributesClassName": ""}}) == [
        "spec.volumeAttributesClassName: Forbidden: update to empty string is forbidden when "
        "status.currentVolumeAttributesClassName is not nil"
    ]


def test_the_old_annotation_of_a_storage_class_may_become_the_field() -> None:
    key = "volume.beta.kubernetes.io/storage-class"
    old = create(PERSISTENT_VOLUME_CLAIM, {"metadata": {"annotations": {key: "a"}}, **CLAIM})
    moved: Obj = {"metadata": {}, "spec": {**old["spec"], "storageClassName": "a"}}
    assert update(PERSISTENT_VOLUME_CLAIM, old, moved) == []
    other: Obj = {"metadata": {"annotations": {key: "b"}}, "spec": old["spec"]}
    assert update(PERSISTENT_VOLUME_CLAIM, old, other) == [
        f'metadata.annotations.{key}: Invalid value: "b": field is immutable'
    ]


def test_the_status_of_a_claim() -> None:
    old = create(PERSISTENT_VOLUME_CLAIM, CLAIM)
    good: Obj = {**old, "status": {"capacity": {"storage": "1"}, "allocatedResources": {"storage": "1"},
        "allocatedResourceStatuses": {"storage": "NodeResizePending"}}}  # fmt: skip
    assert PERSISTENT_VOLUME_CLAIM.validate_status(good, old) == []
    bad: Obj = {"status": {"capacity": {"storage": "-1"}, "allocatedResources": {"cpu": "1"},
        "allocatedResourceStatuses": {"a b": "Odd"}}}  # fmt: skip
    assert [error.field for error in PERSISTENT_VOLUME_CLAIM.validate_status(bad, old)] == [
        "Spec.accessModes",
        "status.capacity[storage]",
        "status.allocatedResources",
        "status.allocatedResourceStatuses",
        "status.allocatedResourceStatuses",
    ]
