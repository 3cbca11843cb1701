"""Semantic versions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from shoal.kube.cel.errors import EvalError
from shoal.kube.cel.functions import Library

_PART = r"(0|[1-9][0-9]*)"
_PRE = r"(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_STRICT = re.compile(rf"{_PART}\.{_PART}\.{_PART}(?:-({_PRE}(?:\.{_PRE})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?")
_LOOSE = re.compile(r"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?([-+].*)?", re.DOTALL)

Rank = tuple[tuple[int, int, int], bool, tuple[tuple[int, int, str], ...]]


@dataclass(frozen=True, slots=True)
class Semver:
    cel_name: ClassVar[str] = "kubernetes.Semver"
    numbers: tuple[int, int, int]
    pre: tuple[str, ...]

    def rank(self) -> Rank:
        """The sort key of a version: a pre-release before its release, numbers before words."""
        parts = tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in self.pre)
        return self.numbers, not self.pre, parts


def _parse(text: str, loose: bool) -> Semver | None:
    if loose:
        found = _LOOSE.fullmatch(text)
        if found is None:
            return None
        text = ".".join(str(int(part or 0)) for part in found.groups()[:3]) + (found[4] or "")
    strict = _STRICT.fullmatch(text)
    if strict is None or any(int(part) >= 2**64 for part in strict.groups()[:3]):
        return None
    numbers = (int(strict[1]), int(strict[2]), int(strict[3]))
    return Semver(numbers, tuple(strict[4].split(".")) if strict[4] else ())


def semver(text: str, loose: bool = False) -> Semver:
    found = _parse(text, loose)
    if found is None:
        raise EvalError(f"semver parse error: No Major.Minor.Patch elements found in {text!r}")
    return found


def is_semver(text: str, loose: bool = False) -> bool:
    return _parse(text, loose) is not None


def _compare(left: Semver, right: Semver) -> int:
    return (left.rank() > right.rank()) - (left.rank() < right.rank())


def declare(library: Library) -> None:
    add = library.add
    add("string_to_semver", "semver(string): semver", semver)
    add("string_bool_to_semver", "semver(string, bool): semver", semver)
    add("is_semver_string", "isSemver(string): bool", is_semver)
    add("is_semver_string_bool", "isSemver(string, bool): bool", is_semver)
    add("semver_major", "semver.major(): int", lambda value: value.numbers[0])
    add("semver_minor", "semver.minor(): int", lambda value: value.numbers[1])
    add("semver_patch", "semver.patch(): int", lambda value: value.numbers[2])
    add("semver_is_less_than", "semver.isLessThan(semver): bool", lambda a, b: _compare(a, b) < 0)
    add("semver_is_greater_than", "semver.isGreaterThan(semver): bool", lambda a, b: _compare(a, b) > 0)
    add("semver_compare_to", "semver.compareTo(semver): int", _compare)
