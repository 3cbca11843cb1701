"""A cache for pods with equal specs: keeps the results of pruning, defaults, validation and ownership.

A ReplicaSet's pods differ in name and labels only. For kinds whose rules allow it (``KindRules.spec_alone``), the
first object with a spec is processed in full; later ones with the same bytes reuse the canonical spec, its
fields in managedFields and the result that it is valid. Only valid specs are cached, and only those that
the kind itself does not change any further: the parsed spec is shared, so nothing on the way to the store may write to
it. What the built-in admission plugins add to a spec is part of it; there are no shapes where users' plugins may
change an object.

The pods of a DaemonSet differ in one thing more, the node that their affinity names. They are of one shape as well: it
is kept with a hole for the name.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import orjson

from shoal.apiserver.registry import Served
from shoal.kube.names import is_dns1123_subdomain
from shoal.kube.objects import Obj

MAX_SHAPES = 1000
MAX_SPEC_BYTES = 16 * 1024
_MIRROR = "kubernetes.io/config.mirror"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_HOLE = "<node>"  # not a valid node name
_PINNED = b"pinned "  # before the bytes of specs with a hole: no JSON begins like this

ShapeKey = tuple[str, bytes, Hashable]  # resource, bytes of the spec, further inputs of admission


class Shape(NamedTuple):
    """The cached results for a spec."""

    spec: orjson.Fragment  # canonical, with defaults, encoded
    parsed: Obj  # the same, to read; shared by all objects of this shape
    fields: Any  # FieldsV1 of the spec; read only
    warnings: tuple[str, ...]


class Pinned(NamedTuple):
    """The cached results for a spec with a placeholder for the node name."""

    head: bytes
    tail: bytes
    shape: Shape

    def to(self, node: str) -> Shape:
        spec, affinity, affine, required, term, field = _path(self.shape.parsed)
        term = {**term, "matchFields": [{**field, "values": [node]}]}
        affine = {**affine, _REQUIRED: {**required, "nodeSelectorTerms": [term]}}
        parsed = {**spec, "affinity": {**affinity, "nodeAffinity": affine}}
        return self.shape._replace(spec=orjson.Fragment(self.head + node.encode() + self.tail), parsed=parsed)


def _path(spec: Any) -> tuple[Obj, ...]:
    """The objects from a spec down to the field that names nodes; raises lookup errors when there is none."""
    affinity = spec["affinity"]
    affine = affinity["nodeAffinity"]
    required = affine[_REQUIRED]
    [term] = required["nodeSelectorTerms"]
    [field] = term["matchFields"]
    return spec, affinity, affine, required, term, field


def _pin(spec: Any) -> list[str] | None:
    """Return the list that holds the node's name if the affinity of a spec allows exactly one node, else None."""
    if not isinstance(spec, dict) or "affinity" not in spec:
        return None
    try:
        field = _path(spec)[-1]
        names, named = field["values"], field["key"] == "metadata.name" and field["operator"] == "In"
        if not named or not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
            return None
    except (KeyError, TypeError, ValueError):
        return None
    return names if not is_dns1123_subdomain(names[0]) else None


class Shapes:
    """Recent valid specs, by their bytes in the request."""

    def __init__(self) -> None:
        self._known: dict[ShapeKey, Shape | Pinned] = {}

    def __len__(self) -> int:
        return len(self._known)

    def key(self, served: Served, obj: Obj, context: Hashable | None) -> ShapeKey | None:
        """The cache key of this object's spec; None when its kind is not cached. ``context`` is what
        admission depends on beside the spec, None when it may change anything."""
        spec = obj.get("spec")
        if served.crd is not None or served.rules.spec_alone is None or not spec or context is None:
            return None
        metadata = obj.get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        if isinstance(annotations, dict) and _MIRROR in annotations:
            return None  # admission leaves the specs of nodes' own pods as they are
        pin = _pin(spec)
        if pin is None:
            raw = orjson.dumps(spec)
        else:
            node, pin[0] = pin[0], _HOLE
            raw = _PINNED + orjson.dumps(spec)
            pin[0] = node
        return (served.key, raw, context) if len(raw) <= MAX_SPEC_BYTES else None

    def get(self, key: ShapeKey, spec: Obj) -> Shape | None:
        """The cached results for ``spec``, which has this key."""
        found = self._known.get(key)
        if not isinstance(found, Pinned):
            return found
        pin = _pin(spec)
        return None if pin is None else found.to(pin[0])

    def keep(self, key: ShapeKey, served: Served, obj: Obj, spec: bytes) -> None:
        """Remember the spec of an object that was found valid; ``spec`` is as it was before the kind prepared it."""
        alone = served.rules.spec_alone
        if orjson.dumps(obj["spec"]) != spec:
            return  # the kind derives something from the rest of the object: not this spec's alone
        entries = obj["metadata"].get("managedFields")
        if alone is None or not alone.applies(obj) or not entries or "f:spec" not in entries[0]["fieldsV1"]:
            return
        rest = set(alone.warnings_rest(obj))
        warnings = tuple(text for text in served.rules.warnings(obj) if text not in rest)
        if len(self._known) >= MAX_SHAPES:
            self._known.clear()  # rare, and cheaper than keeping an order on every hit
        shape = Shape(orjson.Fragment(spec), orjson.loads(spec), entries[0]["fieldsV1"]["f:spec"], warnings)
        if not key[1].startswith(_PINNED):
            self._known[key] = shape
        elif (pin := _pin(shape.parsed)) is not None:
            pin[0] = _HOLE
            head, *tails = orjson.dumps(shape.parsed).split(_HOLE.encode())
            if len(tails) == 1:  # else the spec names the node in another place too
                self._known[key] = Pinned(head, tails[0], shape)
