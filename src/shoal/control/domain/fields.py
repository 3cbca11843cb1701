"""Reads users' documents field by field: every error is recorded with its path, and unknown fields get a hint.

A ``Reader`` reads one JSON object. Each method reads one field, records its errors and returns a value
of the right type in any case, so that one pass finds every error. ``close`` records the unknown fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shoal.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
    type_invalid,
    unknown_field,
)
from shoal.kube import quantity
from shoal.kube.names import Faults
from shoal.kube.times import parse_duration

Check = Callable[[str], Faults]

MAX_TEXT = 32 * 1024
MAX_ITEMS = 1000
LONGEST_S = 30 * 86_400.0

_DAYS = re.compile(r"(\d{1,4})d(.*)", re.ASCII)
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,4})?)%", re.ASCII)


def no_check(_: str) -> Faults:
    return ()


def seconds_of(text: str) -> float | None:
    """The seconds of a duration such as ``500ms``, ``30s``, ``1h30m`` or ``7d``; None of anything else."""
    days = _DAYS.fullmatch(text)
    whole_s, rest = (int(days[1]) * 86_400, days[2] or "0") if days else (0, text)
    try:
        return whole_s + parse_duration(rest) / 1e9
    except ValueError:
        return None


class Reader:
    """One JSON object, or nothing where there should be one."""

    def __init__(self, value: Any, path: str, errors: list[FieldError]) -> None:
        self.path = path
        self.errors = errors
        self._known: list[str] = []
        self._data: Mapping[str, Any] = {}
        if isinstance(value, Mapping):
            self._data = value
        elif value is not None:
            errors.append(type_invalid(path, value, "must be an object"))

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        return self._data.get(name) is not None

    def names(self) -> tuple[str, ...]:
        """The fields that are there, those without a value too."""
        return tuple(map(str, self._data))

    def raw(self, name: str) -> Any:
        self._known.append(name)
        return self._data.get(name)

    def note(self, error: FieldError) -> None:
        self.errors.append(error)

    def close(self) -> None:
        """Record an error for every field that was not read."""
        for name in self._data:
            if name not in self._known:
                self.note(unknown_field(self.at(str(name)), str(name), self._known))

    def text(self, name: str, default: str = "", *, need: bool = False, check: Check = no_check) -> str:
        value = self.raw(name)
        if value is None or value == "":
            if need:
                self.note(required(self.at(name)))
            return default
        return self._text(value, self.at(name), check)

    def _text(self, value: Any, path: str, check: Check) -> str:
        if not isinstance(value, str):
            self.note(type_invalid(path, value, "must be a string; put it in quotes"))
            return ""
        if len(value.encode(errors="replace")) > MAX_TEXT:
            self.note(invalid(path, value[:32] + "…", f"may not be more than {MAX_TEXT} bytes"))
            return ""
        for fault in check(value):
            self.note(invalid(path, value, fault))
        return value

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            self.note(type_invalid(self.at(name), value, "must be a whole number"))
            return default
        if not low <= value <= high:
            self.note(invalid(self.at(name), value, f"must be between {low} and {high}, inclusive"))
            return default
        return value

    def number(self, name: str, default: float, low: float, high: float) -> float:
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.note(type_invalid(self.at(name), value, "must be a number"))
            return default
        if not low <= value <= high:
            self.note(invalid(self.at(name), value, f"must be between {low:g} and {high:g}, inclusive"))
            return default
        return float(value)

    def seconds(self, name: str, default: float, low: float = 0.0, high: float = LONGEST_S) -> float:
        """The seconds of a duration."""
        value = self.raw(name)
        return default if value is None else self.seconds_in(value, self.at(name), default, low, high)

    def seconds_in(self, value: Any, path: str, default: float, low: float = 0.0, high: float = LONGEST_S) -> float:
        found = seconds_of(value) if isinstance(value, str) else None
        if found is None:
            self.note(type_invalid(path, value, "must be a duration with a unit, such as 30s, 2m or 1h30m"))
            return default
        if not low <= found <= high:
            self.note(invalid(path, value, f"must be between {_shown_s(low)} and {_shown_s(high)}, inclusive"))
            return default
        return found

    def share(self, name: str) -> float | None:
        """A percentage as a share of 1; None where there is none."""
        value = self.raw(name)
        found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
        if found is None or float(found[1]) > 100:
            self.note(type_invalid(self.at(name), value, "must be a percentage, such as 1% or 0.5%"))
            return None
        return float(found[1]) / 100

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.note(type_invalid(self.at(name), value, "must be true or false"))
            return default
        return value

    def choice(self, name: str, choices: Iterable[str], default: str = "", *, need: bool = False) -> str:
        value = self.text(name, need=need)
        if not value:
            return default
        if value not in choices:
            self.note(not_supported(self.at(name), value, choices))
            return default
        return value

    def quantity(self, name: str) -> quantity.Quantity | None:
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.note(type_invalid(self.at(name), value, "must be a quantity, such as 500m or 128Mi"))
            return None
        try:
            parsed = quantity.parse(str(value))
        except ValueError as error:
            self.note(invalid(self.at(name), value, str(error)))
            return None
        if parsed.mantissa < 0:
            self.note(invalid(self.at(name), value, "must be greater than or equal to 0"))
            return None
        return parsed

    def texts(
        self, name: str, *, check: Check = no_check, most: int = MAX_ITEMS, unique: bool = False
    ) -> tuple[str, ...]:
        items = self._items(name, most)
        found = tuple(self._text(item, f"{self.at(name)}[{index}]", check) for index, item in enumerate(items))
        if unique:
            for index, item in enumerate(found):
                if item in found[:index]:
                    self.note(duplicate(f"{self.at(name)}[{index}]", item))
        return found

    def mapping(self, name: str, *, keys: Check = no_check, values: Check = no_check) -> dict[str, str]:
        value = self.raw(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.note(type_invalid(self.at(name), value, "must be an object of names and strings"))
            return {}
        if len(value) > MAX_ITEMS:
            self.note(too_many(self.at(name), len(value), MAX_ITEMS))
            return {}
        found: dict[str, str] = {}
        for key, text in value.items():
            for fault in keys(str(key)):
                self.note(invalid(self.at(name), key, fault))
            found[str(key)] = self._text(text, f"{self.at(name)}[{key}]", values)
        return found

    def part(self, name: str) -> Reader | None:
        """The object in a field; None when it is not there."""
        value = self.raw(name)
        return None if value is None else Reader(value, self.at(name), self.errors)

    def parts(self, name: str, most: int = MAX_ITEMS) -> list[Reader]:
        """The objects of a list."""
        items = self._items(name, most)
        return [
            Reader(item if item is not None else "", f"{self.at(name)}[{i}]", self.errors)
            for i, item in enumerate(items)
        ]

    def mixed(self, name: str, most: int = MAX_ITEMS) -> list[Reader | Any]:
        """The items of a list in which an object is one way to write an item."""
        return [
            Reader(item, f"{self.at(name)}[{i}]", self.errors) if isinstance(item, Mapping) else item
            for i, item in enumerate(self._items(name, most))
        ]

    def _items(self, name: str, most: int) -> list[Any]:
        value = self.raw(name)
        if value is None:
            return []
        if not isinstance(value, list):
            self.note(type_invalid(self.at(name), value, "must be a list"))
            return []
        if len(value) > most:
            self.note(too_many(self.at(name), len(value), most))
            return value[:most]
        return value

    def one_of(self, names: tuple[str, ...], *, need: bool = True) -> str:
        """Which of these fields is there; exactly one may be."""
        given = [name for name in names if self._data.get(name) is not None]
        if not given and need:
            self.note(required(self.path, f"one of {', '.join(names)}"))
        for extra in given[1:]:
            self.note(forbidden(self.at(extra), f"may not be used together with {given[0]}"))
        return given[0] if given else ""


def _shown_s(seconds: float) -> str:
    for unit_s, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= unit_s and not seconds % unit_s:
            return f"{seconds / unit_s:g}{unit}"
    return f"{seconds:g}s"
