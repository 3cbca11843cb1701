"""The API server's model of a type, for pruning, canonical form, patches and field ownership.

Built-in kinds and custom resources compile to the same structure, so patches, server-side apply and pruning are
written once. A Type is immutable after construction except that struct fields are filled in late, because types
refer to each other in cycles (JSONSchemaProps contains itself).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any


class Form(Enum):
    """How a value of a type looks in JSON and how it is canonicalised."""

    STRUCT = "struct"  # object with known fields
    MAP = "map"  # object with free keys and one element type
    LIST = "list"
    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    BYTES = "bytes"  # base64 text
    TIME = "time"  # RFC 3339, whole seconds, Z
    MICRO_TIME = "microtime"  # RFC 3339, six digits, Z
    QUANTITY = "quantity"
    INT_OR_STRING = "int-or-string"
    ANY = "any"  # unknown content; ownership is deduced from the value (maps by key, lists whole)


class Field:
    """A field of a struct: its type, and how a strategic merge patch treats it."""

    __slots__ = ("name", "patch_merge_key", "patch_strategies", "type")

    def __init__(
        self, name: str, type_: Type, patch_strategies: frozenset[str] = frozenset(), patch_merge_key: str = ""
    ) -> None:
        self.name = name
        self.type = type_
        self.patch_strategies = patch_strategies  # of "merge", "replace", "retainKeys"
        self.patch_merge_key = patch_merge_key


class Type:
    """One type. Which attributes mean something depends on ``form``."""

    __slots__ = (
        "atomic",
        "bits",
        "element",
        "fields",
        "form",
        "key_defaults",
        "keys",
        "list_type",
        "name",
        "nullable",
        "preserve_unknown",
        "required",
    )

    def __init__(self, form: Form, name: str = "") -> None:
        self.form = form
        self.name = name  # definition name such as io.k8s.api.core.v1.Pod; empty for anonymous types
        self.fields: dict[str, Field] = {}  # STRUCT
        self.required: frozenset[str] = frozenset()  # STRUCT: fields that are always written out
        self.preserve_unknown = False  # STRUCT: keep fields that are not known (custom resources)
        self.element: Type = self  # LIST, MAP
        self.list_type = "atomic"  # LIST: atomic, set or map
        self.keys: tuple[str, ...] = ()  # LIST of type map: the fields that identify an item
        self.key_defaults: Mapping[str, Any] = {}  # LIST of type map: value of a key field that is absent
        self.atomic = False  # STRUCT, MAP: owned as a whole
        self.bits = 64  # INTEGER: 32 or 64
        self.nullable = False  # custom resources: null is a value of its own

    def __repr__(self) -> str:
        return f"Type({self.form.value}{' ' + self.name if self.name else ''})"


ANY = Type(Form.ANY)
