"""Objects as operations of the store."""

from __future__ import annotations

from shoal.apiserver import objects
from shoal.apiserver.context import Core
from shoal.apiserver.registry import Served
from shoal.apiserver.shapes import Shape
from shoal.apiserver.writing.identity import give_identity
from shoal.apiserver.writing.model import Author
from shoal.apiserver.writing.ownership import own_all
from shoal.kube.objects import Obj
from shoal.store import Key, Put


def put(storage: Served, obj: Obj, key: Key, shape: Shape | None = None) -> Put:
    """The operation that stores an object of the storage version."""
    attrs = storage.attrs(obj, key)
    if shape is not None:
        obj = {**obj, "spec": shape.spec}  # encoded already
    value, hole = objects.encode(obj, storage.resource.kind, storage.resource.api_version)
    return Put(key, value, hole, attrs)


def own_put(core: Core, resource: str, obj: Obj, author: Author) -> Put:
    """A new object of the server's own, ready for the transaction of another one."""
    storage = core.registry.stored(resource)
    assert storage is not None, resource
    storage.rules.default(obj)
    give_identity(core, storage, obj)
    own_all(storage, obj, author, storage.resource.api_version, core.now())
    storage.rules.prepare_create(obj)
    return put(storage, obj, storage.key_of(obj["metadata"].get("namespace"), obj["metadata"]["name"]))
