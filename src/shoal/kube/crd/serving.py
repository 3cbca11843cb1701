"""One served version of a custom resource, with the same interface as built-in kinds.

``ServedVersion`` is built once per version when the definition is established, so that requests only use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shoal.errors import FieldError, invalid
from shoal.kube import names
from shoal.kube.crd.definition import names_of, resources_of, schema_of, spec_of, subresources_of, version_of
from shoal.kube.crd.structural import Structural
from shoal.kube.objects import Obj
from shoal.kube.resources import Resource
from shoal.kube.rules import KindRules

_MAX_INT32 = 2**31 - 1
_STANDARD_FINALIZERS = frozenset({"orphan", "foregroundDeletion", "kubernetes"})
_AGE_COLUMN = {
    "name": "Age",
    "type": "date",
    "description": "CreationTimestamp is a timestamp representing the server time when this object was created.",
    "jsonPath": ".metadata.creationTimestamp",
}


@dataclass(frozen=True, slots=True)
class Scale:
    """The paths of a resource's replicas and selector, as field names."""

    spec_replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...] | None

    def scale_of(self, obj: Obj) -> Obj | None:
        """The ``Scale`` of an object; None if it has no replicas."""
        replicas = _at(obj, self.spec_replicas)
        if type(replicas) is not int:
            return None
        meta = obj.get("metadata") or {}
        kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        observed = _at(obj, self.status_replicas)
        status: Obj = {"replicas": observed if type(observed) is int else 0}
        selector = _at(obj, self.selector) if self.selector else None
        if selector:
            status["selector"] = selector
        return {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {key: meta[key] for key in kept if key in meta},
            "spec": {"replicas": replicas},
            "status": status,
        }

    def set_replicas(self, obj: Obj, replicas: int) -> None:
        """Set the replicas of the resource, in place; ``obj`` must not be shared."""
        place = obj
        for name in self.spec_replicas[:-1]:
            place = place.setdefault(name, {})
        place[self.spec_replicas[-1]] = replicas

    def errors(self, obj: Obj, *, spec: bool = True) -> list[FieldError]:
        found: list[FieldError] = []
        if spec:
            found += _replica_errors(obj, self.spec_replicas)
        found += _replica_errors(obj, self.status_replicas)
        if self.selector is not None:
            value = _at(obj, self.selector)
            if value is not None and type(value) is not str:
                path = "." + ".".join(self.selector)
                text = f"{path} accessor error: {value} is of the type {_go_type(value)}, expected string"
                found.append(invalid(path, "", text))
        return found


