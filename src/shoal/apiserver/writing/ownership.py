"""The step *ownership*: updates the field managers of the object."""

from __future__ import annotations

from shoal.apiserver.registry import Served
from shoal.apiserver.shapes import Shape
from shoal.apiserver.writing.model import Author, Write
from shoal.kube.objects import Obj
from shoal.kube.ownership import managed


def own(write: Write, now: str) -> None:
    """The author owns every field of a new object, and those it changes of another one."""
    if write.owned:
        return
    author, api_version = write.author, write.served.resource.api_version
    if write.old is None:
        own_all(write.storage, write.new, author, api_version, now, write.shape)
    else:
        managed.update_managers(
            write.old, write.new, write.storage.type, manager=author.manager, api_version=api_version,
            subresource=author.subresource, now=now,
        )  # fmt: skip


def own_all(storage: Served, obj: Obj, author: Author, api_version: str, now: str, shape: Shape | None = None) -> None:
    """Make the author the owner of every field; those of a shape are known."""
    obj["metadata"].pop("managedFields", None)
    spec = obj.pop("spec") if shape is not None else None
    managed.update_managers(
        None, obj, storage.type, manager=author.manager, api_version=api_version,
        subresource=author.subresource, now=now,
        known=None if shape is None else {"f:spec": shape.fields},
    )  # fmt: skip
    if shape is not None:
        obj["spec"] = spec
