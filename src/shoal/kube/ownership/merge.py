"""The two operations of server-side apply on objects, by type.

``merge`` merges an applied configuration into an object; items of associative lists are matched by their keys.
``remove`` removes the fields of a set from an object.
"""

from __future__ import annotations

from typing import Any

from shoal.kube.ownership.elements import Identify, field_type, identifier, is_leaf
from shoal.kube.ownership.fieldset import SELF, FieldSet
from shoal.kube.schema.model import ANY, Form, Type

GONE = object()


def merge(target: dict[str, Any], config: dict[str, Any], type_: Type) -> None:
    """Merge ``config`` into ``target``, in place; parts of ``config`` become parts of ``target``."""
    typed = type_.form is Form.STRUCT
    fields = type_.fields
    for key, value in config.items():
        current = target.get(key, GONE)
        if current == value:
            continue
        if current is GONE:
            target[key] = value
            continue
        field = fields.get(key) if typed else None
        inner = field.type if field is not None else field_type(type_, key)
        if value.__class__ is str or is_leaf(inner):
            target[key] = value
        else:
            target[key] = _merged(current, value, inner)


def _merged(current: Any, value: Any, type_: Type) -> Any:
    if current.__class__ is dict:
        if value.__class__ is dict and type_.form is not Form.LIST:
            merge(current, value, type_)
            return current
        return current if value is None and current else value
    if current.__class__ is list and type_.form is Form.LIST:
        if value.__class__ is list:
            return _merged_list(current, value, type_) if current and value else current or value
        return current if value is None and current else value
    return value


def _merged_list(current: list[Any], value: list[Any], type_: Type) -> list[Any]:
    """The merged list, in the order of ``value``; items that only ``current`` has keep their position if possible."""
    identify = identifier(type_)
    left = [identify(item) for item in current]
    right = [identify(item) for item in value]
    if left == right:
        return [_merged_item(old, new, type_.element) for old, new in zip(current, value, strict=True)]
    return _interleaved(_Side(left, current), _Side(right, value), type_.element)


def _merged_item(current: Any, value: Any, element: Type) -> Any:
    return value if is_leaf(element) else _merged(current, value, element)


class _Side:
    """One of the two lists, with its items by name; duplicate items are not merged."""

    def __init__(self, names: list[str], items: list[Any]) -> None:
        self.names = names
        self.items = items
        self.by_name: dict[str, Any] = {}
        for name, item in zip(names, items, strict=True):
            self.by_name[name] = GONE if name in self.by_name else item


def _interleaved(left: _Side, right: _Side, element: Type) -> list[Any]:
    shared = [name for name in right.names if name in left.by_name]
    shared.reverse()
    woven: list[Any] = []
    taken: set[str] = set()
    here = there = 0

    def take_right() -> None:
        name = right.names[there]
        item, current = right.items[there], left.by_name.get(name, GONE)
        woven.append(item if current is GONE else _merged_item(current, item, element))
        taken.add(name)
        if shared and shared[-1] == name:
            shared.pop()

    while here < len(left.names) or there < len(right.names):
        name = left.names[here] if here < len(left.names) else None
        if name is not None and there < len(right.names):
            if name == right.names[there]:
                take_right()
                here += 1
                there += 1
                continue
            if name in right.by_name and shared and shared[-1] != name:
                here += 1  # it is added at its position in the configuration
                continue
        if name is not None:
            if name not in right.by_name:
                woven.append(left.items[here])
                here += 1
                continue
            if name in taken:
                here += 1
        if there < len(right.names):
            take_right()
            there += 1
    return woven


def remove(value: Any, type_: Type, fields: FieldSet) -> Any:
    """``value`` without the members of ``fields``; ``GONE`` if nothing is left. Unchanged parts are shared."""
    if value.__class__ is dict and type_.form is not Form.LIST and not (type_.form is not Form.ANY and is_leaf(type_)):
        return _without_keys(value, type_, fields)
    if value.__class__ is list and type_.form is Form.LIST and not is_leaf(type_):
        return _without_items(value, type_, identifier(type_), fields)
    return GONE


def _without_keys(value: dict[str, Any], type_: Type, fields: FieldSet) -> Any:
    kept = {}
    for key, item in value.items():
        node = fields.get("f:" + key)
        if node is not None:
            if not node or SELF in node:
                continue
            item = remove(item, field_type(type_, key), node)
            if item is GONE:
                continue
        kept[key] = item
    return kept or GONE


def _without_items(value: list[Any], type_: Type, identify: Identify, fields: FieldSet) -> Any:
    kept = []
    for item in value:
        node = fields.get(identify(item))
        if node is not None:
            if not node or SELF in node:
                continue
            item = remove(item, type_.element, node)
            if item is GONE:
                item = {}
        kept.append(item)
    return kept or GONE


def with_named_fields(fields: FieldSet, type_: Type = ANY) -> FieldSet:
    """The set, plus every struct field that has members below it."""
    named: FieldSet = {}
    for element, node in fields.items():
        if not node or element == SELF:
            named[element] = node
            continue
        name = element[2:]
        if element[0] == "f":
            inner = field_type(type_, name)
        elif element[0] == "k" and type_.form is Form.LIST:
            inner = type_.element
        else:
            inner = ANY
        below = with_named_fields(node, inner)
        if element[0] == "f" and type_.form is Form.STRUCT and name in type_.fields:
            below[SELF] = {}
        named[element] = below
    return named
