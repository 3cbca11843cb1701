"""storage.k8s.io and resource.k8s.io."""

from __future__ import annotations

from typing import Any

import pytest

CLAIM = "spec.devices"
REQUEST = "spec.devices.requests[0]"
NOT_A_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("StorageClass", {"provisioner": ""}, ["provisioner: Required value"]),
    ("StorageClass", {"reclaimPolicy": "Recycle"}, [
        'reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"'
    ]),
    ("StorageClass", {"volumeBindingMode": "Later"}, [
        'volumeBindingMode: Unsupported value: "Later": supported values: "Immediate", "WaitForFirstConsumer"'
    ]),
    ("StorageClass", {"parameters": {"": "x"}}, ['parameters: Invalid value: "": field can not be empty.']),
    ("StorageClass", {"parameters": {"a": "x" * 300_000}}, ["parameters: Too long: may not be more than 262144 bytes"]),
    ("StorageClass", {"allowedTopologies.0.matchLabelExpressions.0.values": []}, [
        "allowedTopologies[0].matchLabelExpressions[0].values: Required value"
    ]),
    ("StorageClass", {"allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": ["b"]}]}] * 2}, [
        'allowedTopologies[1].matchLabelExpressions: Duplicate value: ""'
    ]),
    ("VolumeAttributesClass", {"parameters": {}}, [
        "parameters: Required value: must contain at least one key/value pair"
    ]),
    ("CSIDriver", {"spec.fsGroupPolicy": "Some"}, [
        'spec.fsGroupPolicy: Unsupported value: "Some": supported values: "File", "None", "ReadWriteOnceWithFSType"'
    ]),
    ("CSIDriver", {"spec.volumeLifecycleModes": ["Short"]}, [
        'spec.volumeLifecycleModes: Unsupported value: "Short": supported values: "Ephemeral", "Persistent"'
    ]),
    ("CSIDriver", {"spec.tokenRequests": [{"audience": "a"}, {"audience": "a"}]}, [
        'spec.tokenRequests[1].audience: Duplicate value: "a"'
    ]),
    ("CSIDriver", {"spec.tokenRequests": [{"expirationSeconds": 5}]}, [
        "spec.tokenRequests[0].expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes"
    ]),
    ("CSIDriver", {"spec.serviceAccountTokenInSecrets": True}, [
        "spec.serviceAccountTokenInSecrets: Invalid value: true: "
        "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
    ]),
    ("CSIDriver", {"spec.nodeAllocatableUpdatePeriodSeconds": 5}, [
        "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 5: must be greater than or equal to 10 seconds"
    ]),
    ("CSINode", {"spec.drivers.0.nodeID": ""}, ["spec.drivers[0].nodeID: Required value"]),
    ("CSINode", {"spec.drivers.0.allocatable.count": -1}, [
        "spec.drivers[0].allocatable.count: Invalid value: -1: must be greater than or equal to 0"
    ]),
    ("CSINode", {"spec.drivers.0.topologyKeys": ["a", "a"]}, ['spec.drivers[0]: Duplicate value: "a"']),
    ("CSINode", {"spec.drivers.1": {"name": "disks.shop.example", "nodeID": "x"}}, [
        'spec.drivers[1].name: Duplicate value: "disks.shop.example"'
    ]),
    ("CSINode", {"spec.drivers.0.name": "x" * 64}, ["spec.drivers[0].name: Too long: may not be more than 63 bytes"]),
    ("CSIStorageCapacity", {"capacity": "-1"}, ['capacity: Invalid value: "-1": must be greater than or equal to 0']),
    ("VolumeAttachment", {"spec.source": {}}, [
        "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    ]),
    ("VolumeAttachment", {"spec.source.inlineVolumeSpec": {}}, [
        "spec.source: Forbidden: must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    ]),
    ("VolumeAttachment", {"spec.attacher": ""}, ["spec.attacher: Required value"]),
    ("ResourceClaim", {f"{CLAIM}.requests.0.exactly": {}}, [f"{REQUEST}.exactly.deviceClassName: Required value"]),
    ("ResourceClaim", {f"{CLAIM}.requests.0.firstAvailable": [{"name": "a", "deviceClassName": "b"}]}, [
        f"{REQUEST}: Invalid value: null: "
        "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
    ]),
    ("ResourceClaim", {f"{CLAIM}.requests.0": {"name": "gpu"}}, [
        f"{REQUEST}: Required value: exactly one of `exactly` or `firstAvailable` is required"
    ]),
    ("ResourceClaim", {f"{CLAIM}.requests.0.exactly.allocationMode": "Some"}, [
        f'{REQUEST}.exactly.allocationMode: Unsupported value: "Some": supported values: "All", "ExactCount"'
    ]),
    ("ResourceClaim", {f"{CLAIM}.requests.0.exactly.count": -1}, [
        f"{REQUEST}.exactly.count: Invalid value: -1: must be greater than zero"
    ]),
    ("ResourceClaim", {f"{CLAIM}.requests.0.exactly.allocationMode": "All", f"{CLAIM}.requests.0.exactly.count": 2}, [
        f"{REQUEST}.exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'"
    ]),
    ("ResourceClaim", {f"{CLAIM}.constraints.0.requests": ["other"]}, [
        f'{CLAIM}.constraints[0].requests[0]: Invalid value: "other": {NOT_A_REQUEST}'
    ]),
    ("ResourceClaim", {f"{CLAIM}.constraints.0.matchAttribute": "model"}, [
        f'{CLAIM}.constraints[0].matchAttribute: Invalid value: "model": must include a domain'
    ]),
    ("ResourceClaim", {f"{CLAIM}.config": [{}]}, [f"{CLAIM}.config[0].opaque: Required value"]),
    ("ResourceClaim", {f"{CLAIM}.requests.1.name": "gpu", f"{CLAIM}.constraints": []}, [
        f'{CLAIM}.requests[1]: Duplicate value: "gpu"'
    ]),
    ("DeviceClass", {"spec.selectors": [{}]}, ["spec.selectors[0].cel: Required value"]),
    ("DeviceClass", {"spec.extendedResourceName": "cpu"}, [
        'spec.extendedResourceName: Invalid value: "cpu": must be a valid extended resource name'
    ]),
    ("DeviceClass", {"spec.config.0.opaque.parameters": 7}, [
        "spec.config[0].opaque.parameters: Invalid value: 7: must be a valid JSON object"
    ]),
    ("ResourceSlice", {"spec.allNodes": True}, [
        'spec: Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`, `nodeSelector`, `allNodes`, '
        "`perDeviceNodeSelection` is required, but multiple fields are set"
    ]),
    ("ResourceSlice", {"spec.pool.resourceSliceCount": 0}, [
        "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero"
    ]),
    ("ResourceSlice", {"spec.devices.0.attributes": {"model": {}}}, [
        "spec.devices[0].attributes[model]: Required value: exactly one value must be specified"
    ]),
    ("ResourceSlice", {"spec.devices.1": {"name": "gpu-0"}}, ['spec.devices[1]: Duplicate value: "gpu-0"']),
    ("ResourceSlice", {"spec.devices.0.taints": [{"key": "a", "effect": "Bad"}]}, [
        'spec.devices[0].taints[0].effect: Unsupported value: "Bad": '
        'supported values: "NoExecute", "NoSchedule", "None"'
    ]),
    ("ResourceSlice", {"spec.devices": [{"name": f"d{n}"} for n in range(129)]}, [
        "spec.devices: Too many: 129: must have at most 128 items"
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "edits", "expected"), CASES)
def test_what_is_wrong_with_it(kinds: Any, kind: str, edits: dict[str, Any], expected: list[str]) -> None:
    assert kinds.faults(kind, edits) == expected


def test_defaults(kinds: Any) -> None:
    made = kinds.created("StorageClass")
    assert (made["reclaimPolicy"], made["volumeBindingMode"]) == ("Delete", "Immediate")
    assert kinds.created("CSIDriver")["spec"] == {
        "attachRequired": True,
        "podInfoOnMount": False,
        "storageCapacity": False,
        "requiresRepublish": False,
        "seLinuxMount": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "volumeLifecycleModes": ["Persistent"],
    }
    requests = kinds.created("ResourceClaim")["spec"]["devices"]["requests"]
    assert (requests[0]["exactly"]["allocationMode"], requests[0]["exactly"]["count"]) == ("ExactCount", 1)
    assert requests[1]["firstAvailable"][1]["count"] == 1
    template = kinds.created("ResourceClaimTemplate")["spec"]["spec"]
    assert "count" not in template["devices"]["requests"][0]["exactly"]


@pytest.mark.parametrize(
    ("kind", "edits", "expected"),
    [
        ("StorageClass", {"provisioner": "other"}, ['provisioner: Invalid value: "other": field is immutable']),
        ("StorageClass", {"parameters": {}}, ["parameters: Invalid value: {}: field is immutable"]),
        ("StorageClass", {"reclaimPolicy": "Retain"}, ['reclaimPolicy: Invalid value: "Retain": field is immutable']),
        ("StorageClass", {"volumeBindingMode": "WaitForFirstConsumer"}, [
            'volumeBindingMode: Invalid value: "WaitForFirstConsumer": field is immutable']),
        ("StorageClass", {"allowVolumeExpansion": True, "mountOptions": ["ro"]}, []),
        ("VolumeAttributesClass", {"parameters": {"a": "b"}}, [
            "parameters: Forbidden: updates to parameters are forbidden."]),
        ("CSIDriver", {"spec.attachRequired": False}, [
            "spec.attachedRequired: Invalid value: false: field is immutable"]),
        ("CSIDriver", {"spec.podInfoOnMount": True}, []),
        ("CSINode", {"spec.drivers.0.allocatable.count": 9}, []),
        ("CSINode", {"spec.drivers": []}, []),
        ("CSIStorageCapacity", {"storageClassName": "slow"}, [
            'storageClassName: Invalid value: "slow": field is immutable']),
        ("CSIStorageCapacity", {"capacity": "1"}, []),
        ("ResourceSlice", {"spec.driver": "b.example"}, ['spec.driver: Invalid value: "b.example": field is immutable']),
        ("ResourceSlice", {"spec.pool.name": "x"}, ['spec.pool.name: Invalid value: "x": field is immutable']),
        ("ResourceSlice", {"spec.devices": []}, []),
        ("DeviceClass", {"spec.config": []}, []),
    ],
)  # fmt: skip
def test_what_may_change(kinds: Any, kind: str, edits: dict[str, Any], expected: list[str]) -> None:
    assert kinds.update_faults(kind, edits) == expected


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("VolumeAttachment", "spec.nodeName", "b"),
        ("ResourceClaim", "spec.devices.requests.0.name", "b"),
        ("ResourceClaimTemplate", "spec.metadata.labels", {"a": "b"}),
    ],
)
def test_whole_specs_never_change(kinds: Any, kind: str, path: str, value: Any) -> None:
    (found,) = kinds.update_faults(kind, {path: value})
    assert found.startswith("spec: Invalid value: {")
    assert found.endswith("}: field is immutable")


def test_the_data_of_a_driver_on_a_node_is_immutable(kinds: Any) -> None:
    (found,) = kinds.update_faults("CSINode", {"spec.drivers.0.nodeID": "other"})
    assert found.startswith("spec.drivers: Invalid value: {")


def test_tokens_in_volume_attributes_are_warned_of(kinds: Any) -> None:
    assert len(kinds.warnings("CSIDriver", {"spec.tokenRequests": [{"audience": "a"}]})) == 1
    assert kinds.warnings("CSIDriver") == []


def test_the_status_of_an_attachment_has_its_error(kinds: Any) -> None:
    assert kinds.status_faults("VolumeAttachment", {"attachError": {"message": "no", "errorCode": 8}}) == []
    assert kinds.status_faults("VolumeAttachment", {"attachError": {"message": "x" * 1025, "errorCode": -1}}) == [
        "status.attachError.message: Too long: may not be more than 1024 bytes",
        "status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive",
    ]


GPU = {"request": "gpu", "driver": "gpu.shop.example", "pool": "node-1", "device": "gpu-0"}
ALLOCATED = {"allocation": {"devices": {"results": [GPU]}}}
POD = {"resource": "pods", "name": "p", "uid": "u"}


def test_a_claim_is_allocated_once_and_then_reserved(kinds: Any) -> None:
    assert kinds.status_faults("ResourceClaim", ALLOCATED) == []
    assert kinds.status_faults("ResourceClaim", {**ALLOCATED, "reservedFor": [POD]}, ALLOCATED) == []
    assert kinds.status_faults("ResourceClaim", {"reservedFor": [POD]}) == [
        "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"
    ]
    other = {"allocation": {"devices": {"results": [{**GPU, "device": "gpu-1"}]}}}
    (found,) = kinds.status_faults("ResourceClaim", other, ALLOCATED)
    assert found.startswith("status.allocation: Invalid value: ")
    assert kinds.status_faults("ResourceClaim", {}, ALLOCATED) == []


def test_an_allocation_answers_a_request(kinds: Any) -> None:
    wrong = {"allocation": {"devices": {"results": [{**GPU, "request": "x"}]}}}
    assert kinds.status_faults("ResourceClaim", wrong) == [
        f'status.allocation.devices.results[0].request: Invalid value: "x": {NOT_A_REQUEST}'
    ]


def test_devices_that_are_given_back_leave_the_status(kinds: Any) -> None:
    old = kinds.created("ResourceClaim")
    old["status"] = {**ALLOCATED, "devices": [GPU]}
    new = kinds.edited(old, {"status": {"devices": [GPU]}, "metadata.labels": {"a": "b"}})
    kinds.rules(new).prepare_status(new, old)
    assert new["status"]["devices"] == []
    assert new["metadata"] == old["metadata"]


def test_slices_are_selected_by_node_driver_and_pool(kinds: Any) -> None:
    made = kinds.created("ResourceSlice")
    selectable = kinds.rules(made).selectable
    assert {name: field(made) for name, field in selectable.items()} == {
        "spec.nodeName": "node-1",
        "spec.driver": "gpu.shop.example",
        "spec.pool.name": "node-1",
    }
    assert selectable["spec.nodeName"]({"spec": {"allNodes": True}}) == ""
