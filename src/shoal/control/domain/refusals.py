"""Refusals of several documents that are applied together, and documents that need each other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from shoal.control.domain.kinds.route import RouteSpec
from shoal.control.domain.model import Applied, ObjectRef
from shoal.control.domain.objects import visible_spec
from shoal.control.domain.specs import SpecDocument
from shoal.errors import ApiError, Cause, Invalid

NamedObject = tuple[str, str]  # kind and name
_NAMES = {
    "project": "Project", "environment": "Environment", "region": "Region", "backends": "App", "secret": "Secret",
    "spec.secrets": "Secret", "spec.imagePullSecrets": "Secret", "spec.policies": "Policy", "spec.routes": "Route",
}  # fmt: skip


class DocumentsRefused(Exception):
    """Some of several documents are refused. ``errors`` and ``applied`` are by position; what was applied is in another
    database than what was refused."""

    def __init__(self, errors: Mapping[int, ApiError], applied: Mapping[int, Applied] | None = None) -> None:
        super().__init__(f"{len(errors)} documents are refused")
        self.errors, self.applied = errors, applied or {}


def needed_of(error: ApiError, objects: Collection[NamedObject]) -> list[str]:
    """The names of those of ``objects`` that a document needs; empty if it is refused for something else too."""
    if not isinstance(error, Invalid) or not error.errors:
        return []
    needed = [(_kind(each.field), str(each.value)) for each in error.errors if each.cause is Cause.NOT_FOUND]
    found = [name for kind, name in needed if (kind, name) in objects]
    return found if len(found) == len(error.errors) else []


def _kind(field: str) -> str:
    """The kind of object that a field names."""
    if field.startswith("spec.rollout") and field.endswith(".secret"):
        return "Credential"
    return _NAMES.get(field.partition("[")[0] if field.endswith("]") else field.rpartition(".")[2], "")


def untried(document: SpecDocument, needs: Collection[str]) -> Applied:
    """A document that cannot be tried before another one is written."""
    ref = document.ref
    named = {"name": ref.name, "project": ref.project, "environment": ref.environment}
    metadata = {name: value for name, value in named.items() if value}
    shown = {"apiVersion": "shoal.dev/v1", "kind": ref.kind, "metadata": metadata,
             "spec": visible_spec(ref.kind, document.raw)}  # fmt: skip
    why = f"needs {', '.join(sorted(set(needs)))}, which this file creates: the placement is known only after that"
    return Applied(object=shown, created=True, changed=[], effects=[], warnings=[why], dry_run=True)


def apps_led_to(documents: Iterable[SpecDocument]) -> set[ObjectRef]:
    """The apps that routes among the documents lead to. An app may need a route, and a route needs its app: so an app
    is checked against the routes that are applied with it, before they are written."""
    return {
        ObjectRef("App", app, each.ref.project, each.ref.environment)
        for each in documents
        if isinstance(each.spec, RouteSpec)
        for app in each.spec.apps
    }
