"""Rows by key, the differences between two states of them, and how differences add up. Pure.

A row has no null fields: in a difference null says that the field is gone. A difference is applied in this order:
keys that are dropped go with all their fields, then fields are set; a key that is not there begins as an empty row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
Rows = Mapping[str, Row]


@dataclass(frozen=True, slots=True)
class Patch:
    """``changed`` has fields by key, a new row's all of them. A key that is in both has another row now."""

    changed: Mapping[str, Row]
    dropped: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.changed or self.dropped)


NOTHING = Patch({})


def row(**fields: Any) -> Row:
    """A row without fields that are not known."""
    return {name: value for name, value in fields.items() if value is not None}


def difference(before: Rows, after: Rows) -> Patch:
    changed: dict[str, Row] = {}
    for key, new in after.items():
        old = before.get(key)
        if old is None:
            changed[key] = new
        elif old is not new and old != new:
            changed[key] = _fields(old, new)
    return Patch(changed, frozenset(before.keys() - after.keys()))


def together(first: Patch, second: Patch) -> Patch:
    """One difference that does what these two do, one after the other."""
    changed = {key: fields for key, fields in first.changed.items() if key not in second.dropped}
    for key, fields in second.changed.items():
        changed[key] = {**changed[key], **fields} if key in changed else fields
    return Patch(changed, first.dropped | second.dropped)


def _fields(old: Row, new: Row) -> Row:
    found = {name: value for name, value in new.items() if name not in old or old[name] != value}
    found.update((name, None) for name in old if name not in new)
    return found
