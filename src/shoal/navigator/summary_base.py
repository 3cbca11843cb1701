"""What all summaries have, and texts and labels that many of them share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from sys import intern
from typing import Any

import msgspec

SHARED_MOST = 65536  # beyond it sharing begins anew: what is in use stays in use, what is not can go
EMPTY: Mapping[str, str] = {}

_labels: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}


class Summary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Fields of every kind."""

    labels: Mapping[str, str] = {}
    created_at: str = ""


def texts(values: Any) -> tuple[str, ...]:
    if isinstance(values, str):
        raise TypeError("a string instead of a list")
    return tuple(intern(each) for each in values or ())


def shared_labels(labels: Mapping[str, str] | None) -> Mapping[str, str]:
    if not labels:
        return EMPTY
    key = tuple(labels.items())
    found = _labels.get(key)
    if found is None:
        if len(_labels) >= SHARED_MOST:
            _labels.clear()
        found = _labels[key] = {intern(name): intern(value) for name, value in key}
    return found


def once(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(intern(each) for each in dict.fromkeys(values))
