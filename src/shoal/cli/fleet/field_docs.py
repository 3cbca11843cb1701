"""What fields of objects mean, read from the control plane's OpenAPI document, as kubectl explains them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from shoal.errors import ConfigError

Schema = Mapping[str, Any]

_WIDTH = 100


@dataclass(frozen=True, slots=True)
class DocumentedField:
    """A field of a kind: its path, and its schema as the document has it."""

    kind: str
    path: tuple[str, ...]
    schema: Schema
    required: bool = False


def field_at(document: Schema, kind: str, path: Sequence[str]) -> DocumentedField:
    """The field at a path below a kind; raises ConfigError with the names that there are."""
    found = DocumentedField(kind, (), {"$ref": f"#/components/schemas/{kind}"})
    for name in path:
        below = {each.path[-1]: each for each in _below(document, found)}
        if name not in below:
            raise ConfigError(f"field is {'.'.join((kind.lower(), *path))!r}: {_missing(found, name, list(below))}")
        found = below[name]
    return found


def _missing(found: DocumentedField, name: str, names: Sequence[str]) -> str:
    where = ".".join((found.kind.lower(), *found.path))
    if not names:
        return f"{where} has no fields"
    near = get_close_matches(name, names, n=1)
    return f"did you mean {where}.{near[0]}?" if near else f"{where} has the fields {', '.join(names)}"


def fields_below(document: Schema, found: DocumentedField) -> dict[str, Any]:
    """The field with its own fields, for programs."""
    return {
        **_facts(document, found),
        "name": ".".join((found.kind.lower(), *found.path)),
        "fields": [{"name": each.path[-1], **_facts(document, each)} for each in _below(document, found)],
    }


def _facts(document: Schema, field: DocumentedField) -> dict[str, Any]:
    return {"type": type_of(document, field.schema), "required": field.required, "text": _text(document, field.schema)}


def text_of(document: Schema, found: DocumentedField, *, recursive: bool) -> str:
    """The field for people, with the fields below it."""
    head = f"KIND:   {found.kind}\n"
    if found.path:
        head += f"FIELD:  {'.'.join(found.path)} <{type_of(document, found.schema)}>\n"
    about = _indented(_text(document, found.schema)) or "    (no text)\n"
    lines = _tree(document, found, 1) if recursive else _list(document, found)
    below = "".join(f"{line}\n" for line in lines).rstrip("\n")
    return f"{head}\nDESCRIPTION:\n{about}" + (f"\nFIELDS:\n{below}\n" if below else "")


def _list(document: Schema, found: DocumentedField) -> Iterator[str]:
    for each in _below(document, found):
        yield f"  {_head(document, each)}"
        yield from _indented(_text(document, each.schema)).splitlines()
        yield ""


def _tree(document: Schema, found: DocumentedField, depth: int) -> Iterator[str]:
    for each in _below(document, found):
        yield f"{'  ' * depth}{_head(document, each)}"
        yield from _tree(document, each, depth + 1)


def _head(document: Schema, field: DocumentedField) -> str:
    return f"{field.path[-1]}  <{type_of(document, field.schema)}>{' (required)' if field.required else ''}"


def _indented(text: str) -> str:
    lines = textwrap.wrap(text, _WIDTH - 4)
    return "".join(f"    {line}\n" for line in lines)


def type_of(document: Schema, schema: Schema) -> str:
    """What a value is: text, integer, one of some words, a list or a map of something, an object."""
    own = _resolved(document, schema)
    if "enum" in own:
        return "|".join(str(each) for each in own["enum"])
    if choices := own.get("anyOf") or own.get("oneOf"):
        return " or ".join(dict.fromkeys(type_of(document, each) for each in choices))
    if own.get("type") == "array":
        return f"list of {type_of(document, own.get('items') or {})}"
    if own.get("type") == "object" and not own.get("properties"):
        inner = own.get("additionalProperties")
        return f"map of {type_of(document, inner)}" if isinstance(inner, Mapping) and inner else "object"
    word = str(own.get("type") or "anything")
    bounds = [f"{sign}{own[name]}" for name, sign in (("minimum", "≥"), ("maximum", "≤")) if name in own]
    return " ".join([{"string": "text", "boolean": "true|false"}.get(word, word), *bounds])


def _below(document: Schema, found: DocumentedField) -> Iterator[DocumentedField]:
    own = _object(document, found.schema)
    required = own.get("required") or ()
    for name, schema in (own.get("properties") or {}).items():
        yield DocumentedField(found.kind, (*found.path, name), schema, name in required)


def _object(document: Schema, schema: Schema) -> Schema:
    """The schema that has the fields: that of the items of a list, or of the choice that is an object."""
    own = _resolved(document, schema)
    inner = own.get("additionalProperties")
    parts = [own.get("items"), inner if isinstance(inner, Mapping) else None, *(own.get("anyOf") or ())]
    if own.get("properties"):
        return own
    found = (_object(document, each) for each in parts if each)
    return next((each for each in found if each.get("properties")), {})


def _resolved(document: Schema, schema: Schema) -> Schema:
    name = str(schema.get("$ref") or "").rpartition("/")[2]
    found: Schema = document["components"]["schemas"].get(name, {}) if name else schema
    return found


def _text(document: Schema, schema: Schema) -> str:
    """The text of the field, and that of its type, which says more."""
    own = _object(document, schema) or _resolved(document, schema)
    said, more = (str(each.get("description") or "").rstrip(".") for each in (schema, own))
    if not said and not more and "spec" in (own.get("properties") or {}):
        return _text(document, own["properties"]["spec"])  # of the kind itself
    return said or more if more in said else f"{said}. {more}" if said else more
