"""Value validation: a JSON schema compiled once into one function per node, with the messages of kube-openapi.

A check is called with the value, its dotted path, the list that collects errors, and the old value (``MISSING`` when
there is none to compare with). Errors below an unchanged old value are dropped: an accepted value stays acceptable
until it is changed ("ratcheting"). Errors without a position have the path ``""``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from shoal.errors import Cause, FieldError, invalid, required, too_long, too_many, type_invalid
from shoal.kube.cel import formats
from shoal.kube.cel.regex import matcher

Schema = Mapping[str, Any]
Check = Callable[[Any, str, list[FieldError], Any], None]
Number = int | float

MISSING: Final = object()
_MAX_INT64 = 2**63 - 1
_JSON_TYPES: Final = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_CONSTRAINTS: Final = (
    "enum", "allOf", "anyOf", "oneOf", "not", "maxLength", "minLength", "pattern", "maximum", "minimum", "multipleOf",
    "maxItems", "minItems", "uniqueItems", "maxProperties", "minProperties", "required", "format",
)  # fmt: skip


def same(left: Any, right: Any) -> bool:
    """Deep equality that distinguishes 1, true and 1.0."""
    if type(left) is not type(right):
        return False
    if type(left) is dict:
        return len(left) == len(right) and all(key in right and same(left[key], right[key]) for key in left)
    if type(left) is list:
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def go_number(value: Number) -> str:
    """A number as Go's ``%v`` prints it."""
    if isinstance(value, int):
        return str(value)
    if abs(value) < 1e21 and value == int(value):
        return str(int(value))
    mantissa, mark, exponent = repr(value).partition("e")
    if not mark:
        return mantissa
    return (
        f"{mantissa.removesuffix('.0')}e{exponent[0] if exponent[0] in '+-' else '+'}{exponent.lstrip('+-').zfill(2)}"
    )


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def json_type(value: Any) -> str:
    if value is None:
        return "null"
    kind = type(value)
    if kind is int:
        return "integer" if -_MAX_INT64 - 1 <= value <= _MAX_INT64 else "number"
    for name, kinds in _JSON_TYPES.items():
        if kind in kinds and name != "integer":
            return name
    return "object"


def _types_of(schema: Schema) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    kind = schema.get("type")
    return (kind,) if isinstance(kind, str) and kind else ()


def compile_check(schema: Schema) -> Check:
    """The check of a schema and of all below it."""
    types = _types_of(schema)
    kind = types[0] if len(types) == 1 else ""
    if kind in ("string", "integer", "number", "boolean") and not any(_says(schema.get(key)) for key in _CONSTRAINTS):
        return _plain_scalar(kind, bool(schema.get("nullable")))
    parts = _SchemaPieces(schema, types)
    if kind == "object" and not parts.has_composites and not parts.enum:
        return _plain_object(parts)
    return parts.check


def _says(value: Any) -> bool:
    """Whether a keyword has an effect: zero is a limit, empty and false are not."""
    return value is not None and value is not False and value != "" and value != []


def _plain_scalar(kind: str, nullable: bool) -> Check:
    """A scalar without constraints: nearly all fields are one of these."""
    accepted = _JSON_TYPES[kind]

    def check(value: Any, path: str, errors: list[FieldError], old: Any) -> None:
        if type(value) not in accepted or type(value) is int and not -_MAX_INT64 <= value <= _MAX_INT64:
            _check_type(value, path, errors, (kind,), nullable, "")

    return check


def _plain_object(parts: _SchemaPieces) -> Check:
    nullable, check_object = parts.nullable, parts.check_object

    def check(value: Any, path: str, errors: list[FieldError], old: Any) -> None:
        if type(value) is dict:
            check_object(value, path, errors, old)
        else:
            _check_type(value, path, errors, ("object",), nullable, "")

    return check


