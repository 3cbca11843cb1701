"""Entry points of the analysis."""

from __future__ import annotations

from shoal.errors import NotFound
from shoal.navigator.istio.acting import find_acting
from shoal.navigator.istio.mistakes import routes, rules, selectors
from shoal.navigator.istio.mistakes.finding import ERROR, MeshLookup
from shoal.navigator.istio.model import Acting, Mesh, Mistake
from shoal.navigator.istio.resources import name_of, namespace_of, workload_of


def acting_on(mesh: Mesh, namespace: str, pod: str) -> list[Acting]:
    """The resources that act on a pod, and why. ``NotFound`` when there is no such pod."""
    for candidate in mesh.pods:
        if name_of(candidate) == pod and namespace_of(candidate) == namespace:
            return find_acting(mesh, workload_of(candidate))
    raise NotFound.of("pods", "", pod)


def mistakes(mesh: Mesh) -> list[Mistake]:
    """All mistakes, errors first."""
    lookup = MeshLookup(mesh)
    found = [it for family in (routes, rules, selectors) for it in family.find(lookup)]
    return sorted(found, key=lambda it: (it.severity != ERROR, it.namespace, it.kind, it.name, it.path, it.message))
