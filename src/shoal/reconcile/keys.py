"""The identity of objects, and helpers for their metadata."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.kube.objects import Obj


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """Namespace and name; the namespace is empty for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def key_of(obj: Obj) -> ObjectKey:
    about = obj["metadata"]
    return ObjectKey(about.get("namespace") or "", about["name"])


def version_of(obj: Obj) -> str:
    found: str = obj["metadata"].get("resourceVersion", "")
    return found


def revision_of(version: str) -> int | None:
    """A resourceVersion as a number; None if it is not one."""
    return int(version) if version.isascii() and version.isdigit() else None


def is_older(version: str, than: str) -> bool:
    """Whether ``version`` is certainly older than ``than`` or equal."""
    if version == than:
        return True
    mine, other = revision_of(version), revision_of(than)
    return mine is not None and other is not None and mine <= other


def controller_of(obj: Obj) -> Obj | None:
    """The owner reference of the object's controller."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: Obj = reference
            return found
    return None