def _check_type(
    value: Any, path: str, errors: list[FieldError], types: tuple[str, ...], nullable: bool, shape: str
) -> None:
    found = json_type(value)
    if found == "null":
        if nullable:
            return
    elif found in types or (found == "integer" and "number" in types):
        return
    elif found == "number" and "integer" in types and abs(value) < 2**53 and value == int(value):
        return
    wanted = ",".join(types)
    if shape and found in ("boolean", "integer", "number", "object"):
        wanted, found = shape, {"integer": "int64", "number": "float64"}.get(found, "")
    errors.append(type_invalid(path, found, f"{path} in body must be of type {wanted}: {quoted(found)}"))


class _SchemaPieces:
    """The constraints of one node, parsed once."""

    def __init__(self, schema: Schema, types: tuple[str, ...]) -> None:
        self.types = types
        self.accepted = frozenset(python for name in types for python in _JSON_TYPES.get(name, ()))
        self.nullable = bool(schema.get("nullable"))
        single = types[0] if len(types) == 1 else ""
        self.format = schema.get("format") or ""
        if not formats.recognized(single, self.format) or len(types) > 1:
            self.format = ""
        self.format_test = formats.tester(single, self.format) if self.format else None
        self.enum: list[Any] = list(schema.get("enum") or ())
        self.max_length, self.min_length = schema.get("maxLength"), schema.get("minLength")
        self.pattern: str = schema.get("pattern") or ""
        self.matches = matcher(self.pattern) if self.pattern else None
        self._take_numbers(schema)
        self.max_items, self.min_items = schema.get("maxItems"), schema.get("minItems")
        items = schema.get("items")
        self.items = compile_check(items) if isinstance(items, Mapping) else None
        self.list_keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        if schema.get("x-kubernetes-list-type") != "map":
            self.list_keys = ()
        self._take_properties(schema)
        self.any_of = [compile_check(each) for each in schema.get("anyOf") or ()]
        self.one_of = [compile_check(each) for each in schema.get("oneOf") or ()]
        self.all_of = [compile_check(each) for each in schema.get("allOf") or ()]
        self.never = compile_check(schema["not"]) if schema.get("not") is not None else None
        self.has_composites = bool(self.any_of or self.one_of or self.all_of or self.never)

    def _take_numbers(self, schema: Schema) -> None:
        self.maximum, self.minimum = schema.get("maximum"), schema.get("minimum")
        self.exclusive_maximum = bool(schema.get("exclusiveMaximum"))
        self.exclusive_minimum = bool(schema.get("exclusiveMinimum"))
        self.multiple_of = schema.get("multipleOf")

    def _take_properties(self, schema: Schema) -> None:
        self.properties = {name: compile_check(each) for name, each in (schema.get("properties") or {}).items()}
        self.required = tuple(schema.get("required") or ())
        self.max_properties, self.min_properties = schema.get("maxProperties"), schema.get("minProperties")
        additional = schema.get("additionalProperties")
        self.additional = compile_check(additional) if isinstance(additional, Mapping) else None
        self.closed = additional is False

    def check(self, value: Any, path: str, errors: list[FieldError], old: Any) -> None:
        kind = type(value)
        if (self.types or self.format) and (kind not in self.accepted or kind is int):
            _check_type(value, path, errors, self.types, self.nullable, self.format)
        if value is None:
            self._check_enum(value, path, errors)
            return
        if self.has_composites:
            self._check_composites(value, path, errors, old)
        if kind is str:
            self._check_string(value, path, errors)
        elif kind is int or kind is float:
            self._check_number(value, path, errors)
        elif kind is list:
            self._check_list(value, path, errors, old)
        if self.enum:
            self._check_enum(value, path, errors)
        if kind is dict:
            self.check_object(value, path, errors, old)

    def _check_enum(self, value: Any, path: str, errors: list[FieldError]) -> None:
        if not self.enum or (value is not None and any(_matches_enum(value, each) for each in self.enum)):
            return
        choices = [each if isinstance(each, str) else json.dumps(each, separators=(",", ":")) for each in self.enum]
        listed = ", ".join(quoted(choice) for choice in sorted(choices))
        errors.append(FieldError(Cause.NOT_SUPPORTED, path, f"supported values: {listed}", value))

    def _check_string(self, value: str, path: str, errors: list[FieldError]) -> None:
        if self.max_length is not None and len(value) > self.max_length:
            errors.append(too_long(path, self.max_length))
        elif self.min_length is not None and len(value) < self.min_length:
            text = f"{path} in body should be at least {self.min_length} chars long"
            errors.append(invalid(path, value, text))
        elif self.matches is not None and not self.matches(value):
            errors.append(invalid(path, value, f"{path} in body should match '{self.pattern}'"))
        if self.format_test is not None and not self.format_test(value):
            text = f"{path} in body must be of type {self.format}: {quoted(value)}"
            errors.append(type_invalid(path, value, text))

    def _check_number(self, value: Number, path: str, errors: list[FieldError]) -> None:
        if self.format and not _in_range(value, self.format):
            kind = self.types[0] if self.types else ""
            text = f"Checked value must be of type {kind} with format {self.format} in {path}"
            errors.append(invalid("", "", text))
        if self.multiple_of is not None:
            self._check_multiple(value, self.multiple_of, path, errors)
        if self.minimum is not None:
            limit = int(self.minimum) if type(value) is int else self.minimum
            if value < limit or (self.exclusive_minimum and value == limit):
                words = "greater than" if self.exclusive_minimum else "greater than or equal to"
                errors.append(invalid(path, value, f"{path} in body should be {words} {go_number(limit)}"))
        if self.maximum is not None:
            limit = int(self.maximum) if type(value) is int else self.maximum
            if value > limit or (self.exclusive_maximum and value == limit):
                words = "less than" if self.exclusive_maximum else "less than or equal to"
                errors.append(invalid(path, value, f"{path} in body should be {words} {go_number(limit)}"))

    def _check_multiple(self, value: Number, of: Number, path: str, errors: list[FieldError]) -> None:
        factor = int(of) if type(value) is int else of
        if factor <= 0:
            text = f"factor MultipleOf declared for {path} must be positive: {go_number(factor)}"
            errors.append(invalid(path, factor, text))
            return
        if value % factor if type(value) is int else not _is_multiple(value, factor):
            errors.append(invalid(path, value, f"{path} in body should be a multiple of {go_number(factor)}"))

    def _check_list(self, value: list[Any], path: str, errors: list[FieldError], old: Any) -> None:
        if self.items is not None:
            items = self.items
            before = Correlated(self.list_keys, old) if self.list_keys and type(old) is list else None
            for index, item in enumerate(value):
                was = before.find(item) if before is not None else MISSING
                count = len(errors)
                items(item, f"{path}[{index}]", errors, was)
                if len(errors) > count and was is not MISSING and same(item, was):
                    del errors[count:]
        if self.min_items is not None and len(value) < self.min_items:
            errors.append(invalid(path, len(value), f"{path} in body should have at least {self.min_items} items"))
        if self.max_items is not None and len(value) > self.max_items:
            errors.append(too_many(path, len(value), self.max_items))

    def check_object(self, value: dict[str, Any], path: str, errors: list[FieldError], old: Any) -> None:
        if self.min_properties is not None and len(value) < self.min_properties:
            text = f"{path} in body should have at least {self.min_properties} properties"
            errors.append(invalid(path, len(value), text))
        if self.max_properties is not None and len(value) > self.max_properties:
            errors.append(too_many(path, len(value), self.max_properties))
        before: dict[str, Any] = old if type(old) is dict else {}
        prefix = f"{path}." if path else ""
        properties, additional = self.properties, self.additional
        for name, item in value.items():
            check = properties.get(name) or additional
            if check is None:
                if self.closed and name not in properties:
                    errors.append(invalid(path, name, f"{path}.{name} in body is a forbidden property"))
                continue
            was = before.get(name, MISSING)
            count = len(errors)
            check(item, prefix + name, errors, was)
            if len(errors) > count and was is not MISSING and same(item, was):
                if path or name not in ("apiVersion", "kind"):
                    del errors[count:]
        for name in self.required:
            if name not in value:
                errors.append(required(prefix + name))

    def _check_composites(self, value: Any, path: str, errors: list[FieldError], old: Any) -> None:
        if self.any_of:
            failures: list[FieldError] | None = None
            for check in self.any_of:
                found: list[FieldError] = []
                check(value, path, found, old)
                if not found:
                    break
                failures = failures or found
            else:
                errors.append(_placeless(f"{quoted(path)} must validate at least one schema (anyOf)"))
                errors += failures or ()
        if self.one_of:
            self._check_one_of(value, path, errors, old)
        if self.all_of:
            self._check_all_of(value, path, errors, old)
        if self.never is not None:
            found = []
            self.never(value, path, found, old)
            if not found:
                errors.append(_placeless(f"{quoted(path)} must not validate the schema (not)"))

    def _check_one_of(self, value: Any, path: str, errors: list[FieldError], old: Any) -> None:
        valid, failures = 0, None
        for check in self.one_of:
            found: list[FieldError] = []
            check(value, path, found, old)
            if not found:
                valid += 1
            elif failures is None:
                failures = found
        if valid == 1:
            return
        more = f"Found {valid} valid alternatives" if valid else "Found none valid"
        errors.append(_placeless(f"{quoted(path)} must validate one and only one schema (oneOf). {more}"))
        if not valid:
            errors += failures or ()

    def _check_all_of(self, value: Any, path: str, errors: list[FieldError], old: Any) -> None:
        valid = 0
        for check in self.all_of:
            count = len(errors)
            check(value, path, errors, old)
            valid += len(errors) == count
        if valid < len(self.all_of):
            more = "" if valid else ". None validated"
            errors.append(_placeless(f"{quoted(path)} must validate all the schemas (allOf){more}"))


