"""Parses documents as users write them into typed specs. ``parse`` is the only entry, and reports all errors at once.

    {apiVersion: shoal.dev/v1, kind, metadata{name, project, environment, labels, annotations}, spec}

``metadata`` may also contain what the control plane adds to an object (id, version, generation, createdAt, updatedAt),
so that an object that was read can be applied again. ``status`` is accepted and ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.app import AppSpec, read_app
from shoal.control.domain.kinds.checks import is_name
from shoal.control.domain.kinds.credentials import (
    ApiKeySpec,
    CredentialSpec,
    SealedSpec,
    SecretSpec,
    read_api_key,
    read_credential,
    read_secret,
)
from shoal.control.domain.kinds.places import (
    ClusterSpec,
    RegionObject,
    SentinelSpec,
    read_cluster,
    read_region,
    read_sentinel,
)
from shoal.control.domain.kinds.policy import PolicySpec, read_policy
from shoal.control.domain.kinds.route import RouteSpec, read_route
from shoal.control.domain.kinds.scopes import EnvironmentSpec, ProjectSpec, read_environment, read_project
from shoal.control.domain.model import API_VERSION, GROUP, ObjectRef
from shoal.errors import BadRequest, FieldError, Invalid, forbidden, invalid, required, unknown_field
from shoal.kube.labels import validate_labels
from shoal.kube.names import is_annotation_key

Spec = (
    ProjectSpec | EnvironmentSpec | AppSpec | RouteSpec | PolicySpec | ApiKeySpec | SecretSpec | CredentialSpec
    | SentinelSpec | RegionObject | ClusterSpec
)  # fmt: skip

MAX_ANNOTATIONS_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """One of them. ``scope`` is fleet, workspace, project, environment, or either (with or without environment)."""

    name: str
    plural: str
    scope: str
    read: Callable[[Reader], Spec]


# In the order in which objects of one file can be applied; the other way round they can be deleted.
KINDS: dict[str, ObjectKind] = {
    kind.name: kind
    for kind in (
        ObjectKind("Region", "regions", "fleet", read_region),
        ObjectKind("Cluster", "clusters", "fleet", read_cluster),
        ObjectKind("Project", "projects", "workspace", read_project),
        ObjectKind("Environment", "environments", "project", read_environment),
        ObjectKind("Secret", "secrets", "environment", read_secret),
        ObjectKind("Credential", "credentials", "environment", read_credential),
        ObjectKind("App", "apps", "environment", read_app),
        ObjectKind("Policy", "policies", "environment", read_policy),
        ObjectKind("Route", "routes", "environment", read_route),
        ObjectKind("ApiKey", "apikeys", "environment", read_api_key),
        ObjectKind("Sentinel", "sentinels", "either", read_sentinel),
    )
}
_SYSTEM = ("id", "version", "generation", "createdAt", "updatedAt", "workspace", "namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecDocument:
    """What was asked for: ``spec`` typed, ``raw`` as it was written, but never with values that are sealed."""

    kind: ObjectKind
    ref: ObjectRef
    labels: dict[str, str]
    annotations: dict[str, str]
    spec: Spec
    raw: dict[str, Any]
    version: int = 0  # of the object it was made from; 0: not said


def kind_named(name: str) -> ObjectKind:
    found = KINDS.get(name)
    if found is None:
        raise BadRequest(f"kind {name!r} is not known: use one of {', '.join(KINDS)}")
    return found


def parse(doc: Any) -> SpecDocument:
    """Read one object. Raises ``BadRequest`` for a document that is not an object of the fleet and ``Invalid`` with
    every error found."""
    if not isinstance(doc, Mapping):
        raise BadRequest("an object must be a mapping with apiVersion, kind, metadata and spec")
    if doc.get("apiVersion") != API_VERSION:
        raise BadRequest(f"apiVersion {doc.get('apiVersion')!r} is not known: use {API_VERSION}")
    kind = kind_named(str(doc.get("kind") or ""))
    errors: list[FieldError] = []
    for name in doc:
        if name not in ("apiVersion", "kind", "metadata", "spec", "status"):
            errors.append(unknown_field(str(name), str(name), ("metadata", "spec")))
    metadata = Reader(doc.get("metadata") or {}, "metadata", errors)
    ref = _ref(metadata, kind)
    labels, annotations = _labels(metadata), _annotations(metadata)
    version = metadata.raw("version")
    for name in _SYSTEM:
        metadata.raw(name)
    metadata.close()
    raw = doc.get("spec") or {}
    spec = kind.read(Reader(raw, "spec", errors))
    if errors:
        raise Invalid.of(kind.name, GROUP, ref.name, errors)
    return SpecDocument(
        kind=kind,
        ref=ref,
        labels=labels,
        annotations=annotations,
        spec=spec,
        raw=stored_form(kind.name, raw, spec),
        version=version if isinstance(version, int) and not isinstance(version, bool) else 0,
    )


def stored_form(kind: str, raw: Mapping[str, Any], spec: Spec) -> dict[str, Any]:
    """The spec as the database keeps it: as written, but never with a secret's values."""
    if isinstance(spec, SealedSpec):
        return {spec.names_field: list(spec.names)}
    return {name: value for name, value in raw.items() if value is not None}


def read_app_spec(raw: Mapping[str, Any]) -> AppSpec:
    return read_app(Reader(raw, "spec", []))


def _ref(metadata: Reader, kind: ObjectKind) -> ObjectRef:
    name = metadata.text("name", need=True, check=is_name)
    project, environment = metadata.text("project", check=is_name), metadata.text("environment", check=is_name)
    needs = {
        "project": kind.scope in ("project", "environment"),
        "environment": kind.scope == "environment",
    }
    for field, given in (("project", project), ("environment", environment)):
        if needs[field] and not given:
            metadata.note(required(metadata.at(field)))
        if given and not needs[field] and kind.scope != "either":
            metadata.note(forbidden(metadata.at(field), f"a {kind.name} does not belong to one"))
    if kind.scope == "either" and bool(project) != bool(environment):
        missing = "environment" if project else "project"
        metadata.note(required(metadata.at(missing), "set both, or leave both out for a shared one"))
    return ObjectRef(kind.name, name, project, environment)


def _labels(metadata: Reader) -> dict[str, str]:
    labels = metadata.mapping("labels")
    for error in validate_labels(labels, metadata.at("labels")):
        metadata.note(error)
    return labels


def _annotations(metadata: Reader) -> dict[str, str]:
    annotations = metadata.mapping("annotations", keys=is_annotation_key)
    size = sum(len(key) + len(value) for key, value in annotations.items())
    if size > MAX_ANNOTATIONS_BYTES:
        metadata.note(invalid(metadata.at("annotations"), size, f"may not be more than {MAX_ANNOTATIONS_BYTES} bytes"))
    return annotations
