"""The body of a request as a value of its declared type; pure.

Every fault is found at once, with the path of its field. A field that may be left out may also be null or an empty
text: both count as left out. A field that must be there may be neither. Fields that the type does not know are refused
where it forbids them, with what was probably meant.
"""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar, get_origin

import msgspec
from msgspec import inspect

from shoal.errors import FieldError, invalid, not_supported, required, too_many, type_invalid, unknown_field
from shoal.rest.answers import bad_fields
from shoal.rest.parameters import bounds_fault

T = TypeVar("T")

MAX_TEXT_BYTES = 32 * 1024


class BodyReader(Generic[T]):
    """Compiled once per type. ``optional``: every field may be left out, and so may the body."""

    def __init__(self, type_: type[T]) -> None:
        self._type = type_
        self._info = inspect.type_info(type_)
        check_type(self._info, str(type_))
        self.optional = isinstance(self._info, inspect.StructType) and not any(
            each.required for each in self._info.fields
        )

    def read(self, value: Any) -> T:
        """``Invalid`` names every field that is wrong."""
        errors: list[FieldError] = []
        cleaned = _cleaned(value, self._info, "", errors)
        if errors:
            raise bad_fields(errors)
        return msgspec.convert(cleaned, self._type)


def is_plain(type_: Any) -> bool:
    """Whether a body of this type is handed over as it is: an object or documents that others read."""
    return (get_origin(type_) or type_) in (dict, list)


def check_type(info: inspect.Type, where: str) -> None:
    """``TypeError`` for a type that this module has no words for."""
    if isinstance(info, inspect.Metadata):
        check_type(info.type, where)
    elif isinstance(info, inspect.StructType):
        for field in info.fields:
            check_type(field.type, f"{where}.{field.encode_name}")
    elif isinstance(info, inspect.UnionType):
        if len(_members(info)) != 1:
            raise TypeError(f"{where}: a union of several types has no one description of what is wrong")
        check_type(_members(info)[0], where)
    elif isinstance(info, inspect.ListType | inspect.VarTupleType):
        check_type(info.item_type, where)
    elif isinstance(info, inspect.DictType):
        check_type(info.value_type, where)
    elif not isinstance(info, _SIMPLE):
        raise TypeError(f"{where}: {info} is not supported in a body")


_SIMPLE = (
    inspect.StrType, inspect.IntType, inspect.FloatType, inspect.BoolType, inspect.LiteralType, inspect.AnyType,
)  # fmt: skip


def _members(info: inspect.UnionType) -> list[inspect.Type]:
    return [each for each in info.types if not isinstance(each, inspect.NoneType)]


def _cleaned(value: Any, info: inspect.Type, path: str, errors: list[FieldError], expected: str = "") -> Any:
    """The value without what counts as left out; ``errors`` gets what is wrong with it."""
    if isinstance(info, inspect.Metadata):
        return _cleaned(value, info.type, path, errors, (info.extra or {}).get("expected", expected))
    if isinstance(info, inspect.UnionType):
        return None if value is None else _cleaned(value, _members(info)[0], path, errors, expected)
    if isinstance(info, inspect.StructType):
        return _struct(value, info, path, errors)
    if isinstance(info, inspect.ListType | inspect.VarTupleType):
        return _list(value, info, path, errors)
    if isinstance(info, inspect.DictType):
        return _dict(value, info, path, errors)
    fault = _fault(value, info, path, expected)
    if fault is not None:
        errors.append(fault)
    return value


def _struct(value: Any, info: inspect.StructType, path: str, errors: list[FieldError]) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        errors.append(type_invalid(path or "body", _shown(value), "must be an object"))
        return None
    known = {field.encode_name: field for field in info.fields}
    found: dict[str, Any] = {}
    for name, each in value.items():
        field = known.get(name)
        at = f"{path}.{name}" if path else str(name)
        if field is None:
            if info.forbid_unknown_fields:
                errors.append(unknown_field(at, str(name), known))
        elif each is not None and each != "":
            found[name] = _cleaned(each, field.type, at, errors)
    for name, field in known.items():
        if field.required and name not in found:
            errors.append(required(f"{path}.{name}" if path else name))
    return found


def _list(value: Any, info: Any, path: str, errors: list[FieldError]) -> list[Any] | None:
    if not isinstance(value, list):
        errors.append(type_invalid(path, _shown(value), "must be a list"))
        return None
    if info.max_length is not None and len(value) > info.max_length:
        errors.append(too_many(path, len(value), info.max_length))
        return None
    return [_cleaned(each, info.item_type, f"{path}[{index}]", errors) for index, each in enumerate(value)]


def _dict(value: Any, info: inspect.DictType, path: str, errors: list[FieldError]) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        errors.append(type_invalid(path, _shown(value), "must be an object"))
        return None
    return {str(key): _cleaned(each, info.value_type, f"{path}[{key}]", errors) for key, each in value.items()}


def _fault(value: Any, info: inspect.Type, path: str, expected: str) -> FieldError | None:
    if isinstance(info, inspect.StrType):
        return _text_fault(value, info, path, expected)
    if isinstance(info, inspect.BoolType):
        return None if isinstance(value, bool) else type_invalid(path, _shown(value), "must be true or false")
    if isinstance(info, inspect.LiteralType):
        return None if value in info.values else not_supported(path, _shown(value), map(str, info.values))
    if isinstance(info, inspect.IntType):
        if not isinstance(value, int) or isinstance(value, bool):
            return type_invalid(path, _shown(value), "must be a whole number")
    elif isinstance(info, inspect.FloatType):
        if not isinstance(value, int | float) or isinstance(value, bool):
            return type_invalid(path, _shown(value), "must be a number")
    else:
        return None
    fault = bounds_fault(value, info)
    return invalid(path, value, fault) if fault else None


def _text_fault(value: Any, info: inspect.StrType, path: str, expected: str) -> FieldError | None:
    if not isinstance(value, str):
        return type_invalid(path, _shown(value), "must be a string; put it in quotes")
    if len(value.encode(errors="replace")) > MAX_TEXT_BYTES:
        return invalid(path, value[:32] + "…", f"may not be more than {MAX_TEXT_BYTES} bytes")
    if info.max_length is not None and len(value) > info.max_length:
        return invalid(path, value[:64], f"must be no more than {info.max_length} characters")
    if info.min_length is not None and len(value) < info.min_length:
        return invalid(path, value, f"must be at least {info.min_length} characters")
    if info.pattern is not None and not re.search(info.pattern, value):
        return invalid(path, value[:64], expected or f"must match {info.pattern}")
    return None


def _shown(value: Any) -> Any:
    """A wrong value as an error may show it."""
    if isinstance(value, str):
        return value[:64]
    return "{…}" if isinstance(value, dict) else "[…]" if isinstance(value, list) else value
