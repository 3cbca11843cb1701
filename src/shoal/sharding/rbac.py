"""RBAC rules of a manager and its workers, as data: the least they need.

The manager has rights in the whole cluster, since ShardConfigs and their targets may be in any namespace. A worker has
rights in the namespace of its config and, in all namespaces, on the kinds that the administrator names: in a role for
each kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.crds.shard import GROUP
from shoal.kube.objects import Obj

NAMESPACE = "shoal-system"
MANAGER = "shard-manager"  # its ServiceAccount, roles, Deployment and Lease
JOINED = "shoal-shard-manager"  # the ServiceAccount and Deployment of a manager that joined with its cluster
WORKER = "shard-worker"


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A sharded kind, by the name of its resource."""

    group: str
    plural: str
    controlled: bool = False
    verbs: tuple[str, ...] = ()  # that workers need; empty: those that the SDK uses

    @property
    def role(self) -> str:
        """The end of the names of its roles: each kind has its own, so that manifests for other kinds, applied later,
        take no rights away."""
        name = f"{self.plural}.{self.group}".rstrip(".")
        return f"{name}-controlled" if self.controlled else name

    @property
    def work_verbs(self) -> tuple[str, ...]:
        """Workers create and delete children; users create and delete targets."""
        if self.verbs:
            return self.verbs
        known = ("get", "list", "patch", "update", "watch")
        return ("create", "delete", *known) if self.controlled else known


SHARDED_RESOURCES = TargetKind(GROUP, "shardedresources", verbs=("list", "patch", "watch"))
"""The kind of the built-in worker."""


def rule(group: str, resources: Iterable[str], verbs: Iterable[str]) -> Obj:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


MANAGER_RULES: tuple[Obj, ...] = (
    rule(GROUP, ("shardconfigs",), ("list", "watch")),
    rule(GROUP, ("shardconfigs/status", "shardinstances/status"), ("update",)),
    rule(GROUP, ("shardinstances",), ("create", "delete", "list", "update", "watch")),
    rule(GROUP, ("shardslots",), ("create", "list", "update", "watch")),
    rule(GROUP, ("shardstates",), ("delete", "list")),
    rule("coordination.k8s.io", ("leases",), ("delete", "list", "update", "watch")),
    rule("", ("pods",), ("create", "delete", "list", "watch")),
    rule("", ("namespaces",), ("list", "watch")),
    rule("", ("events",), ("create", "patch")),
)
"""In the whole cluster, for any kinds."""

ELECTION_RULES: tuple[Obj, ...] = (rule("coordination.k8s.io", ("leases",), ("create", "get", "update")),)
"""In the manager's own namespace."""

WORKER_RULES: tuple[Obj, ...] = (
    rule(GROUP, ("shardconfigs", "shardslots"), ("list", "watch")),
    rule(GROUP, ("shardstates",), ("create", "get")),
    rule("coordination.k8s.io", ("leases",), ("create", "get", "update")),
)
"""In the namespace of the ShardConfig."""


def sweep_rules(kinds: Sequence[TargetKind]) -> list[Obj]:
    """For the manager, on the sharded kinds: it finds objects and labels them with a slot."""
    made = []
    for kind in kinds:
        verbs = ("list", "patch") if kind.controlled else ("get", "list", "patch", "watch")
        made.append(rule(kind.group, (kind.plural,), verbs))
    return made


def target_rules(kinds: Sequence[TargetKind]) -> list[Obj]:
    """For the workers, on the sharded kinds."""
    return [rule(kind.group, (kind.plural, f"{kind.plural}/status"), kind.work_verbs) for kind in kinds]


def manager_rights(
    kinds: Sequence[TargetKind] = (), *, namespace: str = NAMESPACE, service_account: str = MANAGER
) -> list[Obj]:
    """The manager's account and its roles. They are granted to the accounts of both ways to install a manager: what
    one way applies does not take the rights of the other, and kinds may be added to a cluster that joined."""
    names = dict.fromkeys((service_account, MANAGER, JOINED))
    account, *others = (_object("v1", "ServiceAccount", name, namespace) for name in names)
    made = [
        account,
        *_granted(MANAGER, "", (*MANAGER_RULES, *sweep_rules((SHARDED_RESOURCES,))), account, *others),
        *_granted(MANAGER, namespace, ELECTION_RULES, account, *others),
    ]
    for kind in kinds:
        made += _granted(f"{MANAGER}-{kind.role}", "", sweep_rules((kind,)), account, *others)
    return made


def worker_rights(kinds: Sequence[TargetKind] = (), *, namespace: str = "default") -> list[Obj]:
    """The account of the workers of a namespace. Their objects may be in any namespace."""
    account = _object("v1", "ServiceAccount", WORKER, namespace)
    made = [
        account,
        *_granted(WORKER, namespace, WORKER_RULES, account),
        *_granted(f"{WORKER}-{namespace}", "", target_rules((SHARDED_RESOURCES,)), account),
    ]
    for kind in kinds:
        made += _granted(f"{WORKER}-{namespace}-{kind.role}", "", target_rules((kind,)), account)
    return made


def _granted(name: str, namespace: str, rules: Sequence[Obj], *accounts: Obj) -> list[Obj]:
    kind, version = "Role" if namespace else "ClusterRole", "rbac.authorization.k8s.io/v1"
    subjects = [{"kind": "ServiceAccount", **account["metadata"]} for account in accounts]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    return [
        _object(version, kind, name, namespace, rules=list(rules)),
        _object(version, f"{kind}Binding", name, namespace, roleRef=reference, subjects=subjects),
    ]


def _object(api_version: str, kind: str, name: str, namespace: str, **rest: Any) -> Obj:
    about = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": api_version, "kind": kind, "metadata": about, **rest}
