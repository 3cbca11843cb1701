"""Fields that few pods have; only the start of each message is compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shoal.kube.kinds.core.pod import POD, validate_pod_template
from shoal.kube.kinds.core.pod_defaults import default_pod_template
from shoal.kube.objects import Obj

Edited = Callable[[Obj, Obj], Obj]

BASE: Obj = {
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"containers": [{"name": "main", "image": "example.com/app:1"}]},
}
C0 = "spec/containers/0"
V0 = "spec.volumes[0]"
NODES = "requiredDuringSchedulingIgnoredDuringExecution"
PODS = "preferredDuringSchedulingIgnoredDuringExecution"


def faults(pod: Obj) -> list[str]:
    POD.default(pod)
    POD.prepare_create(pod)
    return [str(error) for error in POD.validate_create(pod)]


def volume(**source: Any) -> Obj:
    return {"spec/volumes": [{"name": "v", **source}]}


def env(**source: Any) -> Obj:
    return {f"{C0}/env": [{"name": "A", "valueFrom": source}]}


def projected(*sources: Obj) -> Obj:
    return {"spec/serviceAccountName": "a", **volume(projected={"sources": list(sources)})}


def node_affinity(**term: Any) -> Obj:
    return {"spec/affinity": {"nodeAffinity": {NODES: {"nodeSelectorTerms": [term]}}}}


VALID: list[Obj] = [
    volume(emptyDir={"sizeLimit": "1Gi", "mode": 0o1777}),
    volume(gitRepo={"repository": "r", "directory": "a/b"}),
    volume(gcePersistentDisk={"pdName": "d", "partition": 1}),
    volume(awsElasticBlockStore={"volumeID": "v"}),
    volume(nfs={"server": "s", "path": "/"}),
    volume(iscsi={"targetPortal": "1.2.3.4", "iqn": "iqn.2001-04.com.example:storage", "lun": 0}),
    volume(iscsi={"targetPortal": "1.2.3.4", "iqn": "eui.0123456789ABCDEF", "initiatorName": "naa." + "0" * 32}),
    volume(glusterfs={"endpoints": "e", "path": "p"}),
    volume(flocker={"datasetName": "d"}),
    volume(rbd={"monitors": ["m"], "image": "i"}),
    volume(cinder={"volumeID": "v", "secretRef": {"name": "s"}}),
    volume(cephfs={"monitors": ["m"]}),
    volume(quobyte={"registry": "host:1,host:2", "volume": "v"}),
    volume(fc={"targetWWNs": ["w"], "lun": 1}),
    volume(fc={"wwids": ["w"]}),
    volume(flexVolume={"driver": "d", "options": {"x.io/a": "b"}}),
    volume(azureFile={"secretName": "s", "shareName": "n"}),
    volume(azureDisk={"diskName": "d", "diskURI": "https://a", "kind": "Shared"}),
    volume(vsphereVolume={"volumePath": "p"}),
    volume(photonPersistentDisk={"pdID": "p"}),
    volume(portworxVolume={"volumeID": "v"}),
    volume(storageos={"volumeName": "v"}),
    volume(scaleIO={"gateway": "g", "system": "s", "volumeName": "v"}),
    volume(csi={"driver": "d.x.io", "nodePublishSecretRef": {"name": "s"}}),
    volume(downwardAPI={"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}),
    volume(ephemeral={"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}}}),
    projected({"clusterTrustBundle": {"signerName": "x.io/y", "path": "a"}}),
    projected({"podCertificate": {"signerName": "x.io/y", "keyType": "ED25519", "credentialBundlePath": "b"}}),
    env(resourceFieldRef={"resource": "requests.hugepages-2Mi", "divisor": "1Mi"}),
    env(fieldRef={"fieldPath": "metadata.annotations['X.io/a']"}),
    {**volume(emptyDir={}), **env(fileKeyRef={"volumeName": "v", "path": "p", "key": "k"})},
    {**volume(persistentVolumeClaim={"claimName": "c"}), f"{C0}/volumeDevices": [{"name": "v", "devicePath": "/d"}]},
    node_affinity(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["n"]}]),
    node_affinity(matchExpressions=[{"key": "a", "operator": "Gt", "values": ["1"]}]),
    {"spec/affinity": {"nodeAffinity": {PODS: [{"weight": 100, "preference": {"matchExpressions": [
        {"key": "a", "operator": "In", "values": ["not a label value"]}]}}]}}},
    {"spec/topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule",
        "minDomains": 2, "nodeTaintsPolicy": "Honor", "labelSelector": {}, "matchLabelKeys": ["a"]}]},
    {"spec/dnsConfig": {"nameservers": ["::1"], "searches": ["a.b.", ".", "_x.y"], "options": [{"name": "n"}]}},
    {"spec/hostnameOverride": "a.b", "spec/hostname": "a", "spec/subdomain": "b"},
    {"spec/hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a.b"]}], "spec/overhead": {"cpu": "1m"}},
    {"spec/resourceClaims": [{"name": "c", "resourceClaimName": "r"}], f"{C0}/resources": {"claims": [{"name": "c"}]}},
    {"spec/os": {"name": "windows"}, f"{C0}/securityContext": {"windowsOptions": {"runAsUserName": "dom\\user"}}},
    {"spec/securityContext": {"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "0"}], "fsGroup": 1,
        "supplementalGroups": [2], "appArmorProfile": {"type": "Localhost", "localhostProfile": "p"}}},
    {f"{C0}/lifecycle": {"postStart": {"exec": {"command": ["a"]}}, "preStop": {"sleep": {"seconds": 30}}}},
    {f"{C0}/livenessProbe": {"grpc": {"port": 1}, "terminationGracePeriodSeconds": 1}},
    {f"{C0}/resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]},
    {"metadata/annotations": {"container.apparmor.security.beta.kubernetes.io/main": "localhost/x",
        "seccomp.security.alpha.kubernetes.io/pod": "runtime/default",
        "controller.kubernetes.io/pod-deletion-cost": "-12"}},
]  # fmt: skip

INVALID: list[tuple[Obj, list[str]]] = [
    (volume(emptyDir={"mode": 0o2000}), [f"{V0}.emptyDir.mode: Invalid value: 1024: must be a number between 0 and 01777"]),
    (volume(gitRepo={"directory": "../a"}), [f"{V0}.gitRepo.repository: Required", f"{V0}.gitRepo.directory: Invalid"]),
    (volume(gcePersistentDisk={"partition": 256}), [
        f"{V0}.persistentDisk.pdName: Required", f"{V0}.persistentDisk.partition: Invalid value: 256: must be between 1"]),
    (volume(iscsi={"chapAuthSession": True, "lun": 1}), [
        f"{V0}.iscsi.targetPortal: Required", f"{V0}.iscsi.iqn: Required", f"{V0}.iscsi.secretRef: Required"]),
    (volume(iscsi={"targetPortal": "p" * 63, "iqn": "eui.bad", "initiatorName": "iqn.bad"}), [
        f'{V0}.iscsi.iqn: Invalid value: "eui.bad": must be valid format', f"{V0}.iscsi.initiatorname: Invalid",
        f'{V0}.name: Invalid value: "v": Total length of']),
    (volume(flocker={}), [f"{V0}.flocker: Required value: one of datasetName and datasetUUID is required"]),
    (volume(flocker={"datasetName": "a/b", "datasetUUID": "u"}), [
        f'{V0}.flocker: Invalid value: "resource"', f"{V0}.flocker.datasetName: Invalid value: \"a/b\": must not contain '/'"]),
    (volume(quobyte={"registry": "host", "volume": "v"}), [f'{V0}.quobyte.registry: Invalid value: "host"']),
    (volume(quobyte={"registry": "h:1", "tenant": "t" * 65}), [f"{V0}.quobyte.tenant: Required", f"{V0}.quobyte.volume: Required"]),
    (volume(fc={"targetWWNs": ["w"]}), [f"{V0}.fc.lun: Required value: lun is required if targetWWNs is specified"]),
    (volume(fc={"targetWWNs": ["w"], "wwids": ["x"], "lun": 256}), [f"{V0}.fc.targetWWNs: Invalid", f"{V0}.fc.lun: Invalid"]),
    (volume(azureDisk={"diskName": "d", "diskURI": "x", "cachingMode": "Some", "kind": "Odd"}), [
        f"{V0}.azureDisk.cachingMode: Unsupported", f"{V0}.azureDisk.kind: Unsupported", f"{V0}.azureDisk.diskURI: Unsupported"]),
    (volume(storageos={"volumeName": "A", "volumeNamespace": "B", "secretRef": {}}), [
        f"{V0}.storageos.volumeName: Invalid", f"{V0}.storageos.volumeNamespace: Invalid", f"{V0}.storageos.secretRef.name: Required"]),
    (volume(cinder={"volumeID": "v", "secretRef": {}}), [f"{V0}.cinder.secretRef.name: Required"]),
    (volume(csi={"driver": "x" * 64, "nodePublishSecretRef": {}}), [
        f"{V0}.csi.driver: Too long: may not be more than 63 bytes", f"{V0}.csi.nodePublishSecretRef.name: Required"]),
    (volume(image={"reference": "a", "pullPolicy": "Odd"}), [f"{V0}.image.pullPolicy: Unsupported"]),
    ({"spec/volumes": [{"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1"}}}}}}, {"name": "b", "persistentVolumeClaim": {"claimName": "p-a"}}]}, [
        "spec.volumes[1].persistentVolumeClaim.claimName: Invalid value: \"p-a\": must not reference a PVC that gets created"]),
    (volume(ephemeral={"volumeClaimTemplate": {"metadata": {"name": "n"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1"}}}}}), [
        f"{V0}.ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set"]),
    (volume(downwardAPI={"items": [{"path": "..a", "fieldRef": {"fieldPath": "metadata.name"},
        "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}, "mode": -1}]}), [
        f"{V0}.downwardAPI.path: Invalid value: \"..a\": must not start with '..'",
        f"{V0}.downwardAPI: Invalid value: \"resource\": fieldRef and resourceFieldRef can not be specified simultaneously",
        f"{V0}.downwardAPI.mode: Invalid"]),
    (volume(downwardAPI={"items": [{"path": "a", "resourceFieldRef": {"resource": "limits.cpu"}}]}), [
        f"{V0}.downwardAPI.resourceFieldRef.containerName: Required"]),
    (projected({"secret": {"name": "s"}, "configMap": {"name": "c"}}), [
        f"{V0}.projected.sources[0]: Forbidden: may not specify more than 1 volume type per source"]),
    (projected({"serviceAccountToken": {"path": "", "expirationSeconds": 2**33}}), [
        f"{V0}.projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 8589934592: may not specify a "
        "duration larger than", f"{V0}.projected.path: Required"]),
    (projected({"clusterTrustBundle": {"name": "", "signerName": "x.io/y"}}), [
        f"{V0}.projected.sources[0].clusterTrustBundle: Invalid", f"{V0}.projected.sources[0].clusterTrustBundle.path: Required"]),
    (projected({"clusterTrustBundle": {"name": "n", "labelSelector": {}, "path": "a"}}), [
        f"{V0}.projected.sources[0].clusterTrustBundle.labelSelector: Invalid"]),
    (projected({"podCertificate": {"signerName": "nodomain", "keyType": "DSA", "maxExpirationSeconds": 1}}), [
        f"{V0}.projected.sources[0].podCertificate.signerName: Invalid value: \"nodomain\": must be a fully qualified domain",
        f"{V0}.projected.sources[0].podCertificate.keyType: Unsupported",
        f"{V0}.projected.sources[0].podCertificate.maxExpirationSeconds: Invalid",
        f"{V0}.projected.sources[0].podCertificate: Required value: specify at least one of"]),
    (projected({"podCertificate": {"signerName": "kubernetes.io/a", "keyType": "ED25519", "maxExpirationSeconds": 86401,
        "keyPath": "k", "certificateChainPath": "k"}}), [
        f"{V0}.projected.sources[0].podCertificate.maxExpirationSeconds: Invalid value: 86401",
        f'{V0}.projected: Invalid value: "k": conflicting duplicate paths']),
    (env(resourceFieldRef={}), ["spec.containers[0].env[0].valueFrom.resourceFieldRef.resource: Required"]),
    (env(resourceFieldRef={"resource": "limits.disk"}), ["spec.containers[0].env[0].valueFrom.resourceFieldRef.resource: Unsupported"]),
    (env(resourceFieldRef={"resource": "limits.memory", "divisor": "2"}), [
        "spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: \"limits.memory\": only divisor's values 1, 1k"]),
    (env(fieldRef={}), ["spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Required"]),
    (env(fieldRef={"apiVersion": "v2", "fieldPath": "metadata.name"}), [
        "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"metadata.name\": error converting fieldPath: "
        "unsupported pod version: v2"]),
    (env(fieldRef={"fieldPath": "metadata.labels['a b']"}), ["spec.containers[0].env[0].valueFrom.fieldRef: Invalid value: \"a b\""]),
    (env(fileKeyRef={"volumeName": "v", "path": "../p"}), [
        "spec.containers[0].env[0].valueFrom.fileKeyRef.key: Required", "spec.containers[0].env[0].valueFrom.fileKeyRef.path: Invalid",
        "spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Not found"]),
    ({**volume(hostPath={"path": "/"}), **env(fileKeyRef={"volumeName": "v", "path": "p", "key": "k"})}, [
        "spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Invalid value: \"v\": referenced volume must be of type emptyDir"]),
    ({f"{C0}/envFrom": [{"prefix": "a=b", "secretRef": {"name": "s"}}]}, ["spec.containers[0].envFrom[0].prefix: Invalid"]),
    ({**volume(persistentVolumeClaim={"claimName": "c"}), f"{C0}/volumeDevices": [{"name": "v", "devicePath": "/a"},
        {"name": "v", "devicePath": "/a"}, {"devicePath": "/../b"}]}, [
        "spec.containers[0].volumeDevices[1].name: Invalid value: \"v\": must be unique",
        "spec.containers[0].volumeDevices[1].devicePath: Invalid value: \"/a\": must be unique",
        "spec.containers[0].volumeDevices[2].name: Required", "spec.containers[0].volumeDevices[2].name: Not found",
        "spec.containers[0].volumeDevices[2].devicePath: Invalid value: \"/../b\": can not contain backsteps"]),
    ({**volume(persistentVolumeClaim={"claimName": "c"}), f"{C0}/volumeDevices": [{"name": "v", "devicePath": "/a"}],
        f"{C0}/volumeMounts": [{"name": "v", "mountPath": "/a"}]}, [
        "spec.containers[0].volumeMounts[0].name: Invalid value: \"v\": must not already exist in volumeDevices",
        "spec.containers[0].volumeMounts[0].mountPath: Invalid value: \"/a\": must not already exist as a path in volumeDevices",
        "spec.containers[0].volumeDevices[0].name: Invalid value: \"v\": must not already exist in volumeMounts",
        "spec.containers[0].volumeDevices[0].devicePath: Invalid value: \"/a\": must not already exist as a path in volumeMounts"]),
    ({**volume(image={"reference": "a"}), f"{C0}/volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "a",
        "subPathExpr": "/b", "bindMountOptions": ["noexec", "noexec", "odd"]}]}, [
        "spec.containers[0].volumeMounts[0].subPathExpr: Invalid", "spec.containers[0].volumeMounts.subPathExpr: Invalid",
        "spec.containers[0].volumeMounts[0].bindMountOptions[1]: Duplicate",
        "spec.containers[0].volumeMounts[0].bindMountOptions[2]: Unsupported",
        "spec.containers[0].volumeMounts[0].bindMountOptions: Invalid"]),
    ({**volume(emptyDir={}), f"{C0}/volumeMounts": [{"name": "v", "mountPath": "/a", "readOnly": True,
        "recursiveReadOnly": "IfPossible", "mountPropagation": "HostToContainer"}]}, [
        "spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None"]),
    (node_affinity(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]), [
        f"spec.affinity.nodeAffinity.{NODES}.nodeSelectorTerms[0].matchFields[0].values: Required"]),
    (node_affinity(matchFields=[{"key": "metadata.uid", "operator": "Exists"}]), [
        f"spec.affinity.nodeAffinity.{NODES}.nodeSelectorTerms[0].matchFields[0].operator: Invalid",
        f"spec.affinity.nodeAffinity.{NODES}.nodeSelectorTerms[0].matchFields[0].key: Invalid"]),
    (node_affinity(matchExpressions=[{"key": "a", "operator": "In", "values": []}, {"key": "a", "operator": "Exists", "values": ["b"]},
        {"key": "a", "operator": "Lt", "values": []}, {"key": "a", "operator": "Odd"}, {"key": "a", "operator": "In", "values": ["b c"]}]), [
        f"spec.affinity.nodeAffinity.{NODES}.nodeSelectorTerms[0].matchExpressions[0].values: Required",
        f"spec.affinity.nodeAffinity.{NODES}.nodeSelectorTerms[0].matchExpressions[1].values: Forbidden",
        f"spec.affinity.nodeAffinity.{NODES}.nodeSelectorTerms[0].matchExpressions[2].values: Required",
        f"spec.affinity.nodeAffinity.{NODES}.nodeSelectorTerms[0].matchExpressions[3].operator: Invalid",
        f"spec.affinity.nodeAffinity.{NODES}.nodeSelectorTerms[0].matchExpressions[4].values[0]: Invalid"]),
    ({"spec/affinity": {"podAffinity": {NODES: [{"namespaces": ["A"], "matchLabelKeys": ["a"], "mismatchLabelKeys": ["a"],
        "labelSelector": {"matchLabels": {"b": "c"}}}]}}}, [
        f"spec.affinity.podAffinity.{NODES}[0].namespace: Invalid",
        f"spec.affinity.podAffinity.{NODES}[0].matchLabelKeys[0]: Invalid value: \"a\": exists in both matchLabelKeys and mismatchLabelKeys",
        f"spec.affinity.podAffinity.{NODES}[0].topologyKey: Required", f"spec.affinity.podAffinity.{NODES}[0].topologyKey: Invalid",
        f"spec.affinity.podAffinity.{NODES}[0].topologyKey: Invalid"]),
    ({"metadata/labels": {"a": "1"}, "spec/topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "", "minDomains": 0,
        "whenUnsatisfiable": "ScheduleAnyway", "nodeAffinityPolicy": "Odd", "labelSelector": {"matchLabels": {"a": "1"}},
        "matchLabelKeys": ["a"]}]}, [
        "spec.topologySpreadConstraints[0].topologyKey: Required", "spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: must be greater",
        "spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: can only use minDomains if whenUnsatisfiable=DoNotSchedule",
        "spec.topologySpreadConstraints[0].nodeAffinityPolicy: Unsupported",
        "spec.topologySpreadConstraints[0][0]: Invalid value: \"a\": exists in both matchLabelKeys and labelSelector"]),
    ({"spec/tolerations": [{"key": "a", "operator": "Gt", "value": "1"}, {"key": "a b", "operator": "Exists"}, {"key": "a", "value": "-"}]}, [
        "spec.tolerations[0].operator: Unsupported value: \"Gt\": supported values: \"Equal\", \"Exists\", \"Gt\", \"Lt\"",
        "spec.tolerations[1].key: Invalid", "spec.tolerations[2].operator: Invalid value: \"-\""]),
    ({"spec/dnsPolicy": "None", "spec/dnsConfig": {}}, ["spec.dnsConfig.nameservers: Required"]),
    ({"spec/dnsConfig": {"nameservers": ["x"], "searches": ["A"] + ["a"] * 32}}, [
        "spec.dnsConfig.nameservers[0]: Invalid", "spec.dnsConfig.searches: Invalid value", "spec.dnsConfig.searches[0]: Invalid"]),
    ({"spec/dnsConfig": {"searches": ["a" * 200] * 11}}, ["spec.dnsConfig.searches: Invalid value"]),
    ({"spec/hostnameOverride": "A" * 65, "spec/setHostnameAsFQDN": True, "spec/hostNetwork": True}, [
        "spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN", "spec.hostnameOverride: Forbidden: may not be "
        "specified when hostNetwork", "spec.hostnameOverride: Too long", "spec.hostnameOverride: Invalid"]),
    ({"spec/hostAliases": [{"ip": "1.2.3.4", "hostnames": ["A"]}]}, ["spec.hostAliases[0].hostnames[0]: Invalid"]),
    ({"spec/readinessGates": [{}]}, ["spec.readinessGates[0].conditionType: Invalid"] * 2),
    ({"spec/priorityClassName": "A", "spec/runtimeClassName": "B"}, ["spec.priorityClassName: Invalid", "spec.runtimeClassName: Invalid"]),
    ({"spec/preemptionPolicy": ""}, ["spec.preemptionPolicy: Required"]),
    ({"spec/schedulingGroup": {}}, ["spec.schedulingGroup.podGroupName: Invalid"]),
    ({"spec/os": {}}, ["spec.os.name: Required"]),
    ({"spec/os": {"name": "linux"}, "spec/securityContext": {"windowsOptions": {}}}, [
        "spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod"]),
    ({"spec/os": {"name": "windows"}, "spec/securityContext": {"fsGroup": 1}, "spec/hostUsers": True,
        f"{C0}/securityContext": {"privileged": True}, "spec/resources": {"limits": {"cpu": "1"}}}, [
        "spec.resources: Forbidden: may not be set for a windows pod",
        "spec.securityContext.fsGroup: Forbidden", "spec.hostUsers: Forbidden", "spec.containers[0].securityContext.privileged: Forbidden"]),
    ({"spec/hostUsers": False, "spec/hostPID": True, "spec/hostNetwork": True}, ["spec.hostNetwork: Forbidden", "spec.HostPID: Forbidden"]),
    ({"spec/resourceClaims": [{}, {"name": "a", "resourceClaimName": "b", "resourceClaimTemplateName": "c"}, {"name": "a", "resourceClaimName": "B"}]}, [
        "spec.resourceClaims[0].name: Required", "spec.resourceClaims[0]: Invalid", "spec.resourceClaims[1]: Invalid",
        "spec.resourceClaims[2].name: Duplicate", "spec.resourceClaims[2].resourceClaimName: Invalid"]),
    ({"spec/resourceClaims": [{"name": "a", "resourceClaimName": "b"}], f"{C0}/resources": {"claims": [
        {}, {"name": "a", "request": "r"}, {"name": "a", "request": "r"}, {"name": "a"}, {"name": "a"}, {"name": "z"}]}}, [
        "spec.containers[0].resources.claims[0]: Required", "spec.containers[0].resources.claims[2]: Duplicate value: \"a/r\"",
        "spec.containers[0].resources.claims[3]: Duplicate value: \"a\"", "spec.containers[0].resources.claims[4]: Duplicate",
        "spec.containers[0].resources.claims[5]: Not found: \"z\": must be one of the names in pod.spec.resourceClaims: a"]),
    ({"spec/resources": {"limits": {"cpu": "1", "ephemeral-storage": "1"}, "claims": [{"name": "a"}]}, f"{C0}/resources": {"limits": {"cpu": "2"}}}, [
        "spec.resources.claims: Forbidden", "spec.resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        "spec.resources.limits[ephemeral-storage]: Unsupported", "spec.resources.containers[0][cpu].limits: Invalid value: \"2\""]),
    ({f"{C0}/resources": {"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}}, [
        "spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
        "spec.containers[0].resources.requests[hugepages-2Mi]: Invalid"]),
    ({f"{C0}/resources": {"limits": {"requests.x.io/a": "1"}}}, [
        "spec.containers[0].resources.limits[requests.x.io/a]: Invalid value: \"requests.x.io/a\": doesn't follow extended resource name standard",
        "spec.containers[0].resources.requests[requests.x.io/a]: Invalid"]),
    ({"spec/securityContext": {"sysctls": [{}, {"name": "A"}, {"name": "a"}, {"name": "a"}, {"name": "kernel.sem"}]}, "spec/hostIPC": True}, [
        "spec.securityContext.sysctls[0].name: Required", "spec.securityContext.sysctls[1].name: Invalid",
        "spec.securityContext.sysctls[3].name: Duplicate",
        "spec.securityContext.sysctls[4].name: Invalid value: \"kernel.sem\": may not be specified when 'hostIPC' is true"]),
    ({"spec/securityContext": {"fsGroup": -1, "supplementalGroups": [-1], "seccompProfile": {"type": "Odd", "localhostProfile": "a"}}}, [
        "spec.securityContext.fsGroup: Invalid", "spec.securityContext.supplementalGroups[0]: Invalid",
        "spec.securityContext.seccompProfile.type: Unsupported", "spec.securityContext.seccompProfile.localhostProfile: Invalid"]),
    ({"spec/securityContext": {"appArmorProfile": {}}}, ["spec.securityContext.appArmorProfile.type: Required"]),
    ({"spec/securityContext": {"appArmorProfile": {"type": "Odd"}}}, ["spec.securityContext.appArmorProfile.type: Unsupported"]),
    ({"spec/securityContext": {"appArmorProfile": {"type": "Localhost"}}}, ["spec.securityContext.appArmorProfile.localhostProfile: Required"]),
    ({"spec/securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": " a" + "b" * 4095}}}, [
        "spec.securityContext.appArmorProfile.localhostProfile: Invalid", "spec.securityContext.appArmorProfile.localhostProfile: Too long"]),
    ({"spec/securityContext": {"appArmorProfile": {"type": "Unconfined", "localhostProfile": "a"}}}, [
        "spec.securityContext.appArmorProfile.localhostProfile: Invalid"]),
    ({f"{C0}/securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"add": ["CAP_SYS_ADMIN"]}, "procMount": "Odd"}}, [
        "spec.containers[0].securityContext.procMount: Unsupported", "spec.containers[0].securityContext: Invalid"]),
    *(({f"{C0}/securityContext": {"windowsOptions": {"runAsUserName": name}}}, [
        f"spec.containers[0].securityContext.windowsOptions.runAsUserName: Invalid value: {shown}: runAsUserName{rest}"])
      for name, shown, rest in (
        ("", '""', " cannot be an empty"), ("a\nb", '"a\\nb"', " cannot contain control"), ("a\\b\\c", '"a\\\\b\\\\c"', " cannot contain more"),
        ("..\\b", '"..\\\\b"', "'s Domain doesn't match"), ("a\\", '"a\\\\"', "'s User cannot be empty"), ("..", '".."', "'s User cannot contain only"),
        ("a/b", '"a/b"', "'s User cannot contain the following"))),
    ({f"{C0}/lifecycle": {"postStart": {"grpc": {"port": 1}}}}, ["spec.containers[0].lifecycle.postStart: Required"]),
    ({"spec/os": {"name": "windows"}, f"{C0}/lifecycle": {"stopSignal": "SIGUSR1"}}, ["spec.containers[0].lifecycle.stopSignal: Unsupported"]),
    ({f"{C0}/readinessProbe": {"httpGet": {"port": 1, "protocol": "HTTP2", "scheme": "HTTPS"}}}, ["spec.containers[0].readinessProbe.httpGet.protocol: Invalid"]),
    ({f"{C0}/readinessProbe": {"httpGet": {"port": 1, "protocol": "HTTP2", "host": "h"}}}, ["spec.containers[0].readinessProbe.httpGet.host: Invalid"]),
    ({f"{C0}/readinessProbe": {"httpGet": {"port": 1, "protocol": "HTTP9"}}}, ["spec.containers[0].readinessProbe.httpGet.protocol: Unsupported"]),
    ({f"{C0}/livenessProbe": {"grpc": {"port": 0, "mode": "Odd"}, "terminationGracePeriodSeconds": 0}}, [
        "spec.containers[0].livenessProbe.grpc.port: Invalid", "spec.containers[0].livenessProbe.grpc.mode: Unsupported",
        "spec.containers[0].livenessProbe.terminationGracePeriodSeconds: Invalid"]),
    ({f"{C0}/resizePolicy": [{}], "spec/restartPolicy": "Never"}, [
        "spec.containers[0].resizePolicy: Required", "spec.containers[0].resizePolicy: Required",
        "spec.containers[0].resizePolicy: Invalid value: \"\": must be 'NotRequired' when pod `restartPolicy` is 'Never'"]),
    ({"spec/initContainers": [{"name": "i", "image": "x", "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}]}, [
        "spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid"]),
    ({f"{C0}/restartPolicy": "Never", f"{C0}/restartPolicyRules": [{"action": "Odd"}] * 21}, [
        "spec.containers[0].restartPolicyRules: Too many: 21: must have at most 20 items",
        *(part for n in range(21) for part in (
            f"spec.containers[0].restartPolicyRules[{n}].action: Unsupported", f"spec.containers[0].restartPolicyRules[{n}].exitCodes: Required"))]),
    ({"spec/ephemeralContainers": [{"name": "main", "image": " x", "volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "s"}]}],
        **volume(emptyDir={})}, [
        "spec.ephemeralContainers[0].image: Invalid", "spec.ephemeralContainers[0].name: Duplicate",
        "spec.ephemeralContainers[0].volumeMounts[0].subPath: Forbidden", "spec.ephemeralContainers: Forbidden"]),
    ({"metadata/annotations": {"kubernetes.io/config.mirror": "x", "seccomp.security.alpha.kubernetes.io/pod": "odd",
        "container.apparmor.security.beta.kubernetes.io/nobody": "odd"}}, [
        "metadata.annotations[kubernetes.io/config.mirror]: Invalid", "metadata.annotations.seccomp.security.alpha.kubernetes.io/pod: Invalid",
        "metadata.annotations[container.apparmor.security.beta.kubernetes.io/nobody]: Invalid value: \"nobody\": container not found",
        "metadata.annotations[container.apparmor.security.beta.kubernetes.io/nobody]: Invalid value: \"odd\": invalid AppArmor"]),
    ({"spec/securityContext": {"windowsOptions": {"hostProcess": False, "gmsaCredentialSpecName": "A", "gmsaCredentialSpec": ""}},
        f"{C0}/securityContext": {"windowsOptions": {"hostProcess": True}}, "spec/containers/1": {"name": "b", "image": "x"}, "spec/hostNetwork": True}, [
        "spec.securityContext.windowsOptions.gmsaCredentialSpecName: Invalid",
        "spec.securityContext.windowsOptions.gmsaCredentialSpec: Invalid",
        "spec.containers[0].securityContext.windowsOptions.hostProcess: Invalid value: true: pod hostProcess value must be identical",
        "spec: Invalid value: \"\": If pod contains any hostProcess containers then all"]),
]  # fmt: skip


@pytest.mark.parametrize("changes", VALID)
def test_rare_fields_used_well_are_accepted(changes: Obj, edited: Edited) -> None:
    assert faults(edited(BASE, changes)) == []


@pytest.mark.parametrize(("changes", "expected"), INVALID)
def test_rare_fields_used_badly_are_refused(changes: Obj, expected: list[str], edited: Edited) -> None:
    found = faults(edited(BASE, changes))
    assert [text[: len(start)] for text, start in zip(found, expected, strict=False)] == expected
    assert len(found) == len(expected), found


def test_templates_have_no_ephemeral_containers() -> None:
    template: Obj = {"spec": {**BASE["spec"], "ephemeralContainers": [{"name": "e", "image": "x"}]}}
    default_pod_template(template)
    errors: list[Any] = []
    validate_pod_template(template, "t", errors)
    assert [str(error) for error in errors] == [
        "t.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template"
    ]
