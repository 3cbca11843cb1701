"""CustomResourceDefinition objects: defaults, preparation of writes, and the resources of a definition.

A definition is a plain dict. The names in use are those of ``status.acceptedNames`` once there are any: a definition
whose new names conflict keeps serving the old ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from shoal.kube.objects import Obj
from shoal.kube.resources import READ_WRITE, Resource, Subresource

APPROVAL_ANNOTATION = "api-approved.kubernetes.io"
_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_SCALE = Subresource("scale", "Scale", READ_WRITE, group="autoscaling", version="v1")


def spec_of(crd: Mapping[str, Any]) -> Mapping[str, Any]:
    return crd.get("spec") or {}


def names_of(crd: Mapping[str, Any]) -> Mapping[str, Any]:
    """The names the definition is served under."""
    accepted: Mapping[str, Any] = (crd.get("status") or {}).get("acceptedNames") or {}
    if accepted.get("plural") and accepted.get("kind"):
        return accepted
    return spec_of(crd).get("names") or {}


def versions_of(crd: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in spec_of(crd).get("versions") or () if isinstance(each, Mapping)]


def version_of(crd: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """One version by its name; KeyError if the definition has none of that name."""
    for each in versions_of(crd):
        if each.get("name") == name:
            return each
    raise KeyError(name)


def schema_of(version: Mapping[str, Any]) -> Mapping[str, Any] | None:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    return schema if isinstance(schema, Mapping) else None


def subresources_of(version: Mapping[str, Any]) -> Mapping[str, Any]:
    return version.get("subresources") or {}


def storage_version(crd: Mapping[str, Any]) -> str:
    for each in versions_of(crd):
        if each.get("storage"):
            return str(each.get("name"))
    return ""


def default_crd(crd: Obj) -> None:
    """Set defaults, in place."""
    spec = crd.get("spec")
    if type(spec) is not dict:
        return
    names = spec.setdefault("names", {})
    kind = names.get("kind") or ""
    if not names.get("singular"):
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = kind + "List"
    conversion = spec.get("conversion")
    if not conversion:
        spec["conversion"] = {"strategy": "None"}
    else:
        service = ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service")
        if service is not None and service.get("port") is None:
            service["port"] = 443
    for version in spec.get("versions") or ():
        if type(version) is dict:  # Go writes both, also when they are not set
            version.setdefault("served", False)
            version.setdefault("storage", False)
    if storage := storage_version(crd):
        status = crd.setdefault("status", {})
        if not status.get("storedVersions"):
            status["storedVersions"] = [storage]


def prepare_create(crd: Obj) -> None:
    """Reset the status, which the server owns: the storage version and no accepted names."""
    storage = storage_version(crd)
    crd["status"] = {"acceptedNames": {"plural": "", "kind": ""}, "storedVersions": [storage] if storage else []}


def prepare_update(new: Obj, old: Obj) -> None:
    """Keep the status, and record a new storage version."""
    status = dict(old.get("status") or {})
    storage = storage_version(new)
    stored = list(status.get("storedVersions") or ())
    if storage and storage not in stored:
        stored.append(storage)
    status["storedVersions"] = stored
    new["status"] = status


def version_order(name: str) -> tuple[int, int, int, str]:
    """Sort key that puts the version clients prefer first: v2, v1, v1beta2, v1beta1, v1alpha1, then the rest."""
    found = _VERSION.fullmatch(name)
    if found is None:
        return (3, 0, 0, name)
    rank = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return (rank, -int(found[1]), -int(found[3] or 0), name)


def served_versions(crd: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The served versions, the preferred one first."""
    served = [each for each in versions_of(crd) if each.get("served")]
    return sorted(served, key=lambda each: version_order(str(each.get("name"))))


def resources_of(crd: Mapping[str, Any]) -> list[Resource]:
    """One resource per served version, the preferred one first."""
    names, spec = names_of(crd), spec_of(crd)
    made = []
    for place, version in enumerate(served_versions(crd)):
        subresources = subresources_of(version)
        made.append(
            Resource(
                group=spec["group"],
                version=version["name"],
                plural=names["plural"],
                kind=names["kind"],
                namespaced=spec.get("scope") != "Cluster",
                singular=names.get("singular") or "",
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=tuple(_subresources(names["kind"], subresources)),
                generation=True,
                status=subresources.get("status") is not None,
                blind_update=False,
                returns_deleted=False,
                custom=True,
                preferred=place == 0,
            )
        )
    return made


def _subresources(kind: str, given: Mapping[str, Any]) -> Iterator[Subresource]:
    if given.get("status") is not None:
        yield Subresource("status", kind, READ_WRITE)
    if given.get("scale") is not None:
        yield _SCALE
