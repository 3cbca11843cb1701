"""Volumes, claims, classes and CSI objects as stored objects."""

from __future__ import annotations

from conformance_api import Api, Resource, conformance, refused, unique
from conformance_objects import IMAGE, condition
from conformance_steps import check_discovery, check_operations

from shoal.kube.objects import Obj

STORAGE = "storage.k8s.io/v1"


def check_class_lifecycle(resource: Resource, make: Obj) -> None:
    """Create, get, patch, delete; then update another and delete it as a collection."""
    name, other = unique("e2e"), unique("e2e")
    created = resource.create({**make, "metadata": {"name": name}})
    assert resource.get(name)["metadata"]["uid"] == created["metadata"]["uid"]
    patched = resource.patch(name, {"metadata": {"labels": {name: "patched"}}}, "strategic")
    assert int(patched["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
    assert resource.names(f"{name}=patched") == [name]
    resource.delete(name)
    assert resource.is_gone(name)

    resource.create({**make, "metadata": {"name": other}})
    resource.update(other, lambda obj: obj["metadata"].setdefault("labels", {}).update({other: "updated"}))
    assert resource.names(f"{other}=updated") == [other]
    resource.delete_collection(f"{other}=updated")
    assert resource.names(f"{other}=updated") == []


@conformance(
    "[sig-storage] StorageClasses CSI Conformance should run through the lifecycle of a StorageClass [Conformance]"
)
def test_storage_class_lifecycle(api: Api) -> None:
    make = {"provisioner": "e2e-fake-provisioner", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}
    check_class_lifecycle(api.of(STORAGE, "storageclasses"), make)


@conformance("[sig-storage] CSINodes CSI Conformance should run through the lifecycle of a csinode [Conformance]")
def test_csi_node_lifecycle(api: Api) -> None:
    driver = {"name": "e2e.example.com", "nodeID": "node-1"}
    check_class_lifecycle(api.of(STORAGE, "csinodes"), {"spec": {"drivers": [driver]}})


@conformance(
    "[sig-storage] VolumeAttributesClass [FeatureGate:VolumeAttributesClass] should run through the lifecycle of a"
    " VolumeAttributesClass [Conformance]"
)
def test_volume_attributes_class_lifecycle(api: Api) -> None:
    make = {"driverName": "e2e-fake-csi-driver", "parameters": {"foo": "bar"}}
    check_class_lifecycle(api.of(STORAGE, "volumeattributesclasses"), make)


@conformance("[sig-storage] CSIInlineVolumes should run through the lifecycle of a CSIDriver [Conformance]")
def test_csi_driver_lifecycle(api: Api) -> None:
    make = {"spec": {"volumeLifecycleModes": ["Persistent", "Ephemeral"], "fsGroupPolicy": "ReadWriteOnceWithFSType"}}
    drivers, name = api.of(STORAGE, "csidrivers"), unique("inline-driver")
    drivers.create({**make, "metadata": {"name": name}})
    refused("AlreadyExists", drivers.create, {**make, "metadata": {"name": name}})
    check_class_lifecycle(drivers, make)


@conformance("[sig-storage] CSIInlineVolumes should support CSIVolumeSource in Pod API [Conformance]")
def test_csi_volumes_of_a_pod(api: Api, namespace: str) -> None:
    pods = api.of("v1", "pods", namespace)
    mounts = [{"name": "vol1", "mountPath": "/mnt/vol1"}, {"name": "vol2", "mountPath": "/mnt/vol2"}]
    volumes = [
        {"name": "vol1", "csi": {"driver": "e2e.example.com"}},
        {"name": "vol2", "csi": {"driver": "e2e.example.com", "fsType": "ext4", "readOnly": True}},
    ]
    containers = [{"name": "main", "image": IMAGE, "volumeMounts": mounts}]
    made = {"metadata": {"name": "pod"}, "spec": {"containers": containers, "volumes": volumes}}
    created = pods.create(made)
    refused("AlreadyExists", pods.create, made)
    assert pods.get("pod")["metadata"]["uid"] == created["metadata"]["uid"]
    assert created["spec"]["volumes"][:2] == volumes
    assert pods.names() == ["pod"]
    assert pods.patch("pod", {"metadata": {"annotations": {"patched": "true"}}})["metadata"]["annotations"]
    pods.delete("pod")
    assert pods.is_gone("pod") or pods.get("pod")["metadata"]["deletionTimestamp"]


@conformance("[sig-storage] CSIStorageCapacity should support CSIStorageCapacities API operations [Conformance]")
def test_storage_capacity_operations(api: Api, namespace: str) -> None:
    check_discovery(api, STORAGE, "csistoragecapacities")
    check_operations(
        api.of(STORAGE, "csistoragecapacities", namespace),
        lambda name: {"metadata": {"name": name}, "storageClassName": "fake-storage-class", "capacity": "1Gi"},
        change=lambda obj: obj.update(capacity="2Gi"),
        everywhere=api.of(STORAGE, "csistoragecapacities"),
    )


def attachment(name: str, volume: str) -> Obj:
    source = {"persistentVolumeName": volume}
    spec = {"attacher": "e2e-test.storage.k8s.io", "nodeName": "e2e-node", "source": source}
    return {"metadata": {"name": name}, "spec": spec}


@conformance(
    "[sig-storage] VolumeAttachment Conformance should run through the lifecycle of a VolumeAttachment [Conformance]"
)
def test_volume_attachment_lifecycle(api: Api) -> None:
    attachments, run = api.of(STORAGE, "volumeattachments"), unique("e2e")
    names = [f"va-{number}-{run}" for number in range(3)]
    for name in names:
        attachments.create(attachment(name, f"pv-{run}"))
    assert attachments.get(names[0])["spec"]["nodeName"] == "e2e-node"
    attachments.patch(names[0], {"metadata": {"labels": {run: "patched"}}})
    assert attachments.names(f"{run}=patched") == names[:1]
    attachments.delete(names[0])
    assert attachments.is_gone(names[0])
    for name in names[1:]:
        attachments.update(name, lambda obj: obj["metadata"].update(labels={run: "updated"}))
    assert attachments.names(f"{run}=updated") == names[1:]
    attachments.delete_collection(f"{run}=updated")
    assert attachments.names(f"{run}=updated") == []


@conformance(
    "[sig-storage] VolumeAttachment Conformance should apply changes to a volumeattachment status [Conformance]"
)
def test_volume_attachment_status(api: Api) -> None:
    attachments, name = api.of(STORAGE, "volumeattachments"), unique("va")
    attachments.create(attachment(name, unique("pv")))
    attachments.patch(name, {"metadata": {"labels": {name: "patched"}}})
    assert not attachments.get(name, "status").get("status", {}).get("attached")
    assert attachments.patch(name, {"status": {"attached": True}}, sub="status")["status"]["attached"] is True
    updated = attachments.update(name, lambda obj: obj["status"].update(attached=False), "status")
    assert updated["status"]["attached"] is False
    assert updated["metadata"]["labels"] == {name: "patched"}
    attachments.delete(name)
    assert attachments.names(f"{name}=patched") == []


def volume(name: str, label: str) -> Obj:
    spec = {
        "capacity": {"storage": "2Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "e2e",
        "csi": {"driver": "e2e-driver.example.com", "volumeHandle": name},
    }
    return {"metadata": {"name": name, "labels": {"run": label}}, "spec": spec}


def claim(name: str, label: str) -> Obj:
    resources = {"requests": {"storage": "2Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "e2e", "resources": resources}
    return {"metadata": {"name": name, "labels": {"run": label}}, "spec": spec}


@conformance(
    "[sig-storage] PersistentVolumes CSI Conformance should run through the lifecycle of a PV and a PVC [Conformance]"
)
def test_volume_and_claim_lifecycle(api: Api, namespace: str) -> None:
    run = unique("run")
    volumes, claims = api.of("v1", "persistentvolumes"), api.of("v1", "persistentvolumeclaims", namespace)
    for resource, made in ((claims, claim(run, run)), (volumes, volume(run, run))):
        created = resource.create(made)
        assert resource.names(f"run={run}") == [run]
        patched = resource.patch(run, {"metadata": {"labels": {run: "patched"}}}, "strategic")
        assert int(patched["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
        assert resource.get(run)["metadata"]["uid"] == created["metadata"]["uid"]
        remove_protection(resource, run)
        resource.delete(run)
        assert resource.is_gone(run)

        resource.create(made)
        resource.update(run, lambda obj: obj["metadata"]["labels"].update({run: "updated"}))
        assert api.of("v1", resource.plural).names(f"{run}=updated") == [run]
        remove_protection(resource, run)
        resource.delete_collection(f"{run}=updated")
        assert resource.names(f"run={run}") == []


def remove_protection(resource: Resource, name: str) -> None:
    """What the protection controllers would do once nothing uses the volume or the claim."""
    resource.patch(name, {"metadata": {"finalizers": None}})


@conformance("[sig-storage] PersistentVolumes CSI Conformance should apply changes to a pv/pvc status [Conformance]")
def test_volume_and_claim_status(api: Api, namespace: str) -> None:
    run = unique("run")
    volumes, claims = api.of("v1", "persistentvolumes"), api.of("v1", "persistentvolumeclaims", namespace)
    volumes.create(volume(run, run))
    claims.create(claim("claim", run))
    assert claims.get("claim", "status")["status"]["phase"] == "Pending"
    assert volumes.get(run, "status")["status"]["phase"] == "Pending"

    patched = claims.patch("claim", {"status": {"conditions": [condition("StatusPatched")]}}, sub="status")
    assert [c["type"] for c in patched["status"]["conditions"]] == ["StatusPatched"]
    updated = claims.update(
        "claim", lambda obj: obj["status"]["conditions"].append(condition("StatusUpdated")), "status"
    )
    assert [c["type"] for c in updated["status"]["conditions"]] == ["StatusPatched", "StatusUpdated"]

    patched = volumes.patch(run, {"status": {"message": "StatusPatched", "reason": "E2E patchStatus"}}, sub="status")
    assert (patched["status"]["message"], patched["status"]["reason"]) == ("StatusPatched", "E2E patchStatus")
    updated = volumes.update(run, lambda obj: obj["status"].update(message="StatusUpdated"), "status")
    assert updated["status"]["message"] == "StatusUpdated"