def _placeless(text: str) -> FieldError:
    return invalid("", "", text)


def _is_multiple(value: float, factor: float) -> bool:
    """Whether a number is a multiple, within float precision."""
    times = 1 / factor * value if factor < 1 else value / factor
    return math.isfinite(times) and abs(times - round(times)) <= 1e-9 * max(1.0, abs(times))


def _matches_enum(value: Any, choice: Any) -> bool:
    if type(value) in (int, float) and type(choice) in (int, float):
        return bool(value == choice)
    return same(value, choice)


def _in_range(value: Number, shape: str) -> bool:
    if shape == "int32":
        return -(2**31) <= value < 2**31
    if shape == "int64":
        return -_MAX_INT64 - 1 <= value <= _MAX_INT64
    return shape != "float" or abs(value) <= 3.4028234663852886e38


class Correlated:
    """The items of an old list of type map, by their keys."""

    __slots__ = ("_items", "_keys")

    def __init__(self, keys: tuple[str, ...], old: list[Any]) -> None:
        self._keys = keys
        self._items: dict[tuple[Any, ...], Any] = {}
        for item in old:
            key = self._key(item)
            if key is not None:
                self._items.setdefault(key, item)

    def _key(self, item: Any) -> tuple[Any, ...] | None:
        if type(item) is not dict:
            return None
        found: list[Any] = []
        for name in self._keys:
            value = item.get(name)
            if type(value) not in (str, int, bool, float):
                return None
            found += (type(value), value)
        return tuple(found)

    def find(self, item: Any) -> Any:
        """The old item with the keys of ``item``, or ``MISSING``."""
        key = self._key(item)
        return MISSING if key is None else self._items.get(key, MISSING)
