"""Shared by the finders: the mesh with its lookups, and the record of a mistake."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import cached_property

from shoal.kube.objects import Obj
from shoal.navigator.istio.model import Mesh, Mistake
from shoal.navigator.istio.outbound import DestinationRules
from shoal.navigator.istio.resources import ServiceRegistry, Workload, name_of, namespace_of, workload_of

ERROR, WARNING = "error", "warning"


class MeshLookup:
    """A mesh and what is looked up in it again and again."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.registry = ServiceRegistry(mesh)

    def all(self, kind: str) -> Iterable[Obj]:
        return self.mesh.objects.get(kind, ())

    @cached_property
    def rules(self) -> DestinationRules:
        return DestinationRules(self.mesh, self.registry)

    @cached_property
    def workloads(self) -> list[Workload]:
        return [workload_of(pod) for pod in self.mesh.pods]

    @cached_property
    def namespaces(self) -> frozenset[str]:
        return frozenset(name_of(it) for it in self.mesh.namespaces)


def mistake(
    code: str, severity: str, obj: Obj, path: str, message: str, fix: str, related: Iterable[Obj] = ()
) -> Mistake:
    return Mistake(
        code=code,
        severity=severity,
        kind=obj["kind"],
        namespace=namespace_of(obj),
        name=name_of(obj),
        path=path,
        message=message,
        fix=fix,
        related=tuple(f"{it['kind']}/{namespace_of(it)}/{name_of(it)}" for it in related),
    )


def nearest(wanted: str, known: Iterable[str]) -> str:
    """A hint when something known is nearly what is written."""
    found = get_close_matches(wanted, list(known), n=1, cutoff=0.75)
    return f"did you mean {found[0]}?" if found else ""
