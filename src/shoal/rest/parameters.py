"""Query parameters from text, by the fields of a struct; pure.

A parameter may be a text, a whole number, a number, true or false, or one of some words. Bounds and patterns come from
``msgspec.Meta``; its ``extra={"expected": …}`` says in words what a pattern means. Every fault of a query is found at
once. A parameter that the operation does not know is a fault: ``?dryrun=true`` must not change anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import inspect

from shoal.errors import FieldError, forbidden, invalid, not_supported, required, type_invalid
from shoal.rest.answers import bad_fields

T = TypeVar("T", bound=msgspec.Struct)

MAX_TEXT = 4096  # characters of a parameter that declares no bound of its own
_is_whole = re.compile(r"-?[0-9]{1,18}").fullmatch
_is_number = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?").fullmatch

Converted = Any | FieldError
Convert = Callable[[str, str], Converted]  # name and text


@dataclass(frozen=True, slots=True)
class _Field:
    attribute: str
    needed: bool
    convert: Convert


class ParameterReader(Generic[T]):
    """Compiled once per type. A type with a field that no query can carry is refused when it is declared."""

    def __init__(self, type_: type[T]) -> None:
        found = inspect.type_info(type_)
        if not isinstance(found, inspect.StructType):
            raise TypeError(f"{type_} is not a struct of parameters")
        self._type = type_
        self._fields = {
            each.encode_name: _Field(each.name, each.required, _convert_of(each.type, f"{type_.__name__}.{each.name}"))
            for each in found.fields
        }
        self._needed = [name for name, each in self._fields.items() if each.needed]
        self._empty = None if self._needed else type_()

    def read(self, given: Sequence[tuple[str, str]]) -> T:
        """``Invalid`` names every parameter that is wrong. An empty value counts as not given."""
        if not given and self._empty is not None:
            return self._empty
        values: dict[str, Any] = {}
        seen: set[str] = set()
        errors: list[FieldError] = []
        for name, text in given:
            field = self._fields.get(name)
            if field is None:
                errors.append(forbidden(f"query.{name[:64]}", f"unknown parameter; {self._known()}"))
            elif name in seen:
                errors.append(forbidden(f"query.{name}", "may be given only once"))
            elif text.strip() if field.needed else text:
                value = field.convert(f"query.{name}", text)
                if isinstance(value, FieldError):
                    errors.append(value)
                values[field.attribute] = value
            seen.add(name)
        for name in self._needed:
            if self._fields[name].attribute not in values:
                errors.append(required(f"query.{name}", "must be given"))
        if errors:
            raise bad_fields(errors)
        return self._type(**values)

    def _known(self) -> str:
        return f"known parameters: {', '.join(sorted(self._fields))}" if self._fields else "there are none"


def _convert_of(info: inspect.Type, where: str) -> Convert:
    expected = ""
    while isinstance(info, inspect.Metadata):
        expected = (info.extra or {}).get("expected", expected)
        info = info.type
    if isinstance(info, inspect.UnionType):
        (info,) = [each for each in info.types if not isinstance(each, inspect.NoneType)]
        return _convert_of(info, where)
    if isinstance(info, inspect.StrType):
        return _text(info, expected)
    if isinstance(info, inspect.IntType):
        return _number(info, int, _is_whole, "must be a whole number")
    if isinstance(info, inspect.FloatType):
        return _number(info, float, _is_number, "must be a number")
    if isinstance(info, inspect.BoolType):
        return _flag
    if isinstance(info, inspect.LiteralType) and all(isinstance(value, str) for value in info.values):
        return _choice(tuple(str(value) for value in info.values))
    raise TypeError(f"{where}: a query cannot carry {info}")


def _text(info: inspect.StrType, expected: str) -> Convert:
    low, high = info.min_length or 0, info.max_length or MAX_TEXT
    matches = re.compile(info.pattern).search if info.pattern else None
    fault = expected or f"must match {info.pattern}"

    def convert(name: str, text: str) -> Converted:
        if not low <= len(text) <= high or "\0" in text:
            return invalid(name, text[:32], f"must be at most {high} characters, without NUL")
        if matches is not None and not matches(text):
            return invalid(name, text[:64], fault)
        return text

    return convert


def _number(info: Any, make: Callable[[str], Any], matches: Callable[[str], Any], wanted: str) -> Convert:
    def convert(name: str, text: str) -> Converted:
        if not matches(text):
            return type_invalid(name, text[:32], wanted)
        value = make(text)
        fault = bounds_fault(value, info)
        return invalid(name, value, fault) if fault else value

    return convert


def _flag(name: str, text: str) -> Converted:
    return text == "true" if text in ("true", "false") else not_supported(name, text[:32], ("true", "false"))


def _choice(words: tuple[str, ...]) -> Convert:
    def convert(name: str, text: str) -> Converted:
        return text if text in words else not_supported(name, text[:64], words)

    return convert


def bounds_fault(value: float, info: Any) -> str:
    """What is wrong with a number by the bounds of its type; empty when nothing is."""
    low, high = info.ge, info.le
    if (low is None or value >= low) and (high is None or value <= high):
        return ""
    if low is not None and high is not None:
        return f"must be between {low} and {high}, inclusive"
    return f"must be {low} or more" if low is not None else f"must be {high} or less"
