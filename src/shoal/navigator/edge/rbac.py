"""RBAC rules of an edge, as data: it reads the kinds it reports and the objects of requests; it writes nothing.

The rules are for the whole cluster, or for some namespaces; then nodes and namespaces themselves are not reported.

The mesh configuration is one ConfigMap per revision of Istio, so only those may be read, by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from shoal.kube.objects import Obj
from shoal.navigator.model import WATCHED

NAME = "shoal-navigator-edge"
NAMESPACE = "shoal-system"
SERVICE_ACCOUNT = "navigator-edge"
JOINED = "shoal-edge"  # the account and Deployment of an edge that joined with its cluster

_READ = ("list", "watch")


def _rule(group: str, resources: Iterable[str], verbs: tuple[str, ...], **more: list[str]) -> Obj:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs), **more}


def _reported(*, cluster: bool) -> list[Obj]:
    groups: dict[str, list[str]] = {}
    for kind in WATCHED.values():
        if cluster or kind.namespaced:
            groups.setdefault(kind.group, []).append(kind.name)
    if cluster:
        groups["apiextensions.k8s.io"] = ["customresourcedefinitions"]  # to see when a kind appears
    return [_rule(group, names, _READ) for group, names in groups.items()]


REPORT_RULES: tuple[Obj, ...] = tuple(_reported(cluster=True))
NAMESPACED_RULES: tuple[Obj, ...] = tuple(_reported(cluster=False))

REQUEST_RULES: tuple[Obj, ...] = (_rule("", ("pods/log",), ("get",)),)

FORWARD_RULES: tuple[Obj, ...] = (_rule("", ("pods/portforward",), ("create", "get")),)
"""For the configuration of proxies; servers ask for both verbs, or one of them, of a WebSocket."""

PROXY_RULES: tuple[Obj, ...] = (_rule("", ("pods/proxy",), ("get",)),)
"""Instead, for an edge in the API server's own process, which has no connection to forward a port over."""


def mesh_rules(revisions: Iterable[str] = ()) -> tuple[Obj, ...]:
    names = ["istio", *(f"istio-{revision}" for revision in revisions if revision not in ("", "default"))]
    return (_rule("", ("configmaps",), _READ, resourceNames=names),)


def cluster_rules(*, revisions: Iterable[str] = (), in_process: bool = False) -> tuple[Obj, ...]:
    ports = PROXY_RULES if in_process else FORWARD_RULES
    return (*REPORT_RULES, *REQUEST_RULES, *ports, *mesh_rules(revisions))


def namespace_rules(*, revisions: Iterable[str] = ()) -> tuple[Obj, ...]:
    return (*NAMESPACED_RULES, *REQUEST_RULES, *FORWARD_RULES, *mesh_rules(revisions))


def manifests(
    *,
    edge_namespace: str = NAMESPACE,
    service_account: str = SERVICE_ACCOUNT,
    namespaces: Iterable[str] = (),
    revisions: Iterable[str] = (),
    in_process: bool = False,
) -> list[Obj]:
    """Everything an administrator applies before an edge can start, in order. With ``namespaces`` it may read these
    alone, which must exist."""
    account = {"name": service_account, "namespace": edge_namespace}
    # The accounts of both ways to install an edge: what one way applies does not take the rights of the other. Only in
    # the namespace that is Shoal's: who may make accounts in another one need not be an administrator.
    both = (SERVICE_ACCOUNT, JOINED) if edge_namespace == NAMESPACE else ()
    names = dict.fromkeys((service_account, *both))
    subjects: list[Obj] = [{"kind": "ServiceAccount", "name": name, "namespace": edge_namespace} for name in names]
    made = [_object("v1", "Namespace", {"name": edge_namespace}), _object("v1", "ServiceAccount", account)]
    chosen = list(dict.fromkeys(namespaces))
    for namespace in chosen:
        rules = namespace_rules(revisions=revisions)
        made += _rights("Role", {"name": NAME, "namespace": namespace}, rules, subjects)
    if not chosen:
        made += _rights(
            "ClusterRole", {"name": NAME}, cluster_rules(revisions=revisions, in_process=in_process), subjects
        )
    return made


def _rights(kind: str, about: Obj, rules: Iterable[Obj], subjects: list[Obj]) -> list[Obj]:
    """A role and its binding."""
    version = "rbac.authorization.k8s.io/v1"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME}
    return [
        _object(version, kind, about, rules=deepcopy(list(rules))),
        _object(version, f"{kind}Binding", about, roleRef=reference, subjects=deepcopy(subjects)),
    ]


def _object(api_version: str, kind: str, about: Obj, **rest: Any) -> Obj:
    return {"apiVersion": api_version, "kind": kind, "metadata": dict(about), **rest}
