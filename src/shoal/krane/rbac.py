"""RBAC rules of an agent, as data: the least it needs, so that a stolen token can do little.

Three scopes: the whole cluster, the namespace of the sentinels, and the namespace of the agent's Lease. Some rules are
there only to be granted to sentinels: Kubernetes lets a client grant only permissions that it has itself.
"""

from __future__ import annotations

from typing import Any

from shoal.crds.sentinel import GROUP
from shoal.krane.sentinels import install
from shoal.krane.sentinels.render import NAMESPACE_SENTINEL
from shoal.kube.objects import Obj

NAME = "shoal-krane"
NAMESPACE = "shoal-system"
SERVICE_ACCOUNT = "krane"

_KEEP = ("create", "delete", "get", "list", "patch", "watch")
_ENSURE = ("create", "get", "patch")


def _rule(group: str, resources: tuple[str, ...], verbs: tuple[str, ...]) -> Obj:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


CLUSTER_RULES: tuple[Obj, ...] = (
    _rule("", ("namespaces",), _ENSURE),
    _rule("", ("serviceaccounts", "services"), _KEEP),
    _rule("", ("secrets",), ("create", "delete", "get", "patch")),
    _rule("", ("nodes", "pods"), ("list", "watch")),
    _rule("apps", ("deployments",), _KEEP),
    _rule("apps", ("deployments/scale",), ("patch",)),
    _rule("autoscaling", ("horizontalpodautoscalers",), _KEEP),
    _rule("policy", ("poddisruptionbudgets",), _KEEP),
    _rule("networking.k8s.io", ("networkpolicies",), _KEEP),
    _rule("apiextensions.k8s.io", ("customresourcedefinitions",), _ENSURE),
    _rule("rbac.authorization.k8s.io", ("clusterroles", "clusterrolebindings"), _ENSURE),
    *install.CLUSTER_RULES,  # to be passed on
)

SENTINEL_RULES: tuple[Obj, ...] = (
    _rule(GROUP, ("sentinelroutes", "sentinelpolicies"), _KEEP),
    _rule("", ("configmaps",), _KEEP),
    _rule("", ("secrets",), ("list", "watch")),
    _rule("rbac.authorization.k8s.io", ("roles", "rolebindings"), _ENSURE),
    *install.NAMESPACED_RULES[1:2],  # to be passed on; the others are included above
)
"""In the namespace of the sentinels."""

LEASE_RULES: tuple[Obj, ...] = (_rule("coordination.k8s.io", ("leases",), ("create", "get", "update")),)
"""In the agent's own namespace."""


def manifests(*, namespace: str = NAMESPACE, service_account: str = SERVICE_ACCOUNT) -> list[Obj]:
    """Everything an administrator applies before an agent can start, in order."""
    subject = {"kind": "ServiceAccount", "name": service_account, "namespace": namespace}
    made: list[Obj] = [
        _object("v1", "Namespace", {"name": namespace}),
        _object("v1", "Namespace", install.namespace()["metadata"]),
        _object("v1", "ServiceAccount", {"name": service_account, "namespace": namespace}),
    ]
    for place, rules in (("", CLUSTER_RULES), (NAMESPACE_SENTINEL, SENTINEL_RULES), (namespace, LEASE_RULES)):
        made += _granted(place, rules, subject)
    return made


def _granted(namespace: str, rules: tuple[Obj, ...], subject: Obj) -> list[Obj]:
    kind = "Role" if namespace else "ClusterRole"
    about = {"name": NAME, "namespace": namespace} if namespace else {"name": NAME}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME}
    version = "rbac.authorization.k8s.io/v1"
    return [
        _object(version, kind, about, rules=list(rules)),
        _object(version, f"{kind}Binding", about, roleRef=reference, subjects=[subject]),
    ]


def _object(api_version: str, kind: str, about: Obj, **rest: Any) -> Obj:
    return {"apiVersion": api_version, "kind": kind, "metadata": dict(about), **rest}
