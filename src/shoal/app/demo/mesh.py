"""A piece of a mesh for the demo: a route of its app to a version that no rule knows, for the navigator to find."""

from __future__ import annotations

from shoal.kube.objects import Obj
from shoal.navigator.model import KINDS, ReportedKind

NAME = "web"
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition(kind: ReportedKind) -> Obj:
    """Of one of Istio's kinds, in all versions that edges know, taking any spec."""
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": _OPEN, "status": _OPEN}}}
    versions = [
        {"name": version, "served": True, "storage": at == 0, "schema": schema, "subresources": {"status": {}}}
        for at, version in enumerate(kind.versions)
    ]
    names = {"plural": kind.name, "singular": kind.kind.lower(), "kind": kind.kind, "listKind": f"{kind.kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.name}.{kind.group}"},
        "spec": {"group": kind.group, "scope": "Namespaced", "names": names, "versions": versions},
    }


def definitions() -> list[Obj]:
    return [definition(KINDS[name]) for name in ("virtualservices", "destinationrules")]


def objects(namespace: str, service: str) -> list[Obj]:
    """A tenth of the requests is for ``v2``, and the rule has only ``v1``."""
    host = f"{service}.{namespace}.svc.cluster.local"
    ways = [{"destination": {"host": host, "subset": "v1"}, "weight": 90}]
    ways.append({"destination": {"host": host, "subset": "v2"}, "weight": 10})
    return [
        _object("destinationrules", namespace, {"host": host, "subsets": [{"name": "v1", "labels": {}}]}),
        _object("virtualservices", namespace, {"hosts": [host], "http": [{"route": ways}]}),
    ]


def _object(plural: str, namespace: str, spec: Obj) -> Obj:
    kind = KINDS[plural]
    about = {"name": NAME, "namespace": namespace}
    return {"apiVersion": f"{kind.group}/{kind.versions[0]}", "kind": kind.kind, "metadata": about, "spec": spec}
