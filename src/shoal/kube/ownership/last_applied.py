"""The annotation of client-side ``kubectl apply``, for objects that move to server-side apply.

When ``kubectl`` applies on the server, fields that still have the value its annotation records count as its own, so
the move meets no conflicts; and the annotation, where present, is kept in step.
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
    """The fields the annotation of ``live`` records with the value they have."""
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
    """Bring the annotation up to date if the object has it and the text is not too long for one."""
    annotations = obj["metadata"].get("annotations") or {}
    if annotations.get(ANNOTATION) and len(text) < _MAX_ANNOTATIONS_BYTES:
        annotations[ANNOTATION] = text
