"""The order of a list after a strategic merge.

Items of the patch are in the order of the patch, the others in their former order. Between the two, an item of the
server stays before the items that followed it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from shoal.errors import BadRequest, Invalid

_NONE = object()


def identity(item: Any, merge_key: str) -> Hashable:
    """The identity of an item: its merge key, or the item itself if it is a scalar."""
    value = item
    if merge_key:
        if item.__class__ is not dict:
            raise BadRequest(f"expected an object with the merge key {merge_key}, but received {item!r}")
        value = item.get(merge_key, _NONE)
        if value is _NONE:
            raise BadRequest(f"map: {item} does not contain declared merge key: {merge_key}")
    if value.__class__ is dict or value.__class__ is list:
        raise BadRequest(f"{value!r} cannot identify an item of a list")
    return value.__class__, value


def kind_of(*lists: list[Any]) -> type:
    """The class that all items of the lists have."""
    kinds: set[type] = {item.__class__ for items in lists for item in items}
    if list in kinds:
        raise Invalid("the server rejected our request due to an error in our request")
    if len(kinds) != 1:
        raise BadRequest(f"list element types are not identical: {list(lists)}")
    return kinds.pop()


def arrange(merged: list[Any], wanted: list[Any], live: list[Any], merge_key: str) -> list[Any]:
    """``merged`` in the order of ``wanted``, and of ``live`` for items that ``wanted`` does not have."""
    wanted_at = _positions(wanted, merge_key)
    live_at = _positions(live, merge_key)
    named = [(identity(item, merge_key), item) for item in merged]
    asked = [pair for pair in named if pair[0] in wanted_at]
    if not asked:
        return merged
    asked.sort(key=lambda pair: wanted_at[pair[0]])
    others = [pair for pair in named if pair[0] not in wanted_at]
    others.sort(key=lambda pair: live_at.get(pair[0], len(live)))
    result = []
    position = 0
    for name, item in others:
        here = live_at.get(name)
        while position < len(asked):
            there = live_at.get(asked[position][0])
            if here is not None and there is not None and here < there:
                break
            result.append(asked[position][1])
            position += 1
        result.append(item)
    result += [item for _, item in asked[position:]]
    return result


def _positions(items: list[Any], merge_key: str) -> dict[Hashable, int]:
    positions: dict[Hashable, int] = {}
    for position, item in enumerate(items):
        positions.setdefault(identity(item, merge_key), position)
    return positions
