"""JSON bodies: decoding that fails only with ``BadRequest``, encoding, duplicate keys, copies.

Objects are plain dicts from orjson. Nesting is limited here, once, so that no other module has to handle deep input.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from shoal.errors import BadRequest

MAX_DEPTH = 200  # orjson cannot encode past 254, and a list or a watch event adds a few levels
MAX_DUPLICATES = 100
_TOO_DEEP = f"the body of the request is nested deeper than {MAX_DEPTH} levels"

dumps = orjson.dumps


def loads(body: bytes | bytearray | memoryview | str) -> Any:
    """The value of a JSON text; raises ``BadRequest`` if the text is invalid."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if "limit" in str(error):  # the parser's own limit, which is far above this one
            raise BadRequest(_TOO_DEEP) from None
        raise BadRequest(f"the body of the request is not valid JSON: {error}") from None
    if isinstance(body, memoryview):
        body = bytes(body)
    opened = body.count("{") + body.count("[") if isinstance(body, str) else body.count(b"{") + body.count(b"[")
    if opened > MAX_DEPTH and is_deeper_than(value, MAX_DEPTH):
        raise BadRequest(_TOO_DEEP)
    return value


def loads_object(body: bytes | bytearray | memoryview | str) -> dict[str, Any]:
    """As ``loads``, for bodies that must be a JSON object."""
    value = loads(body)
    if value.__class__ is not dict:
        raise BadRequest(f"the body of the request must be a JSON object, not {kind_of(value)}")
    return value


def kind_of(value: Any) -> str:
    """The name of a JSON value's type, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "a number"


def is_deeper_than(value: Any, limit: int) -> bool:
    """Whether objects and arrays are nested deeper than ``limit`` levels; without recursion."""
    level = [value] if value.__class__ in (dict, list) else []
    depth = 0
    while level:
        depth += 1
        if depth > limit:
            return True
        level = [
            child
            for parent in level
            for child in (parent.values() if parent.__class__ is dict else parent)
            if child.__class__ is dict or child.__class__ is list
        ]
    return False


def find_duplicate_fields(body: bytes, parsed: Any) -> list[str]:
    """Paths of keys that occur more than once in one object, such as ``spec.containers[0].name``.

    Outside of texts every colon follows a key, so an equal number of colons before and after decoding means that no key
    was dropped; only an escaped colon in a text could hide one.
    """
    if body.count(b":") == orjson.dumps(parsed).count(b":") and b"\\u003" not in body:
        return []
    if parsed.__class__ not in (dict, list):
        return []
    found: dict[str, None] = {}
    decoded = json.loads(body, object_pairs_hook=_Pairs, parse_int=_no_number, parse_float=_no_number)
    _collect_duplicates(decoded, "", found)
    return list(found)[:MAX_DUPLICATES]


def _no_number(_: str) -> None:
    """Numbers are not needed to find keys, and Python refuses to parse very long ones."""


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all its keys, in order."""


def _collect_duplicates(value: Any, path: str, found: dict[str, None]) -> None:
    if value.__class__ is _Pairs:
        seen: set[str] = set()
        for key, child in value:
            where = f"{path}.{key}" if path else key
            if key in seen:
                found[where] = None
            seen.add(key)
            if child.__class__ in (_Pairs, list):
                _collect_duplicates(child, where, found)
    else:
        for position, child in enumerate(value):
            if child.__class__ in (_Pairs, list):
                _collect_duplicates(child, f"{path}[{position}]", found)


def deep_copy(value: Any) -> Any:
    """A copy of a JSON tree that shares no mutable part."""
    return orjson.loads(orjson.dumps(value))
