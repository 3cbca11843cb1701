"""Invalid pods are refused, with the field and the message of Kubernetes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shoal.kube.kinds.core.pod import POD, validate_pod_template
from shoal.kube.objects import Obj

CONTAINER: Obj = {"name": "main", "image": "example.com/app:1"}
PODS: Obj = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [CONTAINER]}}
C0 = "spec/containers/0"
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
).replace("\\\\", "\\")
PROBE: Obj = {"httpGet": {"port": 80}}
DATA: Obj = {"name": "data", "emptyDir": {}}
MOUNT: Obj = {"name": "data", "mountPath": "/data"}


def faults(pod: Obj) -> list[str]:
    POD.default(pod)
    POD.prepare_create(pod)
    return [str(error) for error in POD.validate_create(pod)]


VALID: list[tuple[str, Obj]] = [
    ("smallest", {}),
    ("two containers", {"spec/containers/1": {"name": "b", "image": "x"}}),
    ("sidecar", {"spec/initContainers": [{"name": "s", "image": "x", "restartPolicy": "Always", "livenessProbe": PROBE}]}),
    ("every env source", {f"{C0}/env": [
        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}},
        {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        {"name": "D", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        {"name": "E", "valueFrom": {"secretKeyRef": {"name": "c", "key": "k"}}},
        {"name": "odd name!", "value": "x"},
    ]}),
    ("mounts", {"spec/volumes": [DATA], f"{C0}/volumeMounts": [MOUNT]}),
    ("host network", {"spec/hostNetwork": True, f"{C0}/ports": [{"containerPort": 80}]}),
    ("extended resource", {f"{C0}/resources": {"limits": {"example.com/gpu": "1"}}}),
    ("huge pages", {f"{C0}/resources": {"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}}}),
    ("match all toleration", {"spec/tolerations": [{"operator": "Exists"}]}),
    ("gates", {"spec/schedulingGates": [{"name": "a.io/b"}]}),
    ("affinity", {"spec/affinity": {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}}]},
    }}),
    ("pod level resources", {"spec/resources": {"limits": {"cpu": "2"}}, f"{C0}/resources": {"limits": {"cpu": "1"}}}),
    ("dns none with servers", {"spec/dnsPolicy": "None", "spec/dnsConfig": {"nameservers": ["1.2.3.4"]}}),
    ("os with signal", {"spec/os": {"name": "linux"}, f"{C0}/lifecycle": {"stopSignal": "SIGTERM"}}),
    ("restart rules", {f"{C0}/restartPolicy": "Never", f"{C0}/restartPolicyRules": [
        {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]}),
    ("projected", {"spec/serviceAccountName": "a", "spec/volumes": [{"name": "t", "projected": {"sources": [
        {"serviceAccountToken": {"path": "token"}}, {"configMap": {"name": "c", "items": [{"key": "a", "path": "a"}]}},
        {"downwardAPI": {"items": [{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}]}}]}),
]  # fmt: skip

CONTAINERS: list[tuple[str, Obj, list[str]]] = [
    ("none", {"spec/containers": []}, ["spec.containers: Required value"]),
    ("no name", {f"{C0}/name": ""}, ["spec.containers[0].name: Required value"]),
    ("bad name", {f"{C0}/name": "A"}, [f'spec.containers[0].name: Invalid value: "A": {LABEL}']),
    ("dotted name", {f"{C0}/name": "a.b"}, ['spec.containers[0].name: Invalid value: "a.b": must not contain dots']),
    ("same name twice", {"spec/containers/1": CONTAINER}, ['spec.containers[1].name: Duplicate value: "main"']),
    ("no image", {f"{C0}/image": ...}, ["spec.containers[0].image: Required value"]),
    ("space in image", {f"{C0}/image": " a"}, [
        'spec.containers[0].image: Invalid value: " a": must not have leading or trailing whitespace']),
    ("message policy", {f"{C0}/terminationMessagePolicy": "X"}, [
        'spec.containers[0].terminationMessagePolicy: Unsupported value: "X": supported values: '
        '"FallbackToLogsOnError", "File"']),
    ("pull policy", {f"{C0}/imagePullPolicy": "Sometimes"}, [
        'spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", '
        '"IfNotPresent", "Never"']),
    ("port zero", {f"{C0}/ports": [{}]}, ["spec.containers[0].ports[0].containerPort: Required value"]),
    ("port too big", {f"{C0}/ports": [{"containerPort": 70000}]}, [
        "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"]),
    ("port name", {f"{C0}/ports": [{"containerPort": 1, "name": "-a"}]}, [
        'spec.containers[0].ports[0].name: Invalid value: "-a": must not begin or end with a hyphen']),
    ("port name twice", {f"{C0}/ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]}, [
        'spec.containers[0].ports[1].name: Duplicate value: "a"']),
    ("protocol", {f"{C0}/ports": [{"containerPort": 1, "protocol": "tcp"}]}, [
        'spec.containers[0].ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"']),
    ("host port twice", {f"{C0}/ports": [{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9}]}, [
        'spec.containers[0].ports[1].hostPort: Duplicate value: "TCP//9"']),
    ("host network port", {"spec/hostNetwork": True, f"{C0}/ports": [{"containerPort": 1, "hostPort": 2}]}, [
        "spec.containers[0].ports[0].hostPort: Invalid value: 2: must match `containerPort` when `hostNetwork` is true"]),
    ("env without name", {f"{C0}/env": [{"value": "x"}]}, ["spec.containers[0].env[0].name: Required value"]),
    ("env name with =", {f"{C0}/env": [{"name": "a=b"}]}, [
        'spec.containers[0].env[0].name: Invalid value: "a=b": a valid environment variable name must consist only of '
        "printable ASCII characters other than '='"]),
    ("env without source", {f"{C0}/env": [{"name": "a", "valueFrom": {}}]}, [
        'spec.containers[0].env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, '
        "`configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"]),
    ("env with value and source", {f"{C0}/env": [
        {"name": "a", "value": "b", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}, [
        'spec.containers[0].env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty']),
    ("env with two sources", {f"{C0}/env": [{"name": "a", "valueFrom": {
        "fieldRef": {"fieldPath": "metadata.name"}, "secretKeyRef": {"name": "a", "key": "b"}}}]}, [
        'spec.containers[0].env[0].valueFrom: Invalid value: "": may not have more than one field specified at a time']),
    ("unknown field", {f"{C0}/env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "spec.foo"}}}]}, [
        'spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.foo": error converting '
        "fieldPath: field label not supported: spec.foo"]),
    ("field of volumes only", {f"{C0}/env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}}]}, [
        'spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels": supported '
        'values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", '
        '"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"']),
    ("subscript", {f"{C0}/env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name['a']"}}}]}, [
        "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"metadata.name['a']\": error "
        "converting fieldPath: field label does not support subscript: metadata.name"]),
    ("divisor", {f"{C0}/env": [
        {"name": "a", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "5m"}}}]}, [
        'spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor\'s '
        "values 1m and 1 are supported with the cpu resource"]),
    ("secret key", {f"{C0}/env": [{"name": "a", "valueFrom": {"secretKeyRef": {"name": "a"}}}]}, [
        "spec.containers[0].env[0].valueFrom.secretKeyRef.key: Required value"]),
    ("file without volume", {f"{C0}/env": [
        {"name": "a", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}}]}, [
        'spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Not found: "v"']),
    ("envFrom nothing", {f"{C0}/envFrom": [{}]}, [
        'spec.containers[0].envFrom: Invalid value: "": must specify one of: `configMapRef` or `secretRef`']),
    ("envFrom both", {f"{C0}/envFrom": [{"configMapRef": {"name": "a"}, "secretRef": {"name": "b"}}]}, [
        'spec.containers[0].envFrom: Invalid value: "": may not have more than one field specified at a time']),
    ("envFrom name", {f"{C0}/envFrom": [{"configMapRef": {}}]}, [
        "spec.containers[0].envFrom[0].configMapRef.name: Required value"]),
    ("mount of nothing", {f"{C0}/volumeMounts": [MOUNT]}, ['spec.containers[0].volumeMounts[0].name: Not found: "data"']),
    ("mount without path", {"spec/volumes": [DATA], f"{C0}/volumeMounts": [{"name": "data"}]}, [
        "spec.containers[0].volumeMounts[0].mountPath: Required value"]),
    ("mount path twice", {"spec/volumes": [DATA], f"{C0}/volumeMounts": [MOUNT, MOUNT]}, [
        'spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/data": must be unique']),
    ("sub path up", {"spec/volumes": [DATA], f"{C0}/volumeMounts": [{**MOUNT, "subPath": "../a"}]}, [
        "spec.containers[0].volumeMounts.subPath: Invalid value: \"../a\": must not contain '..'"]),
    ("sub path absolute", {"spec/volumes": [DATA], f"{C0}/volumeMounts": [{**MOUNT, "subPath": "/a"}]}, [
        'spec.containers[0].volumeMounts.subPath: Invalid value: "/a": must be a relative path']),
    ("propagation", {"spec/volumes": [DATA], f"{C0}/volumeMounts": [{**MOUNT, "mountPropagation": "Bidirectional"}]}, [
        "spec.containers[0].volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only "
        "to privileged containers"]),
    ("recursive read only", {"spec/volumes": [DATA], f"{C0}/volumeMounts": [{**MOUNT, "recursiveReadOnly": "Enabled"}]}, [
        "spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true"]),
    ("device of an empty dir", {"spec/volumes": [DATA], f"{C0}/volumeDevices": [{"name": "data", "devicePath": "/d"}]}, [
        'spec.containers[0].volumeDevices[0].name: Invalid value: "data": can only use volume source type of '
        "PersistentVolumeClaim or Ephemeral for block mode"]),
    ("request above limit", {f"{C0}/resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}, [
        'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1']),
    ("negative", {f"{C0}/resources": {"requests": {"cpu": "-1"}}}, [
        'spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0']),
    ("unknown resource", {f"{C0}/resources": {"requests": {"pods": "1"}}}, [
        'spec.containers[0].resources.requests[pods]: Invalid value: "pods": must be a standard resource for containers']),
    ("gpu below limit", {f"{C0}/resources": {"requests": {"x.io/gpu": "1"}, "limits": {"x.io/gpu": "2"}}}, [
        'spec.containers[0].resources.requests: Invalid value: "1": must be equal to x.io/gpu limit of 2']),
    ("gpu without limit", {f"{C0}/resources": {"requests": {"x.io/gpu": "1"}}}, [
        "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources"]),
    ("half a gpu", {f"{C0}/resources": {"limits": {"x.io/gpu": "500m"}}}, [
        'spec.containers[0].resources.limits[x.io/gpu]: Invalid value: "500m": must be an integer',
        'spec.containers[0].resources.requests[x.io/gpu]: Invalid value: "500m": must be an integer']),
    ("lone huge pages", {f"{C0}/resources": {"limits": {"hugepages-2Mi": "2Mi"}}}, [
        "spec.containers[0].resources: Forbidden: HugePages require cpu or memory"]),
    ("claim that the pod does not have", {f"{C0}/resources": {"claims": [{"name": "a"}]}}, [
        'spec.containers[0].resources.claims[0]: Not found: "a": must be one of the names in pod.spec.resourceClaims '
        "which is empty"]),
    ("probe without handler", {f"{C0}/livenessProbe": {}}, [
        "spec.containers[0].livenessProbe: Required value: must specify a handler type"]),
    ("probe with two handlers", {f"{C0}/livenessProbe": {**PROBE, "exec": {"command": ["a"]}}}, [
        "spec.containers[0].livenessProbe.httpGet: Forbidden: may not specify more than 1 handler type"]),
    ("probe without command", {f"{C0}/readinessProbe": {"exec": {}}}, [
        "spec.containers[0].readinessProbe.exec.command: Required value"]),
    ("probe port", {f"{C0}/readinessProbe": {"tcpSocket": {"port": 0}}}, [
        "spec.containers[0].readinessProbe.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive"]),
    ("probe scheme", {f"{C0}/readinessProbe": {"httpGet": {"port": 1, "scheme": "ftp"}}}, [
        'spec.containers[0].readinessProbe.httpGet.scheme: Unsupported value: "ftp": supported values: "HTTP", "HTTPS"']),
    ("probe header", {f"{C0}/readinessProbe": {"httpGet": {"port": 1, "httpHeaders": [{"name": "a b"}]}}}, [
        "spec.containers[0].readinessProbe.httpGet.httpHeaders: Invalid value: \"a b\": a valid HTTP header must consist "
        "of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"]),
    ("negative period", {f"{C0}/readinessProbe": {**PROBE, "periodSeconds": -1}}, [
        "spec.containers[0].readinessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0"]),
    ("liveness success", {f"{C0}/livenessProbe": {**PROBE, "successThreshold": 2}}, [
        "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1"]),
    ("readiness grace", {f"{C0}/readinessProbe": {**PROBE, "terminationGracePeriodSeconds": 2}}, [
        "spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 2: must not be set for "
        "readinessProbes"]),
    ("sleep past the grace", {f"{C0}/lifecycle": {"preStop": {"sleep": {"seconds": 31}}}}, [
        "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than "
        "terminationGracePeriodSeconds (30)"]),
    ("signal without os", {f"{C0}/lifecycle": {"stopSignal": "SIGTERM"}}, [
        "spec.containers[0].lifecycle.stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`"]),
    ("user", {f"{C0}/securityContext": {"runAsUser": -1}}, [
        "spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"]),
    ("privileged without escalation", {f"{C0}/securityContext": {"privileged": True, "allowPrivilegeEscalation": False}}, [
        'spec.containers[0].securityContext: Invalid value: {"privileged":true,"allowPrivilegeEscalation":false}: '
        "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"]),
    ("seccomp type", {f"{C0}/securityContext": {"seccompProfile": {}}}, [
        "spec.containers[0].securityContext.seccompProfile.type: Required value: type is required when seccompProfile is "
        "set"]),
    ("seccomp profile", {f"{C0}/securityContext": {"seccompProfile": {"type": "Localhost"}}}, [
        "spec.containers[0].securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp "
        "type is Localhost"]),
    ("proc mount", {f"{C0}/securityContext": {"procMount": "Unmasked"}}, [
        'spec.containers[0].securityContext.procMount: Invalid value: "Unmasked": `hostUsers` must be false to use '
        "`Unmasked`"]),
    ("resize policy", {f"{C0}/resizePolicy": [{"resourceName": "disk", "restartPolicy": "NotRequired"}]}, [
        'spec.containers[0].resizePolicy: Unsupported value: "disk": supported values: "cpu", "memory"']),
    ("container restart policy", {f"{C0}/restartPolicy": "Sometimes"}, [
        'spec.containers[0].restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", '
        '"OnFailure"']),
    ("rules without policy", {f"{C0}/restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In"}}]}, [
        "spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used"]),
    ("init name taken", {"spec/initContainers": [CONTAINER]}, ['spec.initContainers[0].name: Duplicate value: "main"']),
    ("init with probe", {"spec/initContainers": [{"name": "i", "image": "x", "readinessProbe": PROBE}]}, [
        "spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without "
        "restartPolicy=Always"]),
    ("ephemeral on create", {"spec/ephemeralContainers": [{"name": "e", "image": "x"}]}, [
        "spec.ephemeralContainers: Forbidden: cannot be set on create"]),
    ("ephemeral with ports", {"spec/ephemeralContainers": [
        {"name": "e", "image": "x", "ports": [{"containerPort": 1}], "targetContainerName": "z"}]}, [
        'spec.ephemeralContainers[0].targetContainerName: Not found: "z"',
        "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
        "spec.ephemeralContainers: Forbidden: cannot be set on create"]),
]  # fmt: skip

SPEC: list[tuple[str, Obj, list[str]]] = [
    ("restart policy", {"spec/restartPolicy": "Never!"}, [
        'spec.restartPolicy: Unsupported value: "Never!": supported values: "Always", "Never", "OnFailure"']),
    ("dns policy", {"spec/dnsPolicy": "Mine"}, [
        'spec.dnsPolicy: Unsupported value: "Mine": supported values: "ClusterFirst", "ClusterFirstWithHostNet", '
        '"Default", "None"']),
    ("dns none", {"spec/dnsPolicy": "None"}, [
        "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"]),
    ("dns servers", {"spec/dnsConfig": {"nameservers": ["1.1.1.1"] * 4}}, [
        'spec.dnsConfig.nameservers: Invalid value: ["1.1.1.1","1.1.1.1","1.1.1.1","1.1.1.1"]: must not have more than 3 '
        "nameservers"]),
    ("dns option", {"spec/dnsConfig": {"options": [{"value": "1"}]}}, [
        "spec.dnsConfig.options[0]: Required value: must not be empty"]),
    ("node selector", {"spec/nodeSelector": {"a": "b c"}}, [
        'spec.nodeSelector: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric '
        "characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or "
        "'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"]),
    ("account", {"spec/serviceAccountName": "A"}, [f'spec.serviceAccountName: Invalid value: "A": {SUBDOMAIN}']),
    ("node name", {"spec/nodeName": "N"}, [f'spec.nodeName: Invalid value: "N": {SUBDOMAIN}']),
    ("deadline", {"spec/activeDeadlineSeconds": 0}, [
        "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"]),
    ("hostname", {"spec/hostname": "a.b"}, ['spec.hostname: Invalid value: "a.b": must not contain dots']),
    ("host alias", {"spec/hostAliases": [{"ip": "1.2.3", "hostnames": ["a"]}]}, [
        'spec.hostAliases[0].ip: Invalid value: "1.2.3": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)']),
    ("preemption", {"spec/preemptionPolicy": "Maybe"}, [
        'spec.preemptionPolicy: Unsupported value: "Maybe": supported values: "Never", "PreemptLowerPriority"']),
    ("os", {"spec/os": {"name": "plan9"}}, [
        'spec.os: Unsupported value: "plan9": supported values: "linux", "windows"']),
    ("windows with linux fields", {"spec/os": {"name": "windows"}, "spec/hostPID": True}, [
        "spec.hostPID: Forbidden: cannot be set for a windows pod"]),
    ("shared pid", {"spec/hostPID": True, "spec/shareProcessNamespace": True}, [
        "spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled"]),
    ("user namespace", {"spec/hostUsers": False, "spec/hostIPC": True}, [
        "spec.HostIPC: Forbidden: when `hostUsers` is false"]),
    ("toleration without key", {"spec/tolerations": [{"operator": "Equal"}]}, [
        'spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means '
        '"match all values and all keys"']),
    ("toleration seconds", {"spec/tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 1}]}, [
        "spec.tolerations[0].effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds` is set"]),
    ("toleration value", {"spec/tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]}, [
        "spec.tolerations[0].operator: Invalid value: \"x\": value must be empty when `operator` is 'Exists'"]),
    ("toleration effect", {"spec/tolerations": [{"key": "a", "operator": "Exists", "effect": "No"}]}, [
        'spec.tolerations[0].effect: Unsupported value: "No": supported values: "NoExecute", "NoSchedule", '
        '"PreferNoSchedule"']),
    ("spread", {"spec/topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "No"}]}, [
        "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
        'spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "No": supported values: '
        '"DoNotSchedule", "ScheduleAnyway"']),
    ("spread twice", {"spec/topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}] * 2}, [
        "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: \"{z, DoNotSchedule}\""]),
    ("spread keys", {"spec/topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["a"]}]}, [
        "spec.topologySpreadConstraints[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"]),
    ("affinity without terms", {"spec/affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}, [
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: "
        "must have at least one node selector term"]),
    ("affinity weight", {"spec/affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 101, "podAffinityTerm": {"topologyKey": "z"}}]}}}, [
        "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must "
        "be in the range 1-100"]),
    ("gate twice", {"spec/schedulingGates": [{"name": "a"}, {"name": "a"}]}, [
        'spec.schedulingGates[1]: Duplicate value: "a"']),
    ("gate and node", {"spec/schedulingGates": [{"name": "a"}], "spec/nodeName": "n"}, [
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"]),
    ("pod level below containers", {"spec/resources": {"requests": {"cpu": "1"}},
        f"{C0}/resources": {"requests": {"cpu": "2"}}}, [
        'spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests '
        "of 2"]),
    ("overhead", {"spec/overhead": {"cpu": "-1"}}, [
        'spec.overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0']),
    ("claim without source", {"spec/resourceClaims": [{"name": "a"}]}, [
        'spec.resourceClaims[0]: Invalid value: {"name":"a"}: must specify one of: `resourceClaimName`, '
        "`resourceClaimTemplateName`"]),
    ("sysctl", {"spec/securityContext": {"sysctls": [{"name": "net.a", "value": "1"}]}, "spec/hostNetwork": True}, [
        "spec.securityContext.sysctls[0].name: Invalid value: \"net.a\": may not be specified when 'hostNetwork' is true"]),
    ("fs group policy", {"spec/securityContext": {"fsGroupChangePolicy": "Never"}}, [
        'spec.securityContext.fsGroupChangePolicy: Unsupported value: "Never": supported values: "Always", '
        '"OnRootMismatch"']),
    ("deletion cost", {"metadata/annotations": {"controller.kubernetes.io/pod-deletion-cost": "x"}}, [
        'metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "x": must be a 32bit integer']),
    ("host process", {f"{C0}/securityContext": {"windowsOptions": {"hostProcess": True}}}, [
        "spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers"]),
]  # fmt: skip

VOLUMES: list[tuple[str, list[Obj], list[str]]] = [
    ("no name", [{"emptyDir": {}}], ["spec.volumes[0].name: Required value"]),
    ("name", [{"name": "A", "emptyDir": {}}], [f'spec.volumes[0].name: Invalid value: "A": {LABEL}']),
    ("twice", [DATA, DATA], ['spec.volumes[1].name: Duplicate value: "data"']),
    ("two sources", [{"name": "a", "emptyDir": {}, "hostPath": {"path": "/"}}], [
        "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"]),
    ("empty dir", [{"name": "a", "emptyDir": {"sizeLimit": "-1"}}], [
        "spec.volumes[0].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity"]),
    ("host path", [{"name": "a", "hostPath": {}}], ["spec.volumes[0].hostPath.path: Required value"]),
    ("host path up", [{"name": "a", "hostPath": {"path": "/a/../b"}}], [
        "spec.volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'"]),
    ("host path type", [{"name": "a", "hostPath": {"path": "/a", "type": "Dir"}}], [
        'spec.volumes[0].hostPath.type: Unsupported value: "Dir": supported values: "", "BlockDevice", "CharDevice", '
        '"Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"']),
    ("secret", [{"name": "a", "secret": {}}], ["spec.volumes[0].secret.secretName: Required value"]),
    ("secret mode", [{"name": "a", "secret": {"secretName": "s", "defaultMode": 0o1000}}], [
        "spec.volumes[0].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both "
        "inclusive"]),
    ("config map", [{"name": "a", "configMap": {"items": [{"path": "/b"}]}}], [
        "spec.volumes[0].configMap.name: Required value",
        "spec.volumes[0].configMap.items[0].key: Required value",
        'spec.volumes[0].configMap.items[0].path: Invalid value: "/b": must be a relative path']),
    ("claim", [{"name": "a", "persistentVolumeClaim": {}}], [
        "spec.volumes[0].persistentVolumeClaim.claimName: Required value"]),
    ("nfs", [{"name": "a", "nfs": {"server": "s", "path": "p"}}], [
        'spec.volumes[0].nfs.path: Invalid value: "p": must be an absolute path']),
    ("iscsi", [{"name": "a", "iscsi": {"targetPortal": "p", "iqn": "x", "lun": 256}}], [
        'spec.volumes[0].iscsi.iqn: Invalid value: "x": must be valid format starting with iqn, eui, or naa',
        "spec.volumes[0].iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive"]),
    ("fc", [{"name": "a", "fc": {}}], [
        "spec.volumes[0].fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both"]),
    ("rbd", [{"name": "a", "rbd": {}}], [
        "spec.volumes[0].rbd.monitors: Required value", "spec.volumes[0].rbd.image: Required value"]),
    ("csi", [{"name": "a", "csi": {}}], ["spec.volumes[0].csi.driver: Required value"]),
    ("azure disk", [{"name": "a", "azureDisk": {"diskName": "a", "diskURI": "x", "kind": "Managed"}}], [
        'spec.volumes[0].azureDisk.diskURI: Unsupported value: "x": supported values: '
        '"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"']),
    ("flex", [{"name": "a", "flexVolume": {"driver": "d", "options": {"k8s.io/a": "b"}}}], [
        'spec.volumes[0].flexVolume.options[k8s.io/a]: Invalid value: "k8s.io/a": kubernetes.io and k8s.io namespaces '
        "are reserved"]),
    ("image", [{"name": "a", "image": {}}], ["spec.volumes[0].image.reference: Required value"]),
    ("ephemeral", [{"name": "a", "ephemeral": {}}], ["spec.volumes[0].ephemeral.volumeClaimTemplate: Required value"]),
    ("ephemeral claim", [{"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["RWO"]}}}}], [
        'spec.volumes[0].ephemeral.volumeClaimTemplate.spec.accessModes: Unsupported value: "RWO": supported values: '
        '"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"',
        "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources[storage]: Required value"]),
    ("downward", [{"name": "a", "downwardAPI": {"items": [{"path": "a"}]}}], [
        "spec.volumes[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef is required"]),
    ("projected twice", [{"name": "a", "projected": {"sources": [
        {"configMap": {"name": "c", "items": [{"key": "a", "path": "f"}]}},
        {"secret": {"name": "s", "items": [{"key": "a", "path": "f"}]}}]}}], [
        'spec.volumes[0].projected: Invalid value: "s": conflicting duplicate paths']),
    ("token too short", [{"name": "a", "projected": {"sources": [
        {"serviceAccountToken": {"path": "t", "expirationSeconds": 60}}]}}], [
        "spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 60: may not specify "
        "a duration less than 10 minutes",
        "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when "
        "serviceAccountName is not set"]),
    ("trust bundle", [{"name": "a", "projected": {"sources": [{"clusterTrustBundle": {"path": "t"}}]}}], [
        "spec.volumes[0].projected.sources[0].clusterTrustBundle: Required value: either name or signerName must be "
        "specified"]),
]  # fmt: skip


@pytest.mark.parametrize(("changes"), [changes for _, changes in VALID], ids=[name for name, _ in VALID])
def test_valid_pods_are_accepted(changes: Obj, edited: Callable[[Obj, Obj], Obj]) -> None:
    assert faults(edited(PODS, changes)) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [(changes, expected) for _, changes, expected in CONTAINERS + SPEC],
    ids=[name for name, *_ in CONTAINERS + SPEC],
)
def test_invalid_pods_are_refused(changes: Obj, expected: list[str], edited: Callable[[Obj, Obj], Obj]) -> None:
    assert faults(edited(PODS, changes)) == expected


@pytest.mark.parametrize(
    ("volumes", "expected"), [(volumes, expected) for _, volumes, expected in VOLUMES], ids=[n for n, *_ in VOLUMES]
)
def test_invalid_volumes_are_refused(
    volumes: list[Obj], expected: list[str], edited: Callable[[Obj, Obj], Obj]
) -> None:
    assert faults(edited(PODS, {"spec/volumes": volumes})) == expected


def test_a_template_reports_labels_and_spec_below_its_own_path() -> None:
    errors: list[Any] = []
    template: Obj = {"metadata": {"labels": {"a b": "c"}}, "spec": {"containers": []}}
    validate_pod_template(template, "spec.template", errors)
    assert [error.field for error in errors] == [
        "spec.template.labels",
        "spec.template.spec.terminationGracePeriodSeconds",
        "spec.template.spec.containers",
        "spec.template.spec.restartPolicy",
        "spec.template.spec.dnsPolicy",
    ]
