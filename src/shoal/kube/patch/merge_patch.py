"""JSON Merge Patch (RFC 7386): objects merge, null removes, everything else replaces.

``apply`` works in place, on a document that the caller has just decoded.
"""

from __future__ import annotations

from typing import Any

from shoal.errors import BadRequest


def apply(doc: dict[str, Any], patch: Any) -> dict[str, Any]:
    """``doc`` with the patch applied. Changes and returns ``doc``; parts of ``patch`` become parts of it."""
    if patch.__class__ is not dict:
        raise BadRequest("error decoding patch: a merge patch must be a JSON object")
    _merge(doc, patch)
    return doc


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif value.__class__ is dict:
            current = target.get(key)
            if current.__class__ is dict:
                _merge(current, value)
            else:
                drop_nulls(value)
                target[key] = value
        else:
            if value.__class__ is list:
                drop_nulls(value)  # RFC 7386 would keep nulls inside of lists; Kubernetes does not
            target[key] = value


def drop_nulls(value: Any) -> None:
    """Remove every null field of every object in ``value``, in place; null items of lists stay."""
    if value.__class__ is dict:
        gone = [key for key, item in value.items() if item is None]
        for key in gone:
            del value[key]
        for item in value.values():
            if item.__class__ is dict or item.__class__ is list:
                drop_nulls(item)
    elif value.__class__ is list:
        for item in value:
            if item.__class__ is dict or item.__class__ is list:
                drop_nulls(item)
