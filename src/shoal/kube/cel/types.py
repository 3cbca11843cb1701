"""The types of expressions: their names, and assignability.

``Decl`` is a type with data from a schema: fields with their names in the data, and maximum sizes, which bound the cost
of an expression.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


class Type:
    """A type. ``kind`` groups types that behave alike; ``struct`` types are equal by name."""

    __slots__ = ("decl", "key", "kind", "name", "params")

    def __init__(self, kind: str, name: str, params: tuple[Type, ...] = (), decl: Decl | None = None) -> None:
        self.kind = kind
        self.name = name
        self.params = params
        self.decl = decl  # struct: its fields
        self.key: tuple[object, ...] = (kind, name, *(param.key for param in params))

    def __repr__(self) -> str:
        return f"Type({self})"

    def __str__(self) -> str:
        if self.kind == "error":
            return "!error!"
        if not self.params:
            return self.name
        return f"{self.name}({', '.join(map(str, self.params))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class Decl:
    """A type as a schema declares it."""

    __slots__ = ("elem", "fields", "key", "max_elements", "min_size", "type")

    def __init__(self, type_: Type, min_size: int, max_elements: int = 0) -> None:
        self.type = type_
        self.min_size = min_size  # bytes of the smallest JSON value
        self.max_elements = max_elements  # characters, items or keys at most
        self.fields: dict[str, tuple[str, Decl]] | None = None  # struct: name in expressions → name in data, type
        self.key: Decl | None = None  # map
        self.elem: Decl | None = None  # list, map


BOOL: Final = Type("bool", "bool")
INT: Final = Type("int", "int")
UINT: Final = Type("uint", "uint")
DOUBLE: Final = Type("double", "double")
STRING: Final = Type("string", "string")
BYTES: Final = Type("bytes", "bytes")
NULL: Final = Type("null", "null")
DYN: Final = Type("dyn", "dyn")
ERROR: Final = Type("error", "!error!")
TIMESTAMP: Final = Type("timestamp", "timestamp")
DURATION: Final = Type("duration", "duration")
TYPE: Final = Type("type", "type")


def list_of(element: Type) -> Type:
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("opaque", "optional_type", (value,))


def type_type(of: Type) -> Type:
    return Type("type", "type", (of,))


def param(name: str) -> Type:
    return Type("param", name)


def opaque(name: str) -> Type:
    return Type("opaque", name)


def struct(name: str, fields: Mapping[str, Type]) -> Type:
    """An object with these fields."""
    decl = Decl(DYN, 2)
    decl.fields = {field: (field, Decl(type_, 1)) for field, type_ in fields.items()}
    decl.type = Type("struct", name, (), decl)
    return decl.type


def open_struct(name: str) -> Type:
    """An object type with only a name: it has any field, of any type."""
    decl = Decl(DYN, 2)
    decl.type = Type("struct", name, (), decl)
    return decl.type


JSON_PATCH: Final = struct("JSONPatch", {"op": STRING, "path": STRING, "from": STRING, "value": DYN})


def is_dyn_or_error(type_: Type) -> bool:
    return type_.kind in ("dyn", "error")


def unwrap_optional(type_: Type) -> tuple[Type, bool]:
    if type_.name == "optional_type" and type_.kind == "opaque":
        return type_.params[0], True
    return type_, False


Bindings = dict[str, Type]

_NULLABLE: Final = frozenset({"opaque", "struct", "duration", "timestamp"})


def assignable(bindings: Bindings, wanted: Type, given: Type) -> bool:
    """Whether the two types can be the same; type parameters are bound in the process, even if the result is false."""
    if given.kind == "param":
        valid, bound = _bind(bindings, wanted, given)
        if valid:
            return True
        if bound:
            return False
    if wanted.kind == "param":
        return _bind(bindings, given, wanted)[0]
    if is_dyn_or_error(wanted) or is_dyn_or_error(given):
        return True
    if wanted.kind == "null":
        return given.kind in _NULLABLE or given.kind == "null"
    if given.kind == "null":
        return wanted.kind in _NULLABLE
    if wanted.kind == "type":
        return given.kind == "type"
    if wanted.kind != given.kind or wanted.name != given.name or len(wanted.params) != len(given.params):
        return False
    return all(assignable(bindings, left, right) for left, right in zip(wanted.params, given.params, strict=True))


def _bind(bindings: Bindings, type_: Type, variable: Type) -> tuple[bool, bool]:
    if type_.kind == "param" and type_.name == variable.name:
        return True, True
    found = bindings.get(variable.name)
    if found is not None:
        if found == type_:
            return True, True
        if assignable(bindings, type_, found):
            general = most_general(type_, found)
            if not _mentions(bindings, variable, general):
                bindings[variable.name] = general
            return True, True
        return False, True
    if not _mentions(bindings, variable, type_):
        bindings[variable.name] = type_
        return True, False
    return False, False


def _mentions(bindings: Bindings, variable: Type, within: Type) -> bool:
    if within.kind == "param":
        if within.name == variable.name:
            return True
        found = bindings.get(within.name)
        return found is not None and _mentions(bindings, variable, found)
    return any(_mentions(bindings, variable, each) for each in within.params)


def most_general(left: Type, right: Type) -> Type:
    return left if _less_specific(left, right) else right


def _less_specific(left: Type, right: Type) -> bool:
    if left.kind in ("dyn", "param"):
        return True
    if right.kind in ("dyn", "param") or left.kind != right.kind:
        return False
    if left.kind == "type":
        return True
    if left.name != right.name or len(left.params) != len(right.params):
        return False
    return all(_less_specific(a, b) for a, b in zip(left.params, right.params, strict=True))


def substitute(bindings: Bindings, type_: Type, *, final: bool = False) -> Type:
    """The type with parameters replaced by their bindings; with ``final``, unbound ones become dyn."""
    if type_.kind == "param":
        found = bindings.get(type_.name)
        if found is not None:
            return substitute(bindings, found, final=final)
        return DYN if final else type_
    if not type_.params:
        return type_
    params = tuple(substitute(bindings, each, final=final) for each in type_.params)
    if params == type_.params:
        return type_
    return Type(type_.kind, type_.name, params, type_.decl)
