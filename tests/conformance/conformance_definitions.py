"""Custom resource definitions of the tests: random groups, so that they never meet those of other tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from conformance_api import Api, Resource, unique

from shoal.kube.objects import Obj
from shoal.testing.waiting import eventually_blocking

ANYTHING: Obj = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def version(name: str, schema: Obj | None = None, *, storage: bool = False, **more: Any) -> Obj:
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": ANYTHING if schema is None else schema},
        **more,
    }


def definition(
    schema: Obj | None = None, *, scope: str = "Cluster", group: str = "", versions: list[Obj] | None = None
) -> Obj:
    """A definition of a new kind; of one version ``v1`` unless ``versions`` are given."""
    singular = unique("kind").replace("-", "")
    group = group or f"{unique('group')}.example.com"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{singular}s.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {
                "plural": f"{singular}s",
                "singular": singular,
                "kind": singular.capitalize(),
                "listKind": f"{singular.capitalize()}List",
            },
            "versions": versions or [version("v1", schema, storage=True)],
        },
    }


def definitions(api: Api) -> Resource:
    return api.of("apiextensions.k8s.io/v1", "customresourcedefinitions")


def establish(api: Api, crd: Obj) -> Obj:
    """Create a definition and wait until its resource is served."""
    crds = definitions(api)
    name = crds.create(crd)["metadata"]["name"]

    def established() -> Obj | None:
        stored = crds.get(name)
        conditions = {c["type"]: c["status"] for c in stored.get("status", {}).get("conditions", ())}
        return stored if conditions.get("Established") == "True" else None

    found: Obj = eventually_blocking(established)
    return found


@contextmanager
def defined(api: Api, crd: Obj) -> Iterator[Obj]:
    """A definition that is served inside the block and removed after it."""
    stored = establish(api, crd)
    yield stored
    definitions(api).delete(stored["metadata"]["name"])
    eventually_blocking(lambda: definitions(api).is_gone(stored["metadata"]["name"]))


def custom(api: Api, crd: Obj, namespace: str = "", version: str = "") -> Resource:
    """The collection of a definition's objects; of its first version unless one is named."""
    spec = crd["spec"]
    return api.of(f"{spec['group']}/{version or spec['versions'][0]['name']}", spec["names"]["plural"], namespace)


def instance(crd: Obj, name: str, version: str = "", **fields: Any) -> Obj:
    spec = crd["spec"]
    return {
        "apiVersion": f"{spec['group']}/{version or spec['versions'][0]['name']}",
        "kind": spec["names"]["kind"],
        "metadata": {"name": name},
        **fields,
    }
