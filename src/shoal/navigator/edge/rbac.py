"""RBAC rules of an edge, as data: it reads the kinds it reports and the objects of requests; it writes nothing.

The mesh configuration is one ConfigMap per revision of Istio, so only those may be read, by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from shoal.kube.objects import Obj
from shoal.navigator.edge.watching import WATCHED

NAME = "shoal-navigator-edge"
NAMESPACE = "shoal-system"
SERVICE_ACCOUNT = "navigator-edge"

_READ = ("list", "watch")


def _rule(group: str, resources: Iterable[str], verbs: tuple[str, ...], **more: list[str]) -> Obj:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs), **more}


def _reported() -> list[Obj]:
    groups: dict[str, list[str]] = {}
    for kind in WATCHED.values():
        groups.setdefault(kind.group, []).append(kind.name)
    return [_rule(group, names, _READ) for group, names in groups.items()]


REPORT_RULES: tuple[Obj, ...] = tuple(_reported())

REQUEST_RULES: tuple[Obj, ...] = (
    _rule("", ("pods/log",), ("get",)),
    _rule("", ("events",), ("list",)),
)

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


def manifests(
    *,
    namespace: str = NAMESPACE,
    service_account: str = SERVICE_ACCOUNT,
    revisions: Iterable[str] = (),
    in_process: bool = False,
) -> list[Obj]:
    """Everything an administrator applies before an edge can start, in order."""
    subject = {"kind": "ServiceAccount", "name": service_account, "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME}
    rules = deepcopy(list(cluster_rules(revisions=revisions, in_process=in_process)))
    rights = "rbac.authorization.k8s.io/v1"
    return [
        _object("v1", "Namespace", {"name": namespace}),
        _object("v1", "ServiceAccount", {"name": service_account, "namespace": namespace}),
        _object(rights, "ClusterRole", {"name": NAME}, rules=rules),
        _object(rights, "ClusterRoleBinding", {"name": NAME}, roleRef=reference, subjects=[subject]),
    ]


def _object(api_version: str, kind: str, about: Obj, **rest: Any) -> Obj:
    return {"apiVersion": api_version, "kind": kind, "metadata": dict(about), **rest}
