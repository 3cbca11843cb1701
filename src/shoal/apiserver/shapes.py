"""Pods of one shape share their work: what pruning, defaults, validation and ownership made of a spec is kept.

A ReplicaSet's pods differ in name and labels only. For kinds whose rules allow it (``KindRules.spec_alone``), the
first object with a spec is looked at in full; the next ones with the same bytes take over the canonical spec, the
fields it stands for in managedFields and the verdict that it is valid. Only good specs are kept, and only those that
the kind itself does not change any further: the parsed spec is shared, so nothing on the way to the store may write to
it. What the built-in admission plugins add to a spec is part of it; there are no shapes where users' plugins may
change an object.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import orjson

from shoal.apiserver.objects import Obj
from shoal.apiserver.registry import Served

MAX_SHAPES = 1000
MAX_SPEC_BYTES = 16 * 1024
_MIRROR = "kubernetes.io/config.mirror"


ShapeKey = tuple[str, bytes, Hashable]  # resource, the spec as it came, what admission makes of it depends on


class Shape(NamedTuple):
    """What is known of a spec."""

    spec: orjson.Fragment  # canonical, with defaults, encoded
    parsed: Obj  # the same, to read; shared by all objects of this shape
    fields: Any  # FieldsV1 of the spec; read only
    warnings: tuple[str, ...]


class Shapes:
    """The good specs seen lately, by the bytes they came in."""

    def __init__(self) -> None:
        self._known: dict[ShapeKey, Shape] = {}

    def key(self, served: Served, obj: Obj, context: Hashable | None) -> ShapeKey | None:
        """Under what this object's spec is known or would be; None when its kind does not share. ``context`` is what
        admission depends on beside the spec, None when it may change anything."""
        spec = obj.get("spec")
        if served.crd is not None or served.rules.spec_alone is None or not spec or context is None:
            return None
        metadata = obj.get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        if isinstance(annotations, dict) and _MIRROR in annotations:
            return None  # admission leaves the specs of nodes' own pods as they are
        raw = orjson.dumps(spec)
        return (served.key, raw, context) if len(raw) <= MAX_SPEC_BYTES else None

    def get(self, key: ShapeKey) -> Shape | None:
        return self._known.get(key)

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
        self._known[key] = Shape(orjson.Fragment(spec), orjson.loads(spec), entries[0]["fieldsV1"]["f:spec"], warnings)
