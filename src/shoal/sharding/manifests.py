"""The manifests that install sharding: definitions, RBAC, the manager, network policies and, for servers that support
them, policies that refuse late writes."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.crds.shard import definitions
from shoal.kube.objects import Obj
from shoal.sharding.model import CONFIG_LABEL, epoch_annotation, slot_label
from shoal.sharding.rbac import JOINED, MANAGER, NAMESPACE, TargetKind, manager_rights, worker_rights

PORT = 8060  # of the manager's health and metrics
WORKER_PORT = 8080  # of a built-in worker's health and metrics
_DNS = 53
_APP = "app.kubernetes.io/name"
CONTAINER_SECURITY: Obj = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def manifests(
    kinds: Sequence[TargetKind] = (),
    *,
    namespace: str = NAMESPACE,
    worker_namespaces: Sequence[str] = ("default",),
    image: str = "",
    replicas: int = 2,
    service_account: str = MANAGER,
) -> list[Obj]:
    """In the order in which they are applied, for these kinds and ShardedResources. Without an ``image`` there is no
    Deployment of the manager: it runs elsewhere, or another one with this ``service_account`` is its Deployment."""
    made = [
        *definitions(),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        *manager_rights(kinds, namespace=namespace, service_account=service_account),
    ]
    for place in worker_namespaces:
        made += [*worker_rights(kinds, namespace=place), worker_policy(place)]
    if image:
        made += [manager_policy(namespace), _budget(namespace), _deployment(namespace, image, replicas)]
    return made


def _deployment(namespace: str, image: str, replicas: int) -> Obj:
    labels = {_APP: MANAGER}
    command = ["shoal", "shard", "manager", "--host", "0.0.0.0", "--port", str(PORT), "--namespace", namespace]
    command += ["--worker-image", image]
    container = {
        "name": "manager",
        "image": image,
        "command": command,
        "ports": [{"name": "health", "containerPort": PORT}],
        "livenessProbe": {"httpGet": {"path": "/livez", "port": PORT}, "periodSeconds": 10},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": PORT}, "periodSeconds": 5},
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"cpu": "500m", "memory": "512Mi"},
        },
        "securityContext": CONTAINER_SECURITY,
    }
    template = {
        "metadata": {"labels": labels},
        "spec": {"serviceAccountName": MANAGER, "terminationGracePeriodSeconds": 15, "containers": [container]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return _object("apps/v1", "Deployment", MANAGER, namespace, spec)


def _budget(namespace: str) -> Obj:
    spec = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": {_APP: MANAGER}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return _object("policy/v1", "PodDisruptionBudget", MANAGER, namespace, spec)


def manager_policy(namespace: str) -> Obj:
    """Any client may read the manager's health; it connects to the API server, to DNS and to workers' health ports."""
    spec = {
        "podSelector": {"matchLabels": {_APP: MANAGER}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"protocol": "TCP", "port": PORT}]}],
        "egress": [
            {"ports": [{"protocol": "TCP", "port": 443}, {"protocol": "TCP", "port": 6443}]},
            {"ports": [{"protocol": "UDP", "port": _DNS}, {"protocol": "TCP", "port": _DNS}]},
            {"to": [{"namespaceSelector": {}, "podSelector": _workers()}]},
        ],
    }
    return _object("networking.k8s.io/v1", "NetworkPolicy", MANAGER, namespace, spec)


def worker_policy(namespace: str) -> Obj:
    """Only the manager connects to workers, and any client reads the health and metrics of built-in ones; workers' own
    connections are not limited."""
    managers = {"matchExpressions": [{"key": _APP, "operator": "In", "values": [MANAGER, JOINED]}]}
    pods = {"namespaceSelector": {}, "podSelector": managers}
    ingress = [{"from": [pods]}, {"ports": [{"protocol": "TCP", "port": WORKER_PORT}]}]
    spec = {"podSelector": _workers(), "policyTypes": ["Ingress"], "ingress": ingress}
    return _object("networking.k8s.io/v1", "NetworkPolicy", "shard-workers", namespace, spec)


def _workers() -> Obj:
    return {"matchExpressions": [{"key": CONFIG_LABEL, "operator": "Exists"}]}


def epoch_policy(config: str, kinds: Sequence[TargetKind]) -> list[Obj]:
    """A ValidatingAdmissionPolicy that refuses writes of an older epoch, and other slots, for one config; each refusal
    is also noted in the audit log."""
    name = f"shard-epochs-{config}"
    rules = [
        {"apiGroups": [kind.group], "apiVersions": ["*"], "resources": [kind.plural], "operations": ["UPDATE"]}
        for kind in kinds
    ]
    epoch, slot = epoch_annotation(config), slot_label(config)
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "variables": [
            {"name": "was", "expression": _get("oldObject", "annotations", epoch, "0")},
            {"name": "now", "expression": _get("object", "annotations", epoch, "0")},
            {"name": "wasSlot", "expression": _get("oldObject", "labels", slot, "")},
            {"name": "nowSlot", "expression": _get("object", "labels", slot, "")},
        ],
        "validations": [
            {
                "expression": "int(variables.now) >= int(variables.was)",
                "messageExpression": (
                    f"'the annotation {epoch} would go from ' + variables.was + ' back to ' + variables.now + "
                    "': the writer does not own this object any more'"
                ),
                "reason": "Forbidden",
            },
            {
                "expression": "variables.wasSlot == '' || variables.nowSlot == variables.wasSlot",
                "messageExpression": (
                    f"'the label {slot} is ' + variables.wasSlot + ' and cannot be changed; use a patch or apply, "
                    "which keep it'"
                ),
                "reason": "Forbidden",
            },
        ],
    }
    bound = {"policyName": name, "validationActions": ["Deny", "Audit"]}
    version = "admissionregistration.k8s.io/v1"
    return [
        _object(version, "ValidatingAdmissionPolicy", name, "", spec),
        _object(version, "ValidatingAdmissionPolicyBinding", name, "", bound),
    ]


def _get(root: str, field: str, key: str, otherwise: str) -> str:
    there = f"has({root}.metadata.{field}) && '{key}' in {root}.metadata.{field}"
    return f"({there}) ? {root}.metadata.{field}['{key}'] : '{otherwise}'"


def _object(api_version: str, kind: str, name: str, namespace: str, spec: Obj) -> Obj:
    about = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": api_version, "kind": kind, "metadata": about, "spec": spec}
