"""A mesh as data: the configuration of one cluster, and the results of the analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shoal.kube.objects import Obj

ROOT_NAMESPACE = "istio-system"
DOMAIN = "cluster.local"


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """One cluster. ``objects`` are by the kinds' names in ``shoal.navigator.model``."""

    cluster: str = ""
    root_namespace: str = ROOT_NAMESPACE
    objects: Mapping[str, Sequence[Obj]] = field(default_factory=dict)
    services: Sequence[Obj] = ()
    pods: Sequence[Obj] = ()
    namespaces: Sequence[Obj] = ()
    domain: str = DOMAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Acting:
    """A resource that acts on a workload, and why."""

    kind: str
    namespace: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """Something wrong in the configuration. ``path`` is the field, ``related`` are other resources as Kind/ns/name."""

    code: str
    severity: str  # error, warning
    kind: str
    namespace: str
    name: str
    path: str
    message: str
    fix: str
    related: tuple[str, ...] = ()
