"""Paths that name a field of a schema: ``.spec.ports['http.port']``, as rules and selectable fields use them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

_TOKEN = re.compile(r"'(?:[^'\\]|\\.|\\)*?(?<!\\)'|[.\[\]]|[^.\[\]']+|'.*", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\",
}  # fmt: skip


class FieldPathError(ValueError):
    """The path is invalid, or not in the schema."""


def resolve(path: str, schema: Schema, *, brackets: bool = True) -> tuple[str, Schema]:
    """The path in the spelling of field errors, and the schema it leads to."""
    tokens = _TOKEN.findall(path)
    shown, place = "", 0
    while place < len(tokens):
        token = tokens[place]
        if token not in (".", "["):
            raise FieldPathError(f"expected [ or . but got: {token}")
        if token == "[" and not brackets:
            raise FieldPathError("array notation is not allowed")
        if place + 1 == len(tokens):
            raise FieldPathError("unexpected end of JSON path")
        name = tokens[place + 1]
        place += 2
        if token == "[":
            name = _unquoted(name)
        shown, schema = _step(shown, name, schema)
        if token == "[":
            if place == len(tokens):
                raise FieldPathError("unexpected end of JSON path")
            if tokens[place] != "]":
                raise FieldPathError(f"expected ] but got {tokens[place]}")
            place += 1
    return shown, schema


def _unquoted(token: str) -> str:
    if len(token) < 2 or token[0] != "'" or token[-1] != "'":
        raise FieldPathError(f"expected single quoted string but got {token}")

    def plain(found: re.Match[str]) -> str:
        if found[1] not in _ESCAPES:
            raise FieldPathError(f"invalid string literal: invalid escape char {found[0]}")
        return _ESCAPES[found[1]]

    return _ESCAPE.sub(plain, token[1:-1])


def _step(shown: str, name: str, schema: Schema) -> tuple[str, Schema]:
    properties, additional = schema.get("properties"), schema.get("additionalProperties")
    if properties:
        if name not in properties:
            raise FieldPathError("does not refer to a valid field")
        return (f"{shown}.{name}" if shown else name), properties[name]
    if isinstance(additional, Mapping):
        return f"{shown}[{name}]", additional
    raise FieldPathError("does not refer to a valid field")
