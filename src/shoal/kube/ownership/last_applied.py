"""The annotation of client-side ``kubectl apply``, for objects that move to server-side apply.

When ``kubectl`` uses server-side apply, it owns the fields that still have the value in its annotation, so that the
move causes no conflicts. If the annotation exists, it is updated.
"""

from __future__ import annotations

from typing import Any

import orjson

from shoal.kube.ownership import fieldset
from shoal.kube.ownership.compare import applied_fields, compare
from shoal.kube.ownership.fieldset import FieldSet
from shoal.kube.schema.model import Type

KUBECTL = "kubectl"
ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
_MAX_ANNOTATIONS_BYTES = 256 * 1024


def owned_fields(live: dict[str, Any], type_: Type, api_version: str) -> FieldSet:
    """The fields whose value in ``live`` is the one in its annotation."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION)
    try:
        recorded = orjson.loads(text) if text else None
    except orjson.JSONDecodeError:
        return {}
    if recorded.__class__ is not dict or recorded.get("apiVersion") != api_version:
        return {}
    changed, removed = compare(recorded, live, type_)
    return fieldset.difference(fieldset.difference(applied_fields(recorded, type_), changed), removed)


def text_of(applied: dict[str, Any]) -> str:
    """The annotation's text for a configuration."""
    metadata = dict(applied.get("metadata") or {})
    if metadata.get("annotations"):
        metadata["annotations"] = {key: text for key, text in metadata["annotations"].items() if key != ANNOTATION}
    return orjson.dumps({**applied, "metadata": metadata}, option=orjson.OPT_SORT_KEYS).decode() + "\n"


def sync(obj: dict[str, Any], text: str) -> None:
    """Update the annotation if the object has one and the text is not too long."""
    annotations = obj["metadata"].get("annotations") or {}
    if annotations.get(ANNOTATION) and len(text) < _MAX_ANNOTATIONS_BYTES:
        annotations[ANNOTATION] = text
