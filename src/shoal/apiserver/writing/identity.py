"""What only the server may say of a new object: its name where it is generated, uid, time of creation, generation."""

from __future__ import annotations

from shoal.apiserver.context import Call, Core
from shoal.apiserver.objects import meta
from shoal.apiserver.registry import Served
from shoal.apiserver.shapes import Shape
from shoal.base.ids import Ids
from shoal.kube.objects import Obj
from shoal.kube.resources import Resource

MAX_NAME_PREFIX = 58


def give_identity(core: Core, storage: Served, obj: Obj, shape: Shape | None = None) -> str:
    """Fill in what only the server may say of a new object; the prefix its name was made from, if it was."""
    resource, metadata = storage.resource, meta(obj)
    generate: str = metadata.get("generateName") or "" if not metadata.get("name") else ""
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation", "resourceVersion"):
        metadata.pop(name, None)
    if generate:
        metadata["name"] = generated_name(generate, core.ids)
        if shape is None:
            storage.rules.default(obj)  # some defaults are made from the name
    metadata["uid"] = core.ids.new_uid()
    metadata["creationTimestamp"] = core.now()
    drop_early_status(resource, obj)
    if resource.generation:
        metadata["generation"] = 1
    drop_empty(metadata)
    return generate


def generated_name(prefix: str, ids: Ids) -> str:
    """A name that begins with ``prefix``, as ``metadata.generateName`` asks for."""
    return prefix[:MAX_NAME_PREFIX] + ids.new_suffix()


def drop_early_status(resource: Resource, obj: Obj) -> None:
    """What a new object is like is not its author's to say, where its kind has a status."""
    if resource.status and not resource.status_on_create:
        obj.pop("status", None)


def drop_duplicate_owners(metadata: Obj, call: Call | None) -> None:
    owners = metadata.get("ownerReferences")
    if not owners or len(owners) < 2:
        return
    unique = {owner.get("uid"): owner for owner in reversed(owners)}
    if len(unique) != len(owners):
        metadata["ownerReferences"] = list(reversed(unique.values()))
        if call is not None:
            call.warnings.append(
                ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, "
                "and may reject such requests as early as 1.24; please fix your requests"
            )


def drop_empty(metadata: Obj) -> None:
    for name in ("labels", "annotations", "ownerReferences", "finalizers"):
        if name in metadata and not metadata[name]:
            del metadata[name]
