"""The steps *default* and *identity*: absent fields, and the fields that only the server sets.

A new object gets its name (where it is generated), uid, time of creation and generation. One that replaces another
keeps the fields its writer may not change, after its preconditions (uid, resourceVersion) were checked.
"""

from __future__ import annotations

from shoal.apiserver.context import Call, Core
from shoal.apiserver.objects import meta
from shoal.apiserver.registry import Served
from shoal.apiserver.shapes import Shape
from shoal.apiserver.writing.model import Write
from shoal.base.ids import Ids
from shoal.errors import BadRequest, Conflict
from shoal.kube.objects import Obj
from shoal.kube.resources import Resource
from shoal.store import Entry

MAX_NAME_PREFIX = 58
IDENTITY = frozenset({"kind", "apiVersion", "metadata"})
_KEPT = (
    "name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
    "generateName", "selfLink",
)  # fmt: skip
_KEEP_STATUS = frozenset({"", "scale", "ephemeralcontainers", "resize", "finalize"})  # may not write the status
_SLICES = frozenset({"ephemeralcontainers", "resize"})  # they write only parts of a pod's spec


def default(write: Write) -> None:
    """Fill in absent fields; from here on the object is in the version it is stored in."""
    served = write.served
    if write.entry is None and _is_revision(meta(write.new).get("resourceVersion")):
        raise BadRequest("resourceVersion should not be set on objects to be created")
    # a shape has its defaults already, and so has a bound pod: only its node name differs from the stored one
    if write.shape is None and write.author.subresource != "binding":
        served.default(write.new)
        if write.author.subresource == "status" and served.crd is None:
            served.default_status(write.new)
    if served.to_storage is not None:
        write.new, write.storage = served.to_storage(write.new), served.storage
    elif served.crd is not None and write.old is not None and write.entry is not None:
        write.old = served.present(write.old, write.entry)  # as reads show it: brought up to the version's schema


def _is_revision(text: str | None) -> bool:
    """Whether a server could have given this resourceVersion; a create ignores any other text, as in Kubernetes."""
    return text is not None and text.isascii() and text.isdigit() and 0 < int(text[:21]) < 1 << 64


def identify(write: Write, core: Core) -> None:
    """Give a new object its identity; let one that replaces another keep its own."""
    if write.old is None or write.entry is None:
        write.prefix = give_identity(core, write.storage, write.new, write.shape)
        _drop_duplicate_owners(write.new["metadata"], write.call)
    else:
        _check_preconditions(write.served, write.new, write.old, write.given_revision, write.entry)
        carry_over(write.storage, write.new, write.old, write.author.subresource)


def settle(write: Write) -> None:
    """Restore the fields that admission plugins may not change."""
    if write.old is None:
        _drop_early_status(write.served.resource, write.new)
    elif write.admission is not None and write.admission.plan.dynamic_mutators:
        carry_over(write.storage, write.new, write.old, write.author.subresource)


def give_identity(core: Core, storage: Served, obj: Obj, shape: Shape | None = None) -> str:
    """Set the server's fields of a new object; return the prefix of a generated name."""
    resource, metadata = storage.resource, meta(obj)
    prefix: str = metadata.get("generateName") or "" if not metadata.get("name") else ""
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation", "resourceVersion"):
        metadata.pop(name, None)
    if prefix:
        metadata["name"] = generated_name(prefix, core.ids)
        if shape is None:
            storage.default(obj)  # some defaults are made from the name
    metadata["uid"] = core.ids.new_uid()
    metadata["creationTimestamp"] = core.now()
    _drop_early_status(resource, obj)
    if resource.generation:
        metadata["generation"] = 1
    _drop_empty(metadata)
    return prefix


def generated_name(prefix: str, ids: Ids) -> str:
    """A name that begins with ``prefix``, as ``metadata.generateName`` asks for."""
    return prefix[:MAX_NAME_PREFIX] + ids.new_suffix()


def carry_over(storage: Served, new: Obj, old: Obj, subresource: str) -> None:
    """Copy the fields that this path may not change from the stored object."""
    resource = storage.resource
    metadata, before = meta(new), old["metadata"]
    if subresource == "status" and resource.custom:
        metadata = new["metadata"] = {**before, "managedFields": metadata.get("managedFields") or []}
    for name in _KEPT:
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)
    metadata["resourceVersion"] = before["resourceVersion"]
    if subresource == "status":
        for name in ("ownerReferences", "finalizers"):
            _keep(metadata, before, name)
        for name in [n for n in new if n not in IDENTITY and n != "status"]:
            if name not in old:
                del new[name]
        for name in old:
            if name not in IDENTITY and name != "status":
                new[name] = old[name]
    elif resource.status and subresource in _KEEP_STATUS:
        _keep(new, old, "status")
        if subresource in _SLICES:
            for name in ("labels", "annotations", "ownerReferences", "finalizers"):
                _keep(metadata, before, name)
    _drop_empty(metadata)


def _check_preconditions(served: Served, new: Obj, old: Obj, given: str, entry: Entry) -> None:
    metadata, resource = meta(new), served.resource
    uid = metadata.get("uid")
    if uid and uid != old["metadata"]["uid"]:
        raise Conflict.of(
            resource.plural, resource.group, entry.key.name,
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['metadata']['uid']}",
        )  # fmt: skip
    if given and given != str(entry.revision):
        raise Conflict.of(resource.plural, resource.group, entry.key.name)


def _drop_early_status(resource: Resource, obj: Obj) -> None:
    """Drop the status of a new object: clients cannot set it on create."""
    if resource.status and not resource.status_on_create:
        obj.pop("status", None)


def _drop_duplicate_owners(metadata: Obj, call: Call | None) -> None:
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


def _drop_empty(metadata: Obj) -> None:
    for name in ("labels", "annotations", "ownerReferences", "finalizers"):
        if name in metadata and not metadata[name]:
            del metadata[name]


def _keep(new: Obj, old: Obj, name: str) -> None:
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)
