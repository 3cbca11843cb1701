"""The store conditions of a create, and the errors when one of them fails."""

from __future__ import annotations

from functools import lru_cache

from shoal.apiserver.effects import CRDS, ending_mark, terminating_mark
from shoal.apiserver.fencing import deposed
from shoal.apiserver.registry import Served
from shoal.errors import AlreadyExists, ApiError, Forbidden, MethodNotAllowed, NotFound
from shoal.kube.objects import Obj
from shoal.store import Absent, Exists, Key, Require, RequirementFailed, Store


def explain(failed: RequirementFailed, storage: Served, obj: Obj, generate: str) -> None:
    """Raise the error for a create that was not committed; return when it may be retried."""
    resource, metadata, key = storage.resource, obj["metadata"], failed.require.key
    error = deposed(failed) or _namespace_error(failed, storage, metadata["name"])
    if error is not None:
        raise error from None
    if key == storage.key_of(metadata.get("namespace"), metadata["name"]) and not generate:
        raise AlreadyExists.of(resource.plural, resource.group, metadata["name"]) from None


@lru_cache(maxsize=4096)
def _namespace_requires(namespace: str) -> tuple[Require, ...]:
    return Exists(Key("namespaces", "", namespace)), Absent(terminating_mark(namespace))


def create_requires(storage: Served, key: Key) -> list[Require]:
    """The conditions for a create: the key is free, and the namespace exists and is not terminating."""
    requires: list[Require] = [Absent(key)]
    if key.namespace:
        requires += _namespace_requires(key.namespace)
    if storage.resource.custom:
        requires += [Exists(Key(CRDS, "", storage.key)), Absent(ending_mark(storage.key))]
    return requires


def check_dry_run(store: Store, storage: Served, obj: Obj) -> None:
    """Raise the error that the commit of this create would raise."""
    resource, metadata = storage.resource, obj["metadata"]
    metadata.pop("resourceVersion", None)
    key = storage.key_of(metadata.get("namespace"), metadata["name"])
    for require in create_requires(storage, key):
        found = store.get(require.key)
        if isinstance(require, Absent) == (found is not None):
            if require.key == key:
                raise AlreadyExists.of(resource.plural, resource.group, metadata["name"])
            error = _namespace_error(RequirementFailed(require, found), storage, metadata["name"])
            if error is not None:
                raise error


def _namespace_error(failed: RequirementFailed, served: Served, name: str) -> ApiError | None:
    key, resource = failed.require.key, served.resource
    if key.resource == "namespaces" and isinstance(failed.require, Exists):
        return NotFound.of("namespaces", "", key.name)
    if resource.custom and key == Key(CRDS, "", served.key):
        return NotFound("the server could not find the requested resource")
    if resource.custom and key == ending_mark(served.key):
        return MethodNotAllowed(
            "create not allowed while custom resource definition is terminating",
            details={"group": resource.group, "kind": resource.plural},
        )
    if key == terminating_mark(key.name):
        message = f'{resource.qualified} "{name}" is forbidden: unable to create new content in namespace '
        return Forbidden(
            f"{message}{key.name} because it is being terminated",
            details={"name": name, "group": resource.group, "kind": resource.plural},
            causes=[
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {key.name} is being terminated",
                    "field": "metadata.namespace",
                }
            ],
        )
    return None


def not_generated(served: Served, name: str) -> AlreadyExists:
    error = AlreadyExists.of(served.resource.plural, served.resource.group, name)
    return AlreadyExists(
        f"{error.message}, the server was not able to generate a unique name for the object",
        details=error.details,
        retry_after_s=1,
    )
