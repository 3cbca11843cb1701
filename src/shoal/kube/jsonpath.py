"""The subset of JSONPath that Kubernetes uses: printer columns, selectable fields, scale paths.

``.spec.replicas``, ``.metadata.labels.app\\.io/x``, ``.a['b.c']``, ``.items[0]``, ``[-1]``, ``[*]`` and filters such as
``[?(@.type=="Ready")]``. ``compile`` returns a function from an object to the list of values at the path; absent fields
are not an error. An invalid path raises ``ValueError``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

Finder = Callable[[Any], list[Any]]
Step = Callable[[list[Any]], list[Any]]

MAX_LENGTH = 1024

_NAME = re.compile(r"(?:[^\\.\[\]{}()'\"?@,\s*]|\\.)+")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_INDEX = re.compile(r"-?[0-9]{1,9}", re.ASCII)
_FILTER = re.compile(
    r"\?\(\s*@((?:[^=!<>'\"\[\]\s]|\[(?:'[^']*'|\"[^\"]*\"|[0-9]+)\])*?)\s*(?:(==|!=|<=|>=|<|>)\s*(.+?)\s*)?\)\s*"
)
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?", re.ASCII)
_ESCAPE = re.compile(r"\\(.)")

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@lru_cache(maxsize=2048)
def compile(path: str) -> Finder:
    """A function that returns the values at the path."""
    if len(path) > MAX_LENGTH:
        raise ValueError("the path is too long")
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    text = text.removeprefix("$")
    names = _plain_names(text)
    if names is not None:
        return _finder_of_names(names)
    steps = _Parser(text).steps()
    return lambda obj: _walk(obj, steps)


def names(path: str) -> tuple[str, ...] | None:
    """The field names of a path that consists of names only, as scale and selectable fields require; else None."""
    try:
        return _plain_names(path)
    except ValueError:
        return None


def _plain_names(text: str) -> tuple[str, ...] | None:
    if not text.startswith("."):
        return None
    found: list[str] = []
    position = 0
    while position < len(text):
        if text[position] != ".":
            return None
        matched = _NAME.match(text, position + 1)
        if matched is None:
            return None
        found.append(_ESCAPE.sub(r"\1", matched[0]))
        position = matched.end()
    return tuple(found)


def _finder_of_names(path: tuple[str, ...]) -> Finder:
    def find(obj: Any) -> list[Any]:
        for name in path:
            if obj.__class__ is not dict or name not in obj:
                return []
            obj = obj[name]
        return [obj]

    return find


def _walk(obj: Any, steps: tuple[Step, ...]) -> list[Any]:
    found = [obj]
    for step in steps:
        found = step(found)
    return found


class _Parser:
    """Parses a path step by step."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def steps(self) -> tuple[Step, ...]:
        found: list[Step] = []
        while self._position < len(self._text):
            found.append(self._step())
        if not found:
            raise ValueError("the path is empty")
        return tuple(found)

    def _step(self) -> Step:
        character = self._text[self._position]
        if character == "[":
            return self._bracket()
        if character == ".":
            self._position += 1
            if self._text.startswith(".", self._position):
                raise ValueError("recursive descent is not supported")
            if self._text.startswith("[", self._position):
                return self._bracket()
            if self._text.startswith("*", self._position):
                self._position += 1
                return _every
        elif self._position > 0:
            raise ValueError(f"unexpected {character!r} in {self._text!r}")
        matched = _NAME.match(self._text, self._position)
        if matched is None:
            raise ValueError(f"a field name is missing in {self._text!r}")
        self._position = matched.end()
        return _named(_ESCAPE.sub(r"\1", matched[0]))

    def _bracket(self) -> Step:
        self._position += 1
        text = self._text
        if text.startswith("*", self._position):
            self._position += 1
            step: Step = _every
        elif (quoted := _QUOTED.match(text, self._position)) is not None:
            self._position = quoted.end()
            step = _named(_unquoted(quoted))
        elif (index := _INDEX.match(text, self._position)) is not None:
            self._position = index.end()
            step = _indexed(int(index[0]))
        elif (chosen := _FILTER.match(text, self._position)) is not None:
            self._position = chosen.end()
            step = _filtered(chosen[1], chosen[2], chosen[3])
        else:
            raise ValueError(f"unrecognized expression in brackets in {text!r}")
        if not text.startswith("]", self._position):
            raise ValueError(f"unterminated array in {text!r}")
        self._position += 1
        return step


def _unquoted(matched: re.Match[str]) -> str:
    return _ESCAPE.sub(r"\1", matched[1] if matched[1] is not None else matched[2])


def _every(found: list[Any]) -> list[Any]:
    out: list[Any] = []
    for each in found:
        if isinstance(each, list):
            out += each
        elif isinstance(each, dict):
            out += each.values()
    return out


def _named(name: str) -> Step:
    return lambda found: [each[name] for each in found if each.__class__ is dict and name in each]


def _indexed(index: int) -> Step:
    return lambda found: [
        each[index] for each in found if isinstance(each, list) and -len(each) <= index < len(each)
    ]  # fmt: skip


def _filtered(path: str, sign: str | None, literal: str | None) -> Step:
    steps = _Parser(path).steps() if path.strip() else ()
    if sign is None or literal is None:
        return lambda found: [item for each in found if isinstance(each, list) for item in each if _walk(item, steps)]
    compare, wanted = _COMPARE[sign], _literal(literal)

    def holds(item: Any) -> bool:
        values = _walk(item, steps)
        return len(values) == 1 and _comparable(values[0], wanted) and compare(values[0], wanted)

    return lambda found: [item for each in found if isinstance(each, list) for item in each if holds(item)]


def _comparable(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, bool) or isinstance(value, bool):
        return isinstance(wanted, bool) and isinstance(value, bool)
    if isinstance(wanted, int | float):
        return isinstance(value, int | float)
    return isinstance(value, str)


def _literal(text: str) -> str | int | float | bool:
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        return _unquoted(quoted)
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    raise ValueError(f"{text!r} is not a text, number or boolean")