def _at(obj: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if type(obj) is not dict:
            return None
        obj = obj.get(name)
    return obj


def _go_type(value: Any) -> str:
    kinds = {
        str: "string",
        bool: "bool",
        int: "int64",
        float: "float64",
        list: "[]interface {}",
        dict: "map[string]interface {}",
    }
    return kinds.get(type(value), "<nil>")


def _replica_errors(obj: Obj, path: tuple[str, ...]) -> list[FieldError]:
    value, shown = _at(obj, path), "." + ".".join(path)
    if value is None:
        return []
    if type(value) is not int:
        return [invalid(shown, 0, f"{shown} accessor error: {value} is of the type {_go_type(value)}, expected int64")]
    if value < 0:
        return [invalid(shown, value, "should be a non-negative integer")]
    if value > _MAX_INT32:
        return [invalid(shown, value, f"should be less than or equal to {_MAX_INT32}")]
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedVersion:
    """A served version. ``columns`` are the definition's printer columns, without the name column."""

    resource: Resource
    structural: Structural
    rules: KindRules
    columns: tuple[Mapping[str, Any], ...]
    scale: Scale | None
    list_kind: str
    deprecation: str = ""  # text of the Warning header on every request, empty when not deprecated

    def convert(self, obj: Obj) -> Obj:
        """Convert an object to this version by the None strategy: the same content with another apiVersion."""
        if obj.get("apiVersion") == self.resource.api_version:
            return obj
        return {**obj, "apiVersion": self.resource.api_version}


def serve(crd: Mapping[str, Any]) -> list[ServedVersion]:
    """Every served version, compiled; the preferred one first."""
    return [_served(crd, resource) for resource in resources_of(crd)]


def _served(crd: Mapping[str, Any], resource: Resource) -> ServedVersion:
    version = version_of(crd, resource.version)
    structural = Structural(schema_of(version) or {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    scale = scale_of_version(version)
    return ServedVersion(
        resource=resource,
        structural=structural,
        rules=_rules(version, structural, scale, resource),
        columns=printer_columns(version),
        scale=scale,
        list_kind=names_of(crd).get("listKind") or resource.kind + "List",
        deprecation=_deprecation(version, resource),
    )


def rules_of(crd: Mapping[str, Any], version: str) -> KindRules:
    """The rules of one version, served or not. For more than rules use ``serve``."""
    found = version_of(crd, version)
    structural = Structural(schema_of(found) or {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    spec, kinds = spec_of(crd), names_of(crd)
    resource = Resource(group=spec["group"], version=version, plural=kinds["plural"], kind=kinds["kind"], custom=True)
    return _rules(found, structural, scale_of_version(found), resource)


def _rules(version: Mapping[str, Any], structural: Structural, scale: Scale | None, resource: Resource) -> KindRules:
    def type_errors(obj: Obj) -> list[FieldError]:
        found = []
        if obj.get("kind") != resource.kind:
            found.append(invalid("kind", obj.get("kind"), f"must be {resource.kind}"))
        if obj.get("apiVersion") != resource.api_version:
            found.append(invalid("apiVersion", obj.get("apiVersion"), f"must be {resource.api_version}"))
        return found

    def validate_create(obj: Obj) -> list[FieldError]:
        return type_errors(obj) or structural.validate(obj) + (scale.errors(obj) if scale else [])

    def validate_update(new: Obj, old: Obj) -> list[FieldError]:
        return type_errors(new) or structural.validate(new, old) + (scale.errors(new) if scale else [])

    def validate_status(new: Obj, old: Obj) -> list[FieldError]:
        more = scale.errors(new, spec=False) if scale else []
        return type_errors(new) or structural.validate_status(new, old) + more

    return KindRules(
        default=structural.default,
        validate_create=validate_create,
        validate_update=validate_update,
        validate_status=validate_status,
        warnings=finalizer_warnings,
        selectable=selectable_fields(version),
    )


def printer_columns(version: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return tuple(version.get("additionalPrinterColumns") or ()) or (_AGE_COLUMN,)


def scale_of_version(version: Mapping[str, Any]) -> Scale | None:
    given = subresources_of(version).get("scale")
    if given is None:
        return None
    selector = given.get("labelSelectorPath")
    return Scale(
        _path(given.get("specReplicasPath") or ""),
        _path(given.get("statusReplicasPath") or ""),
        _path(selector) if selector else None,
    )


def _path(text: str) -> tuple[str, ...]:
    return tuple(text.removeprefix(".").split("."))


def selectable_fields(version: Mapping[str, Any]) -> dict[str, Callable[[Obj], str]]:
    """Field selectors by name (``spec.color``), each a function that returns an object's value as text."""
    paths = (each.get("jsonPath") or "" for each in version.get("selectableFields") or ())
    return {path.removeprefix("."): _selector(_path(path)) for path in paths if path}


def _selector(path: tuple[str, ...]) -> Callable[[Obj], str]:
    def select(obj: Obj) -> str:
        value = _at(obj, path)
        if value is None:
            return ""
        if type(value) is bool:
            return "true" if value else "false"
        return str(value)

    return select


def _deprecation(version: Mapping[str, Any], resource: Resource) -> str:
    if not version.get("deprecated"):
        return ""
    return version.get("deprecationWarning") or f"{resource.api_version} {resource.kind} is deprecated"


def finalizer_warnings(obj: Obj) -> list[str]:
    """Warnings about finalizers without a domain prefix."""
    found: list[str] = []
    for name in sorted(set((obj.get("metadata") or {}).get("finalizers") or ())):
        found += (f'metadata.finalizers: "{name}": {fault}' for fault in names.is_qualified_name(name))
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            path = " including a path (/)" if "." in name else ""
            found.append(
                f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name{path} '
                "to avoid accidental conflicts with other finalizer writers"
            )
    return found
