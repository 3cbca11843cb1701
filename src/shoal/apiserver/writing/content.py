"""The steps *prepare* and *validate*: run the rules of a kind, which derive fields and report errors."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from shoal.apiserver.context import Core
from shoal.apiserver.effects import NO_EFFECTS, Effects
from shoal.apiserver.registry import Served
from shoal.apiserver.writing.identity import IDENTITY
from shoal.apiserver.writing.model import Write
from shoal.errors import FieldError, Invalid
from shoal.kube.kinds.access import signing
from shoal.kube.kinds.checks import validate_metadata, validate_metadata_update
from shoal.kube.objects import Obj
from shoal.kube.resources import Resource

_SIGNING = "certificatesigningrequests.certificates.k8s.io"
_API_GROUPS = frozenset({"apiextensions.k8s.io", "apiregistration.k8s.io"})
_WITH_STATUS = IDENTITY | {"status"}
_SAME_GENERATION = frozenset({"status", "binding"})  # writes to these subresources keep the generation


def prepare(write: Write, core: Core, effects: Mapping[str, Effects]) -> None:
    """Derive fields by the rules of the kind, and collect the effects of the write."""
    new, old, storage = write.new, write.old, write.storage
    write.effects = effects.get(storage.key, NO_EFFECTS)
    if old is None:
        _prepare_new(write, new, storage)
        return
    resource, subresource = write.served.resource, write.author.subresource
    _prepare_replacement(storage, new, old, subresource, core)
    if "spec" not in new:
        _add_spec(storage, new)
    if resource.generation and subresource not in _SAME_GENERATION:
        _count_generation(new, old, resource.status)
    new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]


def _prepare_new(write: Write, new: Obj, storage: Served) -> None:
    resource = write.served.resource
    if write.new_shape is not None:
        write.spec = orjson.dumps(new["spec"])
    storage.rules.prepare_create(new)
    if resource.status and not resource.custom:
        storage.default_status(new)  # always there in built-in kinds: patches add to it
    if "spec" not in new:
        _add_spec(storage, new)
    if storage.key == _SIGNING and write.call is not None:
        user = write.call.user
        signing.stamp_requester(new, username=user.name, uid=user.uid, groups=user.groups, extra=dict(user.extra))
    effects = write.effects
    if effects is not NO_EFFECTS:
        write.restored = orjson.dumps(new)
        if effects.before_validation:
            write.extra = effects.on_create(new)


def _prepare_replacement(storage: Served, new: Obj, old: Obj, subresource: str, core: Core) -> None:
    rules = storage.rules
    special = rules.subresource_prepare.get(subresource)
    if special is not None:
        special(new, old)
    elif subresource == "status":
        rules.prepare_status(new, old)
    elif not subresource or subresource == "scale":
        rules.prepare_update(new, old)
    if storage.key == _SIGNING and subresource:
        signing.stamp_conditions(new, old, core.now())


def validate(write: Write) -> None:
    """Raise Invalid with all errors of the object."""
    new, old, storage = write.new, write.old, write.storage
    if write.trusted:
        return
    if old is not None:
        errors = _replacement_errors(storage, new, old, write.author.subresource)
    else:
        resource, rules = storage.resource, storage.rules
        errors = validate_metadata(
            new, namespaced=resource.namespaced, name_errors=rules.name_errors,
            qualified_finalizers=_qualified_finalizers(resource),
        )  # fmt: skip
        alone = rules.spec_alone if write.shape is not None else None
        errors = errors + (rules.validate_create(new) if alone is None else alone.validate_rest(new))
    if errors:
        raise invalid_object(storage, new, errors)


def invalid_object(served: Served, obj: Obj, errors: list[FieldError]) -> Invalid:
    """The Invalid error of an object."""
    name = obj["metadata"].get("name") or obj["metadata"].get("generateName") or ""
    return Invalid.of(served.resource.kind, served.resource.group, name, errors)


def _replacement_errors(storage: Served, new: Obj, old: Obj, subresource: str) -> list[FieldError]:
    rules = storage.rules
    errors = validate_metadata_update(new, old, qualified_finalizers=_qualified_finalizers(storage.resource))
    if subresource == "status":
        return errors + rules.validate_status(new, old)
    if subresource == "binding":
        return errors  # a binding sets fields that clients may not; the node name was checked when it was parsed
    if subresource in rules.subresource_validation:
        return errors + rules.subresource_validation[subresource](new, old)
    return errors + rules.validate_update(new, old)


def warnings(write: Write) -> list[str]:
    """The warnings for the client about an accepted object."""
    if write.author.subresource == "binding":
        return []  # its warnings were sent when it was created
    shape, rules = write.shape, write.storage.rules
    if shape is not None and rules.spec_alone is not None:
        return [*rules.spec_alone.warnings_rest(write.new), *shape.warnings]
    return rules.warnings(write.new)


def _qualified_finalizers(resource: Resource) -> bool:
    """Whether finalizers must have a domain: not those of custom objects, nor of the kinds that define APIs."""
    return not resource.custom and resource.group not in _API_GROUPS


def _add_spec(storage: Served, obj: Obj) -> None:
    """Add an empty spec to built-in kinds that have one, as for status."""
    if not storage.resource.custom and "spec" in storage.type.fields:
        obj["spec"] = {}


def _count_generation(new: Obj, old: Obj, has_status: bool) -> None:
    ignored = _WITH_STATUS if has_status else IDENTITY
    for name in new.keys() | old.keys():
        if name not in ignored and new.get(name) != old.get(name):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
            return
