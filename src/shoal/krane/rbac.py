"""RBAC rules of an agent, as data: the least it needs, so that a stolen token can do little.

Three scopes: the whole cluster, the namespace of the sentinels, and the namespace of the agent's Lease. An agent that
may use only some namespaces has Roles there instead; in the whole cluster it then only reads nodes and the addresses of
backends (EndpointSlices), and keeps the definitions and roles that it knows by name. Some rules are there only to be
granted to sentinels: Kubernetes lets a client grant only permissions that it has itself. The rules for
the namespace of the sentinels are a ClusterRole, which outlives that namespace; the agent may bind this one role and no
other, so it restores its rights after a user has deleted the namespace.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from shoal.crds.sentinel import GROUP
from shoal.crds.sentinel import definitions as definitions_of_sentinels
from shoal.krane.sentinels import install
from shoal.kube.objects import Obj

NAME = install.AGENT_ROLE
NAMESPACE = "shoal-system"
SERVICE_ACCOUNT = "krane"
JOINED = "shoal-krane"  # the account and Deployment of an agent that joined with its cluster

_KEEP = ("create", "delete", "get", "list", "patch", "watch")
_ENSURE = ("create", "get", "patch")


_RBAC = "rbac.authorization.k8s.io"


def _rule(group: str, resources: tuple[str, ...], verbs: tuple[str, ...], *names: str) -> Obj:
    rule: Obj = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return {**rule, "resourceNames": list(names)} if names else rule


WORKLOAD_RULES: tuple[Obj, ...] = (
    _rule("", ("persistentvolumeclaims",), ("list",)),  # before a namespace is deleted
    _rule("", ("secrets", "serviceaccounts", "services"), _KEEP),
    _rule("", ("pods",), ("list", "watch")),
    _rule("", ("events",), ("list",)),  # why a pod does not start
    _rule("apps", ("deployments",), _KEEP),
    _rule("apps", ("deployments/scale",), ("patch",)),
    _rule("batch", ("jobs",), ("create", "delete", "get", "list")),  # checks of rollouts
    _rule("autoscaling", ("horizontalpodautoscalers",), _KEEP),
    _rule("policy", ("poddisruptionbudgets",), _KEEP),
    _rule("networking.k8s.io", ("networkpolicies",), _KEEP),
)
"""Where apps and gateways run."""

_NODES = _rule("", ("nodes",), ("list", "watch"))

CLUSTER_RULES: tuple[Obj, ...] = (
    _rule("", ("namespaces",), (*_ENSURE, "delete")),
    *WORKLOAD_RULES,
    _NODES,
    _rule("apiextensions.k8s.io", ("customresourcedefinitions",), _ENSURE),
    _rule(_RBAC, ("clusterroles", "clusterrolebindings"), _ENSURE),
    _rule(_RBAC, ("rolebindings",), _ENSURE, install.AGENT_GATEWAY_ROLE),
    _rule(_RBAC, ("clusterroles",), ("bind",), install.AGENT_GATEWAY_ROLE),
    *install.CLUSTER_RULES,  # to be passed on
)

SENTINEL_RULES: tuple[Obj, ...] = (
    _rule(GROUP, ("sentinelroutes", "sentinelpolicies"), _KEEP),
    _rule("", ("configmaps",), _KEEP),
    _rule("", ("pods",), ("patch",)),  # to take silent ones out of their Service
    _rule(_RBAC, ("roles", "rolebindings"), _ENSURE),
    *install.NAMESPACED_RULES[1:2],  # to be passed on; the others are included above
)
"""In the namespace of the sentinels, granted there by a RoleBinding."""

LEASE_RULES: tuple[Obj, ...] = (_rule("coordination.k8s.io", ("leases",), ("create", "get", "update")),)
"""In the agent's own namespace."""


def narrowed_cluster_rules(namespaces: Iterable[str]) -> tuple[Obj, ...]:
    """In the whole cluster, for an agent that may use only some namespaces: it writes only objects it knows by name,
    which an administrator has made."""
    definitions = [each["metadata"]["name"] for each in definitions_of_sentinels()]
    return (
        _rule("", ("namespaces",), ("get", "patch"), *namespaces, install.namespace()["metadata"]["name"]),
        _NODES,
        _rule("apiextensions.k8s.io", ("customresourcedefinitions",), ("get", "patch"), *definitions),
        _rule(_RBAC, ("clusterroles", "clusterrolebindings"), ("get", "patch"), install.ROLE),
        _rule(_RBAC, ("clusterrolebindings",), ("get",), NAME),
        *install.CLUSTER_RULES,  # to be passed on
    )


def manifests(
    *, namespace: str = NAMESPACE, service_account: str = SERVICE_ACCOUNT, namespaces: Iterable[str] = ()
) -> list[Obj]:
    """Everything an administrator applies before an agent can start, in order. With ``namespaces``, which must exist,
    the agent can run apps in these alone."""
    subjects = subjects_of(namespace, service_account)
    chosen = tuple(dict.fromkeys(namespaces))
    made: list[Obj] = [
        _object("v1", "Namespace", {"name": namespace}),
        _object("v1", "Namespace", install.namespace()["metadata"]),
        _object("v1", "ServiceAccount", {"name": service_account, "namespace": namespace}),
    ]
    if chosen:
        made += [*definitions_of_sentinels(), *install.shared_objects()[1:]]
        made += _granted("", narrowed_cluster_rules(chosen), subjects)
        for place in (*chosen, install.namespace()["metadata"]["name"]):
            made += _granted(place, WORKLOAD_RULES, subjects)
    else:
        made += _granted("", CLUSTER_RULES, subjects)
    made.append(_role("ClusterRole", {"name": install.AGENT_GATEWAY_ROLE}, SENTINEL_RULES))
    made.append(install.agent_binding(deepcopy(subjects)))
    made += _granted(namespace, LEASE_RULES, subjects)
    return made


def subjects_of(namespace: str, service_account: str) -> list[Obj]:
    """The accounts of both ways to install an agent: what one way applies does not take the rights of the other. Only
    in the namespace that is Shoal's: who may make accounts in another one need not be an administrator."""
    both = (SERVICE_ACCOUNT, JOINED) if namespace == NAMESPACE else ()
    names = dict.fromkeys((service_account, *both))
    return [{"kind": "ServiceAccount", "name": name, "namespace": namespace} for name in names]


def _granted(namespace: str, rules: tuple[Obj, ...], subjects: list[Obj]) -> list[Obj]:
    kind = "Role" if namespace else "ClusterRole"
    about = {"name": NAME, "namespace": namespace} if namespace else {"name": NAME}
    reference = {"apiGroup": _RBAC, "kind": kind, "name": NAME}
    return [
        _role(kind, about, rules),
        _object(f"{_RBAC}/v1", f"{kind}Binding", about, roleRef=reference, subjects=deepcopy(subjects)),
    ]


def _role(kind: str, about: Obj, rules: tuple[Obj, ...]) -> Obj:
    return _object(f"{_RBAC}/v1", kind, about, rules=list(rules))


def _object(api_version: str, kind: str, about: Obj, **rest: Any) -> Obj:
    return {"apiVersion": api_version, "kind": kind, "metadata": dict(about), **rest}
