"""Objects as the store keeps them: JSON bytes in a fixed order of the first fields, with a hole for the revision.

``kind``, ``apiVersion`` and ``metadata`` come first and ``metadata`` starts with name, namespace, uid and
resourceVersion, so the hole is the first match of a constant text, list items can drop their type by cutting a prefix
of known length, and the field order is the same as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from shoal.kube.objects import Obj
from shoal.store import Entry

_MARK = b'"resourceVersion":"'
_META_ORDER = (
    "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers",
    "managedFields",
)  # fmt: skip


def encode(obj: Obj, kind: str, api_version: str) -> tuple[bytes, int]:
    """Bytes of an object without its revision, and where the revision goes."""
    metadata = obj["metadata"]
    metadata["resourceVersion"] = ""
    ordered = {name: metadata[name] for name in _META_ORDER if name in metadata}
    out = {"kind": kind, "apiVersion": api_version, "metadata": ordered}
    for name, value in obj.items():
        if name not in out:
            out[name] = value
    value_bytes = orjson.dumps(out)
    return value_bytes, value_bytes.index(_MARK) + len(_MARK)


def decode(entry: Entry) -> Obj:
    obj: Obj = orjson.loads(entry.value)
    return obj


def at_revision(entry: Entry, revision: int) -> bytes:
    """The entry's bytes with another revision in them: for watchers whose selection the object leaves."""
    end = entry.hole + len(str(entry.revision))
    return b"%b%d%b" % (entry.value[: entry.hole], revision, entry.value[end:])


def prefix(kind: str, api_version: str) -> bytes:
    """How every encoded object of a kind starts, up to its metadata."""
    return orjson.dumps({"kind": kind, "apiVersion": api_version})[:-1] + b","


def meta(obj: Obj) -> Obj:
    found = obj.get("metadata")
    if not isinstance(found, dict):
        found = obj["metadata"] = {}
    return found


class LazyFields(Mapping[str, str]):
    """Field-selector values of an object that was read back from disk, decoded on first use."""

    __slots__ = ("_compute", "_fields")

    def __init__(self, compute: Any) -> None:
        self._compute = compute
        self._fields: dict[str, str] | None = None

    def _all(self) -> dict[str, str]:
        if self._fields is None:
            self._fields = self._compute()
            self._compute = None
        return self._fields

    def __getitem__(self, name: str) -> str:
        return self._all()[name]

    def __iter__(self) -> Any:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())
