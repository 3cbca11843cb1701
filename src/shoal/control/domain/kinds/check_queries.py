"""Queries of rollouts' checks, and the conditions that their results must meet. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from shoal.control.domain.kinds.checks import is_plain
from shoal.kube.names import Faults

PLACEHOLDERS = ("app", "project", "environment", "namespace", "revision", "stableRevision")
COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip

_placeholder = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_condition = re.compile(r"(<=|>=|==|!=|<|>)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)", re.ASCII).fullmatch


def is_query(value: str) -> Faults:
    """A query in which ``{{revision}}`` and others of ``PLACEHOLDERS`` stand for what is rolled out."""
    unknown = [name for name in _placeholder.findall(value) if name not in PLACEHOLDERS]
    if unknown:
        return (f"has the placeholder {unknown[0]!r}: use {', '.join(PLACEHOLDERS)}",)
    return is_plain(value)


def fill_query(text: str, values: Mapping[str, Any]) -> str:
    return _placeholder.sub(lambda found: str(values[found[1]]), text)


def is_condition(value: str) -> Faults:
    if _condition(value.strip()):
        return ()
    return (f"must be one of {', '.join(COMPARISONS)} and a number, such as < 0.01",)


def parse_condition(text: str) -> tuple[str, float]:
    """The comparison and the number of a condition that was checked."""
    found = _condition(text.strip())
    if found is None:
        raise ValueError(f"condition {text!r} is not valid")
    return found[1], float(found[2])
