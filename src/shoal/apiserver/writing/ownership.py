"""Which manager owns which fields of an object that is written."""

from __future__ import annotations

from shoal.apiserver.registry import Served
from shoal.apiserver.shapes import Shape
from shoal.apiserver.writing.model import Author
from shoal.kube.objects import Obj
from shoal.kube.ownership import managed


def own_all(storage: Served, obj: Obj, author: Author, api_version: str, now: str, shape: Shape | None = None) -> None:
    """The author owns every field of a new object."""
    obj["metadata"].pop("managedFields", None)
    spec = obj.pop("spec") if shape is not None else None
    managed.update_managers(
        None, obj, storage.type, manager=author.manager, api_version=api_version,
        subresource=author.subresource, now=now,
        known=None if shape is None else {"f:spec": shape.fields},
    )  # fmt: skip
    if shape is not None:
        obj["spec"] = spec
